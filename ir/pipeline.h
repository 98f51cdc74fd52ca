// The passes from an elaborated Program to proved plans, in order, with what holds after each:
//   1 mesh, cut, place, shard      every region has a stage tag and a device group; slices of the batch are
//   known 2 freeze, differentiate        RegionGraph at the slice's shapes; what `recompute` replays has an R
//   body 3 split                        templates with microbatch ranges (ir/dag) 4 zero, cost, order, edge,
//   limit, stream, run, numerics 5 communication                sends, receives, reductions are nodes with
//   streams; every stream has an order 6 proofs                       placed and acyclic; gradients; (after
//   lowering) deadlock and memory 7 lower                        a RankProgram a role, packed memory 8
//   simulate, asserts
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/cost/simulator.h"
#include "ir/dag/dag.h"
#include "ir/lower/job_storage.h"
#include "ir/program/program.h"
#include "ir/support/diagnostics.h"

namespace piper::ir {

struct Plan {
  RegionGraph regions;  // slice shapes, frozen parameters marked
  Dag dag;
  std::unique_ptr<Dag> eval_dag;    // forward only, null without a validation set
  std::unique_ptr<JobStorage> job;  // owns what `runtime::Job` views
  SimulationResult simulation;
};

// Nothing after an error was reported. Warnings may stand in `diag` all the same.
std::optional<Plan> BuildPlan(const Program& program, DiagnosticEngine& diag);

}  // namespace piper::ir
