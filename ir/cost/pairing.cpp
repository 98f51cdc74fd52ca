// Which tasks of a job meet: a send with the receive of the same (key, microbatch) in the peer's role,
// collectives by name.
#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "ir/cost/event_loop.h"

namespace piper::ir::simulation {
namespace {

using runtime::TaskKind;

// The sends and the receives of one role by (key, microbatch).
class MessageIndex {
 public:
  MessageIndex(const runtime::RankProgram& program, std::vector<uint32_t>* kinds) {
    int32_t last = -1;
    kinds->assign(program.streams.size(), 0);
    for (uint32_t t = 0; t < program.tasks.size(); ++t) {
      const runtime::Task& task = program.tasks[t];
      (*kinds)[task.stream] |= KindBit(task.kind);
      if (task.kind != TaskKind::kSend && task.kind != TaskKind::kRecv) continue;
      messages_.push_back(t);
      last = std::max(last, task.microbatch);
      if (keys_.empty() || keys_.back() != task.key) keys_.push_back(task.key);
    }
    std::sort(keys_.begin(), keys_.end());
    keys_.erase(std::unique(keys_.begin(), keys_.end()), keys_.end());
    columns_ = static_cast<size_t>(last + 2);
    for (std::vector<uint32_t>* tasks : {&sends_, &receives_}) tasks->assign(keys_.size() * columns_, kNone);
    for (uint32_t t : messages_) {
      const runtime::Task& task = program.tasks[t];
      std::vector<uint32_t>& tasks = task.kind == TaskKind::kSend ? sends_ : receives_;
      tasks[Row(task.key) * columns_ + static_cast<size_t>(task.microbatch + 1)] = t;
    }
  }

  const std::vector<uint32_t>& messages() const { return messages_; }  // tasks, ascending

  // The send, or the receive.
  uint32_t Find(TaskKind kind, uint32_t key, int32_t microbatch) const {
    const size_t row = Row(key);
    if (row == keys_.size() || static_cast<size_t>(microbatch + 1) >= columns_) return kNone;
    return (kind == TaskKind::kSend ? sends_
                                    : receives_)[row * columns_ + static_cast<size_t>(microbatch + 1)];
  }

 private:
  // keys_.size(): none. A stream's messages mostly have the key of the one before.
  size_t Row(uint32_t key) const {
    if (recent_ < keys_.size() && keys_[recent_] == key) return recent_;
    auto found = std::lower_bound(keys_.begin(), keys_.end(), key);
    if (found == keys_.end() || *found != key) return keys_.size();
    return recent_ = static_cast<size_t>(found - keys_.begin());
  }
  std::vector<uint32_t> messages_, keys_;
  size_t columns_ = 1;
  mutable size_t recent_ = 0;
  std::vector<uint32_t> sends_, receives_;  // [key][microbatch + 1]
};

}  // namespace

Pairing BuildPairing(std::span<const runtime::RankProgram> programs) {
  Pairing pairing;
  pairing.partner.resize(programs.size());
  std::vector<MessageIndex> messages;
  messages.reserve(programs.size());
  pairing.kinds.resize(programs.size());
  for (size_t r = 0; r < programs.size(); ++r) messages.emplace_back(programs[r], &pairing.kinds[r]);
  std::unordered_map<std::string_view, uint32_t> names;
  std::unordered_map<uint64_t, uint32_t> joints;  // (name, microbatch, occurrence)
  for (size_t r = 0; r < programs.size(); ++r) {
    const runtime::RankProgram& program = programs[r];
    std::vector<uint32_t>& partner = pairing.partner[r];
    partner.assign(program.tasks.size(), kNone);
    for (uint32_t t : messages[r].messages()) {
      const runtime::Task& task = program.tasks[t];
      const MessageIndex& peer = messages[program.peer_roles[task.argument]];
      partner[t] = peer.Find(task.kind == TaskKind::kSend ? TaskKind::kRecv : TaskKind::kSend, task.key,
                             task.microbatch);
    }
    if (program.collectives.empty()) continue;
    std::unordered_map<uint64_t, uint32_t> occurrences;
    ForEachTask(
        program, pairing.kinds[r], KindBit(TaskKind::kCollective),
        [&](uint32_t t, const runtime::Task& task) {
          if (task.kind == TaskKind::kCollective) {
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
        });
  }
  return pairing;
}

}  // namespace piper::ir::simulation
