// Checkpoints: a directory `step-N` with the parameters as sharded safetensors (readable by anything that
// reads those), the optimizer's state likewise, and manifest.json with the step, the seed, the plan and a
// hash of every tensor. Tensors are whole and go by their parameter's name, so a checkpoint loads under any
// strategy; under the plan that wrote it training goes on bit for bit, because the position in the data is a
// function of the step.
//
// A checkpoint appears at once or not at all: files go to a temporary directory, are flushed, then renamed.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/executor.h"
#include "runtime/status.h"
#include "runtime/transport.h"

namespace piper::runtime {

struct CheckpointInfo {
  std::string path;
  uint64_t step = 0;  // steps done: the next one to run
  uint64_t seed = 0;
  std::string plan_hash;
};

// Collective, between steps: writes `directory`/step-`steps_done` and removes all but the newest `keep`
// checkpoints (0: keeps all). The owner of a parameter writes it. An existing checkpoint of that step is
// replaced.
Status SaveCheckpoint(Executor& executor, Transport& transport, const std::string& directory,
                      uint64_t steps_done, int64_t keep);

// What an interrupted run left in `directory`: a checkpoint that stepped aside for its successor, which never
// came, takes its place again. One rank calls it, before any looks for checkpoints.
void RestoreReplaced(const std::string& directory);
// Removes checkpoints that were never finished. One rank calls it, before the first step.
void RemoveUnfinished(const std::string& directory);

// The checkpoint that `argument` means: a checkpoint directory, a directory with checkpoints (its newest
// complete one), or "auto": the newest one in `out`, and an empty path if there is none.
Result<std::string> FindCheckpoint(const std::string& argument, const std::string& out);

Result<CheckpointInfo> ReadCheckpointInfo(const std::string& path);

// Reads the parameters that this rank holds, and their optimizer state unless `parameters_only`; checks
// names, shapes, types and hashes.
Status LoadCheckpoint(const std::string& path, Executor& executor, bool parameters_only);

}  // namespace piper::runtime
