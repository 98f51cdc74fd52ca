#include "runtime/shared_memory_transport.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "runtime/futex.h"

namespace piper::runtime {

std::atomic<int> process_stop_signal{0};

namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kPatience =
    100'000'000;  // nanoseconds of sleep before looking whether the peers still live

// From a rank's start to the arrival of all at the first exchange; longer than the ranks wait to meet.
constexpr std::chrono::seconds kFirstMeeting{180};

int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

SharedMemoryTransport::SharedMemoryTransport(Segment& segment, uint32_t rank,
                                             std::span<const char* const> strings)
    : segment_(segment),
      rank_(rank),
      strings_(strings),
      arenas_(segment.size(), nullptr),
      created_(std::chrono::steady_clock::now()) {
  // With more threads than cores one that spins keeps one that works from running. Compute threads handle
  // most messages, so they may look a while where each rank has a core.
  unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  spins_[static_cast<int>(Engine::kCompute)] = segment.size() <= cores ? 100 : 20;
  spins_[static_cast<int>(Engine::kCommunication)] = 2 * segment.size() <= cores ? 500 : 20;
  small_.resize(size_t{kMaxLanes} * 16384);
  if (Status entered = segment_.Enter(rank_); !entered.ok()) Abort(entered);
}

SharedMemoryTransport::~SharedMemoryTransport() {
  if (own_arena_ != nullptr) munmap(own_arena_, own_bytes_);
}

Result<std::byte*> SharedMemoryTransport::AllocateArena(int64_t bytes) {
  std::vector<int64_t> sizes(size());
  if (!segment_.shared()) {
    // Threads see each other's memory anyway: an anonymous mapping, which gets huge pages where the system
    // has them.
    own_bytes_ = RoundUp(std::max(bytes, kPage), kPage) + kHugePage;
    void* base =
        mmap(nullptr, own_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int64_t address = 0;
    if (base != MAP_FAILED) {
      own_arena_ = static_cast<std::byte*>(base);
      madvise(own_arena_, own_bytes_, MADV_HUGEPAGE);
      address = RoundUp(reinterpret_cast<int64_t>(base), kHugePage);
    }
    PIPER_RETURN_IF_ERROR(Exchange(&address, sizes.data(), sizeof address));
    for (uint32_t rank = 0; rank < size(); ++rank) {
      if (sizes[rank] == 0) {
        return IoError("no memory for the arena of rank " + std::to_string(rank) + " (" +
                       std::to_string(bytes) + " bytes on this rank)");
      }
      arenas_[rank] = reinterpret_cast<std::byte*>(sizes[rank]);
    }
    return arenas_[rank_];
  }
  PIPER_RETURN_IF_ERROR(Exchange(&bytes, sizes.data(), sizeof bytes));
  std::vector<int64_t> offsets(size());
  int64_t total = 0;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    offsets[rank] = total;
    total += RoundUp(std::max(sizes[rank], kPage), kPage);
  }
  if (rank_ == 0) {
    if (Status grown = segment_.GrowArenas(total); !grown.ok()) {
      Abort(grown);
      return grown;
    }
  }
  int64_t none = 0;
  PIPER_RETURN_IF_ERROR(Exchange(&none, sizes.data(), sizeof none));
  Result<std::byte*> base = segment_.MapArenas(total);
  if (!base.ok()) {
    Abort(base.status());
    return base.status();
  }
  for (uint32_t rank = 0; rank < size(); ++rank) arenas_[rank] = *base + offsets[rank];
  return arenas_[rank_];
}

// ---- messages
// --------------------------------------------------------------------------------------------------

void SharedMemoryTransport::RingPeer(uint32_t peer) { WakeRank(segment_.control(peer)); }

const char* SharedMemoryTransport::Text(uint32_t string) const {
  return string < strings_.size() ? strings_[string] : "?";
}

void SharedMemoryTransport::StartSend(Message& message) {
  message.offered = false;
  if (!segment_.header().rendezvous || Wanted(message)) Offer(message);
}

void SharedMemoryTransport::StartReceive(Message& message) {
  if (!segment_.header().rendezvous) return;
  MessageSlot& slot = segment_.message(message.peer, rank_, message.lane);
  slot.wanted_tag.store(message.tag, std::memory_order_relaxed);
  slot.wanted_run.store(message.run, std::memory_order_release);
  RingPeer(message.peer);
}

bool SharedMemoryTransport::Wanted(const Message& message) const {
  for (uint32_t lane = 0; lane < kMaxLanes; ++lane) {
    const MessageSlot& slot = segment_.message(rank_, message.peer, lane);
    // Runs only grow, and within one a tag is wanted once.
    if (slot.wanted_run.load(std::memory_order_acquire) == message.run &&
        slot.wanted_tag.load(std::memory_order_relaxed) == message.tag) {
      return true;
    }
  }
  return false;
}

void SharedMemoryTransport::Offer(Message& message) {
  message.offered = true;
  MessageSlot& slot = segment_.message(rank_, message.peer, message.lane);
  slot.name = message.name;
  slot.offset = static_cast<uint64_t>(message.data - arenas_[rank_]);
  slot.bytes = message.bytes;
  slot.microbatch = message.microbatch;
  slot.state.store(MessageSlot::KeyOf(message) | MessageSlot::kPosted, std::memory_order_release);
  RingPeer(message.peer);
}

Progress SharedMemoryTransport::TestSend(Message& message) {
  if (!message.offered && Wanted(message)) Offer(message);
  if (!message.offered) return aborted() ? Progress::kFailed : Progress::kPending;
  MessageSlot& slot = segment_.message(rank_, message.peer, message.lane);
  if ((slot.state.load(std::memory_order_acquire) & 3) != MessageSlot::kTaken) {
    return aborted() ? Progress::kFailed : Progress::kPending;
  }
  slot.state.store(MessageSlot::kEmpty, std::memory_order_release);
  return Progress::kDone;
}

MessageSlot* SharedMemoryTransport::Posted(const Message& message) const {
  for (uint32_t lane = 0; lane < kMaxLanes; ++lane) {
    MessageSlot& slot = segment_.message(message.peer, rank_, lane);
    if (slot.state.load(std::memory_order_acquire) == (MessageSlot::KeyOf(message) | MessageSlot::kPosted))
      return &slot;
  }
  return nullptr;
}

bool SharedMemoryTransport::Arrived(const Message& message) { return Posted(message) != nullptr; }

Progress SharedMemoryTransport::TestReceive(Message& message) {
  MessageSlot* slot = Posted(message);
  if (slot == nullptr) return aborted() ? Progress::kFailed : Progress::kPending;
  if (slot->bytes != message.bytes || slot->microbatch != message.microbatch) {
    Abort(InternalError("rank " + std::to_string(message.peer) + " sent '" + Text(slot->name) + "' (" +
                        std::to_string(slot->bytes) + " bytes, microbatch " +
                        std::to_string(slot->microbatch) + ") where rank " + std::to_string(rank_) +
                        " receives '" + Text(message.name) + "' (" + std::to_string(message.bytes) +
                        " bytes, microbatch " + std::to_string(message.microbatch) + ")"));
    return Progress::kFailed;
  }
  std::memcpy(message.data, arenas_[message.peer] + slot->offset, message.bytes);
  slot->state.store(MessageSlot::KeyOf(message) | MessageSlot::kTaken, std::memory_order_release);
  RingPeer(message.peer);
  return Progress::kDone;
}

// ---- sleeping
// ----------------------------------------------------------------------------------------------------

uint32_t SharedMemoryTransport::Ticket(Engine) { return segment_.control(rank_).events.load(); }

bool SharedMemoryTransport::Wait(Engine engine, uint32_t ticket) {
  RankControl& control = segment_.control(rank_);
  for (int i = 0; i < spins_[static_cast<int>(engine)]; ++i) {
    if (control.events.load(std::memory_order_acquire) != ticket) return !aborted();
    CpuRelax();
  }
  std::atomic<uint32_t>& sleeping = control.sleeping[static_cast<int>(engine)];
  sleeping.store(1);
  if (control.events.load() == ticket) {
    FutexWait(sleeping, 1, kPatience);
    if (control.events.load() == ticket) CheckPeers();
  }
  sleeping.store(0);
  return !aborted();
}

void SharedMemoryTransport::Ring(Engine engine) { WakeEngine(segment_.control(rank_), engine); }

void SharedMemoryTransport::EnterBody(uint32_t ticket) {
  RankControl& control = segment_.control(rank_);
  control.busy.store(1);
  // What happened since the last look is the other thread's from here on.
  if (control.events.load() != ticket) WakeEngine(control, Engine::kCommunication);
}

void SharedMemoryTransport::LeaveBody() { segment_.control(rank_).busy.store(0); }

// ---- control
// -----------------------------------------------------------------------------------------------------

Status SharedMemoryTransport::Exchange(const void* mine, void* all, size_t bytes) {
  SegmentHeader& header = segment_.header();
  uint32_t side = exchanges_++ & 1;
  std::memcpy(segment_.control(rank_).exchange[side], mine, bytes);
  uint32_t generation = header.generation.load();
  if (aborted()) return Failure();
  if (header.arrived.fetch_add(1) + 1 == size()) {
    header.arrived.store(0);
    header.generation.fetch_add(1);
    FutexWakeAll(header.generation);
  } else {
    for (int i = 0; i < spins_[0] && header.generation.load() == generation; ++i) CpuRelax();
    while (header.generation.load() == generation) {
      FutexWait(header.generation, generation, kPatience);
      if (header.generation.load() == generation) {
        CheckPeers();
        if (exchanges_ == 1) CheckFirstMeeting();
      }
      if (aborted()) return Failure();
    }
  }
  if (aborted()) return Failure();
  // Two sides suffice: nobody writes a side again before everyone has arrived at the exchange in between.
  for (uint32_t rank = 0; rank < size(); ++rank) {
    std::memcpy(static_cast<std::byte*>(all) + rank * bytes, segment_.control(rank).exchange[side], bytes);
  }
  return {};
}

void SharedMemoryTransport::Abort(const Status& status) { segment_.Abort(status.code(), status.message()); }

Status SharedMemoryTransport::Failure() {
  SegmentHeader& header = segment_.header();
  for (int i = 0; i < 1000 && header.abort_state.load() == 1; ++i) usleep(1000);
  if (header.abort_state.load() != 2) return PeerError("the job was aborted");
  return {header.abort_code,
          std::string(header.abort_message, strnlen(header.abort_message, sizeof header.abort_message))};
}

void SharedMemoryTransport::SetStep(uint64_t step) {
  segment_.control(rank_).step.store(step, std::memory_order_relaxed);
}

void SharedMemoryTransport::FlagNonFinite(uint64_t step) { segment_.header().non_finite.store(step + 1); }

bool SharedMemoryTransport::NonFinite(uint64_t step) const {
  return segment_.header().non_finite.load(std::memory_order_relaxed) == step + 1;
}

void SharedMemoryTransport::Withdraw() {
  for (uint32_t lane = 0; lane < kMaxLanes; ++lane) {
    for (uint32_t peer = 0; peer < size(); ++peer)
      segment_.message(rank_, peer, lane).state.store(MessageSlot::kEmpty);
    segment_.collective(rank_, lane).state.store(0);
  }
}

uint64_t SharedMemoryTransport::MeetToStop(uint64_t steps, bool asks) {
  std::atomic<uint64_t>& agreed = segment_.header().stop_after;
  uint64_t none = 0;
  if (asks) agreed.compare_exchange_strong(none, steps + 1);
  return agreed.load();
}

int SharedMemoryTransport::StopRequest() const {
  int own = process_stop_signal.load();
  return own != 0 ? own : segment_.header().stop_signal.load();
}

void SharedMemoryTransport::CheckPeers() {
  if (!segment_.shared()) return;  // threads die together
  for (uint32_t rank = 0; rank < size(); ++rank) {
    const RankControl& control = segment_.control(rank);
    // Whoever ends in good order says so before: asked again after the look.
    if (rank == rank_ || control.present.load() == 0 || control.left.load() != 0 || segment_.Alive(rank) ||
        control.left.load() != 0) {
      continue;
    }
    segment_.Abort(kExitTemporary,
                   "rank " + std::to_string(rank) + " died at step " + std::to_string(control.step.load()));
    return;
  }
}

void SharedMemoryTransport::CheckFirstMeeting() {
  if (!segment_.shared() || std::chrono::steady_clock::now() - created_ < kFirstMeeting) return;
  std::string absent;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (segment_.control(rank).present.load() == 0) absent += " " + std::to_string(rank);
  }
  segment_.Abort(kExitTemporary, absent.empty() ? "some rank does not finish its start"
                                                : "these ranks did not come in time:" + absent);
}

bool SharedMemoryTransport::ClaimReport() { return segment_.header().reported.exchange(1) == 0; }

void SharedMemoryTransport::Leave() { segment_.control(rank_).left.store(1); }

}  // namespace piper::runtime
