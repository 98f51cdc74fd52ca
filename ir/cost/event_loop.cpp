#include "ir/cost/event_loop.h"

#include <algorithm>
#include <map>

// The inner functions of the loop, one after another on millions of tasks.
#define PIPER_INLINE __attribute__((always_inline)) inline

namespace piper::ir::simulation {

using runtime::Task;
using runtime::TaskKind;

EventLoop::EventLoop(const runtime::Job& job, const Topology& topology, const SimulationOptions& options,
                     bool contention)
    : job_(job),
      topology_(topology),
      programs_(options.evaluation ? job.eval : job.train),
      pairing_(BuildPairing(programs_)),
      contention_(contention),
      record_log_(options.record_log) {
  BuildInstances(options.expand);
  BuildJoints(options.expand);
  BuildActivations();
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
      state.head = instance.first_task + stream.first_task;
      state.end = state.head + stream.task_count;
      state.computes = stream.computes != 0;
    }
    instance.tasks = instance.program->tasks.data();
    instance.waits = instance.program->waits.data();
    instance.partners = pairing_.partner[instance.role].data();
    result_.timings.emplace_back(instance.program->tasks.size());
    RoleStatistics& statistics = result_.roles.emplace_back();
    statistics.peak_live_bytes = instance.program->live_bytes;
    ForEachTask(*instance.program, pairing_.kinds[instance.role],
                KindBit(TaskKind::kSend) | KindBit(TaskKind::kCollective), [&](uint32_t, const Task& task) {
                  if (task.kind == TaskKind::kSend) {
                    ++statistics.messages;
                    statistics.message_bytes = SaturatingAdd(statistics.message_bytes, task.bytes);
                  } else if (task.kind == TaskKind::kCollective) {
                    ++statistics.collectives;
                    statistics.collective_bytes = SaturatingAdd(statistics.collective_bytes, task.bytes);
                  }
                });
    if (record_log_) result_.log.emplace_back(2 * instance.program->tasks.size());
  }
  for (uint32_t i = 0; i < instances_.size(); ++i) {
    Instance& instance = instances_[i];
    instance.timings = result_.timings[i].data();
    if (record_log_) instance.log = result_.log[i].data();
    instance.first_peer = static_cast<uint32_t>(peers_.size());
    const uint32_t device = DeviceOf(instance.row->rank);
    for (uint32_t peer : instance.row->peers) {
      const Instance& other = instances_[rank_instance_[peer]];
      peers_.push_back({rank_instance_[peer], other.first_task, other.first_stream,
                        LevelBetween(device, DeviceOf(peer)),
                        topology_.Between(device, DeviceOf(peer)).latency});
    }
    // Blocks that begin within this instance.
    const uint64_t end = instance.first_task + instance.program->tasks.size();
    while (instance_of_block_.size() * kBlock < end) instance_of_block_.push_back(i);
  }
  waiter_.assign(tasks, 0);
  computing_.assign(instances_.size(), 0);
  computing_since_.assign(instances_.size(), 0);
  port_until_.assign(instances_.size() * std::max<size_t>(1, topology_.levels.size()), 0);
  active_flows_.resize(instances_.size());
}

void EventLoop::BuildJoints(bool expand) {
  joint_of_.resize(instances_.size());
  // Who meets besides the name: the group of ranks, or, folded, the set of roles that the group's ranks have.
  std::map<std::vector<uint32_t>, uint32_t> member_sets;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> joints;  // (pairing joint, member set)
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
    ForEachTask(*instance.program, pairing_.kinds[instance.role], KindBit(TaskKind::kCollective),
                [&](uint32_t t, const Task& task) {
                  if (task.kind != TaskKind::kCollective) return;
                  const auto [set, size] = slots[instance.program->collectives[task.argument].communicator];
                  const uint32_t pairing_joint = pairing_.partner[instance.role][t];
                  const auto [found, added] = joints.emplace(std::make_pair(pairing_joint, set),
                                                             static_cast<uint32_t>(joints_.size()));
                  if (added) joints_.emplace_back().expected = size;
                  Joint& joint = joints_[found->second];
                  joint.cost = std::max(joint.cost, task.cost);
                  joint.tasks.push_back(instance.first_task + t);
                  joint_of_[i].emplace_back(pairing_joint, found->second);
                });
    std::sort(joint_of_[i].begin(), joint_of_[i].end());
  }
}

void EventLoop::BuildActivations() {
  activations_.resize(instances_.size());
  for (size_t i = 0; i < instances_.size(); ++i) {
    Activations& activations = activations_[i];
    const std::vector<uint32_t>& kinds = pairing_.kinds[instances_[i].role];
    int32_t last = -1;
    uint32_t rows = 0;
    ForEachTask(*instances_[i].program, kinds, KindBit(TaskKind::kCompute), [&](uint32_t, const Task& task) {
      if (task.kind != TaskKind::kCompute || task.key == kNone) return;
      last = std::max(last, task.microbatch);
      PIPER_CHECK(task.key < (1u << 20), "stage copies are numbered densely");
      if (task.key >= activations.row_of_key.size()) activations.row_of_key.resize(task.key + 1, kNone);
      if (activations.row_of_key[task.key] == kNone) activations.row_of_key[task.key] = rows++;
    });
    activations.columns = static_cast<uint32_t>(last + 2);
    activations.remaining.assign(size_t{rows} * activations.columns, 0);
    activations.live.assign(activations.remaining.size(), 0);
    // Without a backward pass (frozen, evaluation) an activation dies with its last forward task.
    std::vector<uint32_t> forward(activations.remaining.size(), 0);
    ForEachTask(*instances_[i].program, kinds, KindBit(TaskKind::kCompute), [&](uint32_t, const Task& task) {
      if (task.kind != TaskKind::kCompute || task.key == kNone) return;
      const bool backward =
          task.flag == static_cast<uint8_t>(Pass::kBI) || task.flag == static_cast<uint8_t>(Pass::kBW);
      ++(backward ? activations.remaining : forward)[activations.Slot(task)];
    });
    for (size_t slot = 0; slot < forward.size(); ++slot) {
      if (activations.remaining[slot] > 0) continue;
      activations.remaining[slot] = forward[slot];
      activations.live[slot] = 2;  // forward only
    }
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
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
    }
    if (heap_.empty()) break;
    now_ = heap_.front().time;
    do {
      const uint32_t target = heap_.front().target;
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
      Handle(target);
    } while (!heap_.empty() && heap_.front().time == now_);
  }
  result_.makespan = now_;
  for (size_t i = 0; i < instances_.size(); ++i) {
    RoleStatistics& statistics = result_.roles[i];
    statistics.idle = result_.makespan - statistics.busy;
    statistics.peak_activations = activations_[i].peak;
  }
  return std::all_of(streams_.begin(), streams_.end(), [](const StreamState& s) { return s.head == s.end; });
}

SimulationResult EventLoop::TakeResult() {
  for (size_t i = 0; i < result_.log.size(); ++i) {
    result_.log[i].resize(static_cast<size_t>(instances_[i].log - result_.log[i].data()));
  }
  return std::move(result_);
}

PIPER_INLINE uint32_t EventLoop::GroupEnd(const StreamState& stream) const {
  if (stream.group_end != 0) return stream.group_end;
  const Instance& instance = instances_[stream.instance];
  const uint32_t atomic = TaskOf(instance, stream.head).atomic;
  uint32_t end = stream.head + 1;
  if (atomic != kNone) {
    while (end < stream.end && TaskOf(instance, end).atomic == atomic) ++end;
  }
  return end;
}

uint32_t EventLoop::JointOf(uint32_t instance_index, uint32_t task) const {
  const Instance& instance = instances_[instance_index];
  const uint32_t pairing_joint = pairing_.partner[instance.role][task - instance.first_task];
  const auto& joints = joint_of_[instance_index];
  return std::lower_bound(joints.begin(), joints.end(), std::make_pair(pairing_joint, 0u))->second;
}

PIPER_INLINE bool EventLoop::WaitsMet(uint32_t stream_index) {
  StreamState& stream = streams_[stream_index];
  const Instance& instance = instances_[stream.instance];
  const auto blocked_on = [&](uint32_t awaited) {
    if (waiter_[awaited] == kDone) return false;
    stream.next_blocked = waiter_[awaited];
    waiter_[awaited] = stream_index + 1;
    return true;
  };
  const Task& head = TaskOf(instance, stream.head);
  if (head.atomic == kNone) {
    const uint32_t* waits = instance.waits + head.first_wait;
    for (; stream.wait_cursor < head.wait_count; ++stream.wait_cursor) {
      if (blocked_on(instance.first_task + waits[stream.wait_cursor])) return false;
    }
    return true;
  }
  const uint32_t end = GroupEnd(stream);
  for (uint32_t t = stream.head; t < end; ++t) {
    const Task& task = TaskOf(instance, t);
    for (uint32_t w = 0; w < task.wait_count; ++w) {
      const uint32_t awaited = instance.first_task + instance.waits[task.first_wait + w];
      const bool inside = awaited >= stream.head && awaited < end;
      if (!inside && blocked_on(awaited)) return false;
    }
  }
  return true;
}

void EventLoop::TryStart(uint32_t stream_index) {
  StreamState& stream = streams_[stream_index];
  if (stream.head == stream.end) return;
  stream.group_end = GroupEnd(stream);
  if (!WaitsMet(stream_index)) return;
  const Instance& instance = instances_[stream.instance];
  const Task& task = TaskOf(instance, stream.head);
  if (stream.arrives > now_ && task.kind != TaskKind::kRecv) [[unlikely]] {
    stream.next_blocked = waiter_[stream.last_arrival];
    waiter_[stream.last_arrival] = stream_index + 1;
    return;
  }
  switch (task.kind) {
    case TaskKind::kSend:
    case TaskKind::kRecv: {
      stream.arrived = true;
      const uint32_t partner = Partner(instance, stream.head);
      if (partner == kNone) return;
      const uint32_t other = StreamOf(instances_[PeerOf(instance, task).instance], partner);
      if (!streams_[other].arrived || streams_[other].head != partner) return;
      if (task.kind == TaskKind::kSend) {
        StartTransfer(stream_index, other);
      } else {
        StartTransfer(other, stream_index);
      }
      return;
    }
    case TaskKind::kCollective: {
      Joint& joint = joints_[JointOf(stream.instance, stream.head)];
      stream.arrived = true;
      stream.next_blocked = joint.first_stream;
      joint.first_stream = stream_index;
      if (++joint.arrived == joint.expected) StartCollective(joint);
      return;
    }
    default: {
      const uint32_t end = GroupEnd(stream);
      Picoseconds cost = 0;
      for (uint32_t t = stream.head; t < end; ++t) {
        const Task& part = TaskOf(instance, t);
        cost = SaturatingAdd(cost, part.cost);
        Start(stream_index, t, part);
      }
      if (contention_ && cost > 0) {
        Flow flow;
        flow.members = {{stream.instance, task.stream, kNone}};
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
  const Instance& instance = instances_[from.instance];
  const Task& send = TaskOf(instance, from.head);
  const Picoseconds latency =
      send.flag != 0 ? send.cost : std::min(send.cost, PeerOf(instance, send).latency);
  Start(sender, from.head, send);
  const Task& receive = TaskOf(instances_[to.instance], to.head);
  Start(receiver, to.head, receive);
  if (const Picoseconds occupancy = send.cost - latency; occupancy > 0) {
    const uint32_t level = PeerOf(instance, send).level;
    if (contention_) {
      Flow flow;
      flow.members = {{from.instance, send.stream, level}, {to.instance, receive.stream, kNone}};
      flow.streams = {sender};
      flow.receive = to.head;
      flow.latency = latency;
      StartFlow(std::move(flow), occupancy);
      return;
    }
    UsePort(from.instance, level, occupancy);
  }
  Schedule(SaturatingAdd(now_, send.cost - latency), sender);
  Schedule(SaturatingAdd(now_, send.cost), to.head | kArrival);
}

void EventLoop::StartCollective(Joint& joint) {
  Flow flow;
  for (uint32_t s = joint.first_stream; s != kDone && joint.cost > 0; s = streams_[s].next_blocked) {
    const Instance& instance = instances_[streams_[s].instance];
    const Task& row = TaskOf(instance, streams_[s].head);
    const uint32_t level = CollectiveLevel(instance, row);
    if (contention_) {
      flow.members.push_back({streams_[s].instance, row.stream, level});
      flow.streams.push_back(s);
    } else if (level != kNone) {
      UsePort(streams_[s].instance, level, joint.cost);
    }
  }
  for (uint32_t s = joint.first_stream; s != kDone;) {
    const uint32_t next = streams_[s].next_blocked;
    const Instance& instance = instances_[streams_[s].instance];
    Start(s, streams_[s].head, TaskOf(instance, streams_[s].head));
    if (flow.streams.empty()) Schedule(SaturatingAdd(now_, joint.cost), s);
    s = next;
  }
  joint.first_stream = kDone;
  if (!flow.streams.empty()) StartFlow(std::move(flow), joint.cost);
}

PIPER_INLINE void EventLoop::Start(uint32_t stream_index, uint32_t task, const Task& row) {
  const StreamState& stream = streams_[stream_index];
  Instance& instance = instances_[stream.instance];
  const uint32_t local = task - instance.first_task;
  instance.timings[local].start = now_;
  ++result_.events;
  if (instance.log != nullptr) *instance.log++ = 2 * local;
  if (stream.computes && computing_[stream.instance]++ == 0) {
    computing_since_[stream.instance] = now_;
  }
  if (row.kind == TaskKind::kCompute && row.key != kNone) CountStart(stream.instance, row);
}

PIPER_INLINE void EventLoop::End(uint32_t instance_index, uint32_t task, const Task& row) {
  Instance& instance = instances_[instance_index];
  const uint32_t local = task - instance.first_task;
  instance.timings[local].end = now_;
  ++result_.events;
  if (instance.log != nullptr) *instance.log++ = 2 * local + 1;
  if (streams_[instance.first_stream + row.stream].computes && --computing_[instance_index] == 0) {
    result_.roles[instance_index].busy += now_ - computing_since_[instance_index];
  }
  if (row.kind == TaskKind::kCompute && row.key != kNone) CountEnd(instance_index, row);
  uint32_t blocked = waiter_[task];
  waiter_[task] = kDone;
  while (blocked != 0) {
    ready_.push_back(blocked - 1);
    blocked = streams_[blocked - 1].next_blocked;
  }
}

PIPER_INLINE void EventLoop::CountStart(uint32_t instance_index, const Task& row) {
  if (row.flag != static_cast<uint8_t>(Pass::kF)) return;
  Activations& activations = activations_[instance_index];
  uint8_t& live = activations.live[activations.Slot(row)];
  if ((live & 1) != 0) return;
  live |= 1;
  activations.peak = std::max(activations.peak, ++activations.now);
}

PIPER_INLINE void EventLoop::CountEnd(uint32_t instance_index, const Task& row) {
  Activations& activations = activations_[instance_index];
  const size_t slot = activations.Slot(row);
  const bool forward_only = (activations.live[slot] & 2) != 0;
  const bool backward =
      row.flag == static_cast<uint8_t>(Pass::kBI) || row.flag == static_cast<uint8_t>(Pass::kBW);
  if (backward == forward_only) return;
  if (--activations.remaining[slot] == 0 && (activations.live[slot] & 1) != 0) --activations.now;
}

PIPER_INLINE void EventLoop::Advance(uint32_t stream_index, uint32_t count) {
  StreamState& stream = streams_[stream_index];
  stream.head += count;
  stream.wait_cursor = 0;
  stream.group_end = 0;
  stream.arrived = false;
  if (stream.head >= stream.end) return;
  // Hundreds of streams advance in turn: what each reads next would not be near when its turn comes.
  const Instance& instance = instances_[stream.instance];
  const uint32_t next = stream.head - instance.first_task;
  for (uint32_t ahead = 1; ahead < 6; ++ahead) __builtin_prefetch(instance.tasks + next + ahead);
  __builtin_prefetch(instance.timings + next + 4, 1);
  __builtin_prefetch(waiter_.data() + stream.head + 16, 1);
  __builtin_prefetch(instance.partners + next + 16);
  __builtin_prefetch(instance.waits + instance.tasks[next].first_wait + 16);
  ready_.push_back(stream_index);
}

PIPER_INLINE uint32_t EventLoop::InstanceOf(uint32_t task) const {
  uint32_t instance = instance_of_block_[task / kBlock];
  while (instance + 1 < instances_.size() && instances_[instance + 1].first_task <= task) ++instance;
  return instance;
}

void EventLoop::Handle(uint32_t target) {
  if ((target & kArrival) != 0) {
    const uint32_t task = target & ~kArrival;
    const uint32_t instance = InstanceOf(task);
    End(instance, task, TaskOf(instances_[instance], task));
    return;
  }
  if ((target & kFlow) != 0) {
    EndFlow(target & ~kFlow);
    return;
  }
  const StreamState& stream = streams_[target];
  const Instance& instance = instances_[stream.instance];
  const Task& task = TaskOf(instance, stream.head);
  if (task.kind == TaskKind::kSend) {
    const uint32_t partner = Partner(instance, stream.head);
    const uint32_t receiver = StreamOf(instances_[PeerOf(instance, task).instance], partner);
    const Picoseconds latency =
        task.flag != 0 ? task.cost : std::min(task.cost, PeerOf(instance, task).latency);
    if (StreamState& to = streams_[receiver]; latency > 0 && SaturatingAdd(now_, latency) >= to.arrives) {
      to.arrives = SaturatingAdd(now_, latency);
      to.last_arrival = partner;
    }
    End(stream.instance, stream.head, task);
    Advance(receiver, 1);
    Advance(target, 1);
    return;
  }
  const uint32_t end = GroupEnd(stream);
  for (uint32_t t = stream.head; t < end; ++t) End(stream.instance, t, TaskOf(instance, t));
  Advance(target, end - stream.head);
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
  const Task& head = TaskOf(instance, stream.head);
  std::vector<std::pair<uint32_t, uint32_t>> result;
  const uint32_t end = GroupEnd(stream);
  for (uint32_t t = stream.head; t < end; ++t) {
    const Task& task = TaskOf(instance, t);
    for (uint32_t w = 0; w < task.wait_count; ++w) {
      const uint32_t awaited = instance.first_task + instance.program->waits[task.first_wait + w];
      const bool inside = end - stream.head > 1 && awaited >= stream.head && awaited < end;
      if (!inside && waiter_[awaited] != kDone) result.emplace_back(StreamOf(instance, awaited), awaited);
    }
  }
  if (result.empty() && (head.kind == TaskKind::kSend || head.kind == TaskKind::kRecv)) {
    const uint32_t partner = Partner(instance, stream.head);
    if (partner != kNone) {
      result.emplace_back(StreamOf(instances_[PeerOf(instance, head).instance], partner), partner);
    }
  } else if (result.empty() && head.kind == TaskKind::kCollective) {
    for (uint32_t task : joints_[JointOf(stream.instance, stream.head)].tasks) {
      const uint32_t other = StreamOf(instances_[InstanceOf(task)], task);
      if (streams_[other].head != task || !streams_[other].arrived) result.emplace_back(other, task);
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
  BlockedHead head{stream.instance, stream_index - instance.first_stream, stream.head - instance.first_task,
                   kNone, kNone};
  if (awaited != kNone) {
    head.awaited_role = InstanceOf(awaited);
    head.awaited = awaited - instances_[head.awaited_role].first_task;
  }
  return head;
}

}  // namespace piper::ir::simulation
