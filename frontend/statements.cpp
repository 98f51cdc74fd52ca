// Statements, loops and tests.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "frontend/interpreter.h"
#include "frontend/test_runner.h"

namespace piper::frontend {

using ir::DiagKind;

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
        BuildStepSelector(As<BracketExpr>(expr), &step.select);
        return Flow::kNext;
      }
      Value value = Eval(expr);
      if (current_->sink != nullptr && (value.is(ValueKind::kSelector) || value.is(ValueKind::kSchedule))) {
        Yield(std::move(value), expr.range, current_->sink);
      } else if (last && wants_value) {
        *out = std::move(value);
      } else if (!value.is(ValueKind::kNone)) {
        // A misspelt result type is why a step has no place.
        const FnDecl* decl = current_->info != nullptr ? current_->info->decl : nullptr;
        if (decl != nullptr && decl->result != nullptr) CheckTypeName(*decl->result);
        const bool step = value.is(ValueKind::kSelector) || value.is(ValueKind::kSchedule);
        Fail(expr.range, DiagKind::kTypeMismatch,
             fmt::format("the value of this statement, {}, is not used", DescribeValue(value)),
             step ? "steps stand in an order or in a function with the result `schedule`"
                  : "`return` it, or bind it with `let`");
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
        const FnDecl* decl = current_->info != nullptr ? current_->info->decl : nullptr;
        if (decl != nullptr && decl->result != nullptr) CheckTypeName(*decl->result);
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
        Lose(statement);
        // In a long loop, refusals cost far more than the steps that fuel counts.
        if (++strategy_->refusals >= kMaxRefusals) throw;
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
  if (assign.op != AssignOp::kSet && target->is(ValueKind::kInt) && value.is(ValueKind::kInt)) {
    int64_t sum = 0;
    const bool overflow = assign.op == AssignOp::kAdd
                              ? __builtin_add_overflow(target->integer(), value.integer(), &sum)
                              : __builtin_sub_overflow(target->integer(), value.integer(), &sum);
    if (!overflow) {
      *target = Value::Int(sum);
      return;
    }
  }
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
    BurnLoop(loop.total, range, &loop);
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
  const size_t first = diag_->diagnostics().size();
  plans_ = plans;
  test_bindings_.clear();
  fuel_ = checkpoint_ = kFuel;
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
          // A combination mostly fails as the one before did.
          diag_->MergeRepeats(first);
          traced_ = diag_->error_count();
          return true;
        });
      };
      run(run, 0);
    });
  } catch (const Abort&) {
  }
  return diag_->error_count() == errors;
}

}  // namespace piper::frontend
