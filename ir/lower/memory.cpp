#include "ir/lower/memory.h"

#include <algorithm>
#include <memory>

#include "ir/lower/arena.h"
#include "ir/lower/happens_before.h"
#include "ir/lower/static_layout.h"
#include "ir/support/result.h"

namespace piper::ir {
namespace {

using runtime::Buffer;
using runtime::BufferKind;
using runtime::Task;

bool IsStatic(const Buffer& buffer) {
  return buffer.kind == BufferKind::kParameter || buffer.kind == BufferKind::kOptimizerState ||
         buffer.kind == BufferKind::kGradient || buffer.kind == BufferKind::kScalar;
}
bool IsSlot(const Buffer& buffer) { return !IsStatic(buffer) && buffer.kind != BufferKind::kScratch; }

// Users of every buffer, as tasks in ascending order (a task that uses it twice stands twice).
struct Users {
  std::vector<uint32_t> first, tasks;

  Users(std::span<const Buffer> buffers, std::span<const Task> all, std::span<const uint32_t> operands)
      : first(buffers.size() + 1, 0) {
    for (const Task& task : all) {
      for (uint32_t i = 0; i < task.operand_count; ++i) ++first[operands[task.first_operand + i] + 1];
    }
    for (size_t b = 0; b < buffers.size(); ++b) first[b + 1] += first[b];
    tasks.resize(first.back());
    std::vector<uint32_t> next(first.begin(), first.end() - 1);
    for (uint32_t t = 0; t < all.size(); ++t) {
      for (uint32_t i = 0; i < all[t].operand_count; ++i) {
        tasks[next[operands[all[t].first_operand + i]]++] = t;
      }
    }
  }
  std::span<const uint32_t> Of(uint32_t buffer) const {
    return std::span(tasks).subspan(first[buffer], first[buffer + 1] - first[buffer]);
  }
};

int64_t PlaceScratch(RoleStorage& role) {
  int64_t next = AlignUp(role.static_bytes);
  for (Buffer& buffer : role.buffers) {
    if (buffer.kind != BufferKind::kScratch) continue;
    buffer.offset = next;
    next = AlignUp(next + buffer.bytes);
  }
  return next;
}

// One way to pack: what `split_ratio` (arena.h) comes to.
class Packer {
 public:
  Packer(const RoleStorage& role, const Users& users, int64_t begin, int64_t split_ratio)
      : role_(role),
        users_(users),
        clock_(role.tasks.size(), role.streams.size()),
        arena_(begin, split_ratio),
        live_(begin),
        peak_(begin),
        range_(role.buffers.size(), kNone),
        remaining_(role.buffers.size()),
        offset_(role.buffers.size(), 0),
        pending_(role.streams.size()),
        held_(role.streams.size()),
        holds_(role.buffers.size()),
        group_peak_(role.streams.size(), 0) {
    for (uint32_t b = 0; b < role.buffers.size(); ++b) remaining_[b] = users_.first[b + 1] - users_.first[b];
  }

  void Run(const std::vector<uint32_t>& log) {
    PIPER_CHECK(log.size() == 2 * role_.tasks.size(), "an incomplete history");
    for (uint32_t entry : log) {
      if (entry % 2 == 0) {
        Start(entry / 2);
      } else {
        End(entry / 2);
      }
    }
  }
  int64_t arena() const { return arena_.end(); }
  int64_t live() const { return peak_; }

  void Commit(RoleStorage& role) {
    role.arena_bytes = arena();
    role.live_bytes = live();
    for (uint32_t b = 0; b < role.buffers.size(); ++b) {
      if (!IsSlot(role.buffers[b])) continue;
      PIPER_CHECK(remaining_[b] == 0, role.buffers[b].name);
      role.buffers[b].offset = offset_[b];
    }
    MergeWaits(role);
  }

 private:
  bool InGroup(uint32_t task) const { return role_.tasks[task].atomic != kNone; }
  bool FirstOfGroup(uint32_t task) const {
    const runtime::Stream& stream = role_.streams[role_.tasks[task].stream];
    return task == stream.first_task || role_.tasks[task - 1].atomic != role_.tasks[task].atomic;
  }

  bool LastOfGroup(uint32_t task) const {
    const runtime::Stream& stream = role_.streams[role_.tasks[task].stream];
    return task + 1 == stream.first_task + stream.task_count ||
           role_.tasks[task + 1].atomic != role_.tasks[task].atomic;
  }

  void Start(uint32_t t) {
    const Task& task = role_.tasks[t];
    clock_.Enter(t, task.stream, role_.waits.data() + task.first_wait, task.wait_count, role_.tasks);
    // Within a fused node the part before this one is over; what it freed serves its successors only.
    if (InGroup(t) && !FirstOfGroup(t)) FreeWithinGroup(t - 1);
    for (uint32_t i = 0; i < task.operand_count; ++i) {
      const uint32_t b = role_.task_operands[task.first_operand + i];
      if (!IsSlot(role_.buffers[b]) || range_[b] != kNone) continue;
      Place(b, t);
    }
    peak_ = std::max(peak_, live_);
    if (!InGroup(t)) return;
    // All parts start at one instant of the history: until the node ends, its own peak counts.
    int64_t& peak = group_peak_[task.stream];
    peak = FirstOfGroup(t) ? live_ : std::max(peak, live_);
    if (!LastOfGroup(t)) return;
    peak -= live_;
    live_ += peak;
  }

  void Place(uint32_t b, uint32_t t) {
    const Buffer& buffer = role_.buffers[b];
    const Task& task = role_.tasks[t];
    const int64_t bytes = std::max(AlignUp(buffer.bytes), runtime::kAlignment);
    former_.clear();
    uint32_t range = kNone;
    if (InGroup(t)) {
      // Bytes that an earlier part has done with, if they fit exactly: all their users are ordered before
      // this part.
      std::vector<uint32_t>& own = pending_[task.stream];
      for (size_t i = 0; i < own.size() && range == kNone; ++i) {
        const uint32_t old = own[i];
        if (std::max(AlignUp(role_.buffers[old].bytes), runtime::kAlignment) != bytes) continue;
        range = range_[old];
        former_.push_back(old);
        own.erase(own.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if (range == kNone) {
      range = arena_.Take(bytes, b, &former_);
    } else {
      arena_.SetOwner(range, b);
    }
    range_[b] = range;
    offset_[b] = arena_.Offset(range);
    live_ += buffer.bytes;
    for (uint32_t old : former_) {
      // Of each stream only the last user matters.
      const std::span<const uint32_t> tasks = users_.Of(old);
      for (size_t i = 0; i < tasks.size(); ++i) {
        const uint32_t user = tasks[i];
        const uint16_t stream = role_.tasks[user].stream;
        const bool last = i + 1 == tasks.size() || role_.tasks[tasks[i + 1]].stream != stream;
        if (!last || stream == task.stream || clock_.Ordered(user, stream, t)) continue;
        added_.emplace_back(t, user);
        clock_.AddWait(t, user, stream);
      }
    }
  }

  void End(uint32_t t) {
    const Task& task = role_.tasks[t];
    if (!InGroup(t)) {
      Free(t);
      return;
    }
    // The parts of a fused node end together; what they freed is free from now on.
    if (!LastOfGroup(t)) return;
    live_ -= group_peak_[task.stream];
    Free(t);
    for (uint32_t b : held_[task.stream]) {
      --holds_[b].count;
      if (remaining_[b] > 0) FreeOne(b);
    }
    held_[task.stream].clear();
    for (uint32_t b : pending_[task.stream]) arena_.Release(range_[b]);
    pending_[task.stream].clear();
  }

  // One use of each operand is over. Buffers without another are released.
  void Free(uint32_t t) {
    const Task& task = role_.tasks[t];
    for (uint32_t i = 0; i < task.operand_count; ++i) FreeOne(role_.task_operands[task.first_operand + i]);
  }
  void FreeOne(uint32_t b) {
    if (--remaining_[b] > 0 || !IsSlot(role_.buffers[b])) return;
    live_ -= role_.buffers[b].bytes;
    arena_.Release(range_[b]);
  }

  // The same for a part of a fused node that goes on: for other streams its uses last until the node's end.
  // So they are held back, unless nobody else has a use left: then later parts may have the bytes.
  void FreeWithinGroup(uint32_t t) {
    const Task& task = role_.tasks[t];
    for (uint32_t i = 0; i < task.operand_count; ++i) {
      const uint32_t b = role_.task_operands[task.first_operand + i];
      if (!IsSlot(role_.buffers[b])) {
        --remaining_[b];
        continue;
      }
      Hold& hold = holds_[b];
      const uint32_t own = hold.count > 0 && hold.stream == task.stream ? hold.count : 0;
      if (remaining_[b] > own + 1) {
        hold.stream = hold.count > 0 && hold.stream != task.stream ? kNone : task.stream;
        ++hold.count;
        held_[task.stream].push_back(b);
        continue;
      }
      remaining_[b] = 0;
      live_ -= role_.buffers[b].bytes;
      pending_[task.stream].push_back(b);
    }
  }

  // Rebuilds the table of waits with the added ones.
  void MergeWaits(RoleStorage& role) {
    if (added_.empty()) return;
    std::sort(added_.begin(), added_.end());
    std::vector<uint32_t> merged;
    merged.reserve(role.waits.size() + added_.size());
    size_t next = 0;
    for (uint32_t t = 0; t < role.tasks.size(); ++t) {
      Task& task = role.tasks[t];
      const size_t begin = merged.size();
      merged.insert(merged.end(), role.waits.begin() + task.first_wait,
                    role.waits.begin() + task.first_wait + task.wait_count);
      const bool grown = next < added_.size() && added_[next].first == t;
      for (; next < added_.size() && added_[next].first == t; ++next) merged.push_back(added_[next].second);
      if (grown) {
        std::sort(merged.begin() + static_cast<std::ptrdiff_t>(begin), merged.end());
        merged.erase(std::unique(merged.begin() + static_cast<std::ptrdiff_t>(begin), merged.end()),
                     merged.end());
      }
      task.first_wait = static_cast<uint32_t>(begin);
      task.wait_count = static_cast<uint32_t>(merged.size() - begin);
    }
    role.waits = std::move(merged);
  }

  static constexpr uint32_t kNone = runtime::kNone;
  const RoleStorage& role_;
  const Users& users_;
  HappensBefore clock_;
  Arena arena_;
  int64_t live_, peak_;
  std::vector<uint32_t> range_;      // per buffer, kNone before its first user
  std::vector<uint32_t> remaining_;  // users to come
  std::vector<int64_t> offset_;
  std::vector<std::vector<uint32_t>> pending_;  // per stream: freed within the fused node that runs
  struct Hold {
    uint32_t count = 0;
    uint32_t stream = 0;  // of all of them, or kNone
  };
  std::vector<std::vector<uint32_t>>
      held_;                         // likewise: uses that are over for its parts only, one entry a use
  std::vector<Hold> holds_;          // per buffer: its entries in held_
  std::vector<int64_t> group_peak_;  // per stream: what its fused node needs beyond its state at the end
  std::vector<uint32_t> former_;
  std::vector<std::pair<uint32_t, uint32_t>> added_;  // (task, awaited)
};

}  // namespace

void PackMemory(RoleStorage& role, const std::vector<uint32_t>& log) {
  const Users users(role.buffers, role.tasks, role.task_operands);
  const int64_t begin = PlaceScratch(role);
  std::unique_ptr<Packer> best;
  for (int64_t split_ratio : {int64_t{8}, int64_t{1}, int64_t{2}, INT64_MAX}) {
    auto packer = std::make_unique<Packer>(role, users, begin, split_ratio);
    packer->Run(log);
    if (!best || packer->arena() < best->arena()) best = std::move(packer);
    // Good enough: within a hundredth of what is live at once.
    if (best->arena() - best->live() <= (best->live() - begin) / 100) break;
  }
  best->Commit(role);
  role.buffers.shrink_to_fit();
  role.waits.shrink_to_fit();
}

void PlaceWithoutReuse(RoleStorage& role) {
  int64_t next = PlaceScratch(role);
  for (Buffer& buffer : role.buffers) {
    if (!IsSlot(buffer)) continue;
    buffer.offset = next;
    next = AlignUp(next + buffer.bytes);
  }
  role.arena_bytes = role.live_bytes = next;
}

std::string VerifyMemory(const runtime::RankProgram& program) {
  const Users users(program.buffers, program.tasks, program.task_operands);
  HappensBefore clock(program.tasks.size(), program.streams.size());
  // Tasks in an order that respects streams and waits.
  std::vector<uint32_t> head(program.streams.size());
  std::vector<uint8_t> done(program.tasks.size(), 0);
  for (size_t s = 0; s < head.size(); ++s) head[s] = program.streams[s].first_task;
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t s = 0; s < head.size(); ++s) {
      const uint32_t end = program.streams[s].first_task + program.streams[s].task_count;
      while (head[s] < end) {
        const Task& task = program.tasks[head[s]];
        bool ready = true;
        for (uint32_t w = 0; w < task.wait_count; ++w)
          ready = ready && done[program.waits[task.first_wait + w]] != 0;
        if (!ready) break;
        clock.Enter(head[s], task.stream, program.waits.data() + task.first_wait, task.wait_count,
                    program.tasks);
        done[head[s]++] = 1;
        progress = true;
      }
    }
  }
  for (size_t s = 0; s < head.size(); ++s) {
    if (head[s] != program.streams[s].first_task + program.streams[s].task_count) return "waits form a cycle";
  }

  const auto text = [&](uint32_t b) {
    const Buffer& buffer = program.buffers[b];
    return std::string(buffer.name) + " at " + std::to_string(buffer.offset) + " + " +
           std::to_string(buffer.bytes);
  };
  // All users of `a` before any user of `b`: the last of each stream before the first of each stream.
  const auto all_before = [&](uint32_t a, uint32_t b) {
    const std::span<const uint32_t> from = users.Of(a), to = users.Of(b);
    for (size_t i = 0; i < from.size(); ++i) {
      const uint16_t from_stream = program.tasks[from[i]].stream;
      if (i + 1 < from.size() && program.tasks[from[i + 1]].stream == from_stream) continue;
      for (size_t j = 0; j < to.size(); ++j) {
        const uint16_t to_stream = program.tasks[to[j]].stream;
        if (j > 0 && program.tasks[to[j - 1]].stream == to_stream) continue;
        if (!clock.Ordered(from[i], from_stream, to[j])) return false;
      }
    }
    return true;
  };
  std::vector<uint32_t> by_offset;
  for (uint32_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.offset < 0 || buffer.offset % runtime::kAlignment != 0 ||
        buffer.offset + buffer.bytes > program.arena_bytes) {
      return "outside the arena or not aligned: " + text(b);
    }
    if (IsStatic(buffer)) {
      if (buffer.offset + buffer.bytes > program.static_bytes) return "outside the static part: " + text(b);
    } else if (buffer.offset < program.static_bytes) {
      return "within the static part: " + text(b);
    } else if (buffer.bytes > 0 && (buffer.kind == BufferKind::kScratch || !users.Of(b).empty())) {
      by_offset.push_back(b);
    }
  }
  // Sweep by offset; at every start the sharers of that byte, in the order of use, must be ordered one after
  // another.
  std::sort(by_offset.begin(), by_offset.end(), [&](uint32_t a, uint32_t b) {
    return program.buffers[a].offset != program.buffers[b].offset
               ? program.buffers[a].offset < program.buffers[b].offset
               : a < b;
  });
  // Sharers of the bytes at the sweep's position, kept in an order in which each precedes the next.
  std::vector<uint32_t> sharers;
  for (uint32_t b : by_offset) {
    const int64_t offset = program.buffers[b].offset;
    std::erase_if(sharers,
                  [&](uint32_t s) { return program.buffers[s].offset + program.buffers[s].bytes <= offset; });
    for (uint32_t s : sharers) {
      if (program.buffers[b].kind == BufferKind::kScratch ||
          program.buffers[s].kind == BufferKind::kScratch) {
        return "scratch shares bytes: " + text(b) + " and " + text(s);
      }
    }
    // Binary search for the place of b, then check its neighbours: precedence is transitive.
    size_t low = 0, high = sharers.size();
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (all_before(sharers[middle], b)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (low < sharers.size() && !all_before(b, sharers[low])) {
      return "in use at once: " + text(b) + " and " + text(sharers[low]);
    }
    if (low > 0 && !all_before(sharers[low - 1], b)) {
      return "in use at once: " + text(b) + " and " + text(sharers[low - 1]);
    }
    sharers.insert(sharers.begin() + static_cast<std::ptrdiff_t>(low), b);
  }
  return "";
}

}  // namespace piper::ir
