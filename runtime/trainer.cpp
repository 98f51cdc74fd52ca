#include "runtime/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "runtime/checkpoint.h"
#include "runtime/metrics.h"
#include "runtime/trace.h"

namespace piper::runtime {
namespace {

// What a rank says after a step.
struct StepReport {
  StepOutcome outcome;
  int32_t stop_signal = 0;
  int64_t high_water = 0;
};

struct Finding {
  char text[Transport::kExchangeBytes] = {};
};
static_assert(sizeof(StepReport) <= Transport::kExchangeBytes);

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Repeats the step on every rank to find where the value came from.
Status DescribeNonFinite(Executor& executor, Transport& transport, uint64_t step,
                         const StepOutcome& outcome) {
  std::string finding;
  PIPER_RETURN_IF_ERROR(executor.FindNonFinite(step, finding));
  Finding mine;
  finding.copy(mine.text, sizeof mine.text - 1);
  std::vector<Finding> all(transport.size());
  PIPER_RETURN_IF_ERROR(transport.Exchange(&mine, all.data(), sizeof mine));
  std::string text = "step " + std::to_string(step) + ": ";
  text += outcome.loss_known && outcome.loss - outcome.loss != 0 ? "the loss is not finite"
                                                                 : "a gradient is not finite";
  bool named = false;
  for (const Finding& one : all) {
    if (one.text[0] == '\0') continue;
    text += std::string(named ? "; also " : "; first in ") + one.text;
    named = true;
  }
  if (!named && outcome.updated) {
    text += "; it was not when the step was repeated, after some parameters had been updated";
  } else if (!named) {
    text += "; the repeated step was finite, so memory or hardware may be at fault";
  }
  return InputError(text);
}

}  // namespace

Status Evaluate(Executor& executor, Transport& transport, int64_t batches, double& loss, int& stop_signal) {
  double sum = 0;
  stop_signal = 0;
  std::vector<StepReport> all(transport.size());
  for (int64_t batch = 0; batch < batches; ++batch) {
    StepReport mine;
    PIPER_RETURN_IF_ERROR(executor.RunEval(static_cast<uint64_t>(batch), mine.outcome));
    sum += mine.outcome.loss;
    mine.outcome.loss = sum / static_cast<double>(batches);
    mine.stop_signal = transport.StopRequest();
    PIPER_RETURN_IF_ERROR(transport.Exchange(&mine, all.data(), sizeof mine));
    for (uint32_t rank = transport.size(); rank-- > 0;) {
      if (all[rank].outcome.loss_known) loss = all[rank].outcome.loss;
      stop_signal = std::max(stop_signal, static_cast<int>(all[rank].stop_signal));
    }
    if (stop_signal != 0 && batch + 1 < batches) break;
    if (batch + 1 == batches) stop_signal = 0;  // too late to matter: the loss is complete
  }
  return {};
}

Status RunTrainer(Executor& executor, Transport& transport, const TrainerOptions& options,
                  const std::function<void(const AgreedStep&)>& done, TrainerResult& result) {
  const Job& job = executor.job();
  MetricsWriter metrics;
  if (transport.rank() == 0) {
    Status opened = metrics.Open(options.metrics_path, options.append_metrics, options.console,
                                 options.end_step, options.first_step);
    if (!opened.ok()) {
      transport.Abort(opened);
      return opened;
    }
  }
  std::unique_ptr<TraceRecorder> trace;
  if (!options.trace_path.empty()) {
    int64_t last = std::max<int64_t>(0, static_cast<int64_t>(options.end_step - options.first_step) - 1);
    int64_t first = static_cast<int64_t>(options.first_step) + std::min(options.trace_first, last);
    trace = std::make_unique<TraceRecorder>(executor, options.trace_path, first, options.trace_steps);
  }
  std::vector<StepReport> reports(transport.size());
  result.steps_done = options.first_step;
  double tokens = static_cast<double>(job.global_batch) *
                  static_cast<double>(std::max<int64_t>(1, job.targets_per_sample));
  double before = Seconds();
  int64_t peak = 0;
  // Reports a step.
  auto finish = [&](const AgreedStep& agreed, double after) {
    result.steps_done = agreed.step + 1;
    if (transport.rank() == 0) {
      StepMetrics line;
      line.step = agreed.step + 1;
      line.loss_known = agreed.outcome.loss_known;
      line.loss = agreed.outcome.loss;
      line.norm_known = agreed.outcome.norm_known;
      line.gradient_norm = agreed.outcome.gradient_norm;
      line.eval_known = agreed.eval_known;
      line.eval_loss = agreed.eval_loss;
      line.learning_rate = executor.learning_rate(agreed.step);
      line.step_milliseconds = (after - before) * 1e3;
      line.tokens_per_second = tokens / std::max(1e-9, after - before);
      if (job.step_flops > 0 && job.peak_flops > 0)
        line.mfu = job.step_flops / job.peak_flops / std::max(1e-9, after - before);
      line.peak_memory = peak;
      metrics.Write(line);
    }
    if (done) done(agreed);
  };
  for (uint64_t step = options.first_step; step < options.end_step; ++step) {
    const bool last = step + 1 == options.end_step;
    const bool due =
        options.checkpoint_every > 0 && (step + 1) % static_cast<uint64_t>(options.checkpoint_every) == 0;
    const bool evaluates =
        (options.eval_every > 0 && (step + 1) % static_cast<uint64_t>(options.eval_every) == 0) ||
        (last && options.eval_at_end);
    StepReport mine;
    if (!executor.overlaps()) {
      PIPER_RETURN_IF_ERROR(executor.RunTrain(step, mine.outcome));
      if (trace != nullptr) trace->Record(step);
    } else {
      // The step before is judged meanwhile. The ranks meet only where somebody needs all of them.
      AgreedStep earlier;
      const bool judges = executor.pending();
      PIPER_RETURN_IF_ERROR(executor.RunAhead(step, earlier.outcome));
      if (judges) {
        earlier.step = step - 1;
        if (!earlier.outcome.finite) return DescribeNonFinite(executor, transport, step - 1, earlier.outcome);
        peak = std::max(peak, executor.statistics().high_water_bytes);
        const double now = Seconds();
        finish(earlier, now);
        before = now;
      }
      if (trace != nullptr) trace->Record(step);
      const uint64_t stop_after = transport.MeetToStop(step + 1, transport.StopRequest() != 0);
      const bool stops = stop_after != 0 && step + 1 >= stop_after;
      if (!last && !stops && !(due && !options.directory.empty()) && !evaluates &&
          executor.pending_outcome().finite)
        continue;
      PIPER_RETURN_IF_ERROR(executor.Settle(mine.outcome));
    }
    AgreedStep agreed;
    agreed.step = step;
    mine.stop_signal = transport.StopRequest();
    mine.high_water = executor.statistics().high_water_bytes;
    PIPER_RETURN_IF_ERROR(transport.Exchange(&mine, reports.data(), sizeof mine));
    int stop = 0;
    peak = 0;
    // Without clipping nobody needs the norm before the update, so it travels with the report.
    ExactSum squares;
    bool squares_known = false;
    for (uint32_t rank = transport.size(); rank-- > 0;) {
      const StepOutcome& outcome = reports[rank].outcome;
      if (outcome.loss_known) agreed.outcome.loss_known = true, agreed.outcome.loss = outcome.loss;
      if (outcome.norm_known)
        agreed.outcome.norm_known = true, agreed.outcome.gradient_norm = outcome.gradient_norm;
      squares.Add(outcome.squares);
      squares_known |= outcome.squares_known;
      agreed.outcome.finite &= outcome.finite;
      agreed.outcome.updated |= outcome.updated;
      stop = std::max(stop, static_cast<int>(reports[rank].stop_signal));
      peak = std::max(peak, reports[rank].high_water);
    }
    if (!agreed.outcome.norm_known && squares_known) {
      agreed.outcome.norm_known = true;
      agreed.outcome.gradient_norm = std::sqrt(squares.value());
    }
    // Ranks may have updated by now: nothing of this step is saved, and the checkpoints before it stay.
    if (!agreed.outcome.finite) return DescribeNonFinite(executor, transport, step, agreed.outcome);
    const double after = Seconds();
    // Whoever asks to stop wants the checkpoint, not the evaluation before it.
    if (evaluates && stop == 0) {
      PIPER_RETURN_IF_ERROR(Evaluate(executor, transport, options.eval_batches, agreed.eval_loss, stop));
      agreed.eval_known = stop == 0;
    }
    finish(agreed, after);
    if (!options.directory.empty() && (due || last || stop != 0)) {
      PIPER_RETURN_IF_ERROR(SaveCheckpoint(executor, transport, options.directory, step + 1, options.keep));
      result.checkpoint = options.directory + "/step-" + std::to_string(step + 1);
    }
    if (stop != 0) {
      result.stop_signal = stop;
      break;
    }
    before = Seconds();
  }
  metrics.Finish();
  if (trace != nullptr) PIPER_RETURN_IF_ERROR(trace->Write(transport));
  return {};
}

}  // namespace piper::runtime
