// The collectives of SharedMemoryTransport. Every member posts where its contributions and its output stand;
// once all have, each does its share of the work straight from the others' arenas, says so, and waits for the
// rest where their memory is still in use. Phases of a member, which only grow: 1 posted, 2 worked, 3
// gathered. A member whose slot shows another key than ours has left the operation, so it has been through
// every phase.
#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/arithmetic.h"
#include "runtime/shared_memory_transport.h"

namespace piper::runtime {
namespace {

constexpr uint64_t kKeyMask = ~uint64_t{3};
constexpr int64_t kBlock = 1024;    // elements folded at a time, in the first-level cache
constexpr int64_t kTurn = 1 << 18;  // bytes moved before other streams get their turn
constexpr int64_t kSmall = 16384;   // bytes up to which every member folds everything itself
constexpr uint32_t kPosted = 1, kWorked = 2, kGathered = 3;

int64_t Chunk(int64_t elements, size_t members) {
  return (elements + static_cast<int64_t>(members) - 1) / static_cast<int64_t>(members);
}

// Elements [first, first + count) of the sum of terms. `to` may be one of the terms' own places: it is
// written by the last addition alone.
template <typename T>
void FoldLeft(std::span<const std::byte* const> terms, int64_t first, int64_t count, T* to) {
  auto term = [&](size_t i) { return reinterpret_cast<const T*>(terms[i]) + first; };
  alignas(64) T sum[kBlock];
  const T* so_far = term(0);
  for (size_t i = 1; i < terms.size(); ++i) {
    T* next = i + 1 == terms.size() ? to : sum;
    kernels::add(so_far, term(i), next, count);
    so_far = next;
  }
  if (terms.size() == 1 && so_far != to) std::memcpy(to, so_far, count * sizeof(T));
}

constexpr size_t kLevels = 16;  // of a tree of pairs: 65,536 terms

// The sum of two terms or more, in `to`; what stands in between lies in `scratch`, a block a level.
template <typename T>
void FoldPairs(std::span<const std::byte* const> terms, int64_t first, int64_t count, T* to, T* scratch) {
  auto part = [&](std::span<const std::byte* const> some, T* own, T* below) -> const T* {
    if (some.size() == 1) return reinterpret_cast<const T*>(some[0]) + first;
    FoldPairs(some, first, count, own, below);
    return own;
  };
  const size_t left = std::bit_floor(terms.size() - 1);
  const T* a = part(terms.first(left), scratch, scratch);
  const T* b = part(terms.subspan(left), scratch + kBlock, scratch + kBlock);
  kernels::add(a, b, to, count);
}

template <typename T>
void FoldBlock(FoldKind fold, std::span<const std::byte* const> terms, int64_t first, int64_t count,
               std::byte* out) {
  T* to = reinterpret_cast<T*>(out);
  if (fold == FoldKind::kLeft || terms.size() < 4) return FoldLeft<T>(terms, first, count, to);
  alignas(64) T scratch[(kLevels + 1) * kBlock];
  FoldPairs<T>(terms, first, count, to, scratch);
}

// What members must agree about besides elements and type.
uint32_t KindCode(const Collective& collective) {
  return static_cast<uint32_t>(collective.kind) | static_cast<uint32_t>(collective.fold) << 8;
}

}  // namespace

void SharedMemoryTransport::RingMembers(const CollectiveOperation& operation) {
  for (uint32_t member : operation.members) {
    if (member != rank_) RingPeer(member);
  }
}

void SharedMemoryTransport::SetPhase(CollectiveOperation& operation, uint32_t phase) {
  operation.phase = phase;
  operation.scan = 0;
  operation.done = 0;
  segment_.collective(rank_, operation.lane)
      .state.store(operation.key << 2 | phase, std::memory_order_release);
  RingMembers(operation);
}

void SharedMemoryTransport::StartCollective(CollectiveOperation& operation) {
  CollectiveSlot& slot = segment_.collective(rank_, operation.lane);
  slot.state.store(0, std::memory_order_release);
  slot.elements = operation.collective->elements;
  slot.kind = KindCode(*operation.collective);
  slot.type = static_cast<uint32_t>(operation.collective->type);
  slot.contribution_count = static_cast<uint32_t>(operation.contributions.size());
  for (size_t i = 0; i < operation.contributions.size(); ++i) {
    slot.contributions[i] = static_cast<uint64_t>(operation.contributions[i] - arenas_[rank_]);
  }
  slot.output = operation.output == nullptr ? CollectiveSlot::kNoOutput
                                            : static_cast<uint64_t>(operation.output - arenas_[rank_]);
  SetPhase(operation, kPosted);
}

const CollectiveSlot& SharedMemoryTransport::SlotOf(const CollectiveOperation& operation,
                                                    uint32_t member) const {
  return segment_.collective(operation.members[member], operation.lanes[member]);
}

const std::byte* SharedMemoryTransport::Contribution(const CollectiveOperation& operation, uint32_t member,
                                                     uint32_t index) const {
  return arenas_[operation.members[member]] + SlotOf(operation, member).contributions[index];
}

bool SharedMemoryTransport::MembersReached(CollectiveOperation& operation, uint32_t phase) {
  const Collective& collective = *operation.collective;
  while (operation.scan < operation.members.size()) {
    uint32_t member = operation.scan;
    uint32_t rank = operation.members[member];
    if (phase == kPosted) {
      bool found = false;
      for (uint32_t lane = 0; lane < kMaxLanes && !found; ++lane) {
        const CollectiveSlot& slot = segment_.collective(rank, lane);
        uint64_t state = slot.state.load(std::memory_order_acquire);
        if ((state & 3) == 0 || (state & kKeyMask) != operation.key << 2) continue;
        found = true;
        operation.lanes[member] = static_cast<uint8_t>(lane);
        if (slot.elements != collective.elements || slot.kind != KindCode(collective) ||
            slot.type != static_cast<uint32_t>(collective.type)) {
          Abort(InternalError("ranks " + std::to_string(rank_) + " and " + std::to_string(rank) +
                              " disagree about the collective '" + collective.name +
                              "': " + std::to_string(collective.elements) + " elements here, " +
                              std::to_string(slot.elements) + " there"));
          return false;
        }
      }
      if (!found) return false;
    } else {
      uint64_t state = SlotOf(operation, member).state.load(std::memory_order_acquire);
      if ((state & kKeyMask) == operation.key << 2 && (state & 3) < phase) return false;
    }
    ++operation.scan;
  }
  return true;
}

// Folds elements [begin, end) of the terms to `to` (first byte of element `begin`), a turn's worth from
// operation.done on.
Progress SharedMemoryTransport::FoldSlice(CollectiveOperation& operation, int64_t begin, int64_t end,
                                          std::byte* to) {
  const Collective& collective = *operation.collective;
  int64_t size = ElementBytes(collective.type);
  const size_t count = operation.sources.size();
  if (count > size_t{1} << kLevels && collective.fold == FoldKind::kPairwise) {
    Abort(InternalError(std::string("collective '") + collective.name +
                        "' folds more terms in pairs than the transport does"));
    return Progress::kFailed;
  }
  for (size_t i = 0; operation.done == 0 && i < count; ++i) {
    uint32_t member = operation.terms.empty() ? static_cast<uint32_t>(i) : operation.terms[i].member;
    uint32_t index = operation.terms.empty() ? 0 : operation.terms[i].contribution;
    if (member >= operation.members.size() || index >= SlotOf(operation, member).contribution_count) {
      Abort(InternalError(std::string("collective '") + collective.name + "' folds contribution " +
                          std::to_string(index) + " of member " + std::to_string(member) +
                          ", which gives none"));
      return Progress::kFailed;
    }
    operation.sources[i] = Contribution(operation, member, index);
  }
  int64_t turn = std::max<int64_t>(kBlock, kTurn / (size * static_cast<int64_t>(count)) / kBlock * kBlock);
  int64_t first = begin + operation.done;
  int64_t last = std::min(end, first + turn);
  for (int64_t at = first; at < last; at += kBlock) {
    int64_t block = std::min(kBlock, last - at);
    std::byte* out = to + (at - begin) * size;
    if (collective.type == ElementType::kF64) {
      FoldBlock<double>(collective.fold, operation.sources, at, block, out);
    } else {
      FoldBlock<float>(collective.fold, operation.sources, at, block, out);
    }
  }
  operation.done = last - begin;
  return last >= end ? Progress::kDone : Progress::kWorking;
}

Progress SharedMemoryTransport::TestCollective(CollectiveOperation& operation) {
  Progress progress = Progress::kPending;
  while (Advance(operation, progress)) {
  }
  if (progress == Progress::kPending && aborted()) return Progress::kFailed;
  return progress;
}

// One transition; true: try the next one at once.
bool SharedMemoryTransport::Advance(CollectiveOperation& operation, Progress& progress) {
  const Collective& collective = *operation.collective;
  const int64_t size = ElementBytes(collective.type);
  const size_t members = operation.members.size();
  const bool reduces = collective.kind == CollectiveKind::kAllReduce;
  const bool small = reduces && collective.elements * size <= kSmall;
  std::byte* kept = small_.data() + size_t{operation.lane} * kSmall;

  // Waiting for the others, then on with the work.
  if (operation.scan < members && !MembersReached(operation, operation.phase)) {
    progress = aborted() ? Progress::kFailed : Progress::kPending;
    return false;
  }
  if (operation.phase == kPosted) {
    const int64_t chunk = Chunk(collective.elements, members);
    const int64_t own_begin = std::min(collective.elements, chunk * operation.member);
    const int64_t own_end = std::min(collective.elements, own_begin + chunk);
    switch (collective.kind) {
      case CollectiveKind::kAllReduce: {
        int64_t begin = 0, end = collective.elements;
        std::byte* to = kept;
        if (!small) {
          // Members with an output share the work: the i-th of them folds the i-th slice.
          int64_t outputs = 0, mine = -1;
          for (uint32_t member = 0; member < members; ++member) {
            if (SlotOf(operation, member).output == CollectiveSlot::kNoOutput) continue;
            if (member == operation.member) mine = outputs;
            ++outputs;
          }
          int64_t slice = outputs == 0 ? 0 : (Chunk(collective.elements, outputs) + 15) / 16 * 16;
          begin = mine < 0 ? 0 : std::min(collective.elements, slice * mine);
          end = mine < 0 ? 0 : std::min(collective.elements, begin + slice);
          to = operation.output + begin * size;
        } else if (operation.output == nullptr) {
          end = 0;
        }
        if (begin < end) {
          progress = FoldSlice(operation, begin, end, to);
          if (progress != Progress::kDone) return false;
        }
        break;
      }
      case CollectiveKind::kReduceScatter: {
        if (operation.output == nullptr || own_begin >= own_end) break;
        // In place the own slice stays where it stands in the whole; elsewhere it lies at the front of the
        // output.
        bool in_place = !operation.contributions.empty() && operation.output == operation.contributions[0];
        progress =
            FoldSlice(operation, own_begin, own_end, operation.output + (in_place ? own_begin * size : 0));
        if (progress != Progress::kDone) return false;
        break;
      }
      case CollectiveKind::kAllGather:
        for (uint32_t member = 0; member < members && operation.output != nullptr; ++member) {
          if (SlotOf(operation, member).contribution_count == 0) continue;
          int64_t begin = std::min(collective.elements, chunk * member);
          int64_t end = std::min(collective.elements, begin + chunk);
          const std::byte* from = Contribution(operation, member, 0);
          // In place a member's contribution is its own slice of its output.
          if (from != operation.output + begin * size) {
            std::memcpy(operation.output + begin * size, from, (end - begin) * size);
          }
        }
        break;
      case CollectiveKind::kAllToAll:
        for (uint32_t member = 0; member < members && operation.output != nullptr; ++member) {
          std::memcpy(operation.output + chunk * member * size,
                      Contribution(operation, member, 0) + chunk * operation.member * size, chunk * size);
        }
        break;
      case CollectiveKind::kBroadcast:
        if (operation.output != nullptr && operation.output != Contribution(operation, 0, 0)) {
          std::memcpy(operation.output, Contribution(operation, 0, 0), collective.elements * size);
        }
        break;
    }
    SetPhase(operation, kWorked);
    return true;
  }
  if (operation.phase == kWorked) {
    if (small) {
      if (operation.output != nullptr) std::memcpy(operation.output, kept, collective.elements * size);
      progress = Progress::kDone;  // nobody reads this rank's contributions any more
      return false;
    }
    if (!reduces || members == 1) {
      progress = Progress::kDone;
      return false;
    }
    // All slices are folded: fetch the others'.
    if (operation.output != nullptr) {
      int64_t outputs = 0;
      for (uint32_t member = 0; member < members; ++member) {
        outputs += SlotOf(operation, member).output != CollectiveSlot::kNoOutput;
      }
      int64_t slice = (Chunk(collective.elements, outputs) + 15) / 16 * 16;
      int64_t index = 0;
      for (uint32_t member = 0; member < members; ++member) {
        uint64_t output = SlotOf(operation, member).output;
        if (output == CollectiveSlot::kNoOutput) continue;
        int64_t begin = std::min(collective.elements, slice * index);
        int64_t end = std::min(collective.elements, begin + slice);
        ++index;
        if (member == operation.member || begin == end) continue;
        std::memcpy(operation.output + begin * size,
                    arenas_[operation.members[member]] + output + begin * size, (end - begin) * size);
      }
    }
    SetPhase(operation, kGathered);
    return true;
  }
  progress = Progress::kDone;
  return false;
}

}  // namespace piper::runtime
