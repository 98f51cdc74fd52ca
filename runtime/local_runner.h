// Runs a whole Job inside one process, every rank a pair of threads over the same programs, executor and
// transport algorithms as real processes: what `piper run --execute` and `--verify` stand on, and most tests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/executor.h"
#include "runtime/program.h"
#include "runtime/status.h"

namespace piper::runtime {

// One rank while it runs, as hooks see it. Pointers stay valid until RunLocal returns.
struct RankView {
  const Job* job = nullptr;
  uint32_t rank = 0;
  const RankProgram* program = nullptr;
  const RankRow* row = nullptr;
  Executor* executor = nullptr;

  // First byte of a parameter's value / final gradient (null if frozen) / optimizer state (null if unused).
  // Parameter::elements elements of the type of the value's buffer.
  std::byte* value(const Parameter& parameter) const;
  std::byte* gradient(const Parameter& parameter) const;
  std::byte* state(const Parameter& parameter, int which) const;
  ElementType type(const Parameter& parameter) const;
};

// All may be empty. Called from the rank's thread, one call at a time over all ranks.
struct LocalHooks {
  std::function<void(const RankView&)> initialized;  // before step 0: may overwrite parameters
  std::function<void(const RankView&, uint64_t step)>
      gradients;  // final gradients, before clipping and update
  std::function<void(const RankView&, uint64_t step, const StepOutcome&)>
      step_done;  // after the update; where steps overlap the parameters may be a step ahead
                  // (Executor::pending)
};

struct LocalOptions {
  int64_t steps = -1;     // -1: Job::steps
  bool evaluate = false;  // run Job::eval at Job::eval_every and after the last step
  bool use_job_seed = true;
  uint64_t seed = 0;       // with use_job_seed = false
  std::string data_path;   // not empty: instead of Job::data_path
  std::string trace_path;  // Chrome trace of the steps [trace_first, trace_first + trace_steps)
  int64_t trace_first = 1, trace_steps = 2;
  std::string metrics_path;          // JSON lines
  std::string checkpoint_directory;  // not empty: checkpoints go there, after the last step at least
  int64_t checkpoint_every = 0;      // 0: only after the last step
  // A checkpoint to start from, of this plan or another; with `resume_parameters_only` training begins at
  // step 0 with fresh optimizer state. `initialized` runs after it.
  std::string resume;
  bool resume_parameters_only = false;
  ExecutorOptions execution;
  bool rendezvous = false;  // the transport's test mode (transport.h), also without PIPER_RENDEZVOUS
  // Interprets bodies without a function; see MakeInterpreter in runtime/interpreter.h. Empty: all have
  // functions.
  std::function<std::unique_ptr<BodyRunner>(const Job&, const RankProgram&)> bodies;
  // Instead of the job's own data: one source a rank.
  std::function<std::unique_ptr<BatchSource>(const Job&, uint32_t rank)> source;
};

struct LocalResult {
  std::vector<double> losses;          // a step
  std::vector<double> gradient_norms;  // a step; empty if no program computes the norm
  std::vector<double> eval_losses;     // an evaluation, mean over its batches
  std::vector<RankStatistics> ranks;
  std::vector<std::vector<TaskTime>> timings;  // [rank][task] of the last step, with record_timings
};

Result<LocalResult> RunLocal(const Job& job, const LocalOptions& options, const LocalHooks& hooks = {});

}  // namespace piper::runtime
