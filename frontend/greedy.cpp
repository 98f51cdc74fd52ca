// `greedy(priority = [B, F, W], in_flight = n, memory = q)`: an order that is found once costs are known.
#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "frontend/interpreter.h"

namespace piper::frontend {

using ir::DiagKind;

namespace {

constexpr char kForm[] =
    "the form is greedy(priority = [B, F, W], in_flight = 4, memory = 10 GiB), each of them optional";

ir::Selector InPass(ir::PassSet passes, SourceRange range) {
  ir::Selector selector;
  selector.any_of.push_back({passes, {}});
  selector.range = range;
  return selector;
}

}  // namespace

// `B`, `F[stage = 0]`, `W` (short for BW, as in a literal of steps), or a selector value.
ir::Selector Interpreter::GreedyPriority(Expr& expr) {
  if (expr.kind == ExprKind::kName) {
    const auto& name = As<NameExpr>(expr);
    if (name.frame == kFrameUnresolved && Text(name.name) == "W")
      return InPass(ir::PassBit(ir::Pass::kBW), expr.range);
  }
  return EvalSelector(expr);
}

Value Interpreter::EvalGreedy(const CallExpr& call) {
  auto spec = std::make_shared<ir::GreedySpec>();
  std::vector<std::string> given;
  for (const Arg& arg : call.args) {
    if (arg.key.name == kNoName)
      Fail(arg.range, DiagKind::kBadArguments, "greedy takes its arguments by name", kForm);
    const std::string key = Text(arg.key.name);
    if (std::find(given.begin(), given.end(), key) != given.end())
      Fail(arg.range, DiagKind::kBadArguments, fmt::format("'{}' is given twice", key));
    given.push_back(key);
    if (key == "priority") {
      if (arg.value->kind == ExprKind::kList) {
        for (Item& item : As<BracketExpr>(*arg.value).items) {
          if (item.value == nullptr || item.key.name != kNoName) {
            Fail(item.range, DiagKind::kTypeMismatch, "a priority is a pass, or a selector with its pass",
                 "for example B, F or F[stage = 0]");
          }
          spec->priority.push_back(GreedyPriority(*item.value));
        }
      } else {
        for (const Value& value : Elements(Eval(*arg.value), arg.value->range, "'priority'"))
          spec->priority.push_back(SelectorOf(value, arg.value->range));
      }
    } else if (key == "in_flight") {
      spec->in_flight = IntOf(Eval(*arg.value), arg.value->range, "'in_flight'");
      if (spec->in_flight < 1) {
        Fail(arg.range, DiagKind::kOutOfRange,
             fmt::format("in_flight = {}: a rank must be able to take one microbatch", spec->in_flight),
             "leave it out for no bound");
      }
    } else if (key == "memory") {
      const Value bytes = Eval(*arg.value);
      if (!bytes.is(ValueKind::kQuantity) || bytes.unit() != ir::UnitKind::kBytes)
        FailType(arg.value->range, "'memory'", "bytes, such as 10 GiB", bytes);
      if (!(bytes.real() >= 1) || bytes.real() > 9e18) {
        Fail(arg.range, DiagKind::kOutOfRange, fmt::format("a memory of {}", ValueText(bytes)),
             "leave it out for no bound");
      }
      spec->memory = static_cast<int64_t>(bytes.real());
    } else {
      FailNearest(arg.range, DiagKind::kBadArguments, fmt::format("greedy has no parameter '{}'", key), key,
                  {"priority", "in_flight", "memory"}, kForm);
    }
  }
  if (spec->priority.empty()) {
    for (ir::PassSet passes : {ir::kPassB, ir::PassBit(ir::Pass::kF), ir::PassBit(ir::Pass::kBW)})
      spec->priority.push_back(InPass(passes, call.range));
  }
  ir::Step step;
  step.kind = ir::Step::Kind::kGreedy;
  step.range = call.range;
  step.greedy = std::move(spec);
  ir::Schedule schedule;
  schedule.steps.push_back(std::move(step));
  return MakeSchedule(std::move(schedule));
}

}  // namespace piper::frontend
