// The two engines of a rank: each advances the heads of its streams until all are through.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "kernels/scratch.h"
#include "runtime/executor_state.h"
#include "runtime/futex.h"

namespace piper::runtime {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;  // of a copy, between two looks at the other streams
constexpr int64_t kCheapBytes = 32768;    // moved in less time than waking a thread takes

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A small pseudo-random sequence (Steele et al., SplitMix) for the tests' delays.
uint64_t NextRandom(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void SleepMicroseconds(uint64_t microseconds) {
  timespec time{0, static_cast<long>(microseconds * 1000)};
  nanosleep(&time, nullptr);
}

}  // namespace

Status Executor::State::Begin(ProgramState& program, uint64_t step_or_batch) {
  current = &program;
  step = step_or_batch;
  ++run;
  outcome = StepOutcome{};
  finite.store(true);
  live.store(static_bytes, std::memory_order_relaxed);
  host_live.store(0, std::memory_order_relaxed);
  for (size_t i = 0; i < program.uses.size(); ++i) {
    program.remaining[i].store(program.uses[i], std::memory_order_relaxed);
    if (checking) program.health[i].store(static_cast<uint8_t>(Health::kUnknown), std::memory_order_relaxed);
  }
  for (size_t i = 0; i < program.streams.size(); ++i) {
    const Stream& stream = program.program->streams[i];
    program.streams[i] = {stream.first_task, stream.first_task + stream.task_count, 0, 0, false};
  }
  for (size_t i = 0; i < program.worker_streams.size(); ++i)
    program.streams[program.worker_streams[i]].worker = static_cast<uint32_t>(i + 1);
  workers_left.store(static_cast<uint32_t>(program.worker_streams.size()));
  communication_left.store(
      static_cast<uint32_t>(program.engine_streams[static_cast<int>(Engine::kCommunication)].size()));
  sent_before[0] = sent.load(), sent_before[1] = sent_bytes.load();
  sent_before[2] = joined.load(), sent_before[3] = joined_bytes.load();
  if (program.program->loss_scale == kNone || part == Part::kCarried) return {};
  int64_t targets = 0;
  PIPER_RETURN_IF_ERROR(CountTargets(program, targets));
  double inverse = targets > 0 ? 1.0 / static_cast<double>(targets) : 0.0;
  std::byte* scale = At(program, program.program->loss_scale);
  if (program.program->buffers[program.program->loss_scale].type == ElementType::kF64) {
    *reinterpret_cast<double*>(scale) = inverse;
  } else {
    *reinterpret_cast<float*>(scale) = static_cast<float>(inverse);
  }
  return {};
}

// The number N of targets that the step's loss counts over the global batch, known before the first F. Every
// rank with a loss counts for itself: N is an integer, so all agree.
Status Executor::State::CountTargets(ProgramState& program, int64_t& targets) {
  targets = job().global_batch * job().targets_per_sample;
  if (program.targets.empty()) return {};
  targets = 0;
  int64_t samples = job().samples_per_microbatch;
  for (int64_t first = 0; first < job().global_batch; first += samples) {
    PIPER_RETURN_IF_ERROR(
        program.source->Fill(job().targets_input, step, first, samples, program.targets.data()));
    for (int32_t target : program.targets) targets += target >= 0;
  }
  return {};
}

Status Executor::State::Run(ProgramState& program, uint64_t step_or_batch) {
  // The communication thread may be looking around between runs, for at most a moment.
  while (communicating.exchange(true)) CpuRelax();
  Status begun = Begin(program, step_or_batch);
  communicating.store(false);
  if (!begun.ok()) {
    transport().Abort(begun);
    return transport().Failure();
  }
  PIPER_RETURN_IF_ERROR(RunCompute(program));
  if (given_up || part == Part::kCarried) return {};
  if (program.program->loss != kNone) {
    outcome.loss_known = true;
    outcome.loss = ReadScalar(program, program.program->loss);
    if (!std::isfinite(outcome.loss)) FlagNonFinite();
  }
  outcome.finite = finite.load();
  return {};
}

// The compute thread: its own streams, and between bodies, or while it has nothing else to do, the
// communication streams as well, which saves waking the other thread.
Status Executor::State::RunCompute(ProgramState& program) {
  const std::vector<uint32_t>& streams = program.engine_streams[static_cast<int>(Engine::kCompute)];
  kernels::LentScratch lent(streams.empty() ? nullptr : program.kernel_scratch[streams[0]]);
  size_t unfinished = streams.size();
  uint64_t seen_progress = workers_progress.load();
  if (!program.worker_streams.empty()) {
    workers_run.store(run, std::memory_order_release);
    RingWorkers();
  }
  int64_t last_progress = setup.options.stall_seconds > 0 ? Now() : 0;
  for (;;) {
    uint32_t ticket = transport().Ticket(Engine::kCompute);
    bool moved = false;
    if (CanJudge(program)) {
      PIPER_RETURN_IF_ERROR(JudgeAhead(program));
      if (given_up) return {};
      if (part != Part::kAll) unfinished = streams.size();  // begun again
    }
    if (communication_left.load(std::memory_order_acquire) > 0) {
      // With a body to run, copying is the other thread's.
      Progress progress = AdvanceCommunication(Engine::kCompute, ComputeReady(program));
      if (progress == Progress::kFailed) return transport().Failure();
      moved = progress != Progress::kPending;
    }
    for (uint32_t index : streams) {
      StreamRun& stream = program.streams[index];
      if (stream.cursor == stream.end) continue;
      ticket_of_look = ticket;
      Progress progress = AdvanceStream(program, index, Engine::kCompute);
      if (progress == Progress::kFailed) return transport().Failure();
      unfinished -= stream.cursor == stream.end;
      if (progress != Progress::kPending) {
        moved = true;
        break;  // and look at the communication streams again
      }
    }
    if (unfinished == 0 && communication_left.load(std::memory_order_acquire) == 0 &&
        workers_left.load(std::memory_order_acquire) == 0) {
      return {};
    }
    if (moved) {
      if (setup.options.stall_seconds > 0) last_progress = Now();
      continue;
    }
    if (!transport().Wait(Engine::kCompute, ticket)) return transport().Failure();
    if (const uint64_t progress = workers_progress.load(); progress != seen_progress) {
      seen_progress = progress;
      if (setup.options.stall_seconds > 0) last_progress = Now();
    }
    if (setup.options.stall_seconds > 0 &&
        static_cast<double>(Now() - last_progress) > setup.options.stall_seconds * 1e9) {
      transport().Abort(InternalError("no progress at step " + std::to_string(step) + " on rank " +
                                      std::to_string(setup.rank) + ": " + BlockedTasks(program)));
      return transport().Failure();
    }
  }
}

void Executor::State::CommunicationLoop() {
  while (!stop.load()) {
    uint32_t ticket = transport().Ticket(Engine::kCommunication);
    if (communication_left.load(std::memory_order_acquire) > 0 &&
        AdvanceCommunication(Engine::kCommunication, false) != Progress::kPending) {
      if (transport().aborted()) SleepMicroseconds(1000);
      continue;
    }
    if (!stop.load()) transport().Wait(Engine::kCommunication, ticket);
  }
}

// One round over the communication streams by the calling thread; kPending: nothing moved, or the other
// thread is at it.
Progress Executor::State::AdvanceCommunication(Engine thread, bool cheap) {
  look_again.store(true);
  Progress result = Progress::kPending;
  while (look_again.load() && !communicating.exchange(true)) {
    look_again.store(false);
    ProgramState& program = *current;
    bool moved = false, failed = false, wakes = false;
    only_cheap = cheap;
    left_copies = false;
    if (communication_left.load() > 0) {
      for (uint32_t index : program.engine_streams[static_cast<int>(Engine::kCommunication)]) {
        StreamRun& stream = program.streams[index];
        if (stream.cursor == stream.end) continue;
        uint32_t task = stream.cursor;
        Progress progress = AdvanceStream(program, index, Engine::kCommunication);
        failed |= progress == Progress::kFailed;
        moved |= progress == Progress::kDone || progress == Progress::kWorking;
        if (progress != Progress::kDone) continue;
        wakes |= (program.wakes[task] & kWakesCompute) != 0;
        if (stream.cursor == stream.end) wakes |= communication_left.fetch_sub(1) == 1;
      }
    }
    bool left = left_copies;
    communicating.store(false);
    if (left) transport().Ring(Engine::kCommunication);
    if (wakes && thread == Engine::kCommunication) transport().Ring(Engine::kCompute);
    if (failed) return Progress::kFailed;
    if (moved) result = Progress::kWorking;
  }
  return result;
}

// A stream that computes has a task that can start.
bool Executor::State::ComputeReady(const ProgramState& program) const {
  for (uint32_t index : program.engine_streams[static_cast<int>(Engine::kCompute)]) {
    const StreamRun& stream = program.streams[index];
    if (stream.cursor != stream.end && IsLocal(program.program->tasks[stream.cursor].kind) &&
        Ready(program, stream, stream.cursor)) {
      return true;
    }
  }
  return false;
}

std::string Executor::State::BlockedTasks(const ProgramState& program) {
  while (communicating.exchange(true)) CpuRelax();
  std::string text;
  for (size_t index = 0; index < program.streams.size(); ++index) {
    const StreamRun& stream = program.streams[index];
    if (stream.cursor == stream.end) continue;
    const Task& task = program.program->tasks[stream.cursor];
    if (!text.empty()) text += ", ";
    text += std::string(program.program->streams[index].name) + " stands at '" + Text(task.name) + "'";
  }
  communicating.store(false);
  return text;
}

bool Executor::State::Skips(const Task& task) const {
  const bool carried =
      task.flag != 0 && (task.kind == TaskKind::kCollective || task.kind == TaskKind::kValidate);
  return carried != (part == Part::kCarried);
}

bool Executor::State::Ready(const ProgramState& program, const StreamRun& stream, uint32_t task) const {
  const Task& row = program.program->tasks[task];
  for (uint32_t i = 0; i < row.wait_count; ++i) {
    uint32_t wait = program.program->waits[row.first_wait + i];
    if (wait >= stream.group_begin && wait < stream.group_end) continue;  // inside the same fused node
    if (program.done[wait].load(std::memory_order_acquire) != run) return false;
  }
  return true;
}

// Moves the head of a stream on by at most one task.
Progress Executor::State::AdvanceStream(ProgramState& program, uint32_t index, Engine engine) {
  StreamRun& stream = program.streams[index];
  const RankProgram& rows = *program.program;
  uint32_t task = stream.cursor;
  if (!stream.started) {
    if (task >= stream.group_end) {
      // A new node: one task, or fused ones, which start when the waits of all are met.
      stream.group_begin = task;
      stream.group_end = task + 1;
      uint32_t atomic = rows.tasks[task].atomic;
      while (atomic != kNone && stream.group_end < stream.end &&
             rows.tasks[stream.group_end].atomic == atomic) {
        ++stream.group_end;
      }
    }
    if (part != Part::kAll && Skips(rows.tasks[task])) {
      if (setup.options.record_timings) {
        for (uint32_t i = task; i < stream.group_end; ++i)
          program.times[i].start = program.times[i].end = Now();
      }
      stream.cursor = stream.group_end;
      Complete(program, stream.group_begin, stream.group_end);
      return Progress::kDone;
    }
    if (task == stream.group_begin) {
      // The thread's loop judges as soon as it can; from here on it must have.
      if (task == program.carried_check && part == Part::kAll && !judged) return Progress::kPending;
      for (uint32_t i = stream.group_begin; i < stream.group_end; ++i) {
        if (!Ready(program, stream, i)) return Progress::kPending;
      }
    }
    if (setup.options.delay_microseconds > 0) {
      uint64_t& delays = delay_state[stream.worker > 0 ? 1 + stream.worker : static_cast<uint32_t>(engine)];
      if (NextRandom(delays) % std::max(1u, setup.options.delay_one_in) == 0) {
        SleepMicroseconds(NextRandom(delays) % setup.options.delay_microseconds);
      }
    }
    AcquireOperands(program, rows.tasks[task]);
    if (setup.options.record_timings) program.times[task].start = Now();
  }
  Progress progress = AdvanceTask(program, task, stream, engine);
  if (progress != Progress::kDone) return progress;
  stream.started = false;
  if (setup.options.record_timings) program.times[task].end = Now();
  // Also within a fused node, whose later parts may have been given these bytes.
  ReleaseOperands(program, rows.tasks[task]);
  stream.cursor = task + 1;
  if (stream.cursor == stream.group_end) Complete(program, stream.group_begin, stream.group_end);
  return Progress::kDone;
}

Progress Executor::State::AdvanceTask(ProgramState& program, uint32_t index, StreamRun& stream,
                                      Engine engine) {
  const Task& task = program.program->tasks[index];
  if (task.kind == TaskKind::kCopy && engine == Engine::kCommunication)
    return AdvanceCopy(program, task, stream);
  if (IsLocal(task.kind)) {
    if (task.kind == TaskKind::kClip && program.train && updates && observer != nullptr) {
      observer(observer_state, *self, step);
    }
    // Short tasks are not worth another thread's attention.
    bool body = engine == Engine::kCompute && stream.worker == 0 && task.kind != TaskKind::kBarrier &&
                task.kind != TaskKind::kLossFold;
    if (body) transport().EnterBody(ticket_of_look);
    Status status = RunLocalTask(program, index);
    if (body) transport().LeaveBody();
    if (status.ok()) return Progress::kDone;
    transport().Abort(status);
    return Progress::kFailed;
  }
  bool fresh = !stream.started;
  stream.started = true;
  bool leaves = engine == Engine::kCommunication && only_cheap && task.bytes > kCheapBytes;
  Progress progress = Progress::kPending;
  if (task.kind == TaskKind::kCollective) {
    CollectiveOperation& operation = program.collectives[program.request[index]];
    if (fresh) {
      operation.key = program.names[program.request[index]] + uint64_t{run} * 0x9e3779b97f4a7c15u;
      transport().StartCollective(operation);
    }
    // Only the holder of `communicating` may touch the mark; other threads take part in collectives too.
    if (leaves) {
      left_copies = true;
    } else {
      progress = transport().TestCollective(operation);
    }
    if (progress == Progress::kDone && program.train && updates) {
      joined.fetch_add(1, std::memory_order_relaxed);
      joined_bytes.fetch_add(task.bytes, std::memory_order_relaxed);
    }
  } else {
    Message& message = program.messages[program.request[index]];
    message.run = run;
    if (task.kind == TaskKind::kRecv && fresh) transport().StartReceive(message);
    if (task.kind == TaskKind::kSend) {
      if (fresh) transport().StartSend(message);
      progress = transport().TestSend(message);
    } else if (leaves) {
      left_copies |= transport().Arrived(message);
    } else {
      progress = transport().TestReceive(message);
    }
    if (progress == Progress::kDone && task.kind == TaskKind::kSend && program.train && updates) {
      sent.fetch_add(1, std::memory_order_relaxed);
      sent_bytes.fetch_add(task.bytes, std::memory_order_relaxed);
    }
  }
  if (progress == Progress::kDone && checking) AfterChecked(program, task, true, kNone);
  if (fresh && progress == Progress::kPending)
    progress = Progress::kWorking;  // it was started: that is progress
  return progress;
}

// A piece at a time, so that messages go on in between.
Progress Executor::State::AdvanceCopy(ProgramState& program, const Task& task, StreamRun& stream) {
  if (!stream.started) {
    stream.started = true;
    stream.moved = 0;
  }
  if (only_cheap && task.bytes > kCheapBytes) {
    left_copies = true;
    return Progress::kPending;
  }
  stream.moved += CopyPiece(program, task, stream.moved, kPieceBytes);
  if (stream.moved < task.bytes) return Progress::kWorking;
  if (checking) AfterChecked(program, task, true, kNone);
  return Progress::kDone;
}

void Executor::State::Complete(ProgramState& program, uint32_t first, uint32_t end) {
  for (uint32_t task = first; task < end; ++task) {
    program.done[task].store(run, std::memory_order_release);
  }
  Wake(program, first, end);
}

}  // namespace piper::runtime
