#include "ir/cost/event_rows.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "ir/model/body.h"
#include "ir/support/result.h"

namespace piper::ir::simulation {
namespace {

using runtime::Task;
using runtime::TaskKind;

bool IsMessage(TaskKind kind) { return kind == TaskKind::kSend || kind == TaskKind::kRecv; }

// The sends, or the receives, of one key: a task a microbatch.
struct MessageTable {
  TaskKind kind;
  uint32_t key;
  std::vector<uint32_t> tasks;  // [microbatch + 1], kNone
};

Counts CountsOf(const Task& task) {
  if (task.kind != TaskKind::kCompute || task.key == kNone) return Counts::kNothing;
  if (task.flag == static_cast<uint8_t>(Pass::kF)) return Counts::kForward;
  const bool backward =
      task.flag == static_cast<uint8_t>(Pass::kBI) || task.flag == static_cast<uint8_t>(Pass::kBW);
  return backward ? Counts::kBackward : Counts::kReplay;
}

}  // namespace

class RowBuilder {
 public:
  RowBuilder(const runtime::RankProgram& program, RoleRows* out) : program_(program), out_(*out) {}

  void Run() {
    out_.rows.resize(program_.tasks.size());
    const Task* const tasks = program_.tasks.data();
    TaskRow* const rows = out_.rows.data();
    for (const runtime::Stream& stream : program_.streams) {
      uint32_t atomic = kNone;  // of the task before
      for (uint32_t t = stream.first_task; t < stream.first_task + stream.task_count; ++t) {
        const Task& task = tasks[t];
        if (task.atomic != kNone && task.atomic == atomic) rows[t - 1].bits |= TaskRow::kJoined;
        atomic = task.atomic;
        Add(t, task, rows[t]);
      }
    }
    CountActivations();
  }

  const runtime::RankProgram& program() const { return program_; }
  // What the peers' tables say. `others`: of all roles.
  void Meet(const std::deque<RowBuilder>& others) {
    for (const MessageTable& table : tables_) {
      uint32_t argument = kNone, role = 0;
      const MessageTable* peer = nullptr;
      for (size_t mb = 0; mb < table.tasks.size(); ++mb) {
        const uint32_t t = table.tasks[mb];
        if (t == kNone) continue;
        TaskRow& row = out_.rows[t];
        TaskClass& what = out_.classes[row.task_class()];
        if (what.argument != argument) {
          argument = what.argument;
          role = program_.peer_roles[argument];
          peer =
              others[role].Find(table.kind == TaskKind::kSend ? TaskKind::kRecv : TaskKind::kSend, table.key);
        }
        if (peer == nullptr || mb >= peer->tasks.size()) continue;
        row.other = peer->tasks[mb];
        if (row.other == kNone) continue;
        const RoleRows& theirs = others[role].out_;
        const uint32_t stream = theirs.classes[theirs.rows[row.other].task_class()].stream;
        if (what.other_stream == kNone) what.other_stream = stream;
        if (what.other_stream != stream) what.other_stream = TaskClass::kVaries;
      }
    }
  }

 private:
  void Add(uint32_t t, const Task& task, TaskRow& row) {
    const uint32_t index = ClassOf(task);
    const TaskClass& what = out_.classes[index];
    row.bits = (index << TaskRow::kClassShift) | std::min(task.wait_count, TaskRow::kMany);
    row.wait = task.wait_count == 1 ? program_.waits[task.first_wait] : task.first_wait;
    const auto column = static_cast<size_t>(task.microbatch + 1);
    switch (what.kind) {
      case TaskKind::kSend:
        ++out_.messages;
        out_.message_bytes = SaturatingAdd(out_.message_bytes, task.bytes);
        [[fallthrough]];
      case TaskKind::kRecv: {
        std::vector<uint32_t>& tasks = tables_[what.table].tasks;
        if (column >= tasks.size()) tasks.resize(column + 1, kNone);
        tasks[column] = t;
        break;
      }
      case TaskKind::kCollective:
        out_.collectives.push_back(t);
        out_.collective_bytes = SaturatingAdd(out_.collective_bytes, task.bytes);
        break;
      default:
        if (what.counts == Counts::kNothing) break;
        columns_ = std::max(columns_, column + 1);
        row.other = static_cast<uint32_t>(column);  // CountActivations goes on
    }
  }

  uint32_t ClassOf(const Task& task) {
    // Tasks of one name and stream are mostly of one class.
    uint32_t& recent = recent_[(task.name * 5 + task.stream) % std::size(recent_)];
    if (recent < out_.classes.size()) {
      const TaskClass& known = out_.classes[recent];
      // One decision instead of six: they nearly always agree.
      const uint64_t differs =
          (static_cast<uint64_t>(known.cost) ^ static_cast<uint64_t>(task.cost)) |
          (known.argument ^ task.argument) | (known.key ^ task.key) |
          static_cast<uint64_t>(known.stream ^ task.stream) | static_cast<uint64_t>(known.flag ^ task.flag) |
          static_cast<uint64_t>(static_cast<uint32_t>(known.kind) ^ static_cast<uint32_t>(task.kind));
      if (differs == 0) [[likely]]
        return recent;
    }
    return FindClass(task, &recent);
  }

  uint32_t FindClass(const Task& task, uint32_t* place) {
    uint32_t& recent = *place;
    const auto [found, added] =
        classes_.emplace(std::tuple(task.kind, task.flag, task.stream, task.argument, task.key, task.cost),
                         static_cast<uint32_t>(out_.classes.size()));
    recent = found->second;
    if (!added) return recent;
    PIPER_CHECK(recent < TaskRow::kMostClasses, "too many different tasks");
    TaskClass& fresh = out_.classes.emplace_back();
    fresh.cost = task.cost;
    fresh.argument = task.argument;
    fresh.key = task.key;
    fresh.stream = task.stream;
    fresh.kind = task.kind;
    fresh.flag = task.flag;
    fresh.counts = CountsOf(task);
    if (IsMessage(task.kind)) {
      const auto [table, first] =
          table_of_.emplace(std::pair(task.kind, task.key), static_cast<uint32_t>(tables_.size()));
      if (first) tables_.push_back({task.kind, task.key, {}});
      fresh.table = table->second;
    }
    if (fresh.counts != Counts::kNothing) {
      PIPER_CHECK(task.key < (1u << 20), "stage copies are numbered densely");
      fresh.table = table_of_.emplace(std::pair(task.kind, task.key), key_rows_).first->second;
      key_rows_ = std::max(key_rows_, fresh.table + 1);
    }
    return recent;
  }

  const MessageTable* Find(TaskKind kind, uint32_t key) const {
    const auto found = table_of_.find({kind, key});
    return found == table_of_.end() ? nullptr : &tables_[found->second];
  }

  void CountActivations() {
    if (key_rows_ == 0) return;
    PIPER_CHECK(key_rows_ * columns_ < kNone, "too many activations");
    out_.activations.assign(key_rows_ * columns_, 0);
    // Without a backward pass (frozen, evaluation) an activation dies with its last forward task.
    std::vector<uint32_t> forward(out_.activations.size(), 0);
    for (TaskRow& row : out_.rows) {
      const TaskClass& what = out_.classes[row.task_class()];
      if (what.counts == Counts::kNothing) continue;
      row.other += static_cast<uint32_t>(what.table * columns_);
      (what.counts == Counts::kBackward ? out_.activations : forward)[row.other] += kOneLeft;
    }
    for (size_t a = 0; a < forward.size(); ++a) {
      if (out_.activations[a] == 0) out_.activations[a] = forward[a] | kForwardOnly;
    }
  }

  const runtime::RankProgram program_;
  RoleRows& out_;
  size_t columns_ = 0;     // of activations: microbatches and one more
  uint32_t key_rows_ = 0;  // likewise: stage copies
  uint32_t recent_[64] = {};
  std::map<std::tuple<TaskKind, uint8_t, uint16_t, uint32_t, uint32_t, Picoseconds>, uint32_t> classes_;
  std::vector<MessageTable> tables_;
  std::map<std::pair<TaskKind, uint32_t>, uint32_t> table_of_;  // also the rows of activations
};

RowsOfJob::RowsOfJob() = default;
RowsOfJob::~RowsOfJob() = default;

void RowsOfJob::Add(const runtime::RankProgram& program) {
  builders_.emplace_back(program, &roles_.emplace_back()).Run();
}

std::vector<RoleRows> RowsOfJob::Finish() {
  for (RowBuilder& builder : builders_) builder.Meet(builders_);
  std::unordered_map<std::string_view, uint32_t> names;
  std::unordered_map<uint64_t, uint32_t> joints;  // (name, microbatch, occurrence)
  for (size_t r = 0; r < roles_.size(); ++r) {
    const runtime::RankProgram& program = builders_[r].program();
    std::unordered_map<uint64_t, uint32_t> occurrences;
    for (uint32_t t : roles_[r].collectives) {
      const Task& task = program.tasks[t];
      const uint32_t name =
          names.emplace(program.collectives[task.argument].name, static_cast<uint32_t>(names.size()))
              .first->second;
      const uint64_t who = (uint64_t{name} << 32) | static_cast<uint32_t>(task.microbatch + 1);
      const uint32_t occurrence = occurrences[who]++;
      PIPER_CHECK(occurrence < (1u << 8) && name < (1u << 24), "too many collectives");
      const uint64_t key = (uint64_t{occurrence} << 56) | who;
      roles_[r].rows[t].other = joints.emplace(key, static_cast<uint32_t>(joints.size())).first->second;
    }
  }
  return {std::make_move_iterator(roles_.begin()), std::make_move_iterator(roles_.end())};
}

}  // namespace piper::ir::simulation
