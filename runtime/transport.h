// What moves data between ranks. One implementation a medium: shared_memory_transport.h serves `local` (ranks
// are threads) and `shm` (processes of one host); mpi and nccl fit behind the same calls.
//
// Semantics that every transport keeps, the ones that the compiler's deadlock proof assumes: a send completes
// only when its receive has taken the data (zero buffering); a send meets the receive of the same ordered
// pair of ranks, run and tag; a collective starts when all members have reached it, and folds in the order of
// its terms. No call blocks, except Wait and Exchange: operations are started, then tested until they are
// done.
//
// Rendezvous, the test mode of every transport (LocalOptions::rendezvous, or PIPER_RENDEZVOUS=1 where a job
// starts): the receive goes first. A send tells its peer nothing before the receive of its tag has been
// posted, so that not even a description of the message waits at the other end. A plan that the proof accepts
// runs to its end in it; one that relied on any buffer would stop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/program.h"
#include "runtime/status.h"

namespace piper::runtime {

// The two threads of a rank.
enum class Engine : uint8_t { kCompute, kCommunication };

// kWorking: not done, but moved data: test again before going to sleep. kFailed: the job was aborted.
enum class Progress : uint8_t { kPending, kWorking, kDone, kFailed };

// A send or receive of one task. The executor fills it once, and `run` for every run.
struct Message {
  uint32_t peer = 0;  // rank
  // Which of the rank's streams to (of receives: from) that peer.
  uint32_t lane = 0;
  std::byte* data = nullptr;  // in the rank's arena
  int64_t bytes = 0;
  int32_t microbatch = -1;
  uint32_t name = 0;     // Job::strings, for messages
  uint64_t tag = 0;      // which message of the ordered pair in a run: equal at both ends, and nowhere else
  uint32_t run = 0;      // runs of programs so far, the same on all ranks
  bool offered = false;  // the transport's own: the peer has been told of the send
};

constexpr uint32_t kMaxLanes = 8;  // sending streams per ordered pair of ranks, collective streams per rank
constexpr uint32_t kMaxContributions = 16;  // of one member to one collective

struct CollectiveOperation {
  const Collective* collective = nullptr;
  std::span<const Term> terms;        // empty: one a member, ascending
  std::span<const uint32_t> members;  // ranks
  uint32_t member = 0;                // own position
  uint32_t lane = 0;                  // which of the rank's streams with collectives
  std::span<std::byte* const> contributions;
  std::byte* output = nullptr;  // null: none
  uint64_t key = 0;             // of name and run: equal on all members
  // The transport's own state, made before the run: `lanes` has an entry a member, `sources` one a term.
  std::vector<uint8_t> lanes;
  std::vector<const std::byte*> sources;
  uint32_t phase = 0;
  uint32_t scan = 0;  // members seen to have reached the phase
  int64_t done = 0;   // elements
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;

  // Collective, once: the rank's arena, zeroed, 64-byte aligned.
  virtual Result<std::byte*> AllocateArena(int64_t bytes) = 0;

  // Data plane. A message is started once, then tested until it is done.
  virtual void StartSend(Message& message) = 0;
  virtual Progress TestSend(Message& message) = 0;
  virtual void StartReceive(Message& message) = 0;
  virtual Progress TestReceive(Message& message) = 0;
  virtual bool Arrived(const Message& message) = 0;  // TestReceive has something to copy
  virtual void StartCollective(CollectiveOperation& operation) = 0;
  virtual Progress TestCollective(CollectiveOperation& operation) = 0;

  // Sleeping. `Ticket`, then look for work; when there is none `Wait(ticket)` returns as soon as anything
  // happened since the ticket was drawn, or after at most a tenth of a second. False: the job was aborted.
  virtual uint32_t Ticket(Engine engine) = 0;
  virtual bool Wait(Engine engine, uint32_t ticket) = 0;
  virtual void Ring(Engine engine) = 0;  // own rank's other thread
  // While the compute thread runs a body what happens is the communication thread's to handle; else the
  // compute thread's. `ticket`: drawn before it last looked at the communication streams.
  virtual void EnterBody(uint32_t ticket) = 0;
  virtual void LeaveBody() = 0;

  // Control plane, from the compute thread only. All-gather of `bytes` (at most kExchangeBytes) a rank into
  // `all` (size() entries in rank order); also a barrier.
  static constexpr size_t kExchangeBytes = 1024;
  virtual Status Exchange(const void* mine, void* all, size_t bytes) = 0;

  // Ends the job on all ranks; the first call wins. `Failure` is what then everyone reports.
  virtual void Abort(const Status& status) = 0;
  virtual bool aborted() const = 0;
  virtual Status Failure() = 0;

  // Where the rank stands, for the report of whoever survives it.
  virtual void SetStep(uint64_t step) = 0;
  // A step whose loss or gradient was not finite: seen by all ranks without waiting, so that updates stop
  // early.
  virtual void FlagNonFinite(uint64_t step) = 0;
  virtual bool NonFinite(uint64_t step) const = 0;
  // Takes back every send and collective that this rank has started and not finished. Between two exchanges
  // of all ranks, while nobody tests any operation.
  virtual void Withdraw() = 0;
  // Where ranks do not meet after every step: the number of steps after which they meet because one was asked
  // to stop, 0: none was. The first who asks (`steps` done, and a request to stop) is granted one more step,
  // which no rank can have ended by then.
  virtual uint64_t MeetToStop(uint64_t steps, bool asks) = 0;
  // A request to stop (a signal number) from outside the rank, 0: none.
  virtual int StopRequest() const = 0;
};

}  // namespace piper::runtime
