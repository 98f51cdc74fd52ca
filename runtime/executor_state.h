// Private to the executor's sources: a program made ready for running, and what the threads of a rank share.
#pragma once

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/executor.h"

namespace piper::runtime {

// A stream while a run goes on. Only the thread that runs it touches it.
struct StreamRun {
  uint32_t cursor = 0;  // next task
  uint32_t end = 0;
  uint32_t group_begin = 0;  // of the fused tasks under way: [group_begin, group_end), completed together
  uint32_t group_end = 0;
  bool started = false;  // the task at the cursor is under way
  uint32_t worker = 0;   // which worker runs it, counted from 1; 0: one of the two engines
  int64_t moved = 0;     // bytes that it has copied, where it is a kCopy under way
};

// One of the rank's programs (train or eval), with everything resolved that a run needs, so that a run
// allocates nothing.
struct ProgramState {
  const RankProgram* program = nullptr;
  const RankRow* row = nullptr;
  BodyRunner* bodies = nullptr;
  BatchSource* source = nullptr;
  bool train = true;
  bool has_clip = false;                 // a node judges by the norm, which has seen every gradient
  uint32_t carried_check = kNone;        // kValidate task of the step before
  std::vector<uint32_t> carried_before;  // the other carried tasks, which it needs

  std::vector<void*> operands;      // address of every task operand
  std::vector<std::byte*> scratch;  // a stream; null: does not compute
  // A stream: what lies behind the bodies' scratch for the kernels' own use, or null.
  std::vector<std::byte*> kernel_scratch;
  std::vector<uint8_t> wakes;     // a task: kWakes.. of the other threads whose tasks wait for it
  std::vector<uint32_t> request;  // a task: into messages or collectives
  std::vector<Message> messages;
  std::vector<CollectiveOperation> collectives;
  std::vector<std::vector<std::byte*>> contributions;  // behind CollectiveOperation::contributions
  std::vector<uint64_t> names;                         // hash of the name, a collective operation
  std::vector<StreamRun> streams;
  std::vector<uint32_t> engine_streams[2];  // by Engine
  std::vector<uint32_t> worker_streams;     // those that compute, but the first: a worker each

  std::unique_ptr<std::atomic<uint32_t>[]> done;       // a task: the last run in which it completed
  std::vector<uint32_t> uses;                          // a buffer: operands of tasks that are it; 0: static
  std::unique_ptr<std::atomic<uint32_t>[]> remaining;  // a buffer: uses left in this run
  std::unique_ptr<std::atomic<uint32_t>[]> acquired;   // a buffer: the last run that acquired it
  std::unique_ptr<std::atomic<uint8_t>[]> health;      // a buffer, check mode: see Health
  std::vector<TaskTime> times;
  // Room for the targets of one microbatch; empty where all targets count, or none are needed here.
  std::vector<int32_t> targets;
};

// Which tasks a run of a train program consists of, where some are carried over from the step before.
enum class Part : uint8_t { kAll, kOwn, kCarried };
enum class Verdict : uint8_t { kKeep, kRepeat, kStop };

constexpr uint8_t kWakesCompute = 1, kWakesCommunication = 2, kWakesWorkers = 4;

enum class Health : uint8_t { kUnknown, kFinite, kBad };

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};

struct Executor::State {
  Setup setup;
  std::byte* arena = nullptr;
  int64_t arena_bytes = 0;
  std::unique_ptr<std::byte, FreeMemory> host;  // the pool of train programs; evaluation has none
  ProgramState train, eval;
  Executor* self = nullptr;

  // The run under way, written by the compute thread before it wakes the other.
  ProgramState* current = nullptr;
  uint32_t run = 0;
  bool only_cheap = false;      // holder of `communicating`: leaves copies to the communication thread ...
  bool left_copies = false;     // ... and did leave some
  uint32_t ticket_of_look = 0;  // compute thread: drawn before it last looked at the communication streams
  uint64_t step = 0;
  Part part = Part::kAll;
  // The step before, which carried tasks are about: not judged yet; judged in this run; not finite, so that
  // this run was given up.
  bool pending = false, judged = false, given_up = false;
  uint64_t pending_step = 0;
  StepOutcome pending_outcome;
  int64_t sent_before[4] = {};  // counts when the run began
  bool updates = true;          // false while a step is repeated to find a value that is not finite
  bool checking = false;
  bool optimistic = true;  // the updates of this step happen before they are validated
  // Held by the thread that advances the communication streams. Who does not get it says `look_again`.
  std::atomic<bool> communicating{false};
  std::atomic<bool> look_again{false};
  std::atomic<uint32_t> communication_left{0};  // communication streams that are not through
  std::atomic<bool> stop{false};
  std::thread communication;
  // Workers: each sleeps on the bell until it has rung since it drew its ticket.
  std::vector<std::thread> workers;
  std::atomic<uint32_t> bell{0}, asleep{0};
  std::atomic<uint32_t> workers_run{0};       // the run that they may work on
  std::atomic<uint32_t> workers_left{0};      // streams of theirs that are not through
  std::atomic<uint64_t> workers_progress{0};  // tasks that they have completed

  std::atomic<bool> finite{true};
  StepOutcome outcome;
  std::mutex source_mutex;
  std::mutex finding_mutex;
  std::string finding;

  std::atomic<int64_t> live{0}, peak_live{0}, high_water{0};
  std::atomic<int64_t> host_live{0}, host_peak_live{0}, host_high_water{0};
  int64_t static_bytes = 0;
  RankStatistics counts;
  std::atomic<int64_t> sent{0}, sent_bytes{0}, joined{0}, joined_bytes{0};

  void (*observer)(void*, Executor&, uint64_t) = nullptr;
  void* observer_state = nullptr;
  std::vector<uint64_t> delay_state;  // by Engine, then a worker each
  std::mutex update_mutex;            // what updates on several threads add to `outcome`

  Transport& transport() { return *setup.transport; }
  const Job& job() const { return *setup.job; }
  std::byte* At(const ProgramState& program, uint32_t buffer) const {
    const Buffer& what = program.program->buffers[buffer];
    return (what.kind == BufferKind::kHost ? host.get() : arena) + what.offset;
  }
  const char* Text(uint32_t string) const { return job().strings[string]; }

  // executor.cpp
  Status Prepare(ProgramState& program, const RankProgram& source, BodyRunner* bodies, BatchSource* batches,
                 bool train_program);
  Status AgreeOnMessages();

  // engine.cpp: one run of `program` on both engines.
  Status Run(ProgramState& program, uint64_t step_or_batch);
  Status Begin(ProgramState& program, uint64_t step_or_batch);
  Status CountTargets(ProgramState& program, int64_t& targets);
  Status RunCompute(ProgramState& program);
  void CommunicationLoop();
  // workers.cpp: the streams that compute beside the first.
  void StartWorkers();
  void StopWorkers();
  void WorkerLoop(uint32_t worker);
  bool RunWorker(ProgramState& program, uint32_t worker);
  void RingWorkers();
  void Wake(const ProgramState& program, uint32_t first, uint32_t end);
  Progress AdvanceCommunication(Engine thread, bool only_cheap);
  bool ComputeReady(const ProgramState& program) const;
  Progress AdvanceStream(ProgramState& program, uint32_t stream, Engine engine);
  Progress AdvanceTask(ProgramState& program, uint32_t task, StreamRun& stream, Engine engine);
  Progress AdvanceCopy(ProgramState& program, const Task& task, StreamRun& stream);
  bool Skips(const Task& task) const;
  bool Ready(const ProgramState& program, const StreamRun& stream, uint32_t task) const;
  void Complete(ProgramState& program, uint32_t first, uint32_t end);
  std::string BlockedTasks(const ProgramState& program);

  // slots.cpp
  void AcquireOperands(ProgramState& program, const Task& task);
  void ReleaseOperands(ProgramState& program, const Task& task);

  // local_tasks.cpp: tasks that need no other rank.
  Status RunLocalTask(ProgramState& program, uint32_t task);
  void RunBody(ProgramState& program, const Task& task);
  // Up to `most` bytes from byte `done` of the task's pairs on; returns how many.
  int64_t CopyPiece(ProgramState& program, const Task& task, int64_t done, int64_t most);
  void SumSquares(ProgramState& program, const Task& task);
  void Clip(ProgramState& program, const Task& task);
  void Update(ProgramState& program, const Task& task);
  void UpdateOne(ProgramState& program, const Parameter& parameter, uint64_t of_step);
  void ScaleGradients(ProgramState& program, const double* sums);
  void FlagNonFinite();
  double ReadScalar(const ProgramState& program, uint32_t buffer) const;

  // post_validation.cpp
  void PartialSquares(ProgramState& program, const Task& task);
  void Save(ProgramState& program);
  void Restore(ProgramState& program);
  Verdict Judge(ProgramState& program, const Task& task, StepOutcome& about);
  void Execute(ProgramState& program, Verdict verdict, const Task& task, uint64_t of_step);
  void Validate(ProgramState& program, const Task& task);
  // A check of the step before that can be made, in a run that goes on meanwhile.
  bool CanJudge(const ProgramState& program) const;
  Status JudgeAhead(ProgramState& program);
  Status BeginAgain(ProgramState& program, Verdict verdict);
  Status RunPart(Part which, uint64_t step);

  // non_finite.cpp: the scan of check mode.
  void BeforeChecked(ProgramState& program, const Task& task, bool& suspect);
  void AfterChecked(ProgramState& program, const Task& task, bool suspect, uint32_t culprit_call);
};

// Needs no other rank.
inline bool IsLocal(TaskKind kind) {
  return kind != TaskKind::kSend && kind != TaskKind::kRecv && kind != TaskKind::kCollective;
}

// Where a buffer's range ends: ranges are multiples of the alignment, as the compiler packs them.
inline int64_t EndOf(const Buffer& buffer) {
  return (buffer.offset + buffer.bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Index of the first element of a buffer that is not finite, -1: none (or not floating point).
int64_t FirstNonFinite(const std::byte* data, int64_t bytes, ElementType type);

}  // namespace piper::runtime
