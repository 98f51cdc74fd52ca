// The memory proof: every rank's arena, to the byte, against its device's memory.
#pragma once

#include <map>

#include "ir/cost/simulator.h"
#include "ir/program/program.h"
#include "ir/support/diagnostics.h"
#include "runtime/program.h"

namespace piper::ir {

// Reports each role whose arena (of the train or the evaluation program, whichever is larger) exceeds the
// memory of a device that it runs on, with the moment of the peak and what holds most of it. A device whose
// memory is exactly the arena's bytes passes. False after an error. `simulation` gives the moments; `origins`
// locates tasks.
bool CheckMemory(const runtime::Job& job, const Topology& topology, const SimulationResult& simulation,
                 const std::map<uint32_t, SourceRange>& origins, DiagnosticEngine& diag);

// The moment of the planned step at which the most bytes of a role are in use, and what uses them.
struct MemoryPeak {
  uint32_t task =
      runtime::kNone;  // first uses the largest slot that comes into use then; kNone: there is no slot
  struct Holder {
    std::string what;  // "parameters", "layer3.attn.out"
    int64_t bytes = 0, buffers = 0;
  };
  std::vector<Holder> holders;  // by bytes, largest first
};
MemoryPeak FindPeak(const runtime::RankProgram& program, const std::vector<TaskTiming>& timings);

}  // namespace piper::ir
