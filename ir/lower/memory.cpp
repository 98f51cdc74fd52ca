#include "ir/lower/memory.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <utility>

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

// What packing reads of a role's tasks, near each other, and how often each buffer is used.
struct Uses {
  static constexpr uint8_t kInside = 1, kFirst = 2, kLast = 4;  // of a fused node
  struct Row {
    uint32_t first_operand, operand_count, first_wait, wait_count;
    uint16_t stream;
    uint8_t place;
  };
  std::vector<Row> rows;         // per task
  std::vector<uint32_t> counts;  // per buffer
  bool grouped = false;          // there are fused nodes

  explicit Uses(const RoleStorage& role) : counts(role.buffers.size(), 0) {
    rows.reserve(role.tasks.size());
    const uint32_t* const operands = role.task_operands.data();
    uint32_t* const count = counts.data();
    uint8_t places = 0;
    for (const runtime::Stream& stream : role.streams) {
      PIPER_CHECK(rows.size() == stream.first_task, "streams follow one another");
      const Task* const first = role.tasks.data() + stream.first_task;
      uint32_t before = runtime::kNone;  // the fused node of the task before
      for (const Task* task = first; task != first + stream.task_count; ++task) {
        uint8_t place = 0;
        if (task->atomic != before) {
          if (before != runtime::kNone) rows.back().place |= kLast;
          if (task->atomic != runtime::kNone) place = kFirst;
          before = task->atomic;
        }
        if (task->atomic != runtime::kNone) place |= kInside;
        places |= place;
        rows.push_back({task->first_operand, task->operand_count, task->first_wait, task->wait_count,
                        task->stream, place});
        const uint32_t* operand = operands + task->first_operand;
        for (const uint32_t* end = operand + task->operand_count; operand != end; ++operand)
          ++count[*operand];
      }
      if (before != runtime::kNone) rows.back().place |= kLast;
    }
    grouped = places != 0;
  }
};

// One way to pack: what `split_ratio` (arena.h) comes to, or the offsets of `planned`.
class Packer {
 public:
  Packer(const RoleStorage& role, const Uses& uses, Pool pool, int64_t begin, int64_t split_ratio,
         const std::vector<int64_t>* planned = nullptr)
      : role_(role),
        rows_(uses.rows.data()),
        waits_(role.waits.data()),
        operands_(role.task_operands.data()),
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
        slots_(role.buffers.size()),
        pending_(role.streams.size()),
        held_(role.streams.size()),
        group_peak_(role.streams.size(), 0),
        first_added_(role.tasks.size(), kNone) {
    if (uses.grouped) holds_.resize(role.buffers.size());
    for (uint32_t b = 0; b < role.buffers.size(); ++b) {
      const Buffer& buffer = role.buffers[b];
      state_[b].remaining = uses.counts[b];
      if (!IsSlot(buffer, pool_)) continue;
      state_[b].range = kNone;
      slots_[b] = {SlotBytes(buffer), buffer.bytes, 0};
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
      role.buffers[b].offset = slots_[b].offset;
    }
    MergeWaits(role);
  }

 private:
  using Row = Uses::Row;
  struct User {
    uint32_t task;
    uint16_t stream;
  };
  static bool InGroup(const Row& task) { return task.place != 0; }
  static bool FirstOfGroup(const Row& task) { return (task.place & Uses::kFirst) != 0; }
  static bool LastOfGroup(const Row& task) { return (task.place & Uses::kLast) != 0; }

  void Start(uint32_t t) {
    const Row task = rows_[t];
    clock_.Enter(t, task.stream, waits_ + task.first_wait, task.wait_count);
    // Within a fused node the part before this one is over; what it freed serves its successors only.
    if (InGroup(task) && !FirstOfGroup(task)) FreeWithinGroup(rows_[t - 1]);
    const uint32_t* operand = operands_ + task.first_operand;
    for (const uint32_t* end = operand + task.operand_count; operand != end; ++operand) {
      State& state = state_[*operand];
      if (state.range == kNoSlot) continue;
      if (state.range == kNone) {
        Place(*operand, t, task);
        state.stream = task.stream;
        state.user = t;
      } else if (state.stream == task.stream) {
        state.user = t;
      } else {
        UseElsewhere(*operand, t, task.stream);
      }
    }
    peak_ = std::max(peak_, live_);
    if (!InGroup(task)) return;
    // All parts start at one instant of the history: until the node ends, its own peak counts.
    int64_t& peak = group_peak_[task.stream];
    peak = FirstOfGroup(task) ? live_ : std::max(peak, live_);
    if (!LastOfGroup(task)) return;
    peak -= live_;
    live_ += peak;
  }

  // Uses on other streams than that of the first one; the last of each is kept.
  void UseElsewhere(uint32_t b, uint32_t t, uint16_t stream) {
    State& state = state_[b];
    if (state.other_user == kNone || state.other_stream == stream) {
      state.other_user = t;
      state.other_stream = stream;
      return;
    }
    std::vector<User>& users = more_users_[b];
    for (User& user : users) {
      if (user.stream != stream) continue;
      user.task = t;
      return;
    }
    users.push_back({t, stream});
  }

  void Place(uint32_t b, uint32_t t, const Row& task) {
    Slot& placed = slots_[b];
    const int64_t bytes = placed.range_bytes;
    former_.clear();
    uint32_t range = kNone;
    if (planned_ != nullptr) {
      range = 0;
      placed.offset = (*planned_)[b];
      planned_end_ = std::max(planned_end_, placed.offset + bytes);
      owners_.Take(placed.offset, placed.offset + bytes, b, &former_);
    } else if (InGroup(task)) {
      // Bytes that an earlier part has done with, if they fit exactly: all their users are ordered before
      // this part.
      std::vector<uint32_t>& own = pending_[task.stream];
      for (size_t i = 0; i < own.size() && range == kNone; ++i) {
        const uint32_t old = own[i];
        if (slots_[old].range_bytes != bytes) continue;
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
    state_[b].range = range;
    if (planned_ == nullptr) placed.offset = arena_.Offset(range);
    live_ += placed.bytes;
    rounded_ += bytes;
    rounded_peak_ = std::max(rounded_peak_, rounded_);
    for (uint32_t old : former_) {
      const State& state = state_[old];
      if (state.other_user == kNone) {
        WaitFor({state.user, state.stream}, t, task.stream);
      } else {
        WaitForAll(old, t, task.stream);
      }
    }
  }

  // What has the bytes of another waits for the last user on each other stream, where nothing orders it yet.
  void WaitFor(User user, uint32_t t, uint16_t stream) {
    if (user.stream == stream || clock_.Ordered(user.task, user.stream, t)) return;
    added_.push_back({user.task, first_added_[t]});
    first_added_[t] = static_cast<uint32_t>(added_.size() - 1);
    clock_.AddWait(t, user.task);
  }
  void WaitForAll(uint32_t old, uint32_t t, uint16_t stream) {
    const State& state = state_[old];
    const User first{state.user, state.stream}, second{state.other_user, state.other_stream};
    if (more_users_.empty()) {
      WaitFor(first.task < second.task ? first : second, t, stream);
      WaitFor(first.task < second.task ? second : first, t, stream);
      return;
    }
    std::vector<User> users{first, second};
    if (const auto more = more_users_.find(old); more != more_users_.end())
      users.insert(users.end(), more->second.begin(), more->second.end());
    std::sort(users.begin(), users.end(), [](const User& a, const User& b) { return a.task < b.task; });
    for (const User& user : users) WaitFor(user, t, stream);
  }

  void End(uint32_t t) {
    const Row& task = rows_[t];
    if (!InGroup(task)) {
      Free(task);
      return;
    }
    // The parts of a fused node end together; what they freed is free from now on.
    if (!LastOfGroup(task)) return;
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
  void Free(const Row& task) {
    const uint32_t* operand = operands_ + task.first_operand;
    for (const uint32_t* end = operand + task.operand_count; operand != end; ++operand) FreeOne(*operand);
  }
  void FreeOne(uint32_t b) {
    State& state = state_[b];
    if (--state.remaining > 0 || state.range == kNoSlot) return;
    live_ -= slots_[b].bytes;
    rounded_ -= slots_[b].range_bytes;
    Release(b);
  }

  // The same for a part of a fused node that goes on: for other streams its uses last until the node's end.
  // So they are held back, unless nobody else has a use left: then later parts may have the bytes.
  void FreeWithinGroup(const Row& task) {
    for (uint32_t i = 0; i < task.operand_count; ++i) {
      const uint32_t b = operands_[task.first_operand + i];
      if (state_[b].range == kNoSlot) {
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
      live_ -= slots_[b].bytes;
      rounded_ -= slots_[b].range_bytes;
      pending_[task.stream].push_back(b);
    }
  }
  void Release(uint32_t b) {
    if (planned_ == nullptr) arena_.Release(state_[b].range);
  }

  // Rebuilds the table of waits with the added ones. Those of consecutive tasks follow each other.
  void MergeWaits(RoleStorage& role) {
    if (added_.empty()) return;
    std::vector<uint32_t> merged(role.waits.size() + added_.size());
    uint32_t* end = merged.data();
    uint32_t copied = 0;  // of the old ones
    uint32_t shift = 0;
    for (uint32_t t = 0; t < role.tasks.size(); ++t) {
      Task& task = role.tasks[t];
      PIPER_CHECK(task.wait_count == 0 || task.first_wait >= copied,
                  "waits stand in the order of their tasks");
      if (first_added_[t] == kNone) {
        task.first_wait += shift;
        continue;
      }
      const uint32_t until = task.first_wait + task.wait_count;
      std::memcpy(end, waits_ + copied, (until - copied) * sizeof(uint32_t));
      end += until - copied;
      copied = until;
      uint32_t* const begin = end - task.wait_count;
      for (uint32_t a = first_added_[t]; a != kNone; a = added_[a].next) *end++ = added_[a].awaited;
      std::sort(begin, end);
      end = std::unique(begin, end);
      task.first_wait = static_cast<uint32_t>(begin - merged.data());
      task.wait_count = static_cast<uint32_t>(end - begin);
      shift = static_cast<uint32_t>(end - merged.data()) - copied;
    }
    std::memcpy(end, waits_ + copied, (role.waits.size() - copied) * sizeof(uint32_t));
    end += role.waits.size() - copied;
    merged.resize(static_cast<size_t>(end - merged.data()));
    role.waits = std::move(merged);
  }

  static constexpr uint32_t kNone = runtime::kNone, kNoSlot = kNone - 1;
  const RoleStorage& role_;
  // Into the role: vectors would be asked for their data at every turn.
  const Row* const rows_;
  const uint32_t* const waits_;
  const uint32_t* const operands_;
  const Pool pool_;
  const std::vector<int64_t>* planned_;
  Owners owners_;
  int64_t planned_end_ = 0;
  HappensBefore clock_;
  Arena arena_;
  int64_t live_, peak_;
  int64_t rounded_, rounded_peak_;  // with every slot at its full range; a little low while a fused node runs
  struct State {
    uint32_t range = kNoSlot;     // kNone: a slot before its first user
    uint32_t remaining = 0;       // users to come
    uint32_t user = 0;            // the last one on the stream of the first
    uint32_t other_user = kNone;  // the last one on another stream
    uint16_t stream = 0, other_stream = 0;
  };
  struct Slot {
    int64_t range_bytes = 0, bytes = 0, offset = 0;
  };
  std::vector<State> states_;
  State* const state_;                                          // per buffer
  std::vector<Slot> slots_;                                     // per buffer
  std::unordered_map<uint32_t, std::vector<User>> more_users_;  // per buffer: on further streams
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
std::vector<int64_t> PlanLargestFirst(const RoleStorage& role, Pool pool, const std::vector<uint32_t>& log,
                                      int64_t begin) {
  constexpr size_t kMost = 2000;
  std::vector<uint32_t> slots;
  for (uint32_t b = 0; b < role.buffers.size(); ++b) {
    if (IsSlot(role.buffers[b], pool)) slots.push_back(b);
  }
  if (slots.size() > kMost) return {};
  const Users users(role.buffers, role.tasks, role.task_operands);
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

void PackPool(RoleStorage& role, Pool pool, const std::vector<uint32_t>& log, int64_t begin) {
  const Uses uses(role);
  std::unique_ptr<Packer> best;
  for (int64_t split_ratio : {int64_t{8}, int64_t{1}, int64_t{2}, INT64_MAX}) {
    auto packer = std::make_unique<Packer>(role, uses, pool, begin, split_ratio);
    packer->Run(log);
    if (!best || packer->arena() < best->arena()) best = std::move(packer);
    if (Good(*best, begin)) break;
  }
  if (!Good(*best, begin)) {
    // Knowing all lives, place the largest slots first; for roles small enough for a quadratic search.
    const std::vector<int64_t> planned = PlanLargestFirst(role, pool, log, begin);
    if (!planned.empty()) {
      auto packer = std::make_unique<Packer>(role, uses, pool, begin, 1, &planned);
      packer->Run(log);
      if (packer->arena() < best->arena()) best = std::move(packer);
    }
  }
  best->Commit(role);
}

}  // namespace

namespace {

// Gives back room that is more than a four-hundredth of what is used: copies cost more than that.
template <typename T>
void ShrinkLoose(std::vector<T>* table) {
  if (table->capacity() - table->size() > table->size() / 400) table->shrink_to_fit();
}

}  // namespace

void PackMemory(RoleStorage& role, const std::vector<uint32_t>& log) {
  PackPool(role, Pool::kArena, log, PlaceScratch(role));
  const bool offloads = std::any_of(role.buffers.begin(), role.buffers.end(),
                                    [](const Buffer& buffer) { return IsSlot(buffer, Pool::kHost); });
  if (offloads) PackPool(role, Pool::kHost, log, 0);
  ShrinkLoose(&role.buffers);
  ShrinkLoose(&role.waits);
  ShrinkLoose(&role.task_operands);
  ShrinkLoose(&role.tasks);
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
