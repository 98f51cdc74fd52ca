// Which tasks of a job meet: a send with the receive of the same (key, microbatch) in the peer's role,
// collectives by name.
#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "ir/cost/event_loop.h"

namespace piper::ir::simulation {
namespace {

using runtime::TaskKind;

// The sends, or the receives, of one role by (key, microbatch).
class MessageIndex {
 public:
  MessageIndex(const runtime::RankProgram& program, TaskKind kind) {
    int32_t last = -1;
    for (const runtime::Task& task : program.tasks) {
      if (task.kind != kind) continue;
      last = std::max(last, task.microbatch);
      if (keys_.empty() || keys_.back() != task.key) keys_.push_back(task.key);
    }
    std::sort(keys_.begin(), keys_.end());
    keys_.erase(std::unique(keys_.begin(), keys_.end()), keys_.end());
    columns_ = static_cast<size_t>(last + 2);
    tasks_.assign(keys_.size() * columns_, kNone);
    for (uint32_t t = 0; t < program.tasks.size(); ++t) {
      const runtime::Task& task = program.tasks[t];
      if (task.kind == kind) tasks_[Slot(task.key, task.microbatch)] = t;
    }
  }

  uint32_t Find(uint32_t key, int32_t microbatch) const {
    auto found = std::lower_bound(keys_.begin(), keys_.end(), key);
    if (found == keys_.end() || *found != key || static_cast<size_t>(microbatch + 1) >= columns_)
      return kNone;
    return tasks_[static_cast<size_t>(found - keys_.begin()) * columns_ +
                  static_cast<size_t>(microbatch + 1)];
  }

 private:
  size_t Slot(uint32_t key, int32_t microbatch) const {
    const size_t row = static_cast<size_t>(std::lower_bound(keys_.begin(), keys_.end(), key) - keys_.begin());
    return row * columns_ + static_cast<size_t>(microbatch + 1);
  }
  std::vector<uint32_t> keys_;
  size_t columns_ = 1;
  std::vector<uint32_t> tasks_;
};

}  // namespace

Pairing BuildPairing(std::span<const runtime::RankProgram> programs) {
  Pairing pairing;
  pairing.partner.resize(programs.size());
  std::vector<MessageIndex> sends, receives;
  for (const runtime::RankProgram& program : programs) {
    sends.emplace_back(program, TaskKind::kSend);
    receives.emplace_back(program, TaskKind::kRecv);
  }
  std::unordered_map<std::string_view, uint32_t> names;
  std::unordered_map<uint64_t, uint32_t> joints;  // (name, microbatch, occurrence)
  for (size_t r = 0; r < programs.size(); ++r) {
    const runtime::RankProgram& program = programs[r];
    std::vector<uint32_t>& partner = pairing.partner[r];
    partner.assign(program.tasks.size(), kNone);
    std::unordered_map<uint64_t, uint32_t> occurrences;
    for (uint32_t t = 0; t < program.tasks.size(); ++t) {
      const runtime::Task& task = program.tasks[t];
      if (task.kind == TaskKind::kSend || task.kind == TaskKind::kRecv) {
        const uint32_t peer = program.peer_roles[task.argument];
        const MessageIndex& index = task.kind == TaskKind::kSend ? receives[peer] : sends[peer];
        partner[t] = index.Find(task.key, task.microbatch);
      } else if (task.kind == TaskKind::kCollective) {
        const uint32_t name =
            names.emplace(program.collectives[task.argument].name, static_cast<uint32_t>(names.size()))
                .first->second;
        const uint64_t who = (uint64_t{name} << 32) | static_cast<uint32_t>(task.microbatch + 1);
        const uint32_t occurrence = occurrences[who]++;
        PIPER_CHECK(occurrence < (1u << 8) && name < (1u << 24), "too many collectives");
        const uint64_t key = (uint64_t{occurrence} << 56) | who;
        partner[t] = joints.emplace(key, pairing.joint_count).first->second;
        pairing.joint_count = static_cast<uint32_t>(joints.size());
      }
    }
  }
  return pairing;
}

}  // namespace piper::ir::simulation
