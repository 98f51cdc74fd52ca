// The deadlock proof's verdict as a diagnostic. The proof itself is the clock's run over the RankPrograms
// under zero-buffer sends: it completes, or it stops in a state that no timing can avoid (each stream does
// one thing at a time, in order, and every meeting has fixed parties, so all runs end in the same state).
#pragma once

#include <map>

#include "ir/cost/simulator.h"
#include "ir/support/diagnostics.h"
#include "runtime/program.h"

namespace piper::ir {

// Reports the smallest cycle of blocked stream heads, each by rank, stream, task and `.piper` line. False
// after an error. `origins` locates Task::origin (Lowered::origins); `simulation` is folded. The program is
// job.eval if `evaluation`.
bool CheckDeadlock(const runtime::Job& job, const SimulationResult& simulation,
                   const std::map<uint32_t, SourceRange>& origins, DiagnosticEngine& diag,
                   bool evaluation = false);

// "rank 3", "ranks 0..3", "ranks 0, 2, 4": the members of a role.
std::string RanksText(const runtime::RankProgram& program);
// "'F layer3.attn' (microbatch 2)".
std::string TaskText(const runtime::Job& job, const runtime::Task& task);

}  // namespace piper::ir
