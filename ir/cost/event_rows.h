// What the event loop reads of a task while it runs: three words a task, and in a table what many tasks
// share. Which tasks meet is found here, role by role, before any instance exists. Private to ir/cost.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "ir/support/units.h"
#include "runtime/program.h"

namespace piper::ir::simulation {

struct TaskRow {
  // Bits of `bits`, below the class: the next task is of the same fused node; how many waits there are.
  static constexpr uint32_t kJoined = 1u << 7, kWaits = kJoined - 1, kMany = kWaits;
  static constexpr uint32_t kClassShift = 8, kMostClasses = 1u << 24;

  uint32_t wait = 0;  // one wait: the awaited task; several: the first one's place in RankProgram::waits
  // Messages: the task at the other end, within the peer's role; collectives: the job's joint that it takes
  // part in (equal names, microbatches and occurrences meet); kNone: the other end is missing. Computing
  // tasks: what activation they work on, kNone: none.
  uint32_t other = runtime::kNone;
  uint32_t bits = 0;

  uint32_t task_class() const { return bits >> kClassShift; }
  bool joined() const { return (bits & kJoined) != 0; }
  uint32_t waits() const { return bits & kWaits; }  // kMany: see Task::wait_count
};

// How a task's start and end change the count of live activations.
enum class Counts : uint8_t { kNothing, kForward, kReplay, kBackward };

struct TaskClass {
  static constexpr uint32_t kVaries = UINT32_MAX;

  Picoseconds cost = 0;
  uint32_t argument = 0;
  uint32_t key = runtime::kNone;
  uint16_t stream = 0;
  runtime::TaskKind kind = runtime::TaskKind::kBarrier;
  uint8_t flag = 0;
  Counts counts = Counts::kNothing;
  uint32_t other_stream =
      runtime::kNone;  // messages: that all the other ends are on, of the peer's role, or kVaries
  uint32_t table = 0;  // a number of its own for each key of the role's messages, or activations
};

// Live activations are pairs of a stage copy and a microbatch. A word each: two bits, and above them how many
// tasks have to end until it is over.
constexpr uint32_t kLive = 1, kForwardOnly = 2, kOneLeft = 4;

struct RoleRows {
  std::vector<TaskRow> rows;  // per task
  std::vector<TaskClass> classes;
  std::vector<uint32_t> activations;                              // as a step begins
  std::vector<uint32_t> collectives;                              // tasks, ascending
  int64_t messages = 0, message_bytes = 0, collective_bytes = 0;  // sent, joined
};

class RowBuilder;

// Makes the rows of a job's programs, one after another.
class RowsOfJob {
 public:
  RowsOfJob();
  ~RowsOfJob();
  // In the order of the job. Reads streams, tasks, waits, peer_roles and collectives, and keeps views of
  // them.
  void Add(const runtime::RankProgram& program);
  std::vector<RoleRows> Finish();

 private:
  std::deque<RoleRows> roles_;
  std::deque<RowBuilder> builders_;
};

}  // namespace piper::ir::simulation
