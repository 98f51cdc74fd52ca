// The figures of a dry run, as `piper run` prints them.
#pragma once

#include <string>

#include "ir/cost/simulator.h"
#include "ir/cost/steps.h"
#include "runtime/program.h"

namespace piper::tools {

// `expanded`: the result has one entry a rank instead of a role.
std::string RenderReport(const runtime::Job& job, const ir::SimulationResult& result, bool expanded);

// The same for programs: one JSON object, picoseconds and bytes, counts a rank and step. What the executables
// count of themselves (run.json) has the same names.
// `steps` may be null.
std::string ReportJson(const runtime::Job& job, const ir::SimulationResult& result, bool expanded,
                       const ir::StepsResult* steps = nullptr);
// Steps back to back: one line.
std::string RenderSteps(const ir::StepsResult& steps);

// Totals over ranks, for the report and for what tests may read of a plan.
struct Totals {
  int64_t messages = 0, message_bytes = 0, collectives = 0, collective_bytes = 0;  // a step, all ranks
  int64_t peak_memory = 0;                                                         // largest arena of a rank
  int64_t host_memory = 0;  // largest host pool of a rank
  double busy = 0;          // mean busy share of compute
};
Totals SumUp(const runtime::Job& job, const ir::SimulationResult& result, bool expanded);

}  // namespace piper::tools
