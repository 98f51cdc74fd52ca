// Expressions: names, arithmetic on numbers and quantities, lists, members, calls.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "frontend/interpreter.h"
#include "frontend/test_runner.h"

namespace piper::frontend {

using ir::DiagKind;
using ir::UnitKind;

Value Interpreter::Eval(Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kNumber:
      return EvalNumber(As<NumberExpr>(expr));
    case ExprKind::kString:
      return MakeString(std::string(As<StringExpr>(expr).value));
    case ExprKind::kBool:
      return Value::Bool(As<BoolExpr>(expr).value);
    case ExprKind::kName:
      return EvalName(As<NameExpr>(expr));
    case ExprKind::kList: {
      auto& list = As<BracketExpr>(expr);
      if (ListsTags(list)) {
        ir::Selector selector;
        BuildSelector(list, &selector);
        return MakeSelector(std::move(selector));
      }
      Burn(static_cast<int64_t>(list.items.size()), expr.range);
      std::vector<Value> items;
      items.reserve(list.items.size());
      for (Item& item : list.items) items.push_back(Eval(*item.value));
      return MakeList(std::move(items));
    }
    case ExprKind::kSelector: {
      auto* object = new SelectorObject;
      Value value = Value::Of(ValueKind::kSelector, object);
      BuildStepSelector(As<BracketExpr>(expr), &object->selector);
      return value;
    }
    case ExprKind::kTuple: {
      std::vector<Value> items;
      for (Expr* item : As<TupleExpr>(expr).items) items.push_back(Eval(*item));
      return MakeList(std::move(items), ValueKind::kTuple);
    }
    case ExprKind::kComprehension:
      return EvalComprehension(As<ComprehensionExpr>(expr));
    case ExprKind::kUnary:
      return EvalUnary(As<UnaryExpr>(expr));
    case ExprKind::kChain:
      return EvalChain(As<ChainExpr>(expr));
    case ExprKind::kCall:
      return EvalCall(As<CallExpr>(expr));
    case ExprKind::kIndex:
      return EvalIndex(As<IndexExpr>(expr));
    case ExprKind::kMember:
      return EvalMember(As<MemberExpr>(expr));
    case ExprKind::kOptional: {
      ir::Selector selector = SelectorOf(Eval(*As<OptionalExpr>(expr).operand), expr.range);
      selector.optional = true;
      for (ir::SelectorClause& clause : selector.any_of) clause.optional = true;
      selector.range = expr.range;
      return MakeSelector(std::move(selector));
    }
    case ExprKind::kLambda: {
      const FunctionInfo& info = resolved_.Unit(As<LambdaExpr>(expr).fn);
      auto* object = new FunctionObject;
      Value value = Value::Of(ValueKind::kFunction, object);
      object->info = &info;
      if (current_->self != nullptr) {
        object->self = Value::Of(ValueKind::kInstance, const_cast<InstanceObject*>(current_->self));
      }
      for (const auto& capture : info.captures) object->captures.push_back(current_->slots[capture.outer]);
      return value;
    }
    case ExprKind::kIf:
      for (IfBranch& branch : As<IfExpr>(expr).branches) {
        if (branch.condition == nullptr || Condition(*branch.condition)) return BlockValue(*branch.body);
      }
      return {};
    case ExprKind::kTag:
      return EvalTag(As<TagExpr>(expr));
    case ExprKind::kTable:
      Fail(expr.range, DiagKind::kUnsupported, "tables are not read yet", "write the numbers as a list");
  }
  return {};
}

Value Interpreter::EvalNumber(const NumberExpr& expr) {
  if (expr.is_int) return Value::Int(expr.int_value);
  if (expr.unit == UnitKind::kNone) return Value::Float(expr.value);
  return Value::Quantity(expr.value, expr.unit);
}

Value Interpreter::EvalName(NameExpr& expr) {
  if (cut_ != nullptr) {
    for (const NameRef& tag : cut_->tags) {
      if (tag.name != expr.name) continue;
      auto* object = new TagSumObject;
      object->terms.push_back({Text(expr.name), 1});
      return Value::Of(ValueKind::kTagSum, object);
    }
  }
  if (axis_wanted_) {
    if (std::optional<Value> axis = PreferAxis(expr)) return *axis;
  }
  switch (expr.frame) {
    case kFrameLocal: {
      const Value& value = current_->slots[expr.slot];
      if (value.is(ValueKind::kPoison)) throw Abort{};
      if (value.is(ValueKind::kNone)) {
        Fail(expr.range, DiagKind::kUnknownName, fmt::format("'{}' has no value yet", Text(expr.name)),
             "a local function sees the functions that stand before it, and itself");
      }
      return value;
    }
    case kFrameSelf: {
      const InstanceObject* self = current_->self;
      PIPER_CHECK(self != nullptr);
      const ModuleInfo::Slot& slot = self->info->slots[static_cast<size_t>(expr.slot)];
      if (slot.function != nullptr) {
        auto* object = new FunctionObject;
        object->info = slot.function;
        object->self = Value::Of(ValueKind::kInstance, const_cast<InstanceObject*>(self));
        return Value::Of(ValueKind::kFunction, object);
      }
      return self->slots[static_cast<size_t>(expr.slot)];
    }
    case kFrameGlobal:
      return Global(expr.slot);
    case kFrameNative: {
      const Native& native = Natives()[static_cast<size_t>(expr.slot)];
      if (native.constant != nullptr) return native.constant();
      auto* object = new NativeObject;
      object->index = expr.slot;
      return Value::Of(ValueKind::kNative, object);
    }
    default:
      break;
  }
  if (strategy_ != nullptr) {
    if (const AxisObject::Axis* axis = FindAxis(Text(expr.name))) {
      auto* object = new AxisObject;
      object->axes.push_back(*axis);
      return Value::Of(ValueKind::kAxis, object);
    }
    if (expr.name == names::kAll) {
      auto* object = new GroupObject;
      object->group.range = expr.range;
      return Value::Of(ValueKind::kGroup, object);
    }
  }
  for (const Activation* a = current_; a != nullptr; a = a->outer) {
    for (const auto& [name, size] : a->dims) {
      if (name == expr.name) return MakeDim({Text(name), size});
    }
    if (a->info != nullptr && a->info->decl != nullptr) break;
  }
  std::vector<std::string> known;
  if (strategy_ != nullptr) {
    for (const AxisObject::Axis& axis : strategy_->axes) known.push_back(axis.name);
  }
  SilentIfLost(Text(expr.name));
  for (const TopLevelName& name : program_.files[static_cast<size_t>(current_->info->file)].names) {
    known.push_back(Text(name.name));
  }
  if (current_->info != nullptr) {
    for (const Param& param : current_->info->params) known.push_back(Text(param.name.name));
  }
  for (const Native& native : Natives()) known.emplace_back(native.name);
  FailNearest(expr.range, DiagKind::kUnknownName, fmt::format("unknown name '{}'", Text(expr.name)),
              Text(expr.name), known,
              strategy_ != nullptr && !strategy_->axes.empty()
                  ? fmt::format("the axes here are {}",
                                [&] {
                                  std::string axes;
                                  for (const auto& axis : strategy_->axes)
                                    axes += (axes.empty() ? "" : ", ") + axis.name;
                                  return axes;
                                }())
                  : "");
}

Value Interpreter::EvalComprehension(ComprehensionExpr& expr) {
  std::vector<Value> items;
  auto run = [&](auto& self, size_t clause) -> void {
    if (clause == expr.clauses.size()) {
      if (expr.condition == nullptr || Condition(*expr.condition)) {
        Burn(1, expr.range);
        items.push_back(Eval(*expr.element));
      }
      return;
    }
    ForClause& loop = expr.clauses[clause];
    Value iterable = Eval(*loop.iterable);
    Loop rounds;
    rounds.outer = loops_;
    Restore<Loop*> restore(&loops_, &rounds);
    auto element = [&](Value value) {
      BindPattern(loop.pattern, std::move(value), loop.iterable->range);
      self(self, clause + 1);
      ++rounds.done;
    };
    if (iterable.is(ValueKind::kRange)) {
      auto& bounds = iterable.as<RangeObject>();
      rounds.total = std::max<int64_t>(bounds.end - bounds.begin, 0);
      BurnLoop(rounds.total, loop.iterable->range, &rounds);
      for (int64_t i = bounds.begin; i < bounds.end; ++i) element(Value::Int(i));
    } else {
      std::vector<Value> elements =
          Elements(iterable, loop.iterable->range, "what a comprehension runs over");
      rounds.total = static_cast<int64_t>(elements.size());
      for (Value& value : elements) element(std::move(value));
    }
  };
  run(run, 0);
  return MakeList(std::move(items));
}

// ---- index and member

Value Interpreter::IndexList(const Value& base, const Value& index, SourceRange range) {
  const auto& object = base.as<ListObject>();
  auto size = static_cast<int64_t>(object.items.size() - object.head);
  if (index.is(ValueKind::kRange)) {
    auto& bounds = index.as<RangeObject>();
    if (bounds.begin < 0 || bounds.end > size || bounds.begin > bounds.end) {
      Fail(range, DiagKind::kOutOfRange,
           fmt::format("the slice {}..{} of a list of {} elements", bounds.begin, bounds.end, size));
    }
    BurnLoop(bounds.end - bounds.begin, range);
    auto first = object.items.begin() + static_cast<std::ptrdiff_t>(object.head);
    return MakeList({first + bounds.begin, first + bounds.end}, base.kind());
  }
  int64_t i = IntOf(index, range, "an index");
  if (i < 0 || i >= size) {
    Fail(range, DiagKind::kOutOfRange, fmt::format("index {} of a list of {} elements", i, size),
         i < 0 ? "indices count from 0; reversed(xs)[0] is the last element" : "");
  }
  return object.items[object.head + static_cast<size_t>(i)];
}

Value Interpreter::EvalIndex(IndexExpr& expr) {
  if (expr.base->kind == ExprKind::kName) {
    auto& name = As<NameExpr>(*expr.base);
    if (name.frame == kFrameUnresolved && name.name == names::kQueue) {
      return MakeList({}, ValueKind::kQueue);  // queue[sel]
    }
  }
  Value base;
  {
    Restore<bool> wanted(&axis_wanted_, true);
    base = Eval(*expr.base);
  }
  Restore<bool> not_inside(&axis_wanted_, false);
  switch (base.kind()) {
    case ValueKind::kSelector: {
      // `x[F]` of a step without a pass of its own.
      const ir::StepSelector& steps = base.as<SelectorObject>().selector;
      if (steps.indexed() && steps.passes() == 0 && expr.items.size() == 1 &&
          expr.items[0].key.name == kNoName && expr.items[0].value != nullptr &&
          expr.items[0].value->kind == ExprKind::kSelector) {
        auto& pass = As<BracketExpr>(*expr.items[0].value);
        if (pass.items.empty() && pass.pass != Pass::kNone) {
          ir::StepSelector narrowed = steps;
          narrowed.set_passes(PassesOf(pass.pass));
          narrowed.set_range(expr.range);
          return MakeSelector(std::move(narrowed));
        }
      }
      ir::Selector narrow;
      AddItems(expr.items, &narrow);
      ir::Selector result = base.as<SelectorObject>().selector.Full().Intersect(narrow);
      result.range = expr.range;
      return MakeSelector(std::move(result));
    }
    case ValueKind::kAxis:
      return IndexAxis(base.as<AxisObject>(), expr.items, expr.range);
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kQueue:
    case ValueKind::kRange: {
      if (expr.items.size() != 1 || expr.items[0].key.name != kNoName || expr.items[0].value == nullptr) {
        Fail(expr.range, DiagKind::kBadArguments, "a list is indexed by one int or range");
      }
      Value index = Eval(*expr.items[0].value);
      if (base.is(ValueKind::kRange)) {
        auto& bounds = base.as<RangeObject>();
        int64_t i = IntOf(index, expr.items[0].range, "an index");
        if (i < 0 || i >= bounds.end - bounds.begin) {
          Fail(expr.range, DiagKind::kOutOfRange,
               fmt::format("index {} of the range {}", i, ValueText(base)));
        }
        return Value::Int(bounds.begin + i);
      }
      return IndexList(base, index, expr.range);
    }
    case ValueKind::kTensor:
    case ValueKind::kParameter:
      Fail(expr.range, DiagKind::kBadOperation, "a tensor is not indexed by position",
           "take it apart with unstack(x, dim) or split it by name");
    default:
      FailType(expr.base->range, "what is indexed", "a list, a selector or an axis", base);
  }
}

Value Interpreter::EvalMember(MemberExpr& expr) {
  if (expr.base->kind == ExprKind::kName && expr.member.name == names::kSize) {
    if (std::optional<Value> axis = PreferAxis(As<NameExpr>(*expr.base)))
      return MemberOf(*axis, expr.member, expr.range);
  }
  return MemberOf(Eval(*expr.base), expr.member, expr.range);
}

Value Interpreter::MemberOf(const Value& base, const NameRef& member, SourceRange range) {
  std::string name = Text(member.name);
  std::vector<std::string> known;
  switch (base.kind()) {
    case ValueKind::kNamespace: {
      const LoadedFile& file = program_.files[static_cast<size_t>(base.as<NamespaceObject>().file)];
      if (const TopLevelName* found = file.Find(member.name)) return Global(found->global);
      if (!file.syntax->ok) throw Abort{};  // it may be what did not parse
      for (const TopLevelName& top : file.names) known.push_back(Text(top.name));
      FailNearest(member.range, DiagKind::kUnknownMember,
                  fmt::format("{} defines no '{}'", sources_.Name(file.id), name), name, known,
                  fmt::format("it defines {}", fmt::join(known, ", ")));
    }
    case ValueKind::kInstance: {
      const auto& instance = base.as<InstanceObject>();
      int slot = instance.info->FindSlot(member.name);
      if (slot != kNoSlot) {
        const ModuleInfo::Slot& info = instance.info->slots[static_cast<size_t>(slot)];
        if (info.function == nullptr) return instance.slots[static_cast<size_t>(slot)];
        auto* object = new FunctionObject;
        object->info = info.function;
        object->self = base;
        return Value::Of(ValueKind::kFunction, object);
      }
      for (const ModuleInfo::Slot& info : instance.info->slots) known.push_back(Text(info.name));
      FailNearest(member.range, DiagKind::kUnknownMember,
                  fmt::format("module {} has no member '{}'", instance.info->name, name), name, known,
                  fmt::format("it has {}", fmt::join(known, ", ")));
    }
    case ValueKind::kTensor:
    case ValueKind::kParameter:
      if (member.name == names::kT) return AddOperation("transpose", {TensorOf(base, range)}, {}, range);
      Fail(member.range, DiagKind::kUnknownMember, fmt::format("a tensor has no '{}'", name),
           "`.T` transposes; operations are called by name: gelu(x)");
    case ValueKind::kAxis: {
      if (member.name == names::kSize) {
        int64_t size = 1;
        for (const auto& axis : base.as<AxisObject>().axes) size *= axis.size;
        return Value::Int(size);
      }
      known = {"size"};
      break;
    }
    case ValueKind::kDim:
      if (member.name == names::kSize) return Value::Int(base.as<DimObject>().dim.size);
      known = {"size"};
      break;
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kQueue:
      if (member.name == names::kSize) {
        return Value::Int(static_cast<int64_t>(ItemsOf(base).size() - base.as<ListObject>().head));
      }
      known = {"size", "push", "pop"};
      break;
    case ValueKind::kRange:
      if (member.name == names::kSize) {
        return Value::Int(std::max<int64_t>(0, base.as<RangeObject>().end - base.as<RangeObject>().begin));
      }
      known = {"size"};
      break;
    case ValueKind::kSchedule:
      if (member.name == names::kSize) {
        return Value::Int(static_cast<int64_t>(base.as<ScheduleObject>().schedule.steps.size()));
      }
      known = {"size"};
      break;
    case ValueKind::kTopology:
      if (name == "devices") return Value::Int(base.as<TopologyObject>().topology.devices());
      known = {"devices"};
      break;
    case ValueKind::kPlan: {
      auto& plan = base.as<PlanObject>();
      if (!plan.planned) {
        if (plans_ == nullptr) Fail(range, DiagKind::kUnsupported, "plans are made by `piper test` only");
        ir::DiagnosticEngine behind(sources_);
        std::optional<PlanService::Figures> figures = plans_->Plan(plan.program, behind);
        TakeDiagnostics(behind);
        if (!figures) Throw();
        for (const auto& [figure, quantity] : *figures) {
          plan.figures.emplace_back(figure, quantity.kind == UnitKind::kNone
                                                ? Value::Float(quantity.value)
                                                : Value::Quantity(quantity.value, quantity.kind));
        }
        plan.planned = true;
      }
      for (const auto& [figure, value] : plan.figures) {
        if (figure == name) return value;
        known.push_back(figure);
      }
      break;
    }
    default:
      break;
  }
  FailNearest(member.range, DiagKind::kUnknownMember,
              fmt::format("{} has no member '{}'", ValueKindName(base.kind()), name), name, known,
              known.empty() ? "" : fmt::format("it has {}", fmt::join(known, ", ")));
}

// ---- calls

Value Interpreter::EvalMethod(CallExpr& expr, MemberExpr& member, bool* is_method) {
  *is_method = false;
  const bool pushes = member.member.name == names::kPush;
  if (!pushes && member.member.name != names::kPop) return {};
  Expr& root = *member.base;
  const auto has_them = [](const Value& value) {
    return value.is(ValueKind::kQueue) || value.is(ValueKind::kList);
  };
  const bool variable = root.kind == ExprKind::kName && As<NameExpr>(root).frame == kFrameLocal &&
                        cut_ == nullptr && !axis_wanted_;
  if (!variable || !has_them(current_->slots[As<NameExpr>(root).slot])) {
    if (!has_them(Eval(root))) return {};
  }
  *is_method = true;
  const std::string_view name = pushes ? "push" : "pop";
  if (root.kind != ExprKind::kName || As<NameExpr>(root).frame != kFrameLocal) {
    Fail(root.range, DiagKind::kNotAssignable, fmt::format("only a variable can {}", name));
  }
  if (pushes) {
    if (expr.args.size() != 1 || expr.args[0].key.name != kNoName) {
      Fail(expr.range, DiagKind::kBadArguments, "push takes one argument");
    }
    Value value = Eval(*expr.args[0].value);
    Value* target = Target(root);
    if (!target->unique()) {
      BurnLoop(static_cast<int64_t>(ItemsOf(*target).size()), expr.range);
      auto* copy = new ListObject(target->as<ListObject>());
      *target = Value::Of(target->kind(), copy);
    }
    Burn(1, expr.range);
    target->as<ListObject>().items.push_back(std::move(value));
    return {};
  }
  if (!expr.args.empty()) Fail(expr.range, DiagKind::kBadArguments, "pop takes no argument");
  Value* target = Target(root);
  auto* list = &target->as<ListObject>();
  if (list->items.size() == list->head) {
    Fail(expr.range, DiagKind::kOutOfRange,
         fmt::format("pop from an empty {}", target->is(ValueKind::kQueue) ? "queue" : "list"));
  }
  if (!target->unique()) {
    BurnLoop(static_cast<int64_t>(list->items.size()), expr.range);
    list = new ListObject(*list);
    *target = Value::Of(target->kind(), list);
  }
  Value value;
  if (target->is(ValueKind::kQueue)) {  // first in, first out
    value = std::move(list->items[list->head++]);
    if (list->head > 64 && list->head * 2 > list->items.size()) {
      list->items.erase(list->items.begin(), list->items.begin() + static_cast<std::ptrdiff_t>(list->head));
      list->head = 0;
    }
  } else {
    value = std::move(list->items.back());
    list->items.pop_back();
  }
  return value;
}

Value Interpreter::EvalCall(CallExpr& expr) {
  Expr& callee = *expr.callee;
  if (callee.kind == ExprKind::kName) {
    auto& name = As<NameExpr>(callee);
    if (name.frame == kFrameOperation) return CallOperation(*ir::FindOperation(Text(name.name)), expr);
    if (name.frame == kFrameNative) return CallNative(name.slot, expr);
    if (name.frame == kFrameUnresolved) {
      if (name.name == names::kFused) return EvalFused(expr);
      if (name.name == names::kGreedy) return EvalGreedy(expr);
    }
  }
  if (callee.kind == ExprKind::kMember) {
    bool is_method = false;
    Value value = EvalMethod(expr, As<MemberExpr>(callee), &is_method);
    if (is_method) return value;
  }
  Value function = Eval(callee);
  switch (function.kind()) {
    case ValueKind::kFunction:
      return CallFunction(function.as<FunctionObject>(), &expr, nullptr, expr.range);
    case ValueKind::kNative:
      return CallNative(function.as<NativeObject>().index, expr);
    case ValueKind::kModule:
      return Instantiate(*function.as<ModuleObject>().info, &expr, nullptr, expr.range);
    case ValueKind::kInstance:
      return CallForward(function, &expr, nullptr, expr.range);
    case ValueKind::kTopologyDecl:
      return BuildTopology(function.as<TopologyDeclObject>(), &expr, nullptr, expr.range);
    case ValueKind::kStrategyDecl: {
      const StrategyInfo& info = *function.as<StrategyDeclObject>().info;
      auto* object = new StrategyObject;
      Value strategy = Value::Of(ValueKind::kStrategy, object);
      object->info = &info;
      object->range = expr.range;
      object->arguments.resize(info.function.params.size());
      Given given;
      BindArguments(expr, info.function.params, info.function.name, object->arguments.data(), &given);
      ApplyOverrides(info.function.params, object->arguments.data(), &given);
      FinishStrategy(object, expr.range, given);
      return strategy;
    }
    default:
      Fail(callee.range, DiagKind::kNotCallable, fmt::format("{} cannot be called", DescribeValue(function)));
  }
}

}  // namespace piper::frontend
