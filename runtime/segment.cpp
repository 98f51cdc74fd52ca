#include "runtime/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "runtime/futex.h"

namespace piper::runtime {
namespace {

constexpr int64_t kPage = 4096;
constexpr uint32_t kVersion = 3;
constexpr uint32_t kMaxLocalRanks = 1024;

int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Offsets of the parts: header, controls, message slots, collective slots.
int64_t ControlsOffset() { return RoundUp(sizeof(SegmentHeader), 64); }
int64_t MessagesOffset(int64_t size) {
  return ControlsOffset() + size * static_cast<int64_t>(sizeof(RankControl));
}
int64_t CollectivesOffset(int64_t size) {
  return MessagesOffset(size) + size * size * kMaxLanes * static_cast<int64_t>(sizeof(MessageSlot));
}

Status SystemError(const char* what) {
  return IoError(std::string("cannot ") + what + ": " + std::strerror(errno));
}

uint32_t RendezvousWanted() {
  const char* wanted = std::getenv("PIPER_RENDEZVOUS");
  return wanted != nullptr && *wanted != '\0' && std::strcmp(wanted, "0") != 0 ? 1 : 0;
}

}  // namespace

namespace {

void WakeIfAsleep(std::atomic<uint32_t>& sleeping) {
  if (sleeping.load() != 0 && sleeping.exchange(0) != 0) FutexWakeAll(sleeping);
}

}  // namespace

void WakeEngine(RankControl& control, Engine engine) {
  control.events.fetch_add(1);
  WakeIfAsleep(control.sleeping[static_cast<int>(engine)]);
}

void WakeRank(RankControl& control) {
  control.events.fetch_add(1);
  std::atomic<uint32_t>& compute = control.sleeping[static_cast<int>(Engine::kCompute)];
  if (compute.load() != 0) {
    WakeIfAsleep(compute);
  } else if (control.busy.load() != 0) {
    WakeIfAsleep(control.sleeping[static_cast<int>(Engine::kCommunication)]);
  }
}

int64_t Segment::ControlBytes(uint32_t size) {
  return RoundUp(
      CollectivesOffset(size) + int64_t{size} * kMaxLanes * static_cast<int64_t>(sizeof(CollectiveSlot)),
      kPage);
}

Result<std::unique_ptr<Segment>> Segment::CreateLocal(uint32_t size) {
  std::unique_ptr<Segment> segment(new Segment);
  segment->size_ = size;
  segment->bytes_ = ControlBytes(size);
  void* base = mmap(nullptr, segment->bytes_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return SystemError("map the ranks' control memory");
  segment->base_ = static_cast<std::byte*>(base);
  // Fresh pages are zero, which is every slot's empty state: nothing else needs construction.
  SegmentHeader& header = *new (base) SegmentHeader;
  header.magic = SegmentHeader::kMagic;
  header.version = kVersion;
  header.size = size;
  header.rendezvous = RendezvousWanted();
  return segment;
}

Result<std::unique_ptr<Segment>> Segment::CreateShared(uint32_t size, uint64_t plan) {
  if (size == 0 || size > kMaxLocalRanks) {
    return InputError("the job has " + std::to_string(size) + " ranks: one host runs at most " +
                      std::to_string(kMaxLocalRanks));
  }
  int fd = memfd_create("piper", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return SystemError("create shared memory");
  std::unique_ptr<Segment> segment(new Segment);
  segment->fd_ = fd;
  segment->size_ = size;
  segment->bytes_ = ControlBytes(size);
  if (ftruncate(fd, segment->bytes_) != 0) return SystemError("size shared memory");
  void* base = mmap(nullptr, segment->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return SystemError("map shared memory");
  segment->base_ = static_cast<std::byte*>(base);
  SegmentHeader& header = *new (base) SegmentHeader;
  header.version = kVersion;
  header.size = size;
  header.rendezvous = RendezvousWanted();
  header.plan = plan;
  header.magic = SegmentHeader::kMagic;
  return segment;
}

Result<std::unique_ptr<Segment>> Segment::Attach(int fd, uint32_t size, uint64_t plan) {
  std::unique_ptr<Segment> segment(new Segment);
  segment->fd_ = fd;
  segment->size_ = size;
  segment->bytes_ = ControlBytes(size);
  struct stat info;
  if (fstat(fd, &info) != 0) return SystemError("look at the inherited shared memory");
  if (!S_ISREG(info.st_mode) || info.st_size < segment->bytes_) {
    return UsageError("the inherited descriptor is no shared memory of a job of " + std::to_string(size) +
                      " ranks");
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  void* base = mmap(nullptr, segment->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return SystemError("map shared memory");
  segment->base_ = static_cast<std::byte*>(base);
  const SegmentHeader& header = segment->header();
  if (header.magic != SegmentHeader::kMagic || header.version != kVersion || header.size != size) {
    return UsageError("the inherited shared memory belongs to another kind of job");
  }
  if (header.plan != plan) {
    return UsageError(
        "the ranks of this host were compiled from different plans: start executables of one compilation");
  }
  return segment;
}

Segment::~Segment() {
  if (arenas_ != nullptr) munmap(arenas_, arena_bytes_);
  if (base_ != nullptr) munmap(base_, bytes_);
  if (fd_ >= 0) close(fd_);
}

// The byte of a rank in the shared file, for its lock alone.
struct flock LockOf(uint32_t rank) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

Status Segment::Enter(uint32_t rank) {
  // Closing any descriptor of the file would give the lock up, and ours is closed by the destructor alone.
  struct flock lock = LockOf(rank);
  if (shared() && fcntl(fd_, F_SETLK, &lock) != 0) return SystemError("lock the shared memory");
  control(rank).present.store(1);
  return {};
}

bool Segment::Alive(uint32_t rank) const {
  struct flock lock = LockOf(rank);
  return fcntl(fd_, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

RankControl& Segment::control(uint32_t rank) const {
  return reinterpret_cast<RankControl*>(base_ + ControlsOffset())[rank];
}

MessageSlot& Segment::message(uint32_t from, uint32_t to, uint32_t lane) const {
  return reinterpret_cast<MessageSlot*>(
      base_ + MessagesOffset(size_))[(size_t{from} * size_ + to) * kMaxLanes + lane];
}

CollectiveSlot& Segment::collective(uint32_t rank, uint32_t lane) const {
  return reinterpret_cast<CollectiveSlot*>(base_ + CollectivesOffset(size_))[size_t{rank} * kMaxLanes + lane];
}

Status Segment::GrowArenas(int64_t bytes) {
  if (ftruncate(fd_, bytes_ + RoundUp(bytes, kPage)) != 0) return SystemError("size the shared arenas");
  // Nobody can shrink it under a mapping (which would end ranks with SIGBUS).
  if (fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return SystemError("seal the shared arenas");
  return {};
}

Result<std::byte*> Segment::MapArenas(int64_t bytes) {
  arena_bytes_ = std::max(RoundUp(bytes, kPage), kPage);
  void* base = mmap(nullptr, arena_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, bytes_);
  if (base == MAP_FAILED) return SystemError("map the shared arenas");
  arenas_ = static_cast<std::byte*>(base);
  madvise(arenas_, arena_bytes_, MADV_HUGEPAGE);  // a wish
  return arenas_;
}

void Segment::Abort(int code, const std::string& message) {
  SegmentHeader& head = header();
  uint32_t running = 0;
  if (head.abort_state.compare_exchange_strong(running, 1)) {
    head.abort_code = code;
    size_t length = std::min(message.size(), sizeof head.abort_message - 1);
    std::memcpy(head.abort_message, message.data(), length);
    head.abort_message[length] = '\0';
    head.abort_state.store(2);
  }
  RingAll();
}

void Segment::RingAll() {
  for (uint32_t rank = 0; rank < size_; ++rank) {
    for (Engine engine : {Engine::kCompute, Engine::kCommunication}) WakeEngine(control(rank), engine);
  }
  header().generation.fetch_add(1);  // wakes Exchange, which looks at abort_state first
  FutexWakeAll(header().generation);
}

}  // namespace piper::runtime
