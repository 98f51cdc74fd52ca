// The values of the language at compile time. A Value is sixteen bytes: small kinds (int, float, bool,
// quantity, dim, tensor) are stored inline, the rest are reference-counted objects that are immutable once
// shared: an operation that changes one copies it first unless it holds the only reference. Elaboration is
// single-threaded, so are the counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/ast.h"
#include "ir/program/program.h"
#include "ir/support/nearest.h"
#include "ir/support/result.h"

namespace piper::frontend {

enum class ValueKind : uint8_t {
  kNone,    // no value: the result of a statement
  kPoison,  // stands for a value whose evaluation has already been reported
  kInt,
  kFloat,
  kBool,
  kQuantity,  // a number with a unit, in base units
  kTensor,    // a value of the graph that is being built
  // objects
  kString,
  kRange,
  kDim,
  kList,
  kTuple,
  kFunction,
  kNative,
  kSelector,
  kSchedule,
  kModule,     // a module declaration
  kInstance,   // a module with its arguments
  kParameter,  // a parameter of an instance
  kTopologyDecl,
  kTopology,
  kStrategyDecl,
  kStrategy,  // a strategy with its arguments
  kAxis,      // an axis or a product of axes
  kGroup,
  kQueue,
  kNamespace,  // an imported file
  kTagSum,     // `embed + 2 * layer` in a cut
  kInitializer,
  kLearningRate,
  kOptimizer,
  kData,
  kPlan,  // a planned program, in a test
};

// As messages say it: "an int", "a selector".
std::string_view ValueKindName(ValueKind kind);

struct Object {
  uint32_t references = 0;
  Object() = default;
  Object(const Object&) : references(0) {}
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

class Value {
 public:
  Value() : kind_(ValueKind::kNone) { payload_.integer = 0; }
  static Value Int(int64_t i) {
    Value v(ValueKind::kInt);
    v.payload_.integer = i;
    return v;
  }
  static Value Float(double f) {
    Value v(ValueKind::kFloat);
    v.payload_.real = f;
    return v;
  }
  static Value Bool(bool b) {
    Value v(ValueKind::kBool);
    v.payload_.integer = b;
    return v;
  }
  static Value Quantity(double base, ir::UnitKind unit) {
    Value v(ValueKind::kQuantity);
    v.unit_ = unit;
    v.payload_.real = base;
    return v;
  }
  static Value Tensor(ir::ValueId id) {
    Value v(ValueKind::kTensor);
    v.payload_.integer = id;
    return v;
  }
  static Value Poison() { return Value(ValueKind::kPoison); }
  // Takes a reference to an object of that kind.
  static Value Of(ValueKind kind, Object* object) {
    Value v(kind);
    v.payload_.object = object;
    ++object->references;
    return v;
  }

  Value(const Value& other) : kind_(other.kind_), unit_(other.unit_), payload_(other.payload_) {
    if (is_object()) ++payload_.object->references;
  }
  Value(Value&& other) noexcept : kind_(other.kind_), unit_(other.unit_), payload_(other.payload_) {
    other.kind_ = ValueKind::kNone;
  }
  Value& operator=(const Value& other) {
    Value copy(other);
    Swap(copy);
    return *this;
  }
  Value& operator=(Value&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~Value() {
    if (is_object()) Release();
  }

  ValueKind kind() const { return kind_; }
  bool is(ValueKind kind) const { return kind_ == kind; }
  bool is_object() const { return kind_ >= ValueKind::kString; }
  int64_t integer() const { return payload_.integer; }
  bool boolean() const { return payload_.integer != 0; }
  double real() const { return payload_.real; }
  ir::UnitKind unit() const { return unit_; }
  ir::ValueId tensor() const { return static_cast<ir::ValueId>(payload_.integer); }
  ir::Quantity quantity() const { return {payload_.real, unit_}; }
  Object* object() const { return payload_.object; }
  bool unique() const { return payload_.object->references == 1; }
  // The object, as the type that the kind says.
  template <typename T>
  T& as() const {
    return *static_cast<T*>(payload_.object);
  }

 private:
  explicit Value(ValueKind kind) : kind_(kind) { payload_.integer = 0; }
  void Swap(Value& other) {
    std::swap(kind_, other.kind_);
    std::swap(unit_, other.unit_);
    std::swap(payload_, other.payload_);
  }
  void Release() {
    if (--payload_.object->references == 0) delete payload_.object;
  }
  ValueKind kind_;
  ir::UnitKind unit_ = ir::UnitKind::kNone;
  union {
    int64_t integer;
    double real;
    Object* object;
  } payload_;
};

struct StringObject : Object {
  std::string text;
};
struct RangeObject : Object {
  int64_t begin = 0, end = 0;
};
struct DimObject : Object {
  ir::Dim dim;
};
// Lists, tuples and queues. `head` is the first element that a queue still holds.
struct ListObject : Object {
  std::vector<Value> items;
  size_t head = 0;
};
struct FunctionInfo;
struct InstanceObject;
struct FunctionObject : Object {
  const FunctionInfo* info = nullptr;
  Value self;                   // the instance whose members it sees, or none
  std::vector<Value> captures;  // by value, at creation
};
struct NativeObject : Object {
  int index = 0;  // into the table of natives
};
// Made and dropped by the hundred thousand where a schedule queues its steps, so their room is kept for the
// next.
struct SelectorObject : Object {
  ir::StepSelector selector;
  static void* operator new(size_t bytes);
  static void operator delete(void* object, size_t bytes);
};
struct ScheduleObject : Object {
  ir::Schedule schedule;
};
struct ModuleInfo;
struct ModuleObject : Object {
  const ModuleInfo* info = nullptr;
};
struct ParameterObject : Object {
  ir::Parameter parameter;        // its name is set when the instance that holds it gets its path
  ir::ValueId value = ir::kNone;  // in the graph of build `build`
  uint64_t build = 0;
};
struct InstanceObject : Object {
  const ModuleInfo* info = nullptr;
  std::vector<Value> slots;  // parameters, then members, as ModuleInfo lists them
  std::string path;          // "blocks.3.attn", "" for a root
  bool named = false;
  SourceRange created;
};
struct TopologyDeclObject : Object {
  const TopologyDecl* decl = nullptr;
  const FunctionInfo* info = nullptr;
};
// A topology, or one level of it while it is being put together.
struct TopologyObject : Object {
  ir::Topology topology;
};
struct StrategyInfo;
struct StrategyDeclObject : Object {
  const StrategyInfo* info = nullptr;
};
struct StrategyObject : Object {
  const StrategyInfo* info = nullptr;
  std::vector<Value> arguments;
  SourceRange range;  // where it was applied to them
};
struct AxisObject : Object {
  struct Axis {
    std::string mesh, name;
    int64_t size = 0;
  };
  std::vector<Axis> axes;
};
struct GroupObject : Object {
  ir::GroupExpr group;
};
struct NamespaceObject : Object {
  int file = 0;  // index of the loaded file
};
struct TagSumObject : Object {
  std::vector<ir::CutDirective::Term> terms;
};
struct InitializerObject : Object {
  ir::Initializer init;
};
struct LearningRateObject : Object {
  ir::LearningRate rate;
};
struct OptimizerObject : Object {
  ir::OptimizerSpec spec;
};
struct DataObject : Object {
  ir::DataSpec spec;
};
struct PlanObject : Object {
  ir::Program program;
  std::vector<std::pair<std::string, Value>> figures;  // step_time, bubble, peak_memory, ..; computed once
  bool planned = false;
};

Value MakeString(std::string text);
Value MakeRange(int64_t begin, int64_t end);
Value MakeList(std::vector<Value> items, ValueKind kind = ValueKind::kList);
Value MakeSelector(ir::StepSelector selector);
Value MakeSchedule(ir::Schedule schedule);
Value MakeDim(ir::Dim dim);

inline const std::string& TextOf(const Value& value) { return value.as<StringObject>().text; }
inline const std::vector<Value>& ItemsOf(const Value& value) { return value.as<ListObject>().items; }

// Short form for messages: `8`, `"x"`, `[1, 2, ..]`.
std::string ValueText(const Value& value);
// What a message calls the value: "8 (an int)", "a selector".
std::string DescribeValue(const Value& value);

using ir::NearestName;

}  // namespace piper::frontend
