// The compile-time evaluator: walks the resolved syntax tree and leaves values, graphs and directives.
// Everything is evaluated once, in one thread, with a budget: Burn() counts the work, and a program that
// needs more than the budget is refused with an estimate. An error is reported where it is found and then
// thrown as Abort; whoever can go on without the value (a directive, a field, a let) catches it, so that one
// run reports several errors.
//
// The class is one, its bodies are grouped by what they evaluate: interpreter.cpp (frames, errors, top-level
// values), statements.cpp, calls.cpp, expressions.cpp, operators.cpp, selectors.cpp (selectors, schedules,
// groups), modules.cpp (modules and the model graph), directives.cpp (strategies), topologies.cpp,
// natives.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/ast.h"
#include "frontend/loader.h"
#include "frontend/natives.h"
#include "frontend/resolver.h"
#include "frontend/value.h"
#include "ir/model/graph.h"
#include "ir/model/operations.h"
#include "ir/program/program.h"
#include "ir/support/diagnostics.h"

namespace piper::frontend {

// Thrown after an error was reported.
struct Abort {};

ir::PassSet PassesOf(Pass pass);

// Budgets of one elaboration. A unit of fuel is a statement, a call, a round of a loop or an element of a
// list.
constexpr int64_t kFuel = 20'000'000;
constexpr int kMaxCalls = 500;              // nested
constexpr int64_t kMaxSteps = 4'000'000;    // of schedules alive in the directives
constexpr int64_t kMaxDevices = 1'000'000;  // of a topology
constexpr int64_t kMaxTextBytes = 1 << 20;
constexpr int kMaxRefusals = 200;  // directives of a strategy, before the rest is given up
constexpr size_t kMaxSlots = size_t{1} << 20;

// A call in progress.
struct Activation {
  const FunctionInfo* info = nullptr;
  Value* slots = nullptr;
  const InstanceObject* self = nullptr;
  SourceRange call;      // where it was called; invalid for units that nobody calls
  bool binding = false;  // its arguments are being checked: the caller's line is the error's
  bool entry = false;    // called by the train block: says nothing to who reads an error in the same file
  ir::Schedule* sink = nullptr;  // where steps go; null where a selector is a value like any other
  std::vector<std::pair<NameId, int64_t>> dims;  // free dimensions of the signature that have got their size
  Activation* outer = nullptr;
};

// What a strategy's directives are evaluated against.
struct StrategySession {
  const ir::Graph* model = nullptr;
  const ir::Topology* topology = nullptr;
  std::vector<ir::Directive>* out = nullptr;
  std::vector<AxisObject::Axis> axes;
  std::vector<std::string> meshes;
  std::vector<std::pair<std::string, int64_t>> counts;  // of tags that cut and split make
  std::string stage = "stage", microbatch = "mb";       // what the last cut and split call theirs
  struct Placement {
    ir::GroupExpr group;
    int64_t stage;
  };
  std::vector<Placement> placements;
  std::vector<SourceRange> used_from;  // innermost first
  int refusals = 0;                    // directives that failed
  std::vector<std::string> lost;       // axes and tags that they would have named
};

// What would be a value of the wanted type ("an int", or `int` as declared); empty where nothing better than
// the kind's own hint is known.
std::string HintFor(std::string_view wanted, const Value& got);

// A model graph under construction.
struct GraphSession {
  GraphSession(ir::Graph* graph, ir::DiagnosticEngine* diag) : builder(graph, diag) {}
  ir::GraphBuilder builder;
  ir::TagPathId tags = 0;
  std::map<std::pair<ir::TagPathId, NameId>, int64_t> occurrences;  // of a tag under a parent
  std::string path;                                                 // of the module whose forward runs
  const FunctionInfo* root = nullptr;                               // the model's forward
  uint64_t build = 0;
};

// The figures of a plan, by the pipeline behind the front end; absent in `piper check`.
class PlanService;

class Interpreter {
 public:
  Interpreter(LoadedProgram& program, const ResolvedProgram& resolved, const ir::SourceManager& sources,
              ir::DiagnosticEngine& diag);
  ~Interpreter();

  // ---- entry points; each reports and throws Abort on an error

  // The value of a top-level name, evaluated at first use.
  Value Global(int index);
  // Replaces the value of a top-level let before it is evaluated.
  void OverrideGlobal(int index, Value value);
  // Overrides of the arguments of `using s(..)`, by parameter name; `used` is set when one applies.
  struct ArgumentOverride {
    std::string name;
    Value value;
    SourceRange range;
    bool used = false;
  };

  // Evaluates an expression of a unit (a run block, say) in a frame of its own.
  Value EvaluateIn(const FunctionInfo& unit, Expr& expr);
  ir::Selector SelectorAt(const FunctionInfo& unit, Expr& expr);
  // Runs `body` with a frame for the unit.
  template <typename Body>
  void WithFrame(const FunctionInfo& unit, SourceRange call, Body&& body);

  // The graph of a model at a global batch; cached.
  std::shared_ptr<const ir::Graph> BuildModel(const Value& model, int64_t global_batch, SourceRange range);
  // The directives of a strategy, in order. `overrides` replace arguments.
  void EvaluateStrategy(const Value& strategy, SourceRange range, const ir::Graph& model,
                        const ir::Topology& topology, std::vector<ArgumentOverride>* overrides,
                        std::vector<ir::Directive>* out);
  // A strategy value whose arguments are evaluated with `overrides` in force.
  Value EvaluateUsing(const FunctionInfo& unit, Expr& expr, std::vector<ArgumentOverride>* overrides);
  bool ExecuteTest(const TestDecl& test, PlanService* plans);

  // ---- for natives and the parts below

  ir::DiagnosticEngine& diag() { return *diag_; }
  LoadedProgram& program() { return program_; }
  const ResolvedProgram& resolved() const { return resolved_; }
  std::string Text(NameId name) const { return std::string(program_.ast.names.Text(name)); }
  StrategySession* strategy() { return strategy_; }
  GraphSession* graph() { return graph_; }

  ir::DiagnosticEngine::Builder Report(SourceRange range, ir::DiagKind kind, std::string message);
  // Adds the calls that led here to the last diagnostic, and throws.
  [[noreturn]] void Throw();
  [[noreturn]] void Fail(SourceRange range, ir::DiagKind kind, std::string message, std::string hint = "");
  // A hint "did you mean" if a candidate is near, else `otherwise` (if any).
  [[noreturn]] void FailNearest(SourceRange range, ir::DiagKind kind, std::string message,
                                std::string_view text, const std::vector<std::string>& candidates,
                                std::string otherwise = "");
  [[noreturn]] void FailType(SourceRange range, std::string_view what, std::string_view wanted,
                             const Value& got);

  void Burn(int64_t units, SourceRange range) {
    fuel_ -= units;
    if (fuel_ < checkpoint_) [[unlikely]]
      Checkpoint(range);
  }
  struct Loop {
    int64_t total = 0, done = 0;
    Loop* outer = nullptr;
  };
  // Refuses at once what is known to be too long. `self`: the loop in progress that these rounds are, if they
  // are.
  void BurnLoop(int64_t rounds, SourceRange range, const Loop* self = nullptr);

  Value Eval(Expr& expr);
  Value Call(const Value& callee, std::vector<Value> args, SourceRange range);

  bool Order(BinaryOp op, const Value& left, const Value& right, SourceRange range);
  Value Add(const Value& left, const Value& right, SourceRange range);
  bool ToInt(const Value& value, int64_t* out) const;
  int64_t IntOf(const Value& value, SourceRange range, std::string_view what);
  double NumberOf(const Value& value, SourceRange range, std::string_view what);
  // Elements of a list, tuple, queue or range.
  std::vector<Value> Elements(const Value& value, SourceRange range, std::string_view what);
  ir::Selector SelectorOf(const Value& value, SourceRange range);
  int64_t CountOfTag(std::string_view tag, SourceRange range);
  int64_t SizeOfDim(std::string_view dim, SourceRange range);
  // The name that an argument spells, evaluated only if it is not a bare name.
  std::string NameOf(const Expr& expr);
  bool IsTensor(const Value& value) const {
    return value.is(ValueKind::kTensor) || value.is(ValueKind::kParameter);
  }
  // The plan of `plan(model, strategy)`, as a value.
  Value MakePlan(const Value& model, const Value& strategy, SourceRange range,
                 const std::vector<std::pair<std::string, Value>>& settings);
  // Evaluates under a private list of diagnostics: the kinds that were reported.
  std::vector<std::string> KindsReported(Expr& expr);

  // Set by the front end: how `plan(..)` makes a Program of its arguments.
  using ProgramMaker =
      std::function<ir::Program(Interpreter&, const Value& model, const Value& strategy, SourceRange,
                                const std::vector<std::pair<std::string, Value>>& settings)>;
  void set_program_maker(ProgramMaker maker) { program_maker_ = std::move(maker); }
  void set_plan_service(PlanService* plans) { plans_ = plans; }
  // Expectations of the running test that failed.
  int failed_expectations() const { return failed_expectations_; }

 private:
  friend class FrameGuard;
  enum class Flow : uint8_t { kNext, kReturn };

  void AddTrace(SourceRange range);
  // Reports what a phase behind the front end, which must start without errors, reported to an engine of its
  // own.
  void TakeDiagnostics(const ir::DiagnosticEngine& from);
  // Notes what a refused directive would have named: what uses the name then is silent about it.
  void Lose(Stmt& directive);
  // Aborts if a refused directive would have named it.
  void SilentIfLost(std::string_view name) const;
  // Reports a name that should be an axis.
  void CheckAxisName(const Expr& expr);
  [[noreturn]] void OutOfFuel(SourceRange range);
  // Now and then: refuses what will clearly not end within the budget, instead of waiting for its end.
  void Checkpoint(SourceRange range);
  // The share of the loops in progress that is done; 0 if there is none, or nothing to go by.
  double LoopShare() const;
  // Fuel used, without what the loops in progress have paid in advance.
  double WorkDone() const;
  void CheckStack(SourceRange range);

  // interpreter.cpp: statements and calls
  Flow ExecBlock(List<Stmt*> statements, bool wants_value, Value* out);
  Flow Exec(Stmt& statement, bool wants_value, bool last, Value* out);
  Flow ExecFor(ForStmt& loop, Value* out);
  Flow ExecBranches(List<IfBranch> branches, bool wants_value, Value* out);
  void ExecAssign(AssignStmt& assign);
  void ExecLet(LetStmt& let);
  void ExecExpect(ExpectStmt& expect);
  void BindPattern(Pattern& pattern, Value value, SourceRange range);
  bool Condition(Expr& expr);
  Value BlockValue(Block& block);
  // The slot that an assignable expression denotes, for change in place.
  Value* Target(Expr& expr);
  // Rounds of a loop over a value; `body` sees each element.
  template <typename Body>
  void ForEach(const Value& iterable, SourceRange range, Body&& body);

  // Which parameters a call gives, and where.
  struct GivenArgument {
    bool given = false;
    SourceRange range;
  };
  using Given = std::vector<GivenArgument>;
  // Binds the arguments of a call to parameters; evaluates them in the caller's frame.
  void BindArguments(const CallExpr& call, List<Param> params, const std::string& callee, Value* slots,
                     Given* given);
  // The same for arguments that are evaluated already.
  void TakeArguments(std::vector<Value>* args, List<Param> params, const std::string& callee,
                     SourceRange range, Value* slots, Given* given);
  // In the callee's frame: converts what was given to the declared types, evaluates defaults, fails for what
  // is missing.
  void FinishArguments(List<Param> params, const std::string& callee, SourceRange range, Value* slots,
                       const Given& given);
  void ApplyOverrides(List<Param> params, Value* slots, Given* given);
  void CheckRequirements(const FunctionInfo& info, Value* slots, SourceRange range);
  bool Holds(const Requirement& requirement);
  std::string NearestLegal(const FunctionInfo& info, Value* slots, const Expr& condition);
  Value Convert(Value value, const TypeRef* type, SourceRange range, const std::string& what, NameId name);
  bool Accepts(const Value& value, const TypeRef* type) const;
  void CheckTypeName(const TypeRef& type);
  Value EvalArgument(Expr& expr, const TypeRef* type);
  Value CallFunction(const FunctionObject& function, const CallExpr* call, std::vector<Value>* args,
                     SourceRange range);
  Value RunFunction(const FunctionInfo& info, Activation& activation);
  std::string SignatureOf(const std::string& name, List<Param> params) const;

  // expressions.cpp
  Value EvalName(NameExpr& expr);
  Value EvalNumber(const NumberExpr& expr);
  Value EvalChain(ChainExpr& expr);
  // The common whole number, without values in between: numbers, local variables, + - and *. False: not
  // decided here, and nothing has happened.
  bool EvalInt(const Expr& expr, int64_t* out) const {
    if (expr.kind == ExprKind::kName) {
      const auto& name = As<NameExpr>(expr);
      if (name.frame != kFrameLocal || cut_ != nullptr || axis_wanted_) return false;
      const Value& value = current_->slots[name.slot];
      *out = value.integer();
      return value.is(ValueKind::kInt);
    }
    return EvalIntOf(expr, out);
  }
  bool EvalIntOf(const Expr& expr, int64_t* out) const;
  Value EvalUnary(UnaryExpr& expr);
  Value EvalCall(CallExpr& expr);
  Value EvalMethod(CallExpr& expr, MemberExpr& member, bool* is_method);
  Value EvalIndex(IndexExpr& expr);
  Value EvalMember(MemberExpr& expr);
  Value MemberOf(const Value& base, const NameRef& member, SourceRange range);
  Value EvalComprehension(ComprehensionExpr& expr);
  Value EvalBy(const Value& left, const Expr& right, SourceRange range);
  Value Binary(BinaryOp op, const Value& left, const Value& right, SourceRange range);
  Value Arithmetic(BinaryOp op, const Value& left, const Value& right, SourceRange range);
  Value Compare(BinaryOp op, const Value& left, const Value& right, SourceRange range);
  bool Equal(const Value& left, const Value& right, SourceRange range);
  Value IndexList(const Value& base, const Value& index, SourceRange range);
  Value CallNative(int index, CallExpr& call);
  Value CallNativeWith(int index, NativeCall& call);

  // selectors.cpp
  void BuildSelector(BracketExpr& expr, ir::Selector* out);
  // The same, and directly in the form that steps have where the items are `name = int`.
  void BuildStepSelector(BracketExpr& expr, ir::StepSelector* out);
  void NarrowToPass(BracketExpr& expr, ir::Selector* out);
  // A list of names that nothing binds, `[attn]`: tags.
  bool ListsTags(const BracketExpr& list) const;
  void AddItems(List<Item> items, ir::Selector* out);
  ir::Selector ItemSelector(Expr& expr);
  void AddIndices(Expr& expr, std::string_view key, ir::SelectorTerm* term);
  void AddIndexValue(const Value& value, SourceRange range, std::string_view key, ir::SelectorTerm* term);
  ir::NameId IrName(NameId name) {
    return name < ir_names_.size() && ir_names_[name] != 0 ? ir_names_[name] : FindIrName(name);
  }
  ir::NameId FindIrName(NameId name);
  ir::Selector EvalSelector(Expr& expr);
  void Yield(Value value, SourceRange range, ir::Schedule* sink);
  void YieldSteps(StepsStmt& steps);
  void ExpandRun(const StepRun& run, const ir::Selector* within, SourceRange range,
                 std::vector<ir::Step>* out);
  ir::Selector RunStepSelector(const StepRun& run, const ir::Selector* within, SourceRange range);
  Value EvalFused(const CallExpr& call);
  Value EvalGreedy(const CallExpr& call);
  ir::Selector GreedyPriority(Expr& expr);
  std::vector<std::pair<ir::NameId, std::vector<ir::Step>>> EvalLanes(List<Lane> lanes);
  ir::GroupExpr GroupOf(Expr& expr);
  Value IndexAxis(const AxisObject& axis, List<Item> items, SourceRange range);
  const AxisObject::Axis* FindAxis(std::string_view name) const;
  // The axis that a name denotes where an axis is wanted, although a local int has the same name.
  std::optional<Value> PreferAxis(const NameExpr& expr) const;

  // modules.cpp
  Value Instantiate(const ModuleInfo& info, const CallExpr* call, std::vector<Value>* args,
                    SourceRange range);
  Value MakeParameter(const ModuleInfo& info, const ModuleMember& member);
  // Gives every instance and parameter below its path; parameters also get their place in the graph being
  // built.
  void NameTree(const Value& value, const std::string& path);
  void AddParameters(const Value& value, ir::Graph* graph);
  Value CallForward(const Value& instance, const CallExpr* call, std::vector<Value>* args, SourceRange range);
  // `first`: the value of the first argument, if it is evaluated already.
  Value CallOperation(const ir::OperationRule& rule, const CallExpr& call, const Value* first = nullptr);
  Value AddOperation(std::string_view kind, const std::vector<ir::ValueId>& operands,
                     std::vector<ir::Attribute> attributes, SourceRange range);
  Value TensorArithmetic(BinaryOp op, const Value& left, const Value& right, SourceRange range);
  ir::ValueId TensorOf(const Value& value, SourceRange range);
  // `operand`: the type of the first operand, if there is one.
  ir::AttributeValue AttributeOf(const ir::AttributeInfo& info, Expr& expr, const ir::TensorType* operand);
  std::string DimName(Expr& expr);
  Value EvalTag(TagExpr& expr);
  void CheckTensor(const Value& value, const TypeRef& type, SourceRange range, const std::string& what);
  ir::TensorType InputType(const TypeRef& type, int64_t batch);
  // The dimension that a resolved name of a type denotes; nothing for a free one.
  std::optional<ir::Dim> PlaceDim(const NameRef& name, SourceRange range);
  std::optional<ir::DType> DTypeOf(const TypeRef& type);
  void CollectLosses(const InstanceObject& instance, const Value& value, ir::Graph* graph, SourceRange range);
  void CheckParametersUsed(const ir::Graph& graph);

  // directives.cpp
  void ExecDirective(Stmt& statement);
  void FinishStrategy(StrategyObject* strategy, SourceRange range, const Given& given);
  void RunStrategy(const StrategyObject& strategy, SourceRange range, bool entry);
  void Emit(const Stmt& statement, ir::DirectiveBody body);
  ir::DirectiveBody Mesh(MeshStmt& mesh);
  ir::DirectiveBody Cut(CutStmt& cut);
  void Split(SplitStmt& split);
  ir::DirectiveBody Place(PlaceStmt& place);
  ir::DirectiveBody Shard(ShardStmt& shard);
  ir::DirectiveBody Zero(ZeroStmt& zero);
  ir::DirectiveBody Order(OrderStmt& order);
  ir::DirectiveBody Run(RunStmt& run);
  ir::DirectiveBody Cost(CostStmt& cost);
  ir::DirectiveBody Assert(AssertStmt& statement);
  std::vector<ir::CutDirective::Term> TagSum(const Value& value, SourceRange range);
  ir::Selector DirectiveSelector(Expr& expr);
  void CheckTag(std::string_view tag, SourceRange range);

  // topologies.cpp
  Value BuildTopology(const TopologyDeclObject& decl, const CallExpr* call, std::vector<Value>* args,
                      SourceRange range);

  LoadedProgram& program_;
  const ResolvedProgram& resolved_;
  const ir::SourceManager& sources_;
  ir::DiagnosticEngine* diag_;

  struct GlobalState {
    enum class Status : uint8_t { kNew, kRunning, kDone } status = Status::kNew;
    int file = 0;
    Decl* decl = nullptr;
    const TopLevelName* name = nullptr;
    Value value;
    std::optional<Value> overridden;
  };
  std::vector<GlobalState> globals_;

  // Frames: raw storage of kMaxSlots values, of which [0, stack_top_) are constructed.
  std::unique_ptr<std::byte[]> stack_storage_;
  Value* stack_ = nullptr;
  size_t stack_top_ = 0;

  Activation* current_ = nullptr;
  Loop* loops_ = nullptr;
  int64_t fuel_ = kFuel;
  int64_t checkpoint_ = kFuel;
  int64_t steps_ = 0;
  // How many steps the schedule had that was yielded last: the next one is mostly as long.
  size_t yielded_ = 0;
  int calls_ = 0;
  const char* stack_base_ = nullptr;
  size_t stack_limit_ = 0;

  StrategySession* strategy_ = nullptr;
  GraphSession* graph_ = nullptr;
  uint64_t builds_ = 0;
  std::vector<ArgumentOverride>* argument_overrides_ = nullptr;
  bool axis_wanted_ =
      false;  // a name is an axis rather than a number: `strategy s(dp: int) { mesh (dp = dp) .. }`
  const CutStmt* cut_ = nullptr;  // its tags are values while its list is evaluated
  struct StepCounter {
    int64_t stage;
    Pass pass;
    int64_t next;
  };
  std::vector<StepCounter> step_counters_;  // of `steps` literals in the order that is being evaluated
  const ir::GroupExpr* order_group_ = nullptr;
  std::vector<ir::NameId> ir_names_;  // by NameId

  struct CachedGraph {
    const Object* model;
    int64_t batch;
    std::shared_ptr<const ir::Graph> graph;
  };
  std::vector<CachedGraph> graphs_;
  std::vector<Value> kept_models_;  // what the cache's keys point to

  ProgramMaker program_maker_;
  PlanService* plans_ = nullptr;
  int failed_expectations_ = 0;
  std::vector<std::string> test_bindings_;  // "p = 4", of the clauses of the running test
  size_t traced_ = 0;                       // errors whose calls are noted
  struct Reported {
    SourceRange range;
    std::string message;
  };
  std::vector<Reported> reported_;
};

// Slots for a unit, constructed and destroyed with the guard; it is not the current frame until someone says
// so.
class FrameGuard {
 public:
  FrameGuard(Interpreter& interpreter, int size, SourceRange range);
  ~FrameGuard();
  FrameGuard(const FrameGuard&) = delete;
  FrameGuard& operator=(const FrameGuard&) = delete;
  Value* slots() const { return slots_; }

 private:
  Interpreter& interpreter_;
  Value* slots_;
  size_t size_;
};

// Makes an activation current.
class ActivationGuard {
 public:
  ActivationGuard(Activation** current, Activation* activation) : current_(current), outer_(*current) {
    activation->outer = outer_;
    *current = activation;
  }
  ~ActivationGuard() { *current_ = outer_; }
  ActivationGuard(const ActivationGuard&) = delete;
  ActivationGuard& operator=(const ActivationGuard&) = delete;

 private:
  Activation** current_;
  Activation* outer_;
};

// Sets a variable for a scope.
template <typename T>
class Restore {
 public:
  Restore(T* place, T value) : place_(place), old_(*place) { *place = value; }
  ~Restore() { *place_ = old_; }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T* place_;
  T old_;
};

template <typename Body>
void Interpreter::WithFrame(const FunctionInfo& unit, SourceRange call, Body&& body) {
  FrameGuard frame(*this, unit.frame_size, call);
  Activation activation;
  activation.info = &unit;
  activation.slots = frame.slots();
  activation.call = call;
  ActivationGuard guard(&current_, &activation);
  body();
}

}  // namespace piper::frontend
