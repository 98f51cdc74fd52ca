#include "ir/schedule_csv/from_orders.h"

namespace piper::ir::schedule_csv {
namespace {

std::optional<Step> StepOf(const Selector& selector, NameId stage_name, NameId microbatch_name) {
  if (selector.any_of.size() != 1) return std::nullopt;
  const SelectorClause& clause = selector.any_of[0];
  Step step;
  step.stage = -1;
  step.range = selector.range;
  if (clause.passes == kPassB) {
    step.action = Action::kFullBackward;
  } else if (clause.passes == PassBit(Pass::kBI)) {
    step.action = Action::kBackwardInput;
  } else if (clause.passes == PassBit(Pass::kBW)) {
    step.action = Action::kBackwardWeight;
  } else if (clause.passes != PassBit(Pass::kF)) {
    return std::nullopt;
  }
  for (const SelectorTerm& term : clause.terms) {
    const bool one = term.has_range && !term.negated && term.more.empty() && term.end == term.begin + 1 &&
                     term.begin >= 0 && term.begin <= kMaxNumber;
    if (!one) return std::nullopt;
    if (term.name == stage_name) {
      step.stage = static_cast<int32_t>(term.begin);
    } else if (term.name == microbatch_name) {
      step.microbatch = static_cast<int32_t>(term.begin);
    } else {
      return std::nullopt;
    }
  }
  return step.stage >= 0 && step.microbatch >= 0 ? std::optional(step) : std::nullopt;
}

}  // namespace

std::optional<Table> FromOrders(const Program& program) {
  const NameId stage_name = InternName("stage"), microbatch_name = InternName("mb");
  Table table;
  for (const Directive& directive : program.directives) {
    const auto* order = std::get_if<OrderDirective>(&directive.body);
    if (order == nullptr) continue;
    if (order->streams.size() != 1) return std::nullopt;
    std::vector<Cell>& row = table.ranks.emplace_back();
    for (const ir::Step& step : order->streams[0].second.steps) {
      const bool fused = step.kind == ir::Step::Kind::kFused;
      if ((!fused && step.kind != ir::Step::Kind::kSelect) || step.fused.size() > 2) return std::nullopt;
      Cell cell;
      for (size_t i = 0; i < (fused ? step.fused.size() : 1); ++i) {
        const std::optional<Step> part =
            StepOf(fused ? step.fused[i] : step.select.Full(), stage_name, microbatch_name);
        if (!part) return std::nullopt;
        cell.steps[cell.count++] = *part;
      }
      row.push_back(cell);
    }
  }
  return table;
}

}  // namespace piper::ir::schedule_csv
