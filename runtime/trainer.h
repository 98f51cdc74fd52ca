// The loop around the executor, the same on every rank, whether ranks are threads or processes: steps, what
// the ranks agree on after each, evaluation, checkpoints, reports, and the end. A step loop without reports
// allocates nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/executor.h"
#include "runtime/status.h"
#include "runtime/transport.h"

namespace piper::runtime {

struct TrainerOptions {
  uint64_t first_step = 0, end_step = 0;
  int64_t eval_every = 0, eval_batches = 0;  // 0: no evaluation while training
  bool eval_at_end = false;
  int64_t checkpoint_every = 0;  // 0: only at the end
  int64_t keep = 0;
  std::string directory;  // of checkpoints; empty: none are written
  std::string metrics_path, trace_path;
  bool append_metrics = false;
  bool console = false;
  int64_t trace_first = 1, trace_steps = 2;
};

// What the ranks together know of a step. Every rank gets the same.
struct AgreedStep {
  uint64_t step = 0;
  StepOutcome outcome;
  bool eval_known = false;
  double eval_loss = 0;
};

struct TrainerResult {
  int stop_signal = 0;      // not 0: stopped by this signal after a checkpoint
  uint64_t steps_done = 0;  // including those before first_step
  std::string checkpoint;   // the last one written
};

// Runs the steps. `done` (may be empty) is called on every rank after each; where steps overlap
// (Executor::overlaps) once the next one has judged it, when the parameters may be a step ahead
// (Executor::pending). A loss or gradient that is not finite is an input error that names operation, rank and
// microbatch.
Status RunTrainer(Executor& executor, Transport& transport, const TrainerOptions& options,
                  const std::function<void(const AgreedStep&)>& done, TrainerResult& result);

// Collective: mean loss over `batches` evaluation batches. When a rank is asked to stop, all end after the
// same batch: `stop_signal` says so, and there is no loss.
Status Evaluate(Executor& executor, Transport& transport, int64_t batches, double& loss, int& stop_signal);

}  // namespace piper::runtime
