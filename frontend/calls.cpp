// Calls: arguments, types of parameters, requirements.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "frontend/interpreter.h"
#include "frontend/test_runner.h"

namespace piper::frontend {

using ir::DiagKind;

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

namespace {

// Of the declared type as it is: nothing to convert, nothing to say.
bool IsExactly(const Value& value, const TypeRef* type) {
  if (type == nullptr || type->kind != TypeKind::kName) return false;
  switch (type->name.name) {
    case names::kInt:
      return value.is(ValueKind::kInt);
    case names::kBool:
      return value.is(ValueKind::kBool);
    case names::kSel:
      return value.is(ValueKind::kSelector);
    default:
      return false;
  }
}

}  // namespace

void Interpreter::FinishArguments(List<Param> params, const std::string& callee, SourceRange range,
                                  Value* slots, const Given& given) {
  Restore<bool> binding(&current_->binding, true);
  for (size_t i = 0; i < params.size(); ++i) {
    if (given[i].given) {
      if (IsExactly(slots[i], params[i].type)) continue;
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
    std::string_view wanted = sources_.Text(type->range);
    if (std::string hint = HintFor(wanted, value); !hint.empty()) error.Hint(hint);
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

// A condition over the parameters, in the callee's frame.
bool Interpreter::Holds(const Requirement& requirement) {
  Value value = Eval(*requirement.condition);
  if (!value.is(ValueKind::kBool)) FailType(requirement.range, "a requirement", "a bool", value);
  return value.boolean();
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

// For each int parameter of the broken condition: the nearest values that satisfy every requirement that
// names it or held before.
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
    checkpoint_ = 0;
    Value original = slots[i];
    std::vector<int64_t> found;
    // What is broken as well and does not name this parameter has a choice of its own.
    std::vector<const Requirement*> wanted;
    for (const Requirement& requirement : info.requirements) {
      std::vector<NameId> named;
      CollectNames(*requirement.condition, &named);
      bool counts = std::find(named.begin(), named.end(), name) != named.end();
      try {
        if (!counts) counts = Holds(requirement);
      } catch (const Abort&) {
      }
      if (counts) wanted.push_back(&requirement);
    }
    auto try_value = [&](int64_t candidate) {
      slots[i] = Value::Int(candidate);
      try {
        if (std::all_of(wanted.begin(), wanted.end(), [&](const Requirement* r) { return Holds(*r); }))
          found.push_back(candidate);
      } catch (const Abort&) {
      }
    };
    for (int64_t distance = 1; distance <= kFarthest && found.empty() && fuel_ > 1000; ++distance) {
      int64_t candidate;
      if (!__builtin_sub_overflow(original.integer(), distance, &candidate) && candidate >= 1)
        try_value(candidate);
      if (!__builtin_add_overflow(original.integer(), distance, &candidate)) try_value(candidate);
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
    if (Holds(requirement)) continue;
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
  if (schedule_type) yielded.steps.reserve(yielded_);
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
      Yield(std::move(value), end, &yielded);
    }
    if (yielded.steps.capacity() > 2 * yielded.steps.size()) yielded.steps.shrink_to_fit();
    yielded_ = yielded.steps.size();
    return MakeSchedule(std::move(yielded));
  }
  if (result == nullptr || IsExactly(value, result)) return value;
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
