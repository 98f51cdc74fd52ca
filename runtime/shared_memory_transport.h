// The transport inside one host, for ranks that are threads (`local`) and ranks that are processes (`shm`):
// the same slots and the same copies. Every arena can be read by every rank, so a receive is one copy from
// the sender's buffer, and a collective reads its peers' contributions where they stand.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/segment.h"
#include "runtime/transport.h"

namespace piper::runtime {

class SharedMemoryTransport : public Transport {
 public:
  // `segment` outlives the transport. `strings` is Job::strings, for messages. Ranks that are processes watch
  // each other: the death of one aborts the job.
  SharedMemoryTransport(Segment& segment, uint32_t rank, std::span<const char* const> strings);
  ~SharedMemoryTransport() override;

  uint32_t rank() const override { return rank_; }
  uint32_t size() const override { return segment_.size(); }
  Result<std::byte*> AllocateArena(int64_t bytes) override;

  void StartSend(Message& message) override;
  Progress TestSend(Message& message) override;
  void StartReceive(Message& message) override;
  Progress TestReceive(Message& message) override;
  bool Arrived(const Message& message) override;
  void StartCollective(CollectiveOperation& operation) override;
  Progress TestCollective(CollectiveOperation& operation) override;

  uint32_t Ticket(Engine engine) override;
  bool Wait(Engine engine, uint32_t ticket) override;
  void Ring(Engine engine) override;
  void EnterBody(uint32_t ticket) override;
  void LeaveBody() override;

  Status Exchange(const void* mine, void* all, size_t bytes) override;

  void Abort(const Status& status) override;
  bool aborted() const override { return segment_.header().abort_state.load(std::memory_order_relaxed) != 0; }
  Status Failure() override;

  void SetStep(uint64_t step) override;
  void FlagNonFinite(uint64_t step) override;
  bool NonFinite(uint64_t step) const override;
  void Withdraw() override;
  uint64_t MeetToStop(uint64_t steps, bool asks) override;
  int StopRequest() const override;

  // Marks the rank as ended in good order; called once nobody waits for it any more.
  void Leave();
  // True for the first rank that asks: it prints the report of an aborted job.
  bool ClaimReport();

 private:
  MessageSlot* Posted(const Message& message) const;
  void Offer(Message& message);
  bool Wanted(const Message& message) const;  // rendezvous: the receive is posted
  void RingPeer(uint32_t peer);
  void RingMembers(const CollectiveOperation& operation);
  void CheckPeers();         // aborts the job if a sibling process has died
  void CheckFirstMeeting();  // aborts the job if some rank does not come to the first exchange in time
  const char* Text(uint32_t string) const;
  Progress FoldSlice(CollectiveOperation& operation, int64_t begin, int64_t end, std::byte* to);
  bool MembersReached(CollectiveOperation& operation, uint32_t phase);
  const CollectiveSlot& SlotOf(const CollectiveOperation& operation, uint32_t member) const;
  const std::byte* Contribution(const CollectiveOperation& operation, uint32_t member, uint32_t index) const;
  void SetPhase(CollectiveOperation& operation, uint32_t phase);
  Progress Moved(CollectiveOperation& operation);
  bool Advance(CollectiveOperation& operation, Progress& progress);

  Segment& segment_;
  uint32_t rank_;
  std::span<const char* const> strings_;
  std::vector<std::byte*> arenas_;  // a rank
  std::byte* own_arena_ = nullptr;
  int64_t own_bytes_ = 0;  // mapped here, not in the segment
  uint32_t exchanges_ = 0;
  std::chrono::steady_clock::time_point created_;
  int spins_[2];                  // by Engine: looks before going to sleep
  std::vector<std::byte> small_;  // kMaxLanes results of small all-reduces
};

// A stop requested by a signal to this process (0: none); set from signal handlers.
extern std::atomic<int> process_stop_signal;

}  // namespace piper::runtime
