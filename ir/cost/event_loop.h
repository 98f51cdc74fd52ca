// The state of a simulation: ranks (or roles, folded) as instances, their streams, and which task waits for
// what. Only heads of streams wait, so a task that is awaited needs one word: the list of streams blocked on
// it, which stands where its end will be. Private to ir/cost; simulator.h is the interface.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/cost/event_rows.h"
#include "ir/cost/simulator.h"
#include "ir/support/result.h"

namespace piper::ir::simulation {

constexpr uint32_t kDone = UINT32_MAX;

struct Instance {
  const runtime::RankProgram* program = nullptr;
  const runtime::RankRow* row = nullptr;
  uint32_t role = 0;
  uint32_t first_task = 0;  // global number of task 0
  uint32_t first_stream = 0;
  uint32_t first_peer = 0;  // into EventLoop's peers: one a peer slot
  // Into the program, its rows and the result, where they are read and written all the time.
  const TaskRow* rows = nullptr;
  const TaskClass* classes = nullptr;
  const uint32_t* waits = nullptr;
  // Until a task has ended, `end` is ~(the first stream in the list of those that wait for it, plus 1; 0:
  // none).
  TaskTiming* timings = nullptr;
  uint32_t* activations = nullptr;  // see kLive
  uint32_t* log = nullptr;          // the next entry, or null
  int64_t live = 0, peak_live = 0;  // activations
  uint32_t computing = 0;           // tasks running on computing streams
  Picoseconds computing_since = 0, busy = 0;
};

// Who is at the other end of a peer slot.
struct Peer {
  uint32_t instance = 0, first_task = 0, first_stream = 0;
  uint32_t level = 0;  // of the topology that joins the two
  Picoseconds latency = 0;
};

struct StreamState {
  uint32_t instance = 0;
  uint32_t head = 0, end = 0;     // tasks of the instance
  uint32_t wait_cursor = 0;       // waits of the head that were found met, where it has several
  uint32_t next_waiting = 0;      // in the list of the task that this one waits for: next stream + 1, 0: none
  uint32_t next_arrived = kDone;  // in the list of the joint that this one takes part in
  bool arrived = false;           // the head is at its rendezvous
  bool computes = false;          // its tasks occupy the compute units
  // Of what it received, the last to arrive: receives follow each other at once, anything else waits for it.
  uint32_t last_arrival = kDone;  // task
  Picoseconds arrives = 0;
};

struct Joint {
  uint32_t expected = 0, arrived = 0;
  uint32_t first_stream = kDone;  // list of the arrived, through StreamState::next_blocked
  std::vector<uint32_t> tasks;    // global, a member each
  Picoseconds cost = 0;
};

class EventLoop {
 public:
  // Without `contention` every task takes what it costs from its start on. `rows`: of the job's programs.
  EventLoop(const runtime::Job& job, const Topology& topology, const SimulationOptions& options,
            const std::vector<RoleRows>& rows, bool contention);
  // Runs to completion or to the stuck state; false if stuck, or if contended().
  bool Run();
  // Something was met that only a run with contention times right: a second transfer on a port, several
  // computing streams, a slowdown. The run stopped there.
  bool contended() const { return contended_; }
  SimulationResult TakeResult();

  // What a blocked head waits for, as heads of streams: for the deadlock report. Valid after Run() returned
  // false.
  std::vector<uint32_t> BlockedStreams() const;  // streams that have not finished, ascending
  // (stream, global task), ascending by stream, one a stream.
  std::vector<std::pair<uint32_t, uint32_t>> WaitsFor(uint32_t stream) const;
  BlockedHead Head(uint32_t stream, uint32_t awaited) const;  // awaited: a global task, or kNone

 private:
  // What ends: the head (or its fused group) of a stream; with kArrival set, the global receive task; with
  // kFlow set, a flow.
  static constexpr uint32_t kArrival = 1u << 31, kFlow = 1u << 30;
  // What ends at one instant, in the order in which that was found. Whole machines step together, so most
  // events find their instant there. Of two with one time the later one began when the earlier one was
  // forgotten.
  struct Instant {
    Picoseconds time;
    uint32_t sequence;
    uint32_t targets;                             // index into targets_
    bool operator<(const Instant& other) const {  // std heaps are max-heaps
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };
  // Something under way whose rate depends on what else is (flows.cpp). A transfer is one flow on two
  // devices, a collective one on all of its members'.
  struct FlowMember {
    uint32_t instance = 0;
    uint32_t stream = 0;  // of its program
    // The levels of the ports that it occupies there, of what leaves and of what arrives; kNone: none.
    uint32_t out = kNone, in = kNone;
    uint32_t level(bool arrives) const { return arrives ? in : out; }
  };
  struct Flow {
    std::vector<FlowMember> members;
    std::vector<uint32_t> streams;  // global; their heads end with it
    uint32_t receive = kDone;       // global task that ends `latency` later
    Picoseconds latency = 0;
    __int128 remaining = 0;                  // work, in parts of a picosecond at full rate
    int64_t numerator = 0, denominator = 1;  // of its rate since `since`
    Picoseconds since = 0, end = -1;
  };
  bool SharesComputeOrSlowsDown() const;
  FlowMember CollectiveMember(uint32_t instance, const TaskClass& collective) const;
  void BuildPorts();
  // How many devices of an instance's role use the port of another's.
  struct Sharer {
    uint32_t instance = 0, devices = 0;
  };
  std::span<const Sharer> SharersOf(uint32_t instance, uint32_t level) const {
    const size_t at = instance * levels_ + level;
    return {sharers_.data() + first_sharer_[at], first_sharer_[at + 1] - first_sharer_[at]};
  }
  void StartFlow(Flow flow, Picoseconds work);
  void Refresh(const std::vector<FlowMember>& members);
  int64_t UsersOf(const FlowMember& member, bool arrives) const;
  void FindRate(uint32_t index, int64_t* numerator, int64_t* denominator) const;
  void EndFlow(uint32_t index);
  struct Known {
    Picoseconds time = -1;
    uint32_t targets = 0;  // index into targets_
  };
  // Events of flows whose rates have changed since, and nothing else.
  bool Stale(const Instant& instant) const;
  // Without contention: notes when a port is used twice at once. Ports that devices share are looked at as if
  // all of an instance's belonged together.
  void UsePort(uint32_t instance, uint32_t level, bool arrives, Picoseconds occupancy) {
    const auto use = [&](size_t port) {
      Picoseconds& until = port_until_[2 * port + arrives];
      contended_ = contended_ || until > now_;
      until = std::max(until, SaturatingAdd(now_, occupancy));
    };
    if (!ports_shared_) return use(instance * levels_ + level);
    for (const Sharer& sharer : SharersOf(instance, level)) {
      contended_ = contended_ || sharer.devices > 1;
      use(sharer.instance * levels_ + level);
    }
  }
  uint32_t DeviceOf(uint32_t rank) const { return job_.rank_device.empty() ? rank : job_.rank_device[rank]; }

  void BuildInstances(bool expand);
  void BuildJoints(bool expand);
  uint32_t InstanceOf(uint32_t task) const;  // of a global task
  const TaskClass& ClassOf(const Instance& instance, uint32_t task) const {
    return instance.classes[instance.rows[task].task_class()];
  }
  // One past the head's fused group.
  static uint32_t GroupEnd(const Instance& instance, uint32_t head) {
    while (instance.rows[head].joined()) ++head;
    return head + 1;
  }
  const Peer& PeerOf(const Instance& instance, const TaskClass& message) const {
    return peers_[instance.first_peer + message.argument];
  }
  // The stream of a message's other end, which exists.
  uint32_t OtherStream(const Peer& peer, const TaskClass& message, uint32_t other) const {
    const uint32_t stream = message.other_stream;
    return peer.first_stream +
           (stream != TaskClass::kVaries ? stream : ClassOf(instances_[peer.instance], other).stream);
  }
  uint32_t JointOf(uint32_t instance_index, uint32_t task) const;  // index into joints_

  static bool Ended(const Instance& instance, uint32_t task) { return instance.timings[task].end >= 0; }
  void Block(uint32_t stream_index, StreamState& stream, const Instance& instance, uint32_t awaited) {
    Picoseconds& list = instance.timings[awaited].end;
    stream.next_waiting = static_cast<uint32_t>(~list);
    list = ~static_cast<Picoseconds>(stream_index + 1);
  }
  bool SeveralMet(uint32_t stream_index, StreamState& stream, const Instance& instance, uint32_t count);
  bool GroupMet(uint32_t stream_index, StreamState& stream, const Instance& instance);
  void TryStart(uint32_t stream_index);
  void StartTransfer(uint32_t sender, uint32_t receiver);
  void StartCollective(Joint& joint);
  void Start(const StreamState& stream, Instance& instance, uint32_t task, const TaskClass& what);
  void End(bool computes, Instance& instance, uint32_t task, const TaskClass& what);
  void Advance(uint32_t stream_index, StreamState& stream, const Instance& instance, uint32_t head);
  Known& KnownAt(Picoseconds time) { return known_[static_cast<uint64_t>(time) * 0x9e3779b97f4a7c15u >> 60]; }
  void Schedule(Picoseconds time, uint32_t target) {
    if (time == now_) {
      immediate_.push_back(target);
      return;
    }
    Known& known = KnownAt(time);
    if (known.time != time) {
      known.time = time;
      known.targets = NewInstant(time);
    }
    targets_[known.targets].push_back(target);
  }
  uint32_t NewInstant(Picoseconds time);
  void PopInstant();
  void Handle(uint32_t target);
  void EndSend(uint32_t sender, uint32_t receiver, Picoseconds latency);
  void EndHead(uint32_t stream_index);

  const runtime::Job& job_;
  const Topology& topology_;
  std::span<const runtime::RankProgram> programs_;
  const std::vector<RoleRows>& rows_;  // per program
  std::vector<Instance> instances_;
  std::vector<uint32_t> rank_instance_;  // expanded or folded: which instance a rank is
  std::vector<StreamState> streams_;
  std::vector<std::vector<uint32_t>> activations_;  // per instance
  std::vector<Joint> joints_;
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>>
      joint_of_;  // [instance]: (the rows' joint, joints_), sorted
  std::vector<Peer> peers_;
  const bool contention_;
  bool contended_ = false;
  size_t levels_ = 1;  // of the topology, at least 1
  // [instance][level][whether it arrives]: the end of what last used the port.
  std::vector<Picoseconds> port_until_;
  bool ports_shared_ = false;  // some devices share one
  // [instance][level]: who uses its port, itself included; as indices into sharers_. Empty unless shared.
  std::vector<uint32_t> first_sharer_;
  std::vector<Sharer> sharers_;
  std::vector<Flow> flows_;
  std::vector<uint32_t> free_flows_;
  std::vector<std::vector<uint32_t>> active_flows_;  // [instance]
  std::vector<Instant> heap_;
  std::vector<std::vector<uint32_t>> targets_;
  std::vector<uint32_t> free_targets_, ending_;
  Known known_[16];                  // instants to come, by a hash of their time
  std::vector<uint32_t> immediate_;  // targets that end at this instant, a queue
  std::vector<uint32_t> ready_;      // streams, a queue
  size_t ready_front_ = 0, immediate_front_ = 0;
  Picoseconds now_ = 0;
  uint32_t sequence_ = 0;
  bool record_log_ = false;
  SimulationResult result_;
};

// The smallest cycle in the stuck state.
std::vector<BlockedHead> SmallestCycle(const EventLoop& loop);

}  // namespace piper::ir::simulation
