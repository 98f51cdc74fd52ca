// Lowering: from a training DAG with explicit communication to one RankProgram a role, with packed memory.
// Everything that the executor, the emitted code and the clock need is decided here: streams and their tasks
// in the order of the DAG, waits where a producer lies on another stream, the binding of every body's formals
// to buffers, offsets.
//
// A role is a class of devices with the same templates *and the same costs*: devices that differ in kind or
// in the links to their peers get programs of their own, so that one folded timeline a role is exact.
//
// Memory: parameters, gradients, optimizer state and scalars come first, laid out alike for training and
// evaluation. The rest are slots. Their lives come from the clock's history of the step under unlimited
// memory; where a slot reuses bytes whose last users are not already ordered before its first writer, a wait
// is added. Every such wait was met in that history, so none of them can deadlock or lengthen the planned
// step, and whatever the real timing is, no task touches bytes that are still in use.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "ir/cost/simulator.h"
#include "ir/dag/dag.h"
#include "ir/lower/job_storage.h"
#include "ir/program/program.h"
#include "ir/support/diagnostics.h"

namespace piper::ir {

struct Lowered {
  std::unique_ptr<JobStorage> job;
  // Of the train programs. Where it shows a deadlock, memory is not packed: every slot has bytes of its own.
  SimulationResult simulation;
  SimulationResult eval_simulation;  // empty without evaluation
  // What Task::origin points at in source text: by index into Job::strings.
  std::map<uint32_t, SourceRange> origins;
};

// `eval_regions` and `eval` are both null or both set. Nothing after an error was reported (an optimizer that
// covers no parameter's update, an edge between devices without a message).
std::optional<Lowered> Lower(const Program& program, const RegionGraph& regions, const Dag& train,
                             const RegionGraph* eval_regions, const Dag* eval, DiagnosticEngine& diag);

}  // namespace piper::ir
