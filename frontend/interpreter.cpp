#include "frontend/interpreter.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "frontend/test_runner.h"

namespace piper::frontend {

using ir::DiagKind;

// ---- set-up

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

// ---- errors

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
  if (!test_bindings_.empty() && diag_->diagnostics().back().cases.empty())
    last.Case(fmt::format("{}", fmt::join(test_bindings_, ", ")));
}

void Interpreter::TakeDiagnostics(const ir::DiagnosticEngine& from) {
  for (const ir::Diagnostic& d : from.diagnostics()) {
    auto builder = d.severity == ir::Severity::kError ? diag_->Error(d.range, d.kind, d.message)
                                                      : diag_->Warning(d.range, d.kind, d.message);
    for (const ir::DiagNote& note : d.notes) builder.Note(note.range, note.message);
    if (!test_bindings_.empty()) builder.Case(fmt::format("{}", fmt::join(test_bindings_, ", ")));
  }
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

std::string HintFor(std::string_view wanted, const Value& got) {
  struct Example {
    std::string_view wanted, hint;
  };
  static constexpr Example kExamples[] = {
      {"an int", "write a whole number; div(a, b) divides without a remainder, round(x) rounds"},
      {"a number", "write a number without a unit: 0.5"},
      {"a bool", "compare something: n > 0, or write true or false"},
      {"a string", "write it in double quotes"},
      {"a list or a range", "write a range `0..n` or a list `[a, b]`"},
      {"a schedule", "call a function that yields steps, such as schedules.gpipe(s, p, m)"},
      {"a strategy", "for example `strategies.data_parallel(2)`"},
      {"a topology", "for example `topologies.local(ranks = 4)`"},
      {"a module", "for example `gpt.GPT(layers = 4, ..)`"},
      {"a selector", "write it in brackets: [layer = 0]"},
      {"an axis", "`mesh (pp = 4)` names the axis pp"},
  };
  if (wanted == "a bool" && got.is(ValueKind::kInt))
    return fmt::format("compare it: {} != 0", ValueText(got));
  if (got.is(ValueKind::kModule) || got.is(ValueKind::kNamespace))
    return "name what is inside it, or call it";
  if (wanted == "a selector" && got.is(ValueKind::kSchedule))
    return "name its steps one by one, as selectors";
  for (const Example& example : kExamples) {
    // "an int" in a sentence, `int` as a declared type.
    std::string_view type = example.wanted.substr(example.wanted.find(' ') + 1);
    if (wanted == example.wanted || wanted == type) return std::string(example.hint);
  }
  return "";
}

void Interpreter::FailType(SourceRange range, std::string_view what, std::string_view wanted,
                           const Value& got) {
  if (got.is(ValueKind::kPoison)) throw Abort{};
  bool units = got.is(ValueKind::kQuantity);
  Fail(range, units ? DiagKind::kUnitMismatch : DiagKind::kTypeMismatch,
       fmt::format("{} must be {}, not {}", what, wanted, DescribeValue(got)), HintFor(wanted, got));
}

double Interpreter::LoopShare() const {
  // What is done of the outermost loop, refined by the loops inside it.
  std::vector<const Loop*> loops;
  for (const Loop* loop = loops_; loop != nullptr; loop = loop->outer) loops.push_back(loop);
  double share = 0, width = 1;
  for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) {
    auto total = static_cast<double>(std::max<int64_t>((*loop)->total, 1));
    share += width * static_cast<double>((*loop)->done) / total;
    width /= total;
  }
  return share;
}

double Interpreter::WorkDone() const {
  double work = static_cast<double>(kFuel - fuel_);
  for (const Loop* loop = loops_; loop != nullptr; loop = loop->outer) {
    work -= static_cast<double>(loop->total - loop->done);
  }
  return std::max(work, 0.0);
}

void Interpreter::Checkpoint(SourceRange range) {
  constexpr int64_t kInterval = 200'000;
  if (fuel_ < 0) OutOfFuel(range);
  checkpoint_ = std::max<int64_t>(fuel_ - kInterval, 0);
  const Loop* outermost = loops_;
  while (outermost != nullptr && outermost->outer != nullptr) outermost = outermost->outer;
  // A few rounds say little about the rest.
  if (outermost == nullptr || outermost->done < 4) return;
  double share = LoopShare();
  double steps = static_cast<double>(steps_) / share, work = WorkDone() / share;
  if (work > 10.0 * static_cast<double>(kFuel) || steps > 2.0 * static_cast<double>(kMaxSteps))
    OutOfFuel(range);
}

void Interpreter::OutOfFuel(SourceRange range) {
  bool too_many_steps = static_cast<double>(steps_) > WorkDone() / 4;
  double share = LoopShare();
  double used = too_many_steps ? static_cast<double>(steps_) : WorkDone();
  std::string message =
      too_many_steps ? fmt::format("the schedules hold more than the {} steps that they may", kMaxSteps)
                     : fmt::format("elaboration takes more than the {} steps that it may", kFuel);
  if (share > 0)
    message += fmt::format(": the loops that lead here would make it about {:.1g}", used / share);
  // What reports the error may still evaluate a little.
  fuel_ = std::max<int64_t>(fuel_, 1000);
  checkpoint_ = 0;
  Fail(range, DiagKind::kFuelExhausted, std::move(message), "make the loop shorter, or the recursion end");
}

void Interpreter::BurnLoop(int64_t rounds, SourceRange range, const Loop* self) {
  if (rounds > kFuel) {
    double total = static_cast<double>(rounds);
    for (const Loop* loop = loops_; loop != nullptr; loop = loop->outer)
      if (loop != self) total *= static_cast<double>(loop->total);
    Fail(range, DiagKind::kFuelExhausted,
         fmt::format("this takes {:.3g} rounds, more than the {} steps that elaboration may take", total,
                     kFuel),
         "loops unroll at compile time: make this one shorter");
  }
  Burn(rounds, range);
}

void Interpreter::CheckStack(SourceRange range) {
  char here = 0;
  auto used = static_cast<size_t>(std::abs(stack_base_ - &here));
  if (calls_ < kMaxCalls && used < stack_limit_) return;
  Fail(range, DiagKind::kFuelExhausted,
       fmt::format("calls nest {} deep, deeper than elaboration goes", calls_),
       "does this recursion end? a loop nests nothing");
}

// ---- globals

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

// ---- conversions

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

}  // namespace piper::frontend
