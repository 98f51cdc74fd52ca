// The memory that the ranks of one host share: a control block a rank, slots through which messages and
// collectives meet, and behind them the ranks' arenas. Between threads of one process it is plain memory and
// the arenas lie elsewhere; between processes it is an anonymous memfd that leaves nothing behind when the
// last process ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/program.h"
#include "runtime/status.h"
#include "runtime/transport.h"

namespace piper::runtime {

struct alignas(64) RankControl {
  // Counts what happened to the rank; whoever finds it unchanged since it last looked may sleep.
  std::atomic<uint32_t> events{0};
  std::atomic<uint32_t> sleeping[2] = {0, 0};    // by Engine: 1 while its thread sleeps, on this word
  std::atomic<uint32_t> busy{0};                 // the compute thread runs a body and looks at nothing
  alignas(64) std::atomic<uint32_t> present{0};  // has come
  std::atomic<uint32_t> left{0};                 // ended in good order
  std::atomic<uint64_t> step{0};
  alignas(64) std::byte exchange[2][Transport::kExchangeBytes];
};

// One message on its way. The sender fills it and posts; the receiver copies and takes; the sender empties
// it. `wanted_*`, written by the receiver: in rendezvous mode, the receive that its lane (of receiving
// streams) stands at.
// `state` = key << 2 | phase: which message it is and how far are read as one, so that of a rank's two
// threads only the one that waits for this message ever looks at the rest.
struct alignas(64) MessageSlot {
  enum Phase : uint64_t { kEmpty, kPosted, kTaken };
  static uint64_t KeyOf(const Message& message) {
    return (message.tag + uint64_t{message.run} * 0x9e3779b97f4a7c15u) << 2;
  }
  std::atomic<uint64_t> state{kEmpty};
  uint32_t name = 0;
  uint64_t offset = 0;  // into the sender's arena
  int64_t bytes = 0;
  int32_t microbatch = 0;
  std::atomic<uint32_t> wanted_run{0};
  std::atomic<uint64_t> wanted_tag{0};
};
static_assert(sizeof(MessageSlot) == 64);

// One member's part in a collective. `state` = key << 2 | phase, so that key and phase are read as one.
struct alignas(64) CollectiveSlot {
  std::atomic<uint64_t> state{0};
  int64_t elements = 0;
  uint32_t kind = 0, type = 0;
  uint32_t contribution_count = 0;
  uint64_t output = 0;  // offset into the member's arena; kNoOutput
  uint64_t contributions[kMaxContributions] = {};
  static constexpr uint64_t kNoOutput = UINT64_MAX;
};

struct alignas(64) SegmentHeader {
  static constexpr uint64_t kMagic = 0x5049504552534547u;
  uint64_t magic = 0;
  uint32_t version = 0;
  uint32_t size = 0;        // ranks
  uint64_t plan = 0;        // hash of the plan: ranks of different programs must not meet
  uint32_t rendezvous = 0;  // see transport.h; of the whole job, from the environment of whoever made it
  alignas(64) std::atomic<uint32_t> arrived{0};
  alignas(64) std::atomic<uint32_t> generation{0};
  // 0: running; 1: somebody writes the report; 2: the report stands.
  alignas(64) std::atomic<uint32_t> abort_state{0};
  int32_t abort_code = 0;
  char abort_message[1024] = {};
  std::atomic<uint32_t> reported{0};
  std::atomic<int32_t> stop_signal{0};
  std::atomic<uint64_t> non_finite{0};  // step + 1
  std::atomic<uint64_t> stop_after{0};  // Transport::MeetToStop
};

class Segment {
 public:
  // For threads of this process.
  static Result<std::unique_ptr<Segment>> CreateLocal(uint32_t size);
  // For processes: an anonymous memfd, which children inherit or siblings receive.
  static Result<std::unique_ptr<Segment>> CreateShared(uint32_t size, uint64_t plan);
  // Takes over `fd`; checks that it is a segment of this size and plan.
  static Result<std::unique_ptr<Segment>> Attach(int fd, uint32_t size, uint64_t plan);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  uint32_t size() const { return size_; }
  bool shared() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  RankControl& control(uint32_t rank) const;
  MessageSlot& message(uint32_t from, uint32_t to, uint32_t lane) const;
  CollectiveSlot& collective(uint32_t rank, uint32_t lane) const;

  // This process is the rank. Between processes the others see that it lives by a lock on the shared file,
  // which the system gives up when the process ends, however it ends: process numbers would mean others in
  // another PID namespace, or be given again.
  Status Enter(uint32_t rank);
  // shared() only: whether another process that entered as `rank` still runs.
  bool Alive(uint32_t rank) const;

  // shared(): bytes before the arenas; grows the file to `bytes` behind them (one rank does, before any
  // maps); maps [0, bytes) of the arenas.
  Status GrowArenas(int64_t bytes);
  Result<std::byte*> MapArenas(int64_t bytes);

  // Writes the report (the first one wins) and wakes every rank.
  void Abort(int code, const std::string& message);
  void RingAll();

 private:
  Segment() = default;
  static int64_t ControlBytes(uint32_t size);
  uint32_t size_ = 0;
  int fd_ = -1;
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
  std::byte* arenas_ = nullptr;
  int64_t arena_bytes_ = 0;
};

// Counts an event and wakes the thread of `engine`, with a system call only if it sleeps.
void WakeEngine(RankControl& control, Engine engine);
// Counts an event that either thread can handle: wakes the compute thread if it sleeps, else the
// communication thread if the compute thread is busy with a body; a compute thread that is awake looks by
// itself.
void WakeRank(RankControl& control);

}  // namespace piper::runtime
