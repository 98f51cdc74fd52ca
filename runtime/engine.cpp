// The two engines of a rank: each advances the heads of its streams until all are through.
#include <time.h>

#include <chrono>

#include "runtime/executor_state.h"

namespace piper::runtime {
namespace {

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool IsLocal(TaskKind kind) {
  return kind != TaskKind::kSend && kind != TaskKind::kRecv && kind != TaskKind::kCollective;
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

Status Executor::State::Run(ProgramState& program, uint64_t step_or_batch) {
  current = &program;
  step = step_or_batch;
  ++run;
  outcome = StepOutcome{};
  finite.store(true);
  live.store(static_bytes, std::memory_order_relaxed);
  for (size_t i = 0; i < program.uses.size(); ++i) {
    program.remaining[i].store(program.uses[i], std::memory_order_relaxed);
    if (checking) program.health[i].store(static_cast<uint8_t>(Health::kUnknown), std::memory_order_relaxed);
  }
  for (size_t i = 0; i < program.streams.size(); ++i) {
    const Stream& stream = program.program->streams[i];
    program.streams[i] = {stream.first_task, stream.first_task + stream.task_count, 0, 0, false};
  }
  if (program.program->loss_scale != kNone) {
    double targets = static_cast<double>(job().global_batch) * static_cast<double>(job().targets_per_sample);
    std::byte* scale = At(program, program.program->loss_scale);
    if (program.program->buffers[program.program->loss_scale].type == ElementType::kF64) {
      *reinterpret_cast<double*>(scale) = 1.0 / targets;
    } else {
      *reinterpret_cast<float*>(scale) = static_cast<float>(1.0 / targets);
    }
  }
  bool both = !program.engine_streams[static_cast<int>(Engine::kCommunication)].empty();
  if (both) {
    go.store(run);
    transport().Ring(Engine::kCommunication);
  }
  Status status = RunEngine(Engine::kCompute);
  while (both && communication_done.load() != run) {
    uint32_t ticket = transport().Ticket(Engine::kCompute);
    if (communication_done.load() == run) break;
    transport().Wait(Engine::kCompute, ticket);
  }
  if (!status.ok()) return status;
  if (transport().aborted()) return transport().Failure();
  if (program.program->loss != kNone) {
    outcome.loss_known = true;
    outcome.loss = ReadScalar(program, program.program->loss);
    if (FirstNonFinite(reinterpret_cast<std::byte*>(&outcome.loss), 8, ElementType::kF64) >= 0)
      FlagNonFinite();
  }
  outcome.finite = finite.load();
  return {};
}

void Executor::State::CommunicationLoop() {
  uint32_t seen = 0;
  while (!stop.load()) {
    uint32_t ticket = transport().Ticket(Engine::kCommunication);
    uint32_t wanted = go.load();
    if (wanted == seen) {
      if (stop.load()) return;
      if (!transport().Wait(Engine::kCommunication, ticket) && !stop.load()) SleepMicroseconds(1000);
      continue;
    }
    seen = wanted;
    // A failure has aborted the job, so the compute thread sees it, too.
    if (Status status = RunEngine(Engine::kCommunication); !status.ok()) transport().Abort(status);
    communication_done.store(seen);
    transport().Ring(Engine::kCompute);
  }
}

Status Executor::State::RunEngine(Engine engine) {
  ProgramState& program = *current;
  const std::vector<uint32_t>& streams = program.engine_streams[static_cast<int>(engine)];
  size_t unfinished = 0;
  for (uint32_t stream : streams) unfinished += program.streams[stream].cursor != program.streams[stream].end;
  int64_t last_progress = setup.options.stall_seconds > 0 ? Now() : 0;
  while (unfinished > 0) {
    uint32_t ticket = transport().Ticket(engine);
    bool moved = false;
    for (uint32_t index : streams) {
      StreamRun& stream = program.streams[index];
      if (stream.cursor == stream.end) continue;
      Progress progress = AdvanceStream(program, index, engine);
      if (progress == Progress::kFailed) return transport().Failure();
      moved |= progress != Progress::kPending;
      unfinished -= stream.cursor == stream.end;
    }
    if (moved || unfinished == 0) {
      if (setup.options.stall_seconds > 0) last_progress = Now();
      continue;
    }
    if (!transport().Wait(engine, ticket)) return transport().Failure();
    if (setup.options.stall_seconds > 0 &&
        static_cast<double>(Now() - last_progress) > setup.options.stall_seconds * 1e9) {
      Status status = InternalError("no progress at step " + std::to_string(step) + " on rank " +
                                    std::to_string(setup.rank) + ": " + BlockedTasks(program, engine));
      transport().Abort(status);
      return transport().Failure();
    }
  }
  return {};
}

std::string Executor::State::BlockedTasks(const ProgramState& program, Engine engine) const {
  std::string text;
  for (uint32_t index : program.engine_streams[static_cast<int>(engine)]) {
    const StreamRun& stream = program.streams[index];
    if (stream.cursor == stream.end) continue;
    const Task& task = program.program->tasks[stream.cursor];
    if (!text.empty()) text += ", ";
    text += std::string(program.program->streams[index].name) + " stands at '" + Text(task.name) + "'";
  }
  return text;
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
    if (task == stream.group_begin) {
      for (uint32_t i = stream.group_begin; i < stream.group_end; ++i) {
        if (!Ready(program, stream, i)) return Progress::kPending;
      }
    }
    if (setup.options.delay_microseconds > 0) {
      SleepMicroseconds(NextRandom(delay_state[static_cast<int>(engine)]) % setup.options.delay_microseconds);
    }
    AcquireOperands(program, rows.tasks[task]);
    if (setup.options.record_timings) program.times[task].start = Now();
  }
  Progress progress = AdvanceTask(program, task, stream, engine);
  if (progress != Progress::kDone) return progress;
  stream.started = false;
  if (setup.options.record_timings) program.times[task].end = Now();
  stream.cursor = task + 1;
  if (stream.cursor == stream.group_end) Complete(program, stream.group_begin, stream.group_end, engine);
  return Progress::kDone;
}

Progress Executor::State::AdvanceTask(ProgramState& program, uint32_t index, StreamRun& stream,
                                      Engine engine) {
  const Task& task = program.program->tasks[index];
  if (IsLocal(task.kind)) {
    if (task.kind == TaskKind::kClip && program.train && updates && observer != nullptr) {
      observer(observer_state, *self, step);
    }
    Status status = RunLocalTask(program, index);
    if (status.ok()) return Progress::kDone;
    transport().Abort(status);
    return Progress::kFailed;
  }
  (void)engine;
  bool fresh = !stream.started;
  stream.started = true;
  Progress progress = Progress::kPending;
  if (task.kind == TaskKind::kCollective) {
    CollectiveOperation& operation = program.collectives[program.request[index]];
    if (fresh) {
      operation.key = program.names[program.request[index]] + uint64_t{run} * 0x9e3779b97f4a7c15u;
      transport().StartCollective(operation);
    }
    progress = transport().TestCollective(operation);
    if (progress == Progress::kDone && program.train && updates) {
      joined.fetch_add(1, std::memory_order_relaxed);
      joined_bytes.fetch_add(task.bytes, std::memory_order_relaxed);
    }
  } else {
    Message& message = program.messages[program.request[index]];
    if (fresh) {
      message.run = run;
      if (task.kind == TaskKind::kSend) transport().StartSend(message);
    }
    progress =
        task.kind == TaskKind::kSend ? transport().TestSend(message) : transport().TestReceive(message);
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

void Executor::State::Complete(ProgramState& program, uint32_t first, uint32_t end, Engine engine) {
  bool ring = false;
  for (uint32_t task = first; task < end; ++task) {
    ReleaseOperands(program, program.program->tasks[task]);
    program.done[task].store(run, std::memory_order_release);
    ring |= program.wakes_other[task] != 0;
  }
  if (ring) transport().Ring(engine == Engine::kCompute ? Engine::kCommunication : Engine::kCompute);
}

}  // namespace piper::runtime
