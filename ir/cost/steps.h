// Steps back to back on the virtual clock: when a job's next step begins, and the period at which it then
// goes on.
//
// Where steps do not overlap (Job::overlaps is 0) all ranks meet after each: the period is the makespan.
// Where they do, a rank begins a step when its own part of the step before is over, so that the ramps at the
// two ends of a step, in which some ranks idle, lie over each other.
#pragma once

#include <cstdint>

#include "ir/cost/simulator.h"

namespace piper::ir {

struct StepsResult {
  int64_t steps = 0;
  Picoseconds total = 0;   // from the start of the first step to the end of the last, on the last rank
  Picoseconds period = 0;  // between the ends of the last two steps
  // The period is that of the two steps before as well: it stays.
  bool steady = false;
  double bubble = 0;  // largest idle share of a rank's compute in a period
};

// Exact for up to kSimulatedSteps steps; more are counted at the last period. `single`: the simulation of one
// step, complete.
constexpr int64_t kSimulatedSteps = 12;
StepsResult SimulateSteps(const runtime::Job& job, const Topology& topology, const SimulationResult& single,
                          int64_t steps);

}  // namespace piper::ir
