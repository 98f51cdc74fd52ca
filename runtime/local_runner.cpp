#include "runtime/local_runner.h"

#include <algorithm>
#include <mutex>
#include <system_error>
#include <thread>

#include "runtime/checkpoint.h"
#include "runtime/data.h"
#include "runtime/segment.h"
#include "runtime/shared_memory_transport.h"
#include "runtime/trainer.h"

namespace piper::runtime {
namespace {

// One rank's thread: everything that it owns, in the order in which it must go.
struct LocalRank {
  std::unique_ptr<SharedMemoryTransport> transport;
  std::unique_ptr<BatchSource> train_source, eval_source;
  std::unique_ptr<BodyRunner> train_bodies, eval_bodies;
  std::unique_ptr<Executor> executor;
  RankView view;
  Status status;
  RankStatistics statistics;
  std::vector<TaskTime> timings;
  std::vector<double> losses, norms, eval_losses;
};

struct Observer {
  LocalRank* rank;
  const LocalHooks* hooks;
  std::mutex* mutex;
};

void ObserveGradients(void* state, Executor&, uint64_t step) {
  auto& observer = *static_cast<Observer*>(state);
  std::lock_guard<std::mutex> lock(*observer.mutex);
  observer.hooks->gradients(observer.rank->view, step);
}

Status NoThread(uint32_t rank, const std::system_error& error) {
  return IoError("cannot start a thread for rank " + std::to_string(rank) +
                 " of this process: " + error.code().message());
}

Status RunRank(const Job& job, uint32_t rank, const LocalOptions& options, const LocalHooks& hooks,
               std::mutex& hook_mutex, LocalRank& local) {
  Transport& transport = *local.transport;
  auto fail = [&](Status status) {
    transport.Abort(status);
    return status;
  };
  uint64_t seed = options.use_job_seed ? job.seed : options.seed;
  bool evaluates = options.evaluate && !job.eval.empty();
  for (bool validation : {false, true}) {
    if (validation && !evaluates) continue;
    std::unique_ptr<BatchSource>& source = validation ? local.eval_source : local.train_source;
    if (options.source) {
      source = options.source(job, rank);
      continue;
    }
    if (validation && !HasValidation(job)) {
      evaluates = false;
      continue;
    }
    Result<std::unique_ptr<BatchSource>> opened = OpenData(job, options.data_path, seed, validation);
    if (!opened.ok()) return fail(opened.status());
    source = std::move(*opened);
  }
  uint32_t role = job.rank_role[rank];
  if (options.bodies) {
    local.train_bodies = options.bodies(job, job.train[role]);
    if (evaluates) local.eval_bodies = options.bodies(job, job.eval[role]);
  }
  Executor::Setup setup;
  setup.job = &job;
  setup.rank = rank;
  setup.transport = &transport;
  setup.train_source = local.train_source.get();
  setup.eval_source = evaluates ? local.eval_source.get() : nullptr;
  setup.train_bodies = local.train_bodies.get();
  setup.eval_bodies = local.eval_bodies.get();
  setup.seed = seed;
  setup.options = options.execution;
  setup.options.record_timings |= !options.trace_path.empty();
  Result<std::unique_ptr<Executor>> executor = Executor::Create(setup);
  if (!executor.ok()) return fail(executor.status());
  local.executor = std::move(*executor);
  local.executor->InitializeParameters(seed);
  uint64_t first_step = 0;
  if (!options.resume.empty()) {
    if (!options.resume_parameters_only) {
      Result<CheckpointInfo> info = ReadCheckpointInfo(options.resume);
      if (!info.ok()) return fail(info.status());
      first_step = info->step;
    }
    Status loaded = LoadCheckpoint(options.resume, *local.executor, options.resume_parameters_only);
    if (!loaded.ok()) return fail(loaded);
  }
  local.view = {&job, rank, &local.executor->program(), &local.executor->row(), local.executor.get()};
  if (hooks.initialized) {
    std::lock_guard<std::mutex> lock(hook_mutex);
    hooks.initialized(local.view);
  }
  Observer observer{&local, &hooks, &hook_mutex};
  if (hooks.gradients) local.executor->SetGradientObserver(ObserveGradients, &observer);

  TrainerOptions trainer;
  trainer.first_step = first_step;
  trainer.directory = options.checkpoint_directory;
  trainer.checkpoint_every = options.checkpoint_every;
  trainer.end_step = static_cast<uint64_t>(options.steps >= 0 ? options.steps : job.steps);
  if (evaluates) {
    trainer.eval_every = job.eval_every;
    trainer.eval_batches = std::max<int64_t>(1, job.eval_batches);
    trainer.eval_at_end = true;
  }
  trainer.metrics_path = options.metrics_path;
  trainer.trace_path = options.trace_path;
  trainer.trace_first = options.trace_first;
  trainer.trace_steps = options.trace_steps;
  TrainerResult result;
  // Steps allocate nothing, within reason: a job may ask for any number of steps.
  uint64_t expected = std::min<uint64_t>(trainer.end_step, 65536);
  local.losses.reserve(expected);
  local.norms.reserve(expected);
  auto done = [&](const AgreedStep& step) {
    local.losses.push_back(step.outcome.loss);
    if (step.outcome.norm_known) local.norms.push_back(step.outcome.gradient_norm);
    if (step.eval_known) local.eval_losses.push_back(step.eval_loss);
    if (hooks.step_done) {
      std::lock_guard<std::mutex> lock(hook_mutex);
      hooks.step_done(local.view, step.step, step.outcome);
    }
  };
  Status status = RunTrainer(*local.executor, transport, trainer, done, result);
  local.statistics = local.executor->statistics();
  std::span<const TaskTime> timings = local.executor->timings();
  local.timings.assign(timings.begin(), timings.end());
  if (!status.ok()) return fail(status);
  return {};
}

}  // namespace

std::byte* RankView::value(const Parameter& parameter) const { return executor->buffer(parameter.value); }
std::byte* RankView::gradient(const Parameter& parameter) const {
  return parameter.gradient == kNone ? nullptr : executor->buffer(parameter.gradient);
}
std::byte* RankView::state(const Parameter& parameter, int which) const {
  return parameter.state[which] == kNone ? nullptr : executor->buffer(parameter.state[which]);
}
ElementType RankView::type(const Parameter& parameter) const {
  return program->buffers[parameter.value].type;
}

Result<LocalResult> RunLocal(const Job& job, const LocalOptions& options, const LocalHooks& hooks) {
  if (job.rank_role.size() != job.rank_count || job.rank_count == 0) {
    return InternalError("the job does not give every rank a role");
  }
  Result<std::unique_ptr<Segment>> segment = Segment::CreateLocal(job.rank_count);
  if (!segment.ok()) return segment.status();
  if (options.rendezvous) (*segment)->header().rendezvous = 1;
  std::mutex hook_mutex;
  std::vector<LocalRank> ranks(job.rank_count);
  for (uint32_t rank = 0; rank < job.rank_count; ++rank) {
    ranks[rank].transport = std::make_unique<SharedMemoryTransport>(**segment, rank, job.strings);
  }
  std::vector<std::thread> threads;
  threads.reserve(job.rank_count);
  for (uint32_t rank = 0; rank < job.rank_count; ++rank) {
    try {
      threads.emplace_back([&, rank] {
        LocalRank& local = ranks[rank];
        // The rank starts a thread of its own for its communication.
        try {
          local.status = RunRank(job, rank, options, hooks, hook_mutex, local);
        } catch (const std::system_error& error) {
          local.status = NoThread(rank, error);
          local.transport->Abort(local.status);
        }
        // Communication threads end here, while every arena still stands.
        local.executor.reset();
      });
    } catch (const std::system_error& error) {
      ranks[rank].status = NoThread(rank, error);
      ranks[rank].transport->Abort(ranks[rank].status);
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (LocalRank& rank : ranks) {
    if (!rank.status.ok()) {
      // The first report is the cause; the others only repeat it.
      Status cause = ranks[0].transport->aborted() ? ranks[0].transport->Failure() : rank.status;
      return cause;
    }
  }
  LocalResult result;
  result.losses = std::move(ranks[0].losses);
  result.gradient_norms = std::move(ranks[0].norms);
  result.eval_losses = std::move(ranks[0].eval_losses);
  for (LocalRank& rank : ranks) {
    result.ranks.push_back(rank.statistics);
    result.timings.push_back(std::move(rank.timings));
  }
  return result;
}

}  // namespace piper::runtime
