// Runs the RankPrograms of one rank: one step of a program at a time, over the one arena that the transport
// holds for the rank. It knows tasks, streams, waits and buffers, and nothing of strategies.
//
// Two threads a rank. The compute engine (the thread that calls RunTrain) runs the first stream that
// computes, the communication engine (one thread of the executor) those that do not, as state machines over
// the transport, so that a transfer goes on while a body runs. Every further stream that computes has a
// thread of its own, a worker. None spins for long: a thread that has nothing to do sleeps on its doorbell.
// The step loop does not allocate.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/program.h"
#include "runtime/status.h"
#include "runtime/transport.h"

namespace piper::runtime {

// Runs bodies that have no function (runtime/interpreter.h); generated programs need none.
class BodyRunner {
 public:
  virtual ~BodyRunner() = default;
  // Runs body `body` of the program that the runner was made for. Reentrant.
  virtual void Run(uint32_t body, BodyContext& context) = 0;
};

// Where kLoad tasks get their data (runtime/data.h).
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Fills `out` with field `field` (Job::inputs) of samples [first_sample, first_sample + samples) of the
  // global batch of `step`. Does not allocate. Called from one thread at a time.
  virtual Status Fill(uint32_t field, uint64_t step, int64_t first_sample, int64_t samples, void* out) = 0;
  // Whether no target is ever negative, so that the loss counts all of them and nobody need look.
  virtual bool AllTargetsCount() const { return false; }
};

struct ExecutorOptions {
  bool check_finite = false;        // scan what every task writes; slow
  bool poison = false;              // fill released slots with NaN, to catch reads after release
  bool record_timings = false;      // keep start and end of every task of the last step
  uint32_t delay_microseconds = 0;  // tests: before each task sleep a random time up to this ...
  uint32_t delay_one_in = 1;        // ... but only before one task in so many, by chance
  uint64_t delay_seed = 0;
  double stall_seconds = 0;  // > 0: no progress for so long is an internal error that names the blocked tasks
};

struct TaskTime {
  int64_t start = 0, end = 0;  // nanoseconds of the steady clock
};

// A sum of doubles with twice their precision (Knuth's two-sum), so that the order of its terms does not show
// in `value()`, save for the last bit in rare cases.
struct ExactSum {
  double high = 0, low = 0;
  void Add(double x) {
    const double sum = high + x, part = sum - high;
    low += (high - (sum - part)) + (x - part);
    high = sum;
  }
  void Add(const ExactSum& other) {
    Add(other.high);
    low += other.low;
  }
  double value() const { return high + low; }
};

// What a step came to, on this rank.
struct StepOutcome {
  bool loss_known = false;
  double loss = 0;
  bool norm_known = false;
  double gradient_norm = 0;  // before clipping
  // Without clipping: the squares of the gradients that this rank updated and counts for the job.
  bool squares_known = false;
  ExactSum squares;
  bool updated = false;  // a parameter of this rank is no longer what it was before the step
  bool finite = true;    // false: a loss or gradient was not finite, updates from there on did not happen
};

// Sizes and counts, for reports and for comparison with the compiler's prediction. Counts are of train
// programs.
struct RankStatistics {
  int64_t arena_bytes = 0;       // allocated
  int64_t high_water_bytes = 0;  // largest end of an acquired buffer, aligned
  int64_t peak_live_bytes = 0;   // largest sum of the bytes of acquired buffers, static ones included
  int64_t host_bytes = 0, host_high_water_bytes = 0, host_peak_live_bytes = 0;  // the same of the host pool
  int64_t parameter_bytes = 0;
  int64_t messages = 0, message_bytes = 0;        // sent
  int64_t collectives = 0, collective_bytes = 0;  // joined
  int64_t steps = 0;
  // Steps whose updates were restored from their copies, and whose updates waited for the norm because
  // clipping was certain; both are 0 where updates are not validated afterwards.
  int64_t rollbacks = 0, late_updates = 0;
};

class Executor {
 public:
  // `job`, the transport and the sources outlive the executor. `train_bodies` / `eval_bodies` may be null
  // where every body has a function. Checks the whole program first: an index out of range is an internal
  // error, not a crash. Collective: all ranks of the job create theirs together.
  struct Setup {
    const Job* job = nullptr;
    uint32_t rank = 0;
    Transport* transport = nullptr;
    BatchSource* train_source = nullptr;
    BatchSource* eval_source = nullptr;  // null: no evaluation
    BodyRunner* train_bodies = nullptr;
    BodyRunner* eval_bodies = nullptr;
    uint64_t seed = 0;
    ExecutorOptions options;
  };
  static Result<std::unique_ptr<Executor>> Create(const Setup& setup);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Draws every parameter from (seed, name, element) and zeroes optimizer state.
  void InitializeParameters(uint64_t seed);

  // One optimizer step; `step` counts from 0 and selects data, random numbers and learning rate.
  Status RunTrain(uint64_t step, StepOutcome& outcome);
  // Job::overlaps: a step is judged (its norm known, its updates kept or repeated) within the step after it.
  // RunAhead runs `step` and, where the step before is pending, judges that: `before` says what it came to.
  // If it turns out not finite, the parameters are those from before it, and `step` is given up. Settle
  // judges the last step without another. RunTrain is both. Nothing else may run while a step is pending. Not
  // with check_finite.
  bool overlaps() const;
  bool pending() const;
  const StepOutcome& pending_outcome() const;  // as far as it is known: all but the norm
  Status RunAhead(uint64_t step, StepOutcome& before);
  Status Settle(StepOutcome& outcome);
  // Forward only, on evaluation batch `batch`; outcome.loss is the batch's mean loss where it is known.
  Status RunEval(uint64_t batch, StepOutcome& outcome);
  // Repeats the step without updates, scanning what every task writes. Returns the first task of this rank
  // that turned finite inputs into something not finite ("F layer3.attn (gpt.piper:20:5), operation ..,
  // microbatch 2, .."); empty if there is none here. Collective, like RunTrain.
  Status FindNonFinite(uint64_t step, std::string& finding);

  // Runs just before the first kClip or kValidate task of each train step: all final gradients stand in their
  // buffers. Steps without one call it at their end.
  void SetGradientObserver(void (*observer)(void* state, Executor& executor, uint64_t step), void* state);

  const Job& job() const;
  uint32_t rank() const;
  const RankProgram& program() const;  // train
  const RankRow& row() const;
  uint64_t seed() const;
  std::byte* buffer(uint32_t index) const;  // of the train program
  RankStatistics statistics() const;
  // With record_timings: a row a task of the last train step.
  std::span<const TaskTime> timings() const;
  // Learning rate of optimizer 0 at a step, for reports; 0 without optimizers.
  double learning_rate(uint64_t step) const;

 private:
  struct State;
  explicit Executor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Index of the role that `rank` runs, and the rank's row in it.
const RankRow* FindRow(const RankProgram& program, uint32_t rank);

}  // namespace piper::runtime
