// The streams of a rank that compute beside its first one, a thread each. Who completes a task that another
// thread waits for wakes it; a worker whose next task is a message or a collective looks again by itself, for
// nobody outside the rank knows of it.
#include "kernels/scratch.h"
#include "runtime/executor_state.h"
#include "runtime/futex.h"

namespace piper::runtime {
namespace {

constexpr int64_t kPatience = 100'000'000;  // nanoseconds of sleep before looking whether the job still lives
constexpr int64_t kMeeting = 100'000;       // between two looks at a message

}  // namespace

void Executor::State::StartWorkers() {
  const size_t count = std::max(train.worker_streams.size(), eval.worker_streams.size());
  for (uint32_t worker = 0; worker < count; ++worker)
    workers.emplace_back([this, worker] { WorkerLoop(worker); });
}

void Executor::State::StopWorkers() {
  RingWorkers();
  for (std::thread& worker : workers) worker.join();
}

void Executor::State::RingWorkers() {
  bell.fetch_add(1);
  if (asleep.load() > 0) FutexWakeAll(bell);
}

void Executor::State::WorkerLoop(uint32_t worker) {
  uint32_t seen = 0;
  while (!stop.load()) {
    const uint32_t ticket = bell.load();
    if (const uint32_t now = workers_run.load(std::memory_order_acquire); now != seen) {
      seen = now;
      ProgramState& program = *current;
      if (worker >= program.worker_streams.size() || !RunWorker(program, worker)) continue;
      workers_left.fetch_sub(1, std::memory_order_release);
      transport().Ring(Engine::kCompute);
      continue;
    }
    asleep.fetch_add(1);
    FutexWait(bell, ticket, kPatience);
    asleep.fetch_sub(1);
  }
}

// False: the job was aborted.
bool Executor::State::RunWorker(ProgramState& program, uint32_t worker) {
  const uint32_t index = program.worker_streams[worker];
  StreamRun& stream = program.streams[index];
  kernels::LentScratch lent(program.kernel_scratch[index]);
  while (stream.cursor != stream.end) {
    const uint32_t ticket = bell.load();
    const Progress progress = AdvanceStream(program, index, Engine::kCompute);
    if (progress == Progress::kFailed || transport().aborted() || stop.load()) return false;
    if (progress != Progress::kPending) {
      workers_progress.fetch_add(1);
      continue;
    }
    asleep.fetch_add(1);
    FutexWait(bell, ticket, IsLocal(program.program->tasks[stream.cursor].kind) ? kPatience : kMeeting);
    asleep.fetch_sub(1);
  }
  return true;
}

// Whoever waits for tasks [first, end), which are complete. The compute thread looks at the communication
// streams by itself, and AdvanceCommunication wakes it.
void Executor::State::Wake(const ProgramState& program, uint32_t first, uint32_t end) {
  if (program.worker_streams.empty()) return;
  uint8_t whom = 0;
  for (uint32_t task = first; task < end; ++task) whom |= program.wakes[task];
  if ((whom & kWakesWorkers) != 0) RingWorkers();
  if (program.streams[program.program->tasks[first].stream].worker == 0) return;
  if (whom != 0) transport().Ring(Engine::kCompute);
  if ((whom & kWakesCommunication) != 0) transport().Ring(Engine::kCommunication);
}

}  // namespace piper::runtime
