#include "ir/lower/memory.h"

#include <algorithm>
#include <memory>

#include "ir/lower/arena.h"
#include "ir/lower/happens_before.h"
#include "ir/lower/slots.h"
#include "ir/lower/static_layout.h"
#include "ir/support/result.h"

namespace piper::ir {
namespace {

using runtime::Buffer;
using runtime::BufferKind;
using runtime::Task;

int64_t PlaceScratch(RoleStorage& role) {
  int64_t next = AlignUp(role.static_bytes);
  for (Buffer& buffer : role.buffers) {
    if (buffer.kind != BufferKind::kScratch) continue;
    buffer.offset = next;
    next = AlignUp(next + buffer.bytes);
  }
  return next;
}

// Who had which bytes last, where offsets are given.
class Owners {
 public:
  void Take(int64_t begin, int64_t end, uint32_t owner, std::vector<uint32_t>* former) {
    auto first = std::upper_bound(segments_.begin(), segments_.end(), begin,
                                  [](int64_t at, const Segment& segment) { return at < segment.end; });
    auto last = first;
    std::vector<Segment> pieces;
    for (; last != segments_.end() && last->begin < end; ++last) {
      if (former->empty() || former->back() != last->owner) former->push_back(last->owner);
      if (last->begin < begin) pieces.push_back({last->begin, begin, last->owner});
    }
    pieces.push_back({begin, end, owner});
    if (last != first && std::prev(last)->end > end)
      pieces.push_back({end, std::prev(last)->end, std::prev(last)->owner});
    const auto at = segments_.erase(first, last);
    segments_.insert(at, pieces.begin(), pieces.end());
  }

 private:
  struct Segment {
    int64_t begin, end;
    uint32_t owner;
  };
  std::vector<Segment> segments_;  // ascending, disjoint
};

// One way to pack: what `split_ratio` (arena.h) comes to, or the offsets of `planned`.
class Packer {
 public:
  Packer(const RoleStorage& role, const Users& users, Pool pool, int64_t begin, int64_t split_ratio,
         const std::vector<int64_t>* planned = nullptr)
      : role_(role),
        tasks_(role.tasks.data()),
        waits_(role.waits.data()),
        operands_(role.task_operands.data()),
        users_(users),
        pool_(pool),
        planned_(planned),
        clock_(role.tasks.size(), role.streams.size()),
        arena_(begin, split_ratio),
        live_(begin),
        peak_(begin),
        rounded_(begin),
        rounded_peak_(begin),
        states_(role.buffers.size()),
        state_(states_.data()),
        places_(role.tasks.size(), 0),
        place_(places_.data()),
        streams_(role.tasks.size(), 0),
        stream_of_(streams_.data()),
        pending_(role.streams.size()),
        held_(role.streams.size()),
        group_peak_(role.streams.size(), 0),
        first_added_(role.tasks.size(), kNone) {
    bool grouped = false;
    for (const runtime::Stream& stream : role.streams) {
      const uint32_t end = stream.first_task + stream.task_count;
      uint32_t before = kNone;  // the atomic node of the task before
      for (uint32_t t = stream.first_task; t < end; ++t) {
        stream_of_[t] = tasks_[t].stream;
        const uint32_t atomic = tasks_[t].atomic;
        if (atomic != before) {
          if (before != kNone) place_[t - 1] |= kLast;
          if (atomic != kNone) place_[t] = kFirst;
          before = atomic;
        }
        if (atomic == kNone) continue;
        place_[t] |= kInside;
        grouped = true;
      }
      if (before != kNone) place_[end - 1] |= kLast;
    }
    if (grouped) holds_.resize(role.buffers.size());
    const Buffer* buffers = role.buffers.data();
    const uint32_t* first_user = users.first.data();
    for (uint32_t b = 0; b < role.buffers.size(); ++b) {
      State& state = state_[b];
      state.remaining = first_user[b + 1] - first_user[b];
      if (!IsSlot(buffers[b], pool_)) continue;
      state.range = kNone;
      state.bytes = buffers[b].bytes;
      state.slot = SlotBytes(buffers[b]);
    }
  }

  void Run(const std::vector<uint32_t>& log) {
    PIPER_CHECK(log.size() == 2 * role_.tasks.size(), "an incomplete history");
    for (const uint32_t entry : log) {
      if (entry % 2 == 0) {
        Start(entry / 2);
      } else {
        End(entry / 2);
      }
    }
  }
  int64_t arena() const { return std::max(arena_.end(), planned_end_); }
  int64_t live() const { return peak_; }
  // No packing can be smaller: the largest sum of slots that were taken at once.
  int64_t lower_bound() const { return rounded_peak_; }

  void Commit(RoleStorage& role) {
    if (pool_ == Pool::kArena) {
      role.arena_bytes = arena();
      role.live_bytes = live();
    } else {
      role.host_bytes = arena();
    }
    for (uint32_t b = 0; b < role.buffers.size(); ++b) {
      if (!IsSlot(role.buffers[b], pool_)) continue;
      PIPER_CHECK(state_[b].remaining == 0, role.buffers[b].name);
      role.buffers[b].offset = state_[b].offset;
    }
    MergeWaits(role);
  }

 private:
  bool InGroup(uint32_t task) const { return place_[task] != 0; }
  bool FirstOfGroup(uint32_t task) const { return (place_[task] & kFirst) != 0; }
  bool LastOfGroup(uint32_t task) const { return (place_[task] & kLast) != 0; }
  static constexpr uint8_t kInside = 1, kFirst = 2, kLast = 4;

  void Start(uint32_t t) {
    const Task& task = tasks_[t];
    clock_.Enter(t, task.stream, waits_ + task.first_wait, task.wait_count);
    // Within a fused node the part before this one is over; what it freed serves its successors only.
    if (InGroup(t) && !FirstOfGroup(t)) FreeWithinGroup(t - 1);
    const uint32_t* operand = operands_ + task.first_operand;
    for (const uint32_t* end = operand + task.operand_count; operand != end; ++operand) {
      if (state_[*operand].range == kNone) Place(*operand, t);
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
    const Task& task = tasks_[t];
    State& placed = state_[b];
    const int64_t bytes = placed.slot;
    former_.clear();
    uint32_t range = kNone;
    if (planned_ != nullptr) {
      range = 0;
      placed.offset = (*planned_)[b];
      planned_end_ = std::max(planned_end_, placed.offset + bytes);
      owners_.Take(placed.offset, placed.offset + bytes, b, &former_);
    } else if (InGroup(t)) {
      // Bytes that an earlier part has done with, if they fit exactly: all their users are ordered before
      // this part.
      std::vector<uint32_t>& own = pending_[task.stream];
      for (size_t i = 0; i < own.size() && range == kNone; ++i) {
        const uint32_t old = own[i];
        if (state_[old].slot != bytes) continue;
        range = state_[old].range;
        former_.push_back(old);
        own.erase(own.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if (range == kNone) {
      range = arena_.Take(bytes, b, &former_);
    } else if (planned_ == nullptr) {
      arena_.SetOwner(range, b);
    }
    placed.range = range;
    if (planned_ == nullptr) placed.offset = arena_.Offset(range);
    live_ += placed.bytes;
    rounded_ += bytes;
    rounded_peak_ = std::max(rounded_peak_, rounded_);
    for (uint32_t old : former_) {
      // Of each stream only the last user matters.
      const std::span<const uint32_t> tasks = users_.Of(old);
      const uint32_t* const end = tasks.data() + tasks.size();
      for (const uint32_t* at = tasks.data(); at != end; ++at) {
        const uint32_t user = *at;
        const uint16_t stream = stream_of_[user];
        if (stream == task.stream || (at + 1 != end && stream_of_[at[1]] == stream)) continue;
        if (clock_.Ordered(user, stream, t)) continue;
        added_.push_back({user, first_added_[t]});
        first_added_[t] = static_cast<uint32_t>(added_.size() - 1);
        clock_.AddWait(t, user);
      }
    }
  }

  void End(uint32_t t) {
    const Task& task = tasks_[t];
    if (!InGroup(t)) {
      Free(task);
      return;
    }
    // The parts of a fused node end together; what they freed is free from now on.
    if (!LastOfGroup(t)) return;
    live_ -= group_peak_[task.stream];
    Free(task);
    for (uint32_t b : held_[task.stream]) {
      --holds_[b].count;
      if (state_[b].remaining > 0) FreeOne(b);
    }
    held_[task.stream].clear();
    for (uint32_t b : pending_[task.stream]) Release(b);
    pending_[task.stream].clear();
  }

  // One use of each operand is over. Buffers without another are released.
  void Free(const Task& task) {
    const uint32_t* operand = operands_ + task.first_operand;
    for (const uint32_t* end = operand + task.operand_count; operand != end; ++operand) FreeOne(*operand);
  }
  void FreeOne(uint32_t b) {
    State& state = state_[b];
    if (--state.remaining > 0 || state.slot == 0) return;
    live_ -= state.bytes;
    rounded_ -= state.slot;
    Release(b);
  }

  // The same for a part of a fused node that goes on: for other streams its uses last until the node's end.
  // So they are held back, unless nobody else has a use left: then later parts may have the bytes.
  void FreeWithinGroup(uint32_t t) {
    const Task& task = tasks_[t];
    for (uint32_t i = 0; i < task.operand_count; ++i) {
      const uint32_t b = operands_[task.first_operand + i];
      if (state_[b].slot == 0) {
        --state_[b].remaining;
        continue;
      }
      Hold& hold = holds_[b];
      const uint32_t own = hold.count > 0 && hold.stream == task.stream ? hold.count : 0;
      if (state_[b].remaining > own + 1) {
        hold.stream = hold.count > 0 && hold.stream != task.stream ? kNone : task.stream;
        ++hold.count;
        held_[task.stream].push_back(b);
        continue;
      }
      state_[b].remaining = 0;
      live_ -= state_[b].bytes;
      rounded_ -= state_[b].slot;
      pending_[task.stream].push_back(b);
    }
  }
  void Release(uint32_t b) {
    if (planned_ == nullptr) arena_.Release(state_[b].range);
  }

  // Rebuilds the table of waits with the added ones.
  void MergeWaits(RoleStorage& role) {
    if (added_.empty()) return;
    std::vector<uint32_t> merged(role.waits.size() + added_.size());
    uint32_t* end = merged.data();
    const uint32_t* first_added = first_added_.data();
    for (Task& task : role.tasks) {
      uint32_t* const begin = end;
      const uint32_t* wait = waits_ + task.first_wait;
      for (const uint32_t* last = wait + task.wait_count; wait != last;) *end++ = *wait++;
      const uint32_t first = *first_added++;
      if (first != kNone) {
        for (uint32_t a = first; a != kNone; a = added_[a].next) *end++ = added_[a].awaited;
        std::sort(begin, end);
        end = std::unique(begin, end);
      }
      task.first_wait = static_cast<uint32_t>(begin - merged.data());
      task.wait_count = static_cast<uint32_t>(end - begin);
    }
    merged.resize(static_cast<size_t>(end - merged.data()));
    role.waits = std::move(merged);
  }

  static constexpr uint32_t kNone = runtime::kNone;
  const RoleStorage& role_;
  // Into it: vectors would be asked for their data at every turn.
  const Task* const tasks_;
  const uint32_t* const waits_;
  const uint32_t* const operands_;
  const Users& users_;
  const Pool pool_;
  const std::vector<int64_t>* planned_;
  Owners owners_;
  int64_t planned_end_ = 0;
  HappensBefore clock_;
  Arena arena_;
  int64_t live_, peak_;
  int64_t rounded_, rounded_peak_;  // with every slot at its full range; a little low while a fused node runs
  struct State {
    int64_t slot = 0;  // what its range takes; 0: the buffer is no slot
    int64_t bytes = 0;
    int64_t offset = 0;
    uint32_t range = 0;      // kNone: a slot before its first user
    uint32_t remaining = 0;  // users to come
  };
  std::vector<State> states_;
  State* const state_;  // per buffer
  std::vector<uint8_t> places_;
  uint8_t* const place_;  // per task: kInside, kFirst, kLast of a fused node
  std::vector<uint16_t> streams_;
  uint16_t* const stream_of_;                   // per task: in rows they lie far apart
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
  struct Added {
    uint32_t awaited;
    uint32_t next;  // of the same task, or kNone
  };
  std::vector<Added> added_;
  std::vector<uint32_t> first_added_;  // per task: its list in added_
};

// Within a fiftieth of what is taken at once.
bool Good(const Packer& packer, int64_t begin) {
  return packer.arena() - packer.lower_bound() <= (packer.lower_bound() - begin) / 50;
}

// When a slot lives, as positions in the history. Within a fused node its parts follow one another; for
// everybody else a slot that one of them frees lives to the node's end.
struct Life {
  int64_t begin = -1, end = -1;
  int64_t inner_end = -1;  // where it is over for later parts of the fused node that frees it
  uint32_t begin_node = runtime::kNone, end_node = runtime::kNone;  // first task of the fused node, if any
};
bool Overlap(const Life& a, const Life& b) {
  const Life& first = a.begin <= b.begin ? a : b;
  const Life& second = a.begin <= b.begin ? b : a;
  if (second.begin > first.end) return false;
  const bool same_node = first.end_node != runtime::kNone && first.end_node == second.begin_node;
  return !(same_node && second.begin > first.inner_end);
}

// Offsets by buffer, each slot at the lowest place that is free for its whole life, largest first. Empty if
// there are too many slots.
std::vector<int64_t> PlanLargestFirst(const RoleStorage& role, const Users& users, Pool pool,
                                      const std::vector<uint32_t>& log, int64_t begin) {
  constexpr size_t kMost = 2000;
  std::vector<uint32_t> slots;
  for (uint32_t b = 0; b < role.buffers.size(); ++b) {
    if (IsSlot(role.buffers[b], pool)) slots.push_back(b);
  }
  if (slots.size() > kMost) return {};
  std::vector<int64_t> starts(role.tasks.size()), ends(role.tasks.size());
  for (size_t i = 0; i < log.size(); ++i)
    (log[i] % 2 == 0 ? starts : ends)[log[i] / 2] = static_cast<int64_t>(i);
  std::vector<uint32_t> node(role.tasks.size(), runtime::kNone);  // first task of the fused node
  for (const runtime::Stream& stream : role.streams) {
    for (uint32_t t = stream.first_task; t < stream.first_task + stream.task_count; ++t) {
      if (role.tasks[t].atomic == runtime::kNone) continue;
      const bool continues = t > stream.first_task && role.tasks[t - 1].atomic == role.tasks[t].atomic;
      node[t] = continues ? node[t - 1] : t;
    }
  }
  std::vector<Life> lives(role.buffers.size());
  for (uint32_t b : slots) {
    Life& life = lives[b];
    for (uint32_t t : users.Of(b)) {
      if (life.begin < 0 || starts[t] < life.begin) {
        life.begin = starts[t];
        life.begin_node = node[t];
      }
      if (ends[t] > life.end) {
        life.end = ends[t];
        life.end_node = node[t];
      }
    }
    if (life.end_node == runtime::kNone) continue;
    // For later parts of that node its own parts are over as they follow one another, other streams' uses as
    // they end.
    for (uint32_t t : users.Of(b)) {
      life.inner_end = std::max(life.inner_end, node[t] == life.end_node ? starts[t] : ends[t]);
    }
    uint32_t last = life.end_node;
    while (last + 1 < role.tasks.size() && node[last + 1] == life.end_node) ++last;
    life.end = std::max(life.end, ends[last]);
  }
  std::stable_sort(slots.begin(), slots.end(), [&](uint32_t a, uint32_t b) {
    const int64_t x = SlotBytes(role.buffers[a]), y = SlotBytes(role.buffers[b]);
    return x != y ? x > y : lives[a].begin < lives[b].begin;
  });
  std::vector<int64_t> offsets(role.buffers.size(), 0);
  std::vector<uint32_t> placed;  // ascending by offset
  for (uint32_t b : slots) {
    const int64_t bytes = SlotBytes(role.buffers[b]);
    int64_t at = begin;
    for (uint32_t other : placed) {
      if (offsets[other] + SlotBytes(role.buffers[other]) <= at || !Overlap(lives[b], lives[other])) continue;
      if (offsets[other] >= at + bytes) break;
      at = offsets[other] + SlotBytes(role.buffers[other]);
    }
    offsets[b] = at;
    placed.insert(std::upper_bound(placed.begin(), placed.end(), at,
                                   [&](int64_t value, uint32_t other) { return value < offsets[other]; }),
                  b);
  }
  return offsets;
}

}  // namespace

namespace {

void PackPool(RoleStorage& role, const Users& users, Pool pool, const std::vector<uint32_t>& log,
              int64_t begin) {
  std::unique_ptr<Packer> best;
  for (int64_t split_ratio : {int64_t{8}, int64_t{1}, int64_t{2}, INT64_MAX}) {
    auto packer = std::make_unique<Packer>(role, users, pool, begin, split_ratio);
    packer->Run(log);
    if (!best || packer->arena() < best->arena()) best = std::move(packer);
    if (Good(*best, begin)) break;
  }
  if (!Good(*best, begin)) {
    // Knowing all lives, place the largest slots first; for roles small enough for a quadratic search.
    const std::vector<int64_t> planned = PlanLargestFirst(role, users, pool, log, begin);
    if (!planned.empty()) {
      auto packer = std::make_unique<Packer>(role, users, pool, begin, 1, &planned);
      packer->Run(log);
      if (packer->arena() < best->arena()) best = std::move(packer);
    }
  }
  best->Commit(role);
}

}  // namespace

void PackMemory(RoleStorage& role, const std::vector<uint32_t>& log) {
  const Users users(role.buffers, role.tasks, role.task_operands);
  PackPool(role, users, Pool::kArena, log, PlaceScratch(role));
  const bool offloads = std::any_of(role.buffers.begin(), role.buffers.end(),
                                    [](const Buffer& buffer) { return IsSlot(buffer, Pool::kHost); });
  if (offloads) PackPool(role, users, Pool::kHost, log, 0);
  role.buffers.shrink_to_fit();
  role.waits.shrink_to_fit();
  role.task_operands.shrink_to_fit();
  role.tasks.shrink_to_fit();
}

void PlaceWithoutReuse(RoleStorage& role) {
  int64_t next = PlaceScratch(role);
  for (Buffer& buffer : role.buffers) {
    if (!IsSlot(buffer)) continue;
    buffer.offset = next;
    next = AlignUp(next + buffer.bytes);
  }
  role.arena_bytes = role.live_bytes = next;
  for (Buffer& buffer : role.buffers) {
    if (!IsSlot(buffer, Pool::kHost)) continue;
    buffer.offset = role.host_bytes;
    role.host_bytes = AlignUp(role.host_bytes + buffer.bytes);
  }
}

}  // namespace piper::ir
