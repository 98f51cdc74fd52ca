#include "ir/pipeline.h"

#include "ir/directives/directives.h"
#include "ir/lower/lower.h"

namespace piper::ir {

std::optional<Plan> BuildPlan(const Program& program, DiagnosticEngine& diag) {
  std::optional<BuiltDag> train = BuildDag(program, false, diag);
  if (!train) return std::nullopt;
  std::optional<BuiltDag> eval;
  if (program.train.eval_every > 0) {
    eval = BuildDag(program, true, diag);
    if (!eval) return std::nullopt;
  }
  std::optional<Lowered> lowered =
      Lower(program, train->regions, train->dag, eval ? &eval->regions : nullptr, eval ? &eval->dag : nullptr, diag);
  if (!lowered) return std::nullopt;
  Plan plan;
  plan.regions = std::move(train->regions);
  plan.dag = std::move(train->dag);
  plan.job = std::move(lowered->job);
  plan.simulation = std::move(lowered->simulation);
  return plan;
}
}  // namespace piper::ir
