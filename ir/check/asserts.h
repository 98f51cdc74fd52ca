// `assert metric < bound` lines, evaluated on a simulated plan:
//   step_time           the makespan of a training step
//   peak_memory         the largest arena of a rank
//   bubble              the largest idle share of a rank's compute stream
//   exposed([sel])      the largest share of the step, over ranks, in which a rank runs selected
//   communication while
//                       none of its compute runs
//   bytes(axis)         what all ranks together send along a mesh axis in a step: messages whose ends differ
//   in that
//                       coordinate, and the payload of each member of collectives whose members do
//   mfu                 FLOPs of the model's passes over what the devices could do in a step (those that
//   declare FLOP/s)
#pragma once

#include <optional>

#include "ir/cost/simulator.h"
#include "ir/dag/dag.h"
#include "ir/model/body.h"
#include "ir/program/program.h"
#include "ir/support/diagnostics.h"
#include "runtime/program.h"

namespace piper::ir {

struct PlanView {
  const Program& program;
  const RegionGraph& regions;
  const Dag& dag;
  const runtime::Job& job;
  const SimulationResult& simulation;  // folded
};

// The value in base units (picoseconds, bytes, a share). Nothing for an unknown metric.
std::optional<Quantity> Measure(const PlanView& plan, const AssertDirective& assertion);

// False after a kAssertFailed error for each assertion that does not hold.
bool CheckAsserts(const PlanView& plan, DiagnosticEngine& diag);

}  // namespace piper::ir
