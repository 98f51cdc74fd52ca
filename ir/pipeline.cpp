#include "ir/pipeline.h"

#include "ir/check/asserts.h"
#include "ir/check/deadlock.h"
#include "ir/check/gradients.h"
#include "ir/check/memory.h"
#include "ir/check/order.h"
#include "ir/directives/directives.h"
#include "ir/lower/lower.h"

namespace piper::ir {
namespace {

// Directives to a Dag, and the proofs on it.
std::optional<BuiltDag> BuildProved(const Program& program, bool forward_only, DiagnosticEngine& diag) {
  std::optional<BuiltDag> built = BuildDag(program, forward_only, diag);
  if (!built) return std::nullopt;
  const bool ordered = CheckOrder(built->dag, diag);
  const bool counted = CheckGradients(built->dag, built->regions, diag);
  if (!ordered || !counted) return std::nullopt;
  return built;
}

bool HasValidation(const TrainSpec& train) {
  return train.eval_every > 0 && train.eval_batches > 0 &&
         (train.data.validation > 0 || !train.data.validation_path.empty() ||
          train.data.kind == DataSpec::Kind::kRandom);
}

}  // namespace

std::optional<Plan> BuildPlan(const Program& program, DiagnosticEngine& diag) {
  std::optional<BuiltDag> train = BuildProved(program, false, diag);
  if (!train) return std::nullopt;
  std::optional<BuiltDag> eval;
  if (HasValidation(program.train)) {
    eval = BuildProved(program, true, diag);
    if (!eval) return std::nullopt;
  }
  std::optional<Lowered> lowered = Lower(program, train->regions, train->dag, eval ? &eval->regions : nullptr,
                                         eval ? &eval->dag : nullptr, diag);
  if (!lowered) return std::nullopt;
  const runtime::Job& job = lowered->job->job();
  bool live = CheckDeadlock(job, lowered->simulation, lowered->origins, diag);
  if (eval) live = CheckDeadlock(job, lowered->eval_simulation, lowered->origins, diag, true) && live;
  if (!live) return std::nullopt;
  const bool fits = CheckMemory(job, program.topology, lowered->simulation, lowered->origins, diag);
  const PlanView view{program, train->regions, train->dag, job, lowered->simulation};
  if (!CheckAsserts(view, diag) || !fits) return std::nullopt;

  Plan plan;
  plan.regions = std::move(train->regions);
  plan.dag = std::move(train->dag);
  if (eval) plan.eval_dag = std::make_unique<Dag>(std::move(eval->dag));
  plan.job = std::move(lowered->job);
  plan.simulation = std::move(lowered->simulation);
  return plan;
}

}  // namespace piper::ir
