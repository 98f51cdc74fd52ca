// The model graph: SSA tensor operations over named dimensions, with static shapes, tags and parameters, as
// one forward pass over a slice of the batch. It is what elaboration leaves of a `model`, and the only thing
// that the single-device reference is built from. Layouts (sharding) are settled here, before
// differentiation.
//
// A Graph is a value: rewrites copy or return a new one. Ids are dense indices in program order, so that
// iteration is deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/support/source.h"

namespace piper::ir {

class DiagnosticEngine;

// kF64 serves references; kBF16 is foreseen (types only); kI32 holds tokens, targets and positions.
enum class DType : uint8_t { kF32, kF64, kBF16, kI32 };
int64_t DTypeBytes(DType dtype);
std::string_view DTypeName(DType dtype);  // "f32", ...

// A named dimension. Two dimensions are the same iff names and sizes agree; sharding speaks of the name.
struct Dim {
  std::string name;
  int64_t size = 0;
  friend bool operator==(const Dim&, const Dim&) = default;
};

// A dense row-major tensor. No dims: a scalar.
struct TensorType {
  DType dtype = DType::kF32;
  std::vector<Dim> dims;
  int64_t elements() const;
  int64_t bytes() const { return elements() * DTypeBytes(dtype); }
  std::string ToString() const;  // "f32[batch=8, seq=128, embed=128]"
  // Every dimension is positive and there are at most 2^40 elements: what operations accept. elements() may
  // overflow otherwise.
  bool WithinLimits() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

using ValueId = uint32_t;
using OpId = uint32_t;
using ParameterId = uint32_t;
using InputId = uint32_t;
using TagPathId = uint32_t;
constexpr uint32_t kNone = UINT32_MAX;

// One occurrence of a tag: its index counts occurrences of that name within the parent tag's instance.
struct TagInstance {
  std::string name;
  int64_t index = 0;
  friend bool operator==(const TagInstance&, const TagInstance&) = default;
  friend auto operator<=>(const TagInstance&, const TagInstance&) = default;
};
using TagPath = std::vector<TagInstance>;      // outermost first
std::string TagPathText(const TagPath& path);  // "layer[3].attn[0]"

// How a parameter is filled at step 0; keyed by (seed, parameter name, element), so never by rank.
struct Initializer {
  enum class Kind : uint8_t { kZeros, kOnes, kConstant, kNormal, kUniform } kind = Kind::kZeros;
  double a = 0;  // constant, standard deviation, or lower bound
  double b = 0;  // upper bound of uniform
  friend bool operator==(const Initializer&, const Initializer&) = default;
};

struct Parameter {
  std::string name;  // the module path: "blocks.3.attn.wqkv"; unique
  TensorType type;
  Initializer init;
  bool frozen = false;  // set by `freeze`
  SourceRange range;
};

// What a batch field feeds: "tokens", "targets", ...
struct Input {
  std::string name;
  TensorType type;
  SourceRange range;
};

// Named attributes of an operation, in the order of its rule's signature.
using AttributeValue =
    std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<std::string>>;
struct Attribute {
  std::string name;
  AttributeValue value;
  friend bool operator==(const Attribute&, const Attribute&) = default;
};

struct Operation {
  std::string kind;  // the name of its rule (ir/model/operations/): "matmul", "layer_norm", "gelu_backward"
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  std::vector<Attribute> attributes;
  TagPathId tags = 0;
  std::string path;  // "blocks.3.attn#2": stable name; keys random numbers and names generated functions
  SourceRange range;

  const AttributeValue* Find(std::string_view name) const;
  int64_t Int(std::string_view name) const;    // PIPER_CHECKs presence and type
  double Number(std::string_view name) const;  // int or double
  bool Flag(std::string_view name) const;      // absent: false
  const std::string& Text(std::string_view name) const;
};

struct Value {
  enum class Source : uint8_t { kInput, kParameter, kOperation } source = Source::kOperation;
  uint32_t index = 0;   // InputId, ParameterId or OpId
  uint32_t result = 0;  // which result of the operation
  TensorType type;
};

// A loss term: a scalar f32 that the step minimises. The total is their left fold.
struct Loss {
  ValueId value = kNone;
  std::string name;  // "loss", or the name of the tuple element
  SourceRange range;
};

class Graph {
 public:
  std::vector<Input> inputs;
  std::vector<Parameter> parameters;
  std::vector<Operation> operations;  // program order: operands precede
  std::vector<Value> values;
  std::vector<TagPath> tag_paths = {{}};  // interned; entry 0 is the empty path
  std::vector<Loss> losses;
  std::vector<ValueId> outputs;  // wanted besides the losses: the logits of a graph for inference
  std::string name = "model";

  // Parameters and inputs get one value each, created here.
  ValueId AddInput(Input input);
  ValueId AddParameter(Parameter parameter);
  // Appends; the caller (GraphBuilder, operations.h) has inferred the result types.
  OpId AddOperation(Operation operation, const std::vector<TensorType>& result_types);
  TagPathId InternTags(const TagPath& path);

  ValueId ParameterValue(ParameterId id) const { return parameter_values_[id]; }
  ValueId InputValue(InputId id) const { return input_values_[id]; }
  const TensorType& Type(ValueId value) const { return values[value].type; }

  // The operations that read a value, in program order, once an operand position.
  struct Use {
    OpId operation;
    uint32_t operand;
  };
  std::vector<std::vector<Use>> BuildUses() const;

  // The same graph with every dimension of that name resized (the batch slice), by resizing the inputs and
  // inferring every operation again. Ids, attributes and paths stay. Reports at the operation (or parameter)
  // that cannot follow: a parameter with that dimension, an attribute that fixes the size, a reshape that no
  // longer divides.
  std::optional<Graph> TryWithDim(std::string_view name, int64_t size, DiagnosticEngine& diag) const;
  // Likewise where it is known to succeed.
  Graph WithDim(std::string_view name, int64_t size) const;
  // The size of a named dimension anywhere in the graph, or 0 if none has it.
  int64_t DimSize(std::string_view name) const;

  // The leading dimension of the first input that has one is the sample dimension: how many samples the
  // graph's slice holds (1 without any), and its name ("" without any).
  int64_t Samples() const;
  std::string SampleDim() const;

  // One line an operation; deterministic. For `--emit=model`.
  std::string ToText() const;

 private:
  std::vector<ValueId> parameter_values_;
  std::vector<ValueId> input_values_;
  std::map<TagPath, TagPathId> tag_ids_;  // of the first indexed_tags_ tag_paths
  size_t indexed_tags_ = 0;
};

}  // namespace piper::ir
