#include "ir/cost/event_loop.h"

#include <algorithm>
#include <map>

// The inner functions of the loop, one after another on millions of tasks.
#define PIPER_INLINE __attribute__((always_inline)) inline

namespace piper::ir::simulation {

using runtime::TaskKind;

EventLoop::EventLoop(const runtime::Job& job, const Topology& topology, const SimulationOptions& options,
                     const std::vector<RoleRows>& rows, bool contention)
    : job_(job),
      topology_(topology),
      programs_(options.evaluation ? job.eval : job.train),
      rows_(rows),
      contention_(contention),
      record_log_(options.record_log) {
  BuildInstances(options.expand);
  BuildJoints(options.expand);
}

void EventLoop::BuildInstances(bool expand) {
  rank_instance_.assign(job_.rank_count, 0);
  if (expand) {
    instances_.resize(job_.rank_count);
    for (uint32_t r = 0; r < programs_.size(); ++r) {
      for (const runtime::RankRow& row : programs_[r].ranks) {
        instances_[row.rank].program = &programs_[r];
        instances_[row.rank].row = &row;
        instances_[row.rank].role = r;
        rank_instance_[row.rank] = row.rank;
      }
    }
  } else {
    for (uint32_t r = 0; r < programs_.size(); ++r) {
      Instance& instance = instances_.emplace_back();
      instance.program = &programs_[r];
      instance.row = &programs_[r].ranks[0];
      instance.role = r;
      for (const runtime::RankRow& row : programs_[r].ranks) rank_instance_[row.rank] = r;
    }
  }
  uint64_t tasks = 0;
  for (uint32_t i = 0; i < instances_.size(); ++i) {
    Instance& instance = instances_[i];
    PIPER_CHECK(instance.program != nullptr, "a rank without a role");
    instance.first_task = static_cast<uint32_t>(tasks);
    instance.first_stream = static_cast<uint32_t>(streams_.size());
    tasks += instance.program->tasks.size();
    PIPER_CHECK(tasks < kFlow, "too many tasks for one simulation");
    for (const runtime::Stream& stream : instance.program->streams) {
      StreamState& state = streams_.emplace_back();
      state.instance = i;
      state.head = stream.first_task;
      state.end = state.head + stream.task_count;
      state.computes = stream.computes != 0;
    }
    const RoleRows& rows = rows_[instance.role];
    instance.rows = rows.rows.data();
    instance.classes = rows.classes.data();
    instance.waits = instance.program->waits.data();
    activations_.push_back(rows.activations);
    constexpr TaskTiming kNotStarted{0, -1};  // and nobody waits for it
    result_.timings.emplace_back(instance.program->tasks.size(), kNotStarted);
    RoleStatistics& statistics = result_.roles.emplace_back();
    statistics.peak_live_bytes = instance.program->live_bytes;
    statistics.messages = rows.messages;
    statistics.message_bytes = rows.message_bytes;
    statistics.collectives = static_cast<int64_t>(rows.collectives.size());
    statistics.collective_bytes = rows.collective_bytes;
    if (record_log_) result_.log.emplace_back(2 * instance.program->tasks.size());
  }
  for (uint32_t i = 0; i < instances_.size(); ++i) {
    Instance& instance = instances_[i];
    instance.timings = result_.timings[i].data();
    instance.activations = activations_[i].data();
    if (record_log_) instance.log = result_.log[i].data();
    instance.first_peer = static_cast<uint32_t>(peers_.size());
    const uint32_t device = DeviceOf(instance.row->rank);
    for (uint32_t peer : instance.row->peers) {
      const Instance& other = instances_[rank_instance_[peer]];
      peers_.push_back({rank_instance_[peer], other.first_task, other.first_stream,
                        topology_.LevelBetween(device, DeviceOf(peer)),
                        topology_.Between(device, DeviceOf(peer)).latency});
    }
  }
  BuildPorts();
  active_flows_.resize(instances_.size());
}

void EventLoop::BuildJoints(bool expand) {
  joint_of_.resize(instances_.size());
  // Who meets besides the name: the group of ranks, or, folded, the set of roles that the group's ranks have.
  std::map<std::vector<uint32_t>, uint32_t> member_sets;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> joints;  // (joint of the rows, member set)
  for (uint32_t i = 0; i < instances_.size(); ++i) {
    const Instance& instance = instances_[i];
    std::vector<std::pair<uint32_t, uint32_t>> slots;  // communicator slot -> (member set, its size)
    for (uint32_t group : instance.row->groups) {
      std::vector<uint32_t> members(job_.groups[group].begin(), job_.groups[group].end());
      for (uint32_t& member : members) member = expand ? member : rank_instance_[member];
      std::sort(members.begin(), members.end());
      members.erase(std::unique(members.begin(), members.end()), members.end());
      const uint32_t size = static_cast<uint32_t>(members.size());
      const uint32_t set =
          member_sets.emplace(std::move(members), static_cast<uint32_t>(member_sets.size())).first->second;
      slots.emplace_back(set, size);
    }
    for (uint32_t t : rows_[instance.role].collectives) {
      const runtime::Task& task = instance.program->tasks[t];
      const auto [set, size] = slots[instance.program->collectives[task.argument].communicator];
      const uint32_t name = instance.rows[t].other;
      const auto [found, added] =
          joints.emplace(std::make_pair(name, set), static_cast<uint32_t>(joints_.size()));
      if (added) joints_.emplace_back().expected = size;
      Joint& joint = joints_[found->second];
      joint.cost = std::max(joint.cost, task.cost);
      joint.tasks.push_back(instance.first_task + t);
      joint_of_[i].emplace_back(name, found->second);
    }
    std::sort(joint_of_[i].begin(), joint_of_[i].end());
  }
}

bool EventLoop::Run() {
  contended_ = !contention_ && SharesComputeOrSlowsDown();
  if (contended_) return false;
  for (uint32_t s = 0; s < streams_.size(); ++s) ready_.push_back(s);
  for (;;) {
    while (true) {
      if (immediate_front_ < immediate_.size()) {
        Handle(immediate_[immediate_front_++]);
      } else if (ready_front_ < ready_.size()) {
        immediate_.clear();
        immediate_front_ = 0;
        TryStart(ready_[ready_front_++]);
      } else {
        break;
      }
    }
    immediate_.clear();
    immediate_front_ = 0;
    ready_.clear();
    ready_front_ = 0;
    if (contended_) return false;
    while (contention_ && !heap_.empty() && Stale(heap_.front())) {
      targets_[heap_.front().targets].clear();
      PopInstant();
    }
    if (heap_.empty()) break;
    now_ = heap_.front().time;
    do {
      const uint32_t targets = heap_.front().targets;
      std::swap(ending_, targets_[targets]);
      PopInstant();
      for (uint32_t target : ending_) Handle(target);
      ending_.clear();
    } while (!heap_.empty() && heap_.front().time == now_);
  }
  result_.makespan = now_;
  for (size_t i = 0; i < instances_.size(); ++i) {
    RoleStatistics& statistics = result_.roles[i];
    statistics.busy = instances_[i].busy;
    statistics.idle = result_.makespan - statistics.busy;
    statistics.peak_activations = instances_[i].peak_live;
  }
  return std::all_of(streams_.begin(), streams_.end(), [](const StreamState& s) { return s.head == s.end; });
}

uint32_t EventLoop::NewInstant(Picoseconds time) {
  if (free_targets_.empty()) {
    free_targets_.push_back(static_cast<uint32_t>(targets_.size()));
    targets_.emplace_back();
  }
  const uint32_t targets = free_targets_.back();
  free_targets_.pop_back();
  heap_.push_back({time, sequence_++, targets});
  std::push_heap(heap_.begin(), heap_.end());
  return targets;
}

void EventLoop::PopInstant() {
  free_targets_.push_back(heap_.front().targets);
  if (Known& known = KnownAt(heap_.front().time); known.targets == free_targets_.back()) known.time = -1;
  std::pop_heap(heap_.begin(), heap_.end());
  heap_.pop_back();
}

SimulationResult EventLoop::TakeResult() {
  for (size_t i = 0; i < result_.log.size(); ++i) {
    result_.log[i].resize(static_cast<size_t>(instances_[i].log - result_.log[i].data()));
  }
  if (!BlockedStreams().empty()) {
    for (std::vector<TaskTiming>& timings : result_.timings) {
      for (TaskTiming& timing : timings) timing.end = std::max<Picoseconds>(timing.end, 0);
    }
  }
  return std::move(result_);
}

uint32_t EventLoop::InstanceOf(uint32_t task) const {
  const auto after =
      std::upper_bound(instances_.begin(), instances_.end(), task,
                       [](uint32_t t, const Instance& instance) { return t < instance.first_task; });
  return static_cast<uint32_t>(after - instances_.begin()) - 1;
}

uint32_t EventLoop::JointOf(uint32_t instance_index, uint32_t task) const {
  const uint32_t name = instances_[instance_index].rows[task].other;
  const auto& joints = joint_of_[instance_index];
  return std::lower_bound(joints.begin(), joints.end(), std::make_pair(name, 0u))->second;
}

// Whether the `count` waits of the head have ended; else the stream is blocked on one.
bool EventLoop::SeveralMet(uint32_t stream_index, StreamState& stream, const Instance& instance,
                           uint32_t count) {
  const TaskRow& head = instance.rows[stream.head];
  if (count == TaskRow::kMany) count = instance.program->tasks[stream.head].wait_count;
  const uint32_t* waits = instance.waits + head.wait;
  for (; stream.wait_cursor < count; ++stream.wait_cursor) {
    const uint32_t awaited = waits[stream.wait_cursor];
    if (Ended(instance, awaited)) continue;
    Block(stream_index, stream, instance, awaited);
    return false;
  }
  return true;
}

// The same for all parts of the head's fused node.
bool EventLoop::GroupMet(uint32_t stream_index, StreamState& stream, const Instance& instance) {
  const uint32_t end = GroupEnd(instance, stream.head);
  for (uint32_t t = stream.head; t < end; ++t) {
    const TaskRow& row = instance.rows[t];
    uint32_t count = row.waits();
    if (count == 0) continue;
    const uint32_t* waits = count == 1 ? &row.wait : instance.waits + row.wait;
    if (count == TaskRow::kMany) count = instance.program->tasks[t].wait_count;
    for (uint32_t w = 0; w < count; ++w) {
      const bool inside = waits[w] >= stream.head && waits[w] < end;
      if (inside || Ended(instance, waits[w])) continue;
      Block(stream_index, stream, instance, waits[w]);
      return false;
    }
  }
  return true;
}

// Called when nothing else ends at this instant: what starts and ends now may do both at once.
void EventLoop::TryStart(uint32_t stream_index) {
  StreamState& stream = streams_[stream_index];
  if (stream.head == stream.end) return;
  Instance& instance = instances_[stream.instance];
  const TaskRow row = instance.rows[stream.head];
  if (row.joined()) {
    if (!GroupMet(stream_index, stream, instance)) return;
  } else if (const uint32_t waits = row.waits(); waits == 1) {
    if (!Ended(instance, row.wait)) return Block(stream_index, stream, instance, row.wait);
  } else if (waits != 0 && !SeveralMet(stream_index, stream, instance, waits)) {
    return;
  }
  const TaskClass& what = instance.classes[row.task_class()];
  if (stream.arrives > now_ && what.kind != TaskKind::kRecv) [[unlikely]] {
    return Block(stream_index, stream, instance, stream.last_arrival);
  }
  switch (what.kind) {
    case TaskKind::kSend:
    case TaskKind::kRecv: {
      stream.arrived = true;
      if (row.other == kNone) return;
      const Peer& peer = PeerOf(instance, what);
      const uint32_t other = OtherStream(peer, what, row.other);
      const StreamState& there = streams_[other];
      if (!there.arrived || there.head != row.other) return;
      if (what.kind == TaskKind::kSend) return StartTransfer(stream_index, other);
      return StartTransfer(other, stream_index);
    }
    case TaskKind::kCollective: {
      Joint& joint = joints_[JointOf(stream.instance, stream.head)];
      stream.arrived = true;
      stream.next_arrived = joint.first_stream;
      joint.first_stream = stream_index;
      if (++joint.arrived == joint.expected) StartCollective(joint);
      return;
    }
    default: {
      Picoseconds cost = 0;
      for (uint32_t t = stream.head;; ++t) {
        const TaskClass& part = ClassOf(instance, t);
        cost = SaturatingAdd(cost, part.cost);
        Start(stream, instance, t, part);
        if (!instance.rows[t].joined()) break;
      }
      if (cost == 0) return EndHead(stream_index);
      if (contention_) {
        Flow flow;
        flow.members = {{stream.instance, what.stream, kNone}};
        flow.streams = {stream_index};
        StartFlow(std::move(flow), cost);
        return;
      }
      Schedule(SaturatingAdd(now_, cost), stream_index);
    }
  }
}

void EventLoop::StartTransfer(uint32_t sender, uint32_t receiver) {
  const StreamState& from = streams_[sender];
  const StreamState& to = streams_[receiver];
  Instance& instance = instances_[from.instance];
  Instance& there = instances_[to.instance];
  const TaskClass& send = ClassOf(instance, from.head);
  const TaskClass& receive = ClassOf(there, to.head);
  Start(from, instance, from.head, send);
  Start(to, there, to.head, receive);
  if (send.cost == 0) {
    const uint32_t received = to.head;
    EndSend(sender, receiver, 0);
    End(to.computes, there, received, receive);
    return;
  }
  const Peer& peer = PeerOf(instance, send);
  const Picoseconds latency = send.flag != 0 ? send.cost : std::min(send.cost, peer.latency);
  if (const Picoseconds occupancy = send.cost - latency; occupancy > 0) {
    if (contention_) {
      Flow flow;
      flow.members = {{from.instance, send.stream, peer.level, kNone},
                      {to.instance, receive.stream, kNone, peer.level}};
      flow.streams = {sender};
      flow.receive = there.first_task + to.head;
      flow.latency = latency;
      StartFlow(std::move(flow), occupancy);
      return;
    }
    UsePort(from.instance, peer.level, false, occupancy);
    UsePort(to.instance, peer.level, true, occupancy);
  }
  Schedule(SaturatingAdd(now_, send.cost - latency), sender);
  Schedule(SaturatingAdd(now_, send.cost), (there.first_task + to.head) | kArrival);
}

void EventLoop::StartCollective(Joint& joint) {
  Flow flow;
  for (uint32_t s = joint.first_stream; s != kDone && joint.cost > 0; s = streams_[s].next_arrived) {
    const Instance& instance = instances_[streams_[s].instance];
    const TaskClass& what = ClassOf(instance, streams_[s].head);
    const FlowMember member = CollectiveMember(streams_[s].instance, what);
    if (contention_) {
      flow.members.push_back(member);
      flow.streams.push_back(s);
      continue;
    }
    for (const bool arrives : {false, true}) {
      if (member.level(arrives) != kNone)
        UsePort(member.instance, member.level(arrives), arrives, joint.cost);
    }
  }
  for (uint32_t s = joint.first_stream; s != kDone;) {
    const uint32_t next = streams_[s].next_arrived;
    Instance& instance = instances_[streams_[s].instance];
    Start(streams_[s], instance, streams_[s].head, ClassOf(instance, streams_[s].head));
    if (flow.streams.empty()) Schedule(SaturatingAdd(now_, joint.cost), s);
    s = next;
  }
  joint.first_stream = kDone;
  if (!flow.streams.empty()) StartFlow(std::move(flow), joint.cost);
}

PIPER_INLINE void EventLoop::Start(const StreamState& stream, Instance& instance, uint32_t task,
                                   const TaskClass& what) {
  instance.timings[task].start = now_;
  ++result_.events;
  if (instance.log != nullptr) *instance.log++ = 2 * task;
  if (stream.computes && instance.computing++ == 0) instance.computing_since = now_;
  if (what.counts != Counts::kForward) return;
  uint32_t& activation = instance.activations[instance.rows[task].other];
  if ((activation & kLive) != 0) return;
  activation |= kLive;
  instance.peak_live = std::max(instance.peak_live, ++instance.live);
}

PIPER_INLINE void EventLoop::End(bool computes, Instance& instance, uint32_t task, const TaskClass& what) {
  Picoseconds& end = instance.timings[task].end;
  auto waiting = static_cast<uint32_t>(~end);
  end = now_;
  ++result_.events;
  if (instance.log != nullptr) *instance.log++ = 2 * task + 1;
  if (computes && --instance.computing == 0) instance.busy += now_ - instance.computing_since;
  if (what.counts != Counts::kNothing) {
    uint32_t& activation = instance.activations[instance.rows[task].other];
    if ((what.counts == Counts::kBackward) != ((activation & kForwardOnly) != 0)) {
      activation -= kOneLeft;
      if (activation < kOneLeft && (activation & kLive) != 0) --instance.live;
    }
  }
  while (waiting != 0) {
    ready_.push_back(waiting - 1);
    waiting = streams_[waiting - 1].next_waiting;
  }
}

PIPER_INLINE void EventLoop::Advance(uint32_t stream_index, StreamState& stream, const Instance& instance,
                                     uint32_t head) {
  stream.head = head;
  stream.wait_cursor = 0;
  stream.arrived = false;
  if (head >= stream.end) return;
  // Hundreds of streams advance in turn: what each reads next would not be near when its turn comes.
  __builtin_prefetch(instance.rows + head + 8);
  __builtin_prefetch(instance.timings + head + 4, 1);
  ready_.push_back(stream_index);
}

void EventLoop::Handle(uint32_t target) {
  if ((target & kArrival) != 0) {
    const uint32_t global = target & ~kArrival;
    Instance& instance = instances_[InstanceOf(global)];
    const uint32_t task = global - instance.first_task;
    const TaskClass& what = ClassOf(instance, task);
    End(streams_[instance.first_stream + what.stream].computes, instance, task, what);
    return;
  }
  if ((target & kFlow) != 0) {
    EndFlow(target & ~kFlow);
    return;
  }
  EndHead(target);
}

// The head of a stream, or its fused group, ends.
void EventLoop::EndHead(uint32_t stream_index) {
  StreamState& stream = streams_[stream_index];
  Instance& instance = instances_[stream.instance];
  const TaskRow row = instance.rows[stream.head];
  const TaskClass& what = instance.classes[row.task_class()];
  if (what.kind == TaskKind::kSend) {
    const Peer& peer = PeerOf(instance, what);
    EndSend(stream_index, OtherStream(peer, what, row.other),
            what.flag != 0 ? what.cost : std::min(what.cost, peer.latency));
    return;
  }
  uint32_t t = stream.head;
  for (;; ++t) {
    End(stream.computes, instance, t, ClassOf(instance, t));
    if (!instance.rows[t].joined()) break;
  }
  Advance(stream_index, stream, instance, t + 1);
}

// A transfer has left: both streams go on. What it carried arrives a latency later.
PIPER_INLINE void EventLoop::EndSend(uint32_t sender, uint32_t receiver, Picoseconds latency) {
  StreamState& from = streams_[sender];
  StreamState& to = streams_[receiver];
  Instance& instance = instances_[from.instance];
  if (latency > 0 && SaturatingAdd(now_, latency) >= to.arrives) {
    to.arrives = SaturatingAdd(now_, latency);
    to.last_arrival = to.head;
  }
  End(from.computes, instance, from.head, ClassOf(instance, from.head));
  Advance(receiver, to, instances_[to.instance], to.head + 1);
  Advance(sender, from, instance, from.head + 1);
}

std::vector<uint32_t> EventLoop::BlockedStreams() const {
  std::vector<uint32_t> blocked;
  for (uint32_t s = 0; s < streams_.size(); ++s) {
    if (streams_[s].head < streams_[s].end) blocked.push_back(s);
  }
  return blocked;
}

std::vector<std::pair<uint32_t, uint32_t>> EventLoop::WaitsFor(uint32_t stream_index) const {
  const StreamState& stream = streams_[stream_index];
  const Instance& instance = instances_[stream.instance];
  std::vector<std::pair<uint32_t, uint32_t>> result;
  const auto add = [&](const Instance& there, uint32_t task) {
    result.emplace_back(there.first_stream + ClassOf(there, task).stream, there.first_task + task);
  };
  const uint32_t end = GroupEnd(instance, stream.head);
  for (uint32_t t = stream.head; t < end; ++t) {
    const runtime::Task& task = instance.program->tasks[t];
    for (uint32_t w = 0; w < task.wait_count; ++w) {
      const uint32_t awaited = instance.waits[task.first_wait + w];
      const bool inside = end - stream.head > 1 && awaited >= stream.head && awaited < end;
      if (!inside && !Ended(instance, awaited)) add(instance, awaited);
    }
  }
  const TaskClass& head = ClassOf(instance, stream.head);
  const uint32_t other = instance.rows[stream.head].other;
  if (result.empty() && (head.kind == TaskKind::kSend || head.kind == TaskKind::kRecv)) {
    if (other != kNone) add(instances_[PeerOf(instance, head).instance], other);
  } else if (result.empty() && head.kind == TaskKind::kCollective) {
    for (uint32_t global : joints_[JointOf(stream.instance, stream.head)].tasks) {
      const Instance& there = instances_[InstanceOf(global)];
      const uint32_t task = global - there.first_task;
      const StreamState& state = streams_[there.first_stream + ClassOf(there, task).stream];
      if (state.head != task || !state.arrived) add(there, task);
    }
  }
  std::sort(result.begin(), result.end());
  const auto same_stream = [](const auto& a, const auto& b) { return a.first == b.first; };
  result.erase(std::unique(result.begin(), result.end(), same_stream), result.end());
  return result;
}

BlockedHead EventLoop::Head(uint32_t stream_index, uint32_t awaited) const {
  const StreamState& stream = streams_[stream_index];
  const Instance& instance = instances_[stream.instance];
  BlockedHead head{stream.instance, stream_index - instance.first_stream, stream.head, kNone, kNone};
  if (awaited != kNone) {
    head.awaited_role = InstanceOf(awaited);
    head.awaited = awaited - instances_[head.awaited_role].first_task;
  }
  return head;
}

}  // namespace piper::ir::simulation
