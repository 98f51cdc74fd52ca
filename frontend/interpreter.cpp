#include "frontend/interpreter.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "frontend/test_runner.h"

namespace piper::frontend {

using ir::DiagKind;

// ---------------------------------------------------------------------------------------------------- set-up

Interpreter::Interpreter(LoadedProgram& program, const ResolvedProgram& resolved,
                         const ir::SourceManager& sources, ir::DiagnosticEngine& diag)
    : program_(program), resolved_(resolved), sources_(sources), diag_(&diag) {
  globals_.resize(static_cast<size_t>(program.global_count));
  for (size_t f = 0; f < program.files.size(); ++f) {
    for (const TopLevelName& name : program.files[f].names) {
      GlobalState& state = globals_[static_cast<size_t>(name.global)];
      state.file = static_cast<int>(f);
      state.decl = name.decl;
      state.name = &name;
    }
  }
  stack_storage_ = std::make_unique_for_overwrite<std::byte[]>(kMaxSlots * sizeof(Value) + alignof(Value));
  auto address = reinterpret_cast<uintptr_t>(stack_storage_.get());
  stack_ = reinterpret_cast<Value*>((address + alignof(Value) - 1) / alignof(Value) * alignof(Value));
  char here = 0;
  stack_base_ = &here;
  // A quarter of the machine stack is left for what we call.
  rlimit limit = {};
  size_t bytes = size_t{8} << 20;
  if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) bytes = limit.rlim_cur;
  stack_limit_ = std::min(bytes, size_t{64} << 20) / 4 * 3;
}

Interpreter::~Interpreter() = default;

FrameGuard::FrameGuard(Interpreter& interpreter, int size, SourceRange range)
    : interpreter_(interpreter),
      slots_(interpreter.stack_ + interpreter.stack_top_),
      size_(static_cast<size_t>(size)) {
  if (interpreter.stack_top_ + size_ > kMaxSlots) interpreter.OutOfFuel(range);
  for (size_t i = 0; i < size_; ++i) new (slots_ + i) Value();
  interpreter.stack_top_ += size_;
}

FrameGuard::~FrameGuard() {
  for (size_t i = 0; i < size_; ++i) slots_[i].~Value();
  interpreter_.stack_top_ -= size_;
}

// ---------------------------------------------------------------------------------------------------- errors

ir::DiagnosticEngine::Builder Interpreter::Report(SourceRange range, DiagKind kind, std::string message) {
  // A loop or a second use says the same again.
  for (const Reported& known : reported_) {
    if (known.range == range && known.message == message && test_bindings_.empty()) throw Abort{};
  }
  reported_.push_back({range, message});
  diag_->Error(range, kind, std::move(message));
  AddTrace(range);
  return diag_->Last();
}

// Notes the calls that led to the last error.
void Interpreter::AddTrace(SourceRange range) {
  constexpr int kMostCalls = 4;
  traced_ = diag_->error_count();
  auto last = diag_->Last();
  int shown = 0;
  SourceRange shown_last;
  for (const Activation* a = current_; a != nullptr && shown < kMostCalls; a = a->outer) {
    if (!a->call.valid() || a->binding || (a->entry && a->call.file == range.file)) continue;
    if (a->call == shown_last) continue;  // recursion
    shown_last = a->call;
    std::string where =
        a->self != nullptr && !a->self->path.empty() ? fmt::format(" at {}", a->self->path) : "";
    last.Note(a->call, fmt::format("in {}{}, called here", a->info->name, where));
    ++shown;
  }
  if (!test_bindings_.empty()) last.Note({}, fmt::format("with {}", fmt::join(test_bindings_, ", ")));
}

void Interpreter::Throw() {
  if (traced_ != diag_->error_count()) AddTrace(diag_->diagnostics().back().range);
  throw Abort{};
}

void Interpreter::Fail(SourceRange range, DiagKind kind, std::string message, std::string hint) {
  auto error = Report(range, kind, std::move(message));
  if (!hint.empty()) error.Hint(std::move(hint));
  Throw();
}

void Interpreter::FailNearest(SourceRange range, DiagKind kind, std::string message, std::string_view text,
                              const std::vector<std::string>& candidates, std::string otherwise) {
  std::string near = NearestName(text, candidates);
  Fail(range, kind, std::move(message),
       near.empty() ? std::move(otherwise) : fmt::format("did you mean '{}'?", near));
}

void Interpreter::FailType(SourceRange range, std::string_view what, std::string_view wanted,
                           const Value& got) {
  if (got.is(ValueKind::kPoison)) throw Abort{};
  bool units = got.is(ValueKind::kQuantity);
  Fail(range, units ? DiagKind::kUnitMismatch : DiagKind::kTypeMismatch,
       fmt::format("{} must be {}, not {}", what, wanted, DescribeValue(got)));
}

void Interpreter::OutOfFuel(SourceRange range) {
  // The share of the outermost loop that is done, refined by the loops inside it.
  double share = 0;
  std::vector<const Loop*> loops;
  for (const Loop* loop = loops_; loop != nullptr; loop = loop->outer) loops.push_back(loop);
  double width = 1;
  for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) {
    auto total = static_cast<double>(std::max<int64_t>((*loop)->total, 1));
    share += width * static_cast<double>((*loop)->done) / total;
    width /= total;
  }
  std::string message = fmt::format("elaboration takes more than the {} steps that it may", kFuel);
  if (!loops.empty() && share > 0) {
    message +=
        fmt::format(": the loops that lead here would take about {:.1e}", static_cast<double>(kFuel) / share);
  }
  fuel_ = 1000;  // what reports the error may still evaluate a little
  Fail(range, DiagKind::kFuelExhausted, std::move(message), "make the loop shorter, or the recursion end");
}

void Interpreter::BurnLoop(int64_t rounds, SourceRange range) {
  if (rounds > kFuel) {
    double total = static_cast<double>(rounds);
    for (const Loop* loop = loops_; loop != nullptr; loop = loop->outer)
      total *= static_cast<double>(loop->total);
    Fail(range, DiagKind::kFuelExhausted,
         fmt::format("this takes {:.3g} rounds, more than the {} steps that elaboration may take", total,
                     kFuel),
         "loops unroll at compile time: make this one shorter");
  }
  if (rounds > fuel_) OutOfFuel(range);
  fuel_ -= rounds;
}

void Interpreter::CheckStack(SourceRange range) {
  char here = 0;
  auto used = static_cast<size_t>(std::abs(stack_base_ - &here));
  if (calls_ < kMaxCalls && used < stack_limit_) return;
  Fail(range, DiagKind::kFuelExhausted,
       fmt::format("calls nest {} deep, deeper than elaboration goes", calls_),
       "does this recursion end? a loop nests nothing");
}

// ----------------------------------------------------------------------------------------------------
// globals

void Interpreter::OverrideGlobal(int index, Value value) {
  globals_[static_cast<size_t>(index)].overridden = std::move(value);
}

Value Interpreter::EvaluateIn(const FunctionInfo& unit, Expr& expr) {
  Value value;
  WithFrame(unit, {}, [&] { value = Eval(expr); });
  return value;
}

ir::Selector Interpreter::SelectorAt(const FunctionInfo& unit, Expr& expr) {
  ir::Selector selector;
  WithFrame(unit, {}, [&] { selector = EvalSelector(expr); });
  return selector;
}

Value Interpreter::Global(int index) {
  GlobalState& state = globals_[static_cast<size_t>(index)];
  if (state.status == GlobalState::Status::kDone) {
    if (state.value.is(ValueKind::kPoison)) throw Abort{};
    return state.value;
  }
  SourceRange range = state.name->range;
  if (state.status == GlobalState::Status::kRunning) {
    Fail(range, DiagKind::kDefinitionCycle,
         fmt::format("the value of '{}' depends on itself", Text(state.name->name)));
  }
  state.status = GlobalState::Status::kRunning;
  auto finish = [&](Value value) {
    state.value = std::move(value);
    state.status = GlobalState::Status::kDone;
  };
  try {
    switch (state.decl->kind) {
      case DeclKind::kImport: {
        if (state.name->imported < 0) throw Abort{};
        auto* object = new NamespaceObject;
        object->file = state.name->imported;
        finish(Value::Of(ValueKind::kNamespace, object));
        break;
      }
      case DeclKind::kLet: {
        LetStmt& let = *As<LetDecl>(*state.decl).let;
        Value value;
        if (state.overridden) {
          value = Convert(*state.overridden, let.type, range, fmt::format("'{}'", Text(state.name->name)),
                          state.name->name);
        } else {
          WithFrame(resolved_.Unit(state.decl), {}, [&] {
            value = EvalArgument(*let.value, let.type);
            if (!let.pattern.tuple) {
              value = Convert(std::move(value), let.type, let.value->range,
                              fmt::format("'{}'", Text(state.name->name)), state.name->name);
            }
          });
        }
        if (!let.pattern.tuple) {
          finish(std::move(value));
          break;
        }
        std::vector<Value> parts = Elements(value, let.value->range, "the right side");
        if (parts.size() != let.pattern.names.size()) {
          Fail(let.pattern.range, DiagKind::kTypeMismatch,
               fmt::format("{} names take apart {} values", let.pattern.names.size(), parts.size()));
        }
        for (size_t i = 0; i < parts.size(); ++i) {
          const TopLevelName* name =
              program_.files[static_cast<size_t>(state.file)].Find(let.pattern.names[i].name);
          if (name == nullptr || name->decl != state.decl) continue;
          GlobalState& part = globals_[static_cast<size_t>(name->global)];
          part.value = parts[i];
          part.status = GlobalState::Status::kDone;
        }
        break;
      }
      case DeclKind::kFn: {
        auto* object = new FunctionObject;
        object->info = &resolved_.Unit(As<FnTopDecl>(*state.decl).fn);
        finish(Value::Of(ValueKind::kFunction, object));
        break;
      }
      case DeclKind::kModule: {
        auto* object = new ModuleObject;
        object->info = resolved_.module_of.at(state.decl);
        finish(Value::Of(ValueKind::kModule, object));
        break;
      }
      case DeclKind::kModel: {
        auto& model = As<ModelDecl>(*state.decl);
        Value value = EvaluateIn(resolved_.Unit(state.decl), *model.value);
        if (value.is(ValueKind::kModule)) value = Call(value, {}, model.value->range);
        if (!value.is(ValueKind::kInstance)) FailType(model.value->range, "a model", "a module", value);
        finish(std::move(value));
        break;
      }
      case DeclKind::kTopology: {
        auto* object = new TopologyDeclObject;
        object->decl = &As<TopologyDecl>(*state.decl);
        object->info = &resolved_.Unit(state.decl);
        finish(Value::Of(ValueKind::kTopologyDecl, object));
        break;
      }
      case DeclKind::kStrategy: {
        auto* object = new StrategyDeclObject;
        object->info = resolved_.strategy_of.at(state.decl);
        finish(Value::Of(ValueKind::kStrategyDecl, object));
        break;
      }
      case DeclKind::kRun:
      case DeclKind::kTest:
        PIPER_CHECK(false, "runs and tests bind no name");
    }
  } catch (const Abort&) {
    finish(Value::Poison());
    throw;
  }
  return state.value;
}

// ----------------------------------------------------------------------------------------------------
// conversions

bool Interpreter::ToInt(const Value& value, int64_t* out) const {
  if (value.is(ValueKind::kInt)) {
    *out = value.integer();
    return true;
  }
  if (value.is(ValueKind::kDim)) {
    *out = value.as<DimObject>().dim.size;
    return true;
  }
  return false;
}

int64_t Interpreter::IntOf(const Value& value, SourceRange range, std::string_view what) {
  int64_t result = 0;
  if (!ToInt(value, &result)) FailType(range, what, "an int", value);
  return result;
}

double Interpreter::NumberOf(const Value& value, SourceRange range, std::string_view what) {
  int64_t integer = 0;
  if (ToInt(value, &integer)) return static_cast<double>(integer);
  if (value.is(ValueKind::kFloat)) return value.real();
  if (value.is(ValueKind::kQuantity) && value.unit() == ir::UnitKind::kPercent) return value.real();
  FailType(range, what, "a number", value);
}

std::vector<Value> Interpreter::Elements(const Value& value, SourceRange range, std::string_view what) {
  switch (value.kind()) {
    case ValueKind::kList:
    case ValueKind::kTuple:
      BurnLoop(static_cast<int64_t>(ItemsOf(value).size()), range);
      return ItemsOf(value);
    case ValueKind::kQueue: {
      auto& queue = value.as<ListObject>();
      return {queue.items.begin() + static_cast<std::ptrdiff_t>(queue.head), queue.items.end()};
    }
    case ValueKind::kRange: {
      auto& bounds = value.as<RangeObject>();
      std::vector<Value> result;
      if (bounds.end <= bounds.begin) return result;
      BurnLoop(bounds.end - bounds.begin, range);
      result.reserve(static_cast<size_t>(bounds.end - bounds.begin));
      for (int64_t i = bounds.begin; i < bounds.end; ++i) result.push_back(Value::Int(i));
      return result;
    }
    default:
      FailType(range, what, "a list or a range", value);
  }
}

// ----------------------------------------------------------------------------------------------------
// statements

Interpreter::Flow Interpreter::ExecBlock(List<Stmt*> statements, bool wants_value, Value* out) {
  for (size_t i = 0; i < statements.size(); ++i) {
    bool last = i + 1 == statements.size();
    if (Exec(*statements[i], wants_value, last, out) == Flow::kReturn) return Flow::kReturn;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::Exec(Stmt& statement, bool wants_value, bool last, Value* out) {
  Burn(1, statement.range);
  switch (statement.kind) {
    case StmtKind::kLet:
      ExecLet(As<LetStmt>(statement));
      return Flow::kNext;
    case StmtKind::kAssign:
      ExecAssign(As<AssignStmt>(statement));
      return Flow::kNext;
    case StmtKind::kExpr: {
      Expr& expr = *As<ExprStmt>(statement).value;
      // The common step, without a value in between.
      if (expr.kind == ExprKind::kSelector && current_->sink != nullptr) {
        Burn(1, statement.range);
        if (++steps_ > kMaxSteps) OutOfFuel(statement.range);
        ir::Step& step = current_->sink->steps.emplace_back();
        step.range = expr.range;
        BuildSelector(As<BracketExpr>(expr), &step.select);
        return Flow::kNext;
      }
      Value value = Eval(expr);
      if (current_->sink != nullptr && (value.is(ValueKind::kSelector) || value.is(ValueKind::kSchedule))) {
        if (value.is(ValueKind::kSchedule) && value.unique() && current_->sink->steps.empty()) {
          *current_->sink = std::move(value.as<ScheduleObject>().schedule);
        } else {
          Yield(value, expr.range, current_->sink);
        }
      } else if (last && wants_value) {
        *out = std::move(value);
      } else if (!value.is(ValueKind::kNone)) {
        Fail(expr.range, DiagKind::kTypeMismatch,
             fmt::format("the value of this statement, {}, is not used", DescribeValue(value)),
             "`return` it, or bind it with `let`");
      }
      return Flow::kNext;
    }
    case StmtKind::kReturn: {
      Expr* value = As<ReturnStmt>(statement).value;
      *out = value == nullptr
                 ? Value()
                 : EvalArgument(*value,
                                current_->info->decl != nullptr ? current_->info->decl->result : nullptr);
      return Flow::kReturn;
    }
    case StmtKind::kFor:
      return ExecFor(As<ForStmt>(statement), out);
    case StmtKind::kIf:
      return ExecBranches(As<IfStmt>(statement).branches, wants_value && last, out);
    case StmtKind::kFn: {
      FnDecl* fn = As<FnStmt>(statement).fn;
      const FunctionInfo& info = resolved_.Unit(fn);
      auto* object = new FunctionObject;
      Value value = Value::Of(ValueKind::kFunction, object);
      object->info = &info;
      for (const auto& capture : info.captures) object->captures.push_back(current_->slots[capture.outer]);
      current_->slots[fn->name.slot] = std::move(value);
      return Flow::kNext;
    }
    case StmtKind::kExpect:
      ExecExpect(As<ExpectStmt>(statement));
      return Flow::kNext;
    case StmtKind::kLanes:
    case StmtKind::kBarrier:
    case StmtKind::kSteps: {
      if (current_->sink == nullptr) {
        Fail(statement.range, DiagKind::kTypeMismatch,
             "steps stand in an order or in a function that yields a schedule",
             "give the function the result `schedule`");
      }
      if (statement.kind == StmtKind::kSteps) {
        YieldSteps(As<StepsStmt>(statement));
        return Flow::kNext;
      }
      ir::Step step;
      step.range = statement.range;
      step.kind = statement.kind == StmtKind::kBarrier ? ir::Step::Kind::kBarrier : ir::Step::Kind::kLanes;
      if (statement.kind == StmtKind::kLanes) step.lanes = EvalLanes(As<LanesStmt>(statement).lanes);
      current_->sink->steps.push_back(std::move(step));
      return Flow::kNext;
    }
    default:
      // One bad directive does not hide the next one's errors.
      if (strategy_ == nullptr)
        Fail(statement.range, DiagKind::kTypeMismatch, "a directive stands in a strategy");
      try {
        ExecDirective(statement);
      } catch (const Abort&) {
      }
      return Flow::kNext;
  }
}

void Interpreter::ExecLet(LetStmt& let) {
  try {
    Value value = EvalArgument(*let.value, let.type);
    if (value.is(ValueKind::kNone)) {
      Fail(let.value->range, DiagKind::kTypeMismatch, "the right side has no value");
    }
    if (!let.pattern.tuple) {
      if (let.type != nullptr) {
        NameId name = let.pattern.names[0].name;
        value = Convert(std::move(value), let.type, let.value->range, fmt::format("'{}'", Text(name)), name);
      }
      if (let.pattern.names[0].slot != kNoSlot) current_->slots[let.pattern.names[0].slot] = std::move(value);
      return;
    }
    BindPattern(let.pattern, std::move(value), let.value->range);
  } catch (const Abort&) {
    // What uses the names is silent about them. In a loop or a function, nothing can be added by going on.
    for (const NameRef& name : let.pattern.names) {
      if (name.slot != kNoSlot) current_->slots[name.slot] = Value::Poison();
    }
    if (strategy_ == nullptr || loops_ != nullptr || calls_ > 0) throw;
  }
}

void Interpreter::BindPattern(Pattern& pattern, Value value, SourceRange range) {
  if (!pattern.tuple) {
    if (pattern.names[0].slot != kNoSlot) current_->slots[pattern.names[0].slot] = std::move(value);
    return;
  }
  if (!value.is(ValueKind::kTuple) && !value.is(ValueKind::kList)) {
    FailType(range, fmt::format("what {} names take apart", pattern.names.size()), "a tuple or a list",
             value);
  }
  const std::vector<Value>& items = ItemsOf(value);
  if (items.size() != pattern.names.size()) {
    auto error = Report(pattern.range, DiagKind::kTypeMismatch,
                        fmt::format("{} names take apart {} values", pattern.names.size(), items.size()));
    error.Note(range, "the values come from here");
    Throw();
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (pattern.names[i].slot != kNoSlot) current_->slots[pattern.names[i].slot] = items[i];
  }
}

Value* Interpreter::Target(Expr& expr) {
  if (expr.kind == ExprKind::kName) {
    auto& name = As<NameExpr>(expr);
    if (name.frame != kFrameLocal)
      Fail(expr.range, DiagKind::kNotAssignable, "only a variable can be assigned");
    Value* slot = &current_->slots[name.slot];
    if (slot->is(ValueKind::kPoison)) throw Abort{};
    return slot;
  }
  if (expr.kind == ExprKind::kIndex && As<IndexExpr>(expr).items.size() == 1) {
    auto& index = As<IndexExpr>(expr);
    const Item& item = index.items[0];
    if (item.value == nullptr || item.key.name != kNoName) {
      Fail(expr.range, DiagKind::kNotAssignable, "only an element of a list can be assigned");
    }
    int64_t i = IntOf(Eval(*item.value), item.range, "an index");
    Value* base = Target(*index.base);
    if (!base->is(ValueKind::kList))
      FailType(index.base->range, "what is assigned to by index", "a list", *base);
    auto size = static_cast<int64_t>(ItemsOf(*base).size());
    if (i < 0 || i >= size) {
      Fail(item.range, DiagKind::kOutOfRange, fmt::format("index {} of a list of {} elements", i, size));
    }
    if (!base->unique()) {
      BurnLoop(size, expr.range);
      *base = MakeList(ItemsOf(*base));
    }
    return &base->as<ListObject>().items[static_cast<size_t>(i)];
  }
  Fail(expr.range, DiagKind::kNotAssignable, "only a variable or an element of a list can be assigned");
}

void Interpreter::ExecAssign(AssignStmt& assign) {
  Value value = Eval(*assign.value);
  if (value.is(ValueKind::kNone))
    Fail(assign.value->range, DiagKind::kTypeMismatch, "the right side has no value");
  Value* target = Target(*assign.target);
  if (assign.op != AssignOp::kSet) {
    BinaryOp op = assign.op == AssignOp::kAdd ? BinaryOp::kAdd : BinaryOp::kSubtract;
    // `xs += [..]` grows the list in place.
    if (op == BinaryOp::kAdd && target->is(ValueKind::kList) && value.is(ValueKind::kList) &&
        target->unique()) {
      const std::vector<Value>& more = ItemsOf(value);
      BurnLoop(static_cast<int64_t>(more.size()), assign.range);
      auto& items = target->as<ListObject>().items;
      std::vector<Value> copy = more;  // `xs += xs`
      items.insert(items.end(), std::make_move_iterator(copy.begin()), std::make_move_iterator(copy.end()));
      return;
    }
    value = Binary(op, *target, value, assign.range);
  } else if (!target->is(ValueKind::kNone) && target->kind() != value.kind() &&
             !target->is(ValueKind::kPoison)) {
    bool numbers =
        (target->is(ValueKind::kInt) || target->is(ValueKind::kFloat) || target->is(ValueKind::kDim)) &&
        (value.is(ValueKind::kInt) || value.is(ValueKind::kFloat) || value.is(ValueKind::kDim));
    bool tensors = IsTensor(*target) && IsTensor(value);
    if (!numbers && !tensors) {
      Fail(assign.value->range, DiagKind::kTypeMismatch,
           fmt::format("the variable holds {}, so it cannot take {}", ValueKindName(target->kind()),
                       DescribeValue(value)));
    }
  }
  *target = std::move(value);
}

template <typename Body>
void Interpreter::ForEach(const Value& iterable, SourceRange range, Body&& body) {
  Loop loop;
  loop.outer = loops_;
  Restore<Loop*> restore(&loops_, &loop);
  if (iterable.is(ValueKind::kRange)) {
    auto& bounds = iterable.as<RangeObject>();
    loop.total = std::max<int64_t>(bounds.end - bounds.begin, 0);
    BurnLoop(loop.total, range);
    for (int64_t i = bounds.begin; i < bounds.end; ++i, ++loop.done) {
      if (!body(Value::Int(i))) return;
    }
    return;
  }
  std::vector<Value> elements = Elements(iterable, range, "what a loop runs over");
  loop.total = static_cast<int64_t>(elements.size());
  for (Value& element : elements) {
    if (!body(std::move(element))) return;
    ++loop.done;
  }
}

Interpreter::Flow Interpreter::ExecFor(ForStmt& loop, Value* out) {
  Flow flow = Flow::kNext;
  ForEach(Eval(*loop.iterable), loop.iterable->range, [&](Value element) {
    BindPattern(loop.pattern, std::move(element), loop.iterable->range);
    flow = ExecBlock(loop.body->statements, false, out);
    return flow == Flow::kNext;
  });
  return flow;
}

bool Interpreter::Condition(Expr& expr) {
  Value value = Eval(expr);
  if (!value.is(ValueKind::kBool)) FailType(expr.range, "a condition", "a bool", value);
  return value.boolean();
}

Interpreter::Flow Interpreter::ExecBranches(List<IfBranch> branches, bool wants_value, Value* out) {
  for (IfBranch& branch : branches) {
    if (branch.condition == nullptr || Condition(*branch.condition)) {
      return ExecBlock(branch.body->statements, wants_value, out);
    }
  }
  return Flow::kNext;
}

Value Interpreter::BlockValue(Block& block) {
  Value value;
  if (ExecBlock(block.statements, true, &value) == Flow::kReturn) {
    Fail(block.range, DiagKind::kTypeMismatch,
         "a block whose value is wanted cannot return from the function");
  }
  return value;
}

void Interpreter::ExecExpect(ExpectStmt& expect) {
  Expr& condition = *expect.condition;
  // Both sides of a comparison are shown where it fails.
  if (condition.kind == ExprKind::kChain && As<ChainExpr>(condition).rest.size() == 1) {
    auto& chain = As<ChainExpr>(condition);
    BinaryOp op = chain.rest[0].op;
    if (op >= BinaryOp::kEqual && op <= BinaryOp::kDivides) {
      Value left = Eval(*chain.first);
      Value right = Eval(*chain.rest[0].operand);
      Value holds = Binary(op, left, right, condition.range);
      if (holds.boolean()) return;
      ++failed_expectations_;
      diag_->Error(condition.range, DiagKind::kExpectFailed,
                   fmt::format("expected {} {} {}", ValueText(left), BinaryOpText(op), ValueText(right)));
      AddTrace(condition.range);
      return;
    }
  }
  size_t before = diag_->error_count();
  if (Condition(condition)) return;
  ++failed_expectations_;
  if (diag_->error_count() == before) {
    diag_->Error(condition.range, DiagKind::kExpectFailed,
                 fmt::format("expected {}", sources_.Text(condition.range)));
    AddTrace(condition.range);
  }
}

bool Interpreter::ExecuteTest(const TestDecl& test, PlanService* plans) {
  size_t errors = diag_->error_count();
  plans_ = plans;
  test_bindings_.clear();
  fuel_ = kFuel;
  steps_ = 0;
  try {
    WithFrame(resolved_.Unit(&test), {}, [&] {
      auto run = [&](auto& self, size_t clause) -> void {
        if (clause == test.clauses.size()) {
          Value ignored;
          ExecBlock(test.body->statements, false, &ignored);
          return;
        }
        ForClause& loop = test.clauses[clause];
        ForEach(Eval(*loop.iterable), loop.iterable->range, [&](Value element) {
          test_bindings_.push_back(
              fmt::format("{} = {}", Text(loop.pattern.names[0].name), ValueText(element)));
          BindPattern(loop.pattern, std::move(element), loop.iterable->range);
          try {
            self(self, clause + 1);
          } catch (const Abort&) {
          }
          test_bindings_.pop_back();
          return true;
        });
      };
      run(run, 0);
    });
  } catch (const Abort&) {
  }
  return diag_->error_count() == errors;
}

// ---------------------------------------------------------------------------------------------------- calls

std::string Interpreter::SignatureOf(const std::string& name, List<Param> params) const {
  std::string text = name + "(";
  for (const Param& param : params) {
    if (text.back() != '(') text += ", ";
    text += sources_.Text(param.range);
  }
  return text + ")";
}

Value Interpreter::EvalArgument(Expr& expr, const TypeRef* type) {
  // Brackets are a selector where one is wanted.
  if (type != nullptr && type->kind == TypeKind::kName && type->name.name == names::kSel &&
      expr.kind == ExprKind::kList) {
    ir::Selector selector;
    BuildSelector(As<BracketExpr>(expr), &selector);
    return MakeSelector(std::move(selector));
  }
  return Eval(expr);
}

void Interpreter::BindArguments(const CallExpr& call, List<Param> params, const std::string& callee,
                                Value* slots, Given* given) {
  given->assign(params.size(), {});
  size_t position = 0;
  for (const Arg& arg : call.args) {
    size_t index = params.size();
    if (arg.key.name == kNoName) {
      index = position++;
      if (index >= params.size()) {
        Fail(arg.range, DiagKind::kBadArguments,
             fmt::format("{} takes {} argument{}", callee, params.size(), params.size() == 1 ? "" : "s"),
             fmt::format("the form is {}", SignatureOf(callee, params)));
      }
    } else {
      for (size_t i = 0; i < params.size(); ++i) {
        if (params[i].name.name == arg.key.name) index = i;
      }
      if (index == params.size()) {
        std::vector<std::string> names;
        for (const Param& param : params) names.push_back(Text(param.name.name));
        FailNearest(arg.key.range, DiagKind::kBadArguments,
                    fmt::format("{} has no parameter '{}'", callee, Text(arg.key.name)), Text(arg.key.name),
                    names, fmt::format("the form is {}", SignatureOf(callee, params)));
      }
    }
    if ((*given)[index].given) {
      Fail(arg.range, DiagKind::kBadArguments,
           fmt::format("'{}' is given twice", Text(params[index].name.name)));
    }
    const Param& param = params[index];
    slots[index] = EvalArgument(*arg.value, param.type);
    (*given)[index] = {true, arg.value->range};
  }
}

void Interpreter::TakeArguments(std::vector<Value>* args, List<Param> params, const std::string& callee,
                                SourceRange range, Value* slots, Given* given) {
  if (args->size() > params.size()) {
    Fail(range, DiagKind::kBadArguments,
         fmt::format("{} takes {} argument{}, not {}", callee, params.size(), params.size() == 1 ? "" : "s",
                     args->size()));
  }
  given->assign(params.size(), {});
  for (size_t i = 0; i < args->size(); ++i) {
    slots[i] = std::move((*args)[i]);
    (*given)[i] = {true, range};
  }
}

void Interpreter::ApplyOverrides(List<Param> params, Value* slots, Given* given) {
  if (argument_overrides_ == nullptr) return;
  for (ArgumentOverride& override : *argument_overrides_) {
    for (size_t i = 0; i < params.size(); ++i) {
      if (Text(params[i].name.name) != override.name) continue;
      slots[i] = override.value;
      (*given)[i] = {true, override.range};
      override.used = true;
    }
  }
}

void Interpreter::FinishArguments(List<Param> params, const std::string& callee, SourceRange range,
                                  Value* slots, const Given& given) {
  Restore<bool> binding(&current_->binding, true);
  for (size_t i = 0; i < params.size(); ++i) {
    if (given[i].given) {
      if (params[i].type != nullptr || slots[i].is(ValueKind::kNone)) {
        slots[i] = Convert(std::move(slots[i]), params[i].type, given[i].range, {}, params[i].name.name);
      }
      continue;
    }
    if (params[i].default_value == nullptr) {
      auto error = Report(range, DiagKind::kBadArguments,
                          fmt::format("{} needs the argument '{}'", callee, Text(params[i].name.name)));
      error.Note(params[i].range, "declared here")
          .Hint(fmt::format("the form is {}", SignatureOf(callee, params)));
      Throw();
    }
    slots[i] = Convert(EvalArgument(*params[i].default_value, params[i].type), params[i].type,
                       params[i].default_value->range, {}, params[i].name.name);
  }
}

bool Interpreter::Accepts(const Value& value, const TypeRef* type) const {
  ValueKind kind = value.kind();
  switch (type->kind) {
    case TypeKind::kName:
      switch (type->name.name) {
        case names::kAny:
          return true;
        case names::kInt:
          return kind == ValueKind::kInt || kind == ValueKind::kDim;
        case names::kFloat:
          return kind == ValueKind::kFloat || kind == ValueKind::kInt || kind == ValueKind::kDim;
        case names::kBool:
          return kind == ValueKind::kBool;
        case names::kString:
          return kind == ValueKind::kString;
        case names::kSel:
          return kind == ValueKind::kSelector;
        case names::kSchedule:
          return kind == ValueKind::kSchedule || kind == ValueKind::kSelector;
        case names::kAxis:
          return kind == ValueKind::kAxis;
        case names::kDim:
          return kind == ValueKind::kDim || kind == ValueKind::kInt;
        case names::kFn:
          return kind == ValueKind::kFunction || kind == ValueKind::kNative || kind == ValueKind::kInstance;
        case names::kQueue:
          return kind == ValueKind::kQueue;
        case names::kModel:
          return kind == ValueKind::kInstance;
        case names::kTopology:
          return kind == ValueKind::kTopology;
        case names::kStrategy:
          return kind == ValueKind::kStrategy || kind == ValueKind::kStrategyDecl;
        case names::kOptimizer:
          return kind == ValueKind::kOptimizer;
        case names::kLoss:
          return IsTensor(value);
        case names::kQuantity:
          return kind == ValueKind::kQuantity;
        case names::kTime:
          return kind == ValueKind::kQuantity && value.unit() == ir::UnitKind::kTime;
        case names::kBytes:
          return kind == ValueKind::kQuantity && value.unit() == ir::UnitKind::kBytes;
        case names::kRate:
          return kind == ValueKind::kQuantity &&
                 (value.unit() == ir::UnitKind::kByteRate || value.unit() == ir::UnitKind::kFlopRate);
        default:
          return Text(type->name.name) == "module" && kind == ValueKind::kInstance;
      }
    case TypeKind::kList:
      return kind == ValueKind::kList || kind == ValueKind::kRange;
    case TypeKind::kTensor:
      return IsTensor(value);
    case TypeKind::kQueue:
      return kind == ValueKind::kQueue;
    case TypeKind::kFn:
      return kind == ValueKind::kFunction || kind == ValueKind::kNative || kind == ValueKind::kInstance;
    case TypeKind::kTuple:
      return kind == ValueKind::kTuple && ItemsOf(value).size() == type->arguments.size();
  }
  return false;
}

void Interpreter::CheckTypeName(const TypeRef& type) {
  static constexpr NameId kKnown[] = {names::kAny,      names::kInt,      names::kFloat,     names::kBool,
                                      names::kString,   names::kSel,      names::kSchedule,  names::kAxis,
                                      names::kDim,      names::kFn,       names::kQueue,     names::kModel,
                                      names::kTopology, names::kStrategy, names::kOptimizer, names::kLoss,
                                      names::kQuantity, names::kTime,     names::kBytes,     names::kRate};
  if (type.kind != TypeKind::kName || Text(type.name.name) == "module" ||
      std::find(std::begin(kKnown), std::end(kKnown), type.name.name) != std::end(kKnown)) {
    return;
  }
  std::vector<std::string> known{"module"};
  for (NameId id : kKnown) known.push_back(Text(id));
  FailNearest(type.range, DiagKind::kUnknownName, fmt::format("unknown type '{}'", Text(type.name.name)),
              Text(type.name.name), known, fmt::format("the types are {}", fmt::join(known, ", ")));
}

Value Interpreter::Convert(Value value, const TypeRef* type, SourceRange range, const std::string& what,
                           NameId name) {
  if (value.is(ValueKind::kPoison)) throw Abort{};
  auto label = [&] {
    return what.empty() && name != kNoName ? fmt::format("'{}'", Text(name))
           : what.empty()                  ? "the value"
                                           : what;
  };
  if (type == nullptr) {
    if (value.is(ValueKind::kNone))
      Fail(range, DiagKind::kTypeMismatch, fmt::format("{} has no value", label()));
    return value;
  }
  if (!Accepts(value, type)) {
    CheckTypeName(*type);
    // A one-step schedule is a selector too.
    if (type->kind == TypeKind::kName && type->name.name == names::kSel && value.is(ValueKind::kSchedule)) {
      const auto& steps = value.as<ScheduleObject>().schedule.steps;
      if (steps.size() == 1 && steps[0].kind == ir::Step::Kind::kSelect) return MakeSelector(steps[0].select);
    }
    auto error =
        Report(range, value.is(ValueKind::kQuantity) ? DiagKind::kUnitMismatch : DiagKind::kTypeMismatch,
               fmt::format("{} must be of type {}, but is {}", label(), sources_.Text(type->range),
                           DescribeValue(value)));
    error.Note(type->range, "declared here");
    Throw();
  }
  if (type->kind == TypeKind::kName) {
    switch (type->name.name) {
      case names::kFloat:
        return Value::Float(NumberOf(value, range, "the value"));
      case names::kInt:
        if (value.is(ValueKind::kDim)) return Value::Int(value.as<DimObject>().dim.size);
        return value;
      case names::kDim:
        if (value.is(ValueKind::kInt)) {
          if (value.integer() < 1) {
            Fail(range, DiagKind::kOutOfRange,
                 fmt::format("the dimension {} must be at least 1, not {}", label(), value.integer()));
          }
          return MakeDim({Text(name), value.integer()});
        }
        return value;
      case names::kSchedule:
        if (value.is(ValueKind::kSelector)) {
          ir::Schedule schedule;
          Yield(value, range, &schedule);
          return MakeSchedule(std::move(schedule));
        }
        return value;
      default:
        return value;
    }
  }
  if (type->kind == TypeKind::kList && value.is(ValueKind::kRange))
    return MakeList(Elements(value, range, label()));
  if (type->kind == TypeKind::kList && !type->arguments.empty()) {
    for (const Value& item : ItemsOf(value)) {
      if (!Accepts(item, type->arguments[0])) {
        Fail(range, DiagKind::kTypeMismatch,
             fmt::format("an element of {} must be of type {}, but is {}", label(),
                         sources_.Text(type->arguments[0]->range), DescribeValue(item)));
      }
    }
  }
  if (type->kind == TypeKind::kTensor) CheckTensor(value, *type, range, label());
  return value;
}

// Conditions over the parameters, in the callee's frame.
bool Interpreter::Holds(const FunctionInfo& info, Value* slots) {
  (void)slots;
  for (const Requirement& requirement : info.requirements) {
    Value value = Eval(*requirement.condition);
    if (!value.is(ValueKind::kBool)) FailType(requirement.range, "a requirement", "a bool", value);
    if (!value.boolean()) return false;
  }
  return true;
}

namespace {

void CollectNames(const Expr& expr, std::vector<NameId>* out) {
  switch (expr.kind) {
    case ExprKind::kName:
      out->push_back(As<NameExpr>(expr).name);
      return;
    case ExprKind::kUnary:
      CollectNames(*As<UnaryExpr>(expr).operand, out);
      return;
    case ExprKind::kChain:
      CollectNames(*As<ChainExpr>(expr).first, out);
      for (const ChainLink& link : As<ChainExpr>(expr).rest) CollectNames(*link.operand, out);
      return;
    case ExprKind::kCall:
      for (const Arg& arg : As<CallExpr>(expr).args) CollectNames(*arg.value, out);
      return;
    case ExprKind::kMember:
      CollectNames(*As<MemberExpr>(expr).base, out);
      return;
    default:
      return;
  }
}

}  // namespace

// For each int parameter of the broken condition: the nearest values that satisfy every requirement.
std::string Interpreter::NearestLegal(const FunctionInfo& info, Value* slots, const Expr& condition) {
  constexpr int64_t kFarthest = 1024;
  constexpr int64_t kMostFuel = 200'000;
  std::vector<NameId> mentioned;
  CollectNames(condition, &mentioned);
  std::string result;
  // Whatever the search reports is not for the user.
  ir::DiagnosticEngine quiet(sources_);
  Restore<ir::DiagnosticEngine*> swap(&diag_, &quiet);
  int64_t fuel = fuel_;
  for (size_t i = info.params.size(); i-- > 0;) {
    NameId name = info.params[i].name.name;
    if (!slots[i].is(ValueKind::kInt) ||
        std::find(mentioned.begin(), mentioned.end(), name) == mentioned.end()) {
      continue;
    }
    fuel_ = std::min(fuel, kMostFuel);
    Value original = slots[i];
    std::vector<int64_t> found;
    auto try_value = [&](int64_t candidate) {
      slots[i] = Value::Int(candidate);
      try {
        if (Holds(info, slots)) found.push_back(candidate);
      } catch (const Abort&) {
      }
    };
    for (int64_t distance = 1; distance <= kFarthest && found.empty() && fuel_ > 1000; ++distance) {
      if (original.integer() - distance >= 1) try_value(original.integer() - distance);
      try_value(original.integer() + distance);
    }
    slots[i] = original;
    if (found.empty()) continue;
    if (!result.empty()) result += "; or ";
    result += fmt::format("{} = {}", Text(name), fmt::join(found, fmt::format(" or {} = ", Text(name))));
  }
  fuel_ = fuel;
  return result;
}

void Interpreter::CheckRequirements(const FunctionInfo& info, Value* slots, SourceRange range) {
  Restore<bool> binding(&current_->binding, true);
  for (const Requirement& requirement : info.requirements) {
    Value value = Eval(*requirement.condition);
    if (!value.is(ValueKind::kBool)) FailType(requirement.range, "a requirement", "a bool", value);
    if (value.boolean()) continue;
    std::vector<NameId> mentioned;
    CollectNames(*requirement.condition, &mentioned);
    std::string with;
    for (size_t i = 0; i < info.params.size(); ++i) {
      NameId name = info.params[i].name.name;
      if (std::find(mentioned.begin(), mentioned.end(), name) == mentioned.end()) continue;
      with += fmt::format("{}{} = {}", with.empty() ? ", with " : ", ", Text(name), ValueText(slots[i]));
    }
    auto error =
        Report(range, DiagKind::kRequiresFailed,
               fmt::format("{} requires {}{}", info.name, sources_.Text(requirement.condition->range), with));
    error.Note(requirement.range, "required here");
    if (requirement.hint != nullptr) {
      Value hint = Eval(*requirement.hint);
      error.Hint(hint.is(ValueKind::kString) ? TextOf(hint) : ValueText(hint));
    }
    if (std::string legal = NearestLegal(info, slots, *requirement.condition); !legal.empty()) {
      error.Hint(fmt::format("the nearest legal choice: {}", legal));
    }
    Throw();
  }
}

Value Interpreter::CallFunction(const FunctionObject& function, const CallExpr* call,
                                std::vector<Value>* args, SourceRange range) {
  const FunctionInfo& info = *function.info;
  Burn(2, range);
  CheckStack(range);
  FrameGuard frame(*this, info.frame_size, range);
  Given given;
  if (call != nullptr) {
    BindArguments(*call, info.params, info.name, frame.slots(), &given);
  } else {
    TakeArguments(args, info.params, info.name, range, frame.slots(), &given);
  }
  Activation activation;
  activation.info = &info;
  activation.slots = frame.slots();
  activation.call = range;
  if (function.self.is(ValueKind::kInstance)) activation.self = &function.self.as<InstanceObject>();
  for (size_t i = 0; i < info.captures.size(); ++i)
    frame.slots()[info.captures[i].inner] = function.captures[i];
  if (info.self_slot != kNoSlot) {
    frame.slots()[info.self_slot] =
        Value::Of(ValueKind::kFunction, const_cast<FunctionObject*>(&function));  // counted, not changed
  }
  activation.entry = graph_ != nullptr && &info == graph_->root;
  ActivationGuard guard(&current_, &activation);
  FinishArguments(info.params, info.name, range, frame.slots(), given);
  CheckRequirements(info, frame.slots(), range);
  Restore<int> depth(&calls_, calls_ + 1);
  return RunFunction(info, activation);
}

Value Interpreter::RunFunction(const FunctionInfo& info, Activation& activation) {
  const TypeRef* result = info.decl->result;
  bool schedule_type =
      result != nullptr && result->kind == TypeKind::kName && result->name.name == names::kSchedule;
  ir::Schedule yielded;
  if (result == nullptr || schedule_type) activation.sink = &yielded;
  Value value;
  ExecBlock(info.decl->body->statements, true, &value);
  activation.sink = nullptr;
  SourceRange end = info.decl->body->range;
  if (schedule_type || !yielded.steps.empty()) {
    if (value.is(ValueKind::kSchedule) && value.unique() && yielded.steps.empty()) return value;
    if (!value.is(ValueKind::kNone)) {
      if (!value.is(ValueKind::kSchedule) && !value.is(ValueKind::kSelector)) {
        FailType(end, fmt::format("the value of {}, which yields steps,", info.name), "a schedule", value);
      }
      Yield(value, end, &yielded);
    }
    return MakeSchedule(std::move(yielded));
  }
  if (result == nullptr) return value;
  if (value.is(ValueKind::kNone)) {
    auto error = Report(end, DiagKind::kMissingReturn,
                        fmt::format("{} ends without a value, though it promises {}", info.name,
                                    sources_.Text(result->range)));
    error.Note(result->range, "declared here");
    Throw();
  }
  return Convert(std::move(value), result, end, fmt::format("the result of {}", info.name), kNoName);
}

Value Interpreter::Call(const Value& callee, std::vector<Value> args, SourceRange range) {
  switch (callee.kind()) {
    case ValueKind::kFunction: {
      Value keep = callee;
      return CallFunction(keep.as<FunctionObject>(), nullptr, &args, range);
    }
    case ValueKind::kModule:
      return Instantiate(*callee.as<ModuleObject>().info, nullptr, &args, range);
    case ValueKind::kInstance:
      return CallForward(callee, nullptr, &args, range);
    case ValueKind::kTopologyDecl:
      return BuildTopology(callee.as<TopologyDeclObject>(), nullptr, &args, range);
    case ValueKind::kNative: {
      NativeCall call;
      call.range = range;
      for (Value& arg : args) call.args.push_back({kNoName, std::move(arg), range, nullptr});
      return CallNativeWith(callee.as<NativeObject>().index, call);
    }
    default:
      Fail(range, DiagKind::kNotCallable, fmt::format("{} cannot be called", DescribeValue(callee)));
  }
}

}  // namespace piper::frontend
