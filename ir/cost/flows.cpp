// Contention: what runs at once on a device and shares something progresses more slowly. Only simulations
// that meet it come here; the others know the end of a task when it starts.
//
// Work is counted in parts of a picosecond at full rate, so that equal shares of up to 16 are exact. What has
// been done is rounded down, an end rounded up to the next picosecond. Then two tasks that share a link or
// the compute units, or slow each other down by at most 2, never take longer together than one after the
// other: with T = ceil(a f) <= 2 a the first one's end, the second has done T/f, and T - T/f <= a.
#include <algorithm>

#include "ir/cost/event_loop.h"

namespace piper::ir::simulation {

namespace {

constexpr __int128 kParts = 720720;  // of a picosecond: divisible by 1 .. 16

// The lesser of two rates, as fractions.
void Take(int64_t numerator, int64_t denominator, int64_t* to_numerator, int64_t* to_denominator) {
  if (static_cast<__int128>(numerator) * *to_denominator <
      static_cast<__int128>(*to_numerator) * denominator) {
    *to_numerator = numerator;
    *to_denominator = denominator;
  }
}

}  // namespace

bool EventLoop::SharesComputeOrSlowsDown() const {
  for (const runtime::RankProgram& program : programs_) {
    size_t computing = 0;
    for (const runtime::Stream& stream : program.streams)
      computing += stream.computes != 0 && stream.task_count > 0;
    if (computing > 1 || !program.slowdowns.empty()) return true;
  }
  return false;
}

// What each device has of a port: of those that sit in one member of a level with `nics = n`, the i-th uses
// port i mod n; else everyone has its own.
void EventLoop::BuildPorts() {
  levels_ = std::max<size_t>(1, topology_.levels.size());
  port_until_.assign(2 * instances_.size() * levels_, 0);
  const auto limited = [](const Level& level) {
    return std::any_of(level.groups.begin(), level.groups.end(),
                       [](const Level::Group& group) { return group.link.nics > 0; });
  };
  // On the innermost level the members are devices.
  ports_shared_ = topology_.levels.size() > 1 &&
                  std::any_of(topology_.levels.begin() + 1, topology_.levels.end(), limited);
  if (!ports_shared_) return;
  bool shared = false;
  first_sharer_ = {0};
  const auto devices_of = [&](const Instance& instance, const auto& visit) {
    if (instances_.size() == job_.rank_count)
      return visit(DeviceOf(instance.row->rank));  // a timeline a rank
    for (const runtime::RankRow& row : instance.program->ranks) visit(DeviceOf(row.rank));
  };
  // Per level: (port, instance) of every device.
  std::vector<std::vector<std::pair<Topology::Port, uint32_t>>> users(levels_);
  for (uint32_t level = 0; level < levels_; ++level) {
    for (uint32_t i = 0; i < instances_.size(); ++i) {
      devices_of(instances_[i],
                 [&](uint32_t device) { users[level].emplace_back(topology_.PortOf(device, level), i); });
    }
    std::sort(users[level].begin(), users[level].end());
  }
  for (uint32_t i = 0; i < instances_.size(); ++i) {
    for (uint32_t level = 0; level < levels_; ++level) {
      const Topology::Port port = topology_.PortOf(DeviceOf(instances_[i].row->rank), level);
      auto at = std::lower_bound(users[level].begin(), users[level].end(), std::make_pair(port, uint32_t{0}));
      const size_t first = sharers_.size();
      for (; at != users[level].end() && at->first == port; ++at) {
        if (sharers_.size() == first || sharers_.back().instance != at->second)
          sharers_.push_back({at->second, 0});
        ++sharers_.back().devices;
      }
      shared = shared || sharers_.size() > first + 1 || sharers_.back().devices > 1;
      first_sharer_.push_back(static_cast<uint32_t>(sharers_.size()));
    }
  }
  ports_shared_ = shared;
}

// It sends to its next neighbour on the ring and receives from the one before, where these links take
// bandwidth.
EventLoop::FlowMember EventLoop::CollectiveMember(uint32_t index, const TaskClass& what) const {
  const Instance& instance = instances_[index];
  FlowMember member{index, what.stream, kNone, kNone};
  const runtime::Collective& collective = instance.program->collectives[what.argument];
  const std::span<const uint32_t> group = job_.groups[instance.row->groups[collective.communicator]];
  const auto self = std::find(group.begin(), group.end(), instance.row->rank);
  if (self == group.end() || group.size() < 2) return member;
  const uint32_t device = DeviceOf(instance.row->rank);
  const auto level_to = [&](uint32_t rank) {
    const uint32_t other = DeviceOf(rank);
    return topology_.Between(device, other).bandwidth > 0 ? topology_.LevelBetween(device, other) : kNone;
  };
  member.out = level_to(self + 1 == group.end() ? group.front() : *(self + 1));
  member.in = level_to(self == group.begin() ? group.back() : *(self - 1));
  return member;
}

bool EventLoop::Stale(const Instant& instant) const {
  const std::vector<uint32_t>& targets = targets_[instant.targets];
  return std::all_of(targets.begin(), targets.end(), [&](uint32_t target) {
    return (target & kFlow) != 0 && (target & kArrival) == 0 && flows_[target & ~kFlow].end != instant.time;
  });
}

void EventLoop::StartFlow(Flow flow, Picoseconds work) {
  uint32_t index;
  if (!free_flows_.empty()) {
    index = free_flows_.back();
    free_flows_.pop_back();
  } else {
    index = static_cast<uint32_t>(flows_.size());
    PIPER_CHECK(index < kFlow, "too many transfers at once");
    flows_.emplace_back();
  }
  flow.remaining = static_cast<__int128>(work) * kParts;
  flow.since = now_;
  flow.numerator = 0;  // differs from every rate
  flow.denominator = 1;
  flows_[index] = std::move(flow);
  for (const FlowMember& member : flows_[index].members) active_flows_[member.instance].push_back(index);
  Refresh(flows_[index].members);
}

// Everything on the devices of `members`, or on those that share a port with them, gets the rate that is
// right from now on.
void EventLoop::Refresh(const std::vector<FlowMember>& members) {
  std::vector<uint32_t> instances;
  for (const FlowMember& member : members) {
    instances.push_back(member.instance);
    if (!ports_shared_) continue;
    for (const bool arrives : {false, true}) {
      if (member.level(arrives) == kNone) continue;
      for (const Sharer& sharer : SharersOf(member.instance, member.level(arrives)))
        instances.push_back(sharer.instance);
    }
  }
  for (uint32_t instance : instances) {
    for (uint32_t index : active_flows_[instance]) {
      Flow& flow = flows_[index];
      int64_t numerator = 1, denominator = 1;
      FindRate(index, &numerator, &denominator);
      if (numerator == flow.numerator && denominator == flow.denominator) continue;
      const __int128 elapsed = now_ - flow.since;
      const __int128 done = elapsed * kParts * flow.numerator / flow.denominator;
      flow.remaining = std::max<__int128>(0, flow.remaining - done);
      flow.since = now_;
      flow.numerator = numerator;
      flow.denominator = denominator;
      const __int128 per_picosecond = kParts * numerator;
      const __int128 left = (flow.remaining * denominator + per_picosecond - 1) / per_picosecond;
      constexpr __int128 kLimit = INT64_MAX;
      flow.end = static_cast<Picoseconds>(std::min<__int128>(kLimit, left + now_));
      Schedule(flow.end, index | kFlow);
    }
  }
}

// Transfers on one of the member's ports, itself included; of a role's devices that share it, each.
int64_t EventLoop::UsersOf(const FlowMember& member, bool arrives) const {
  const uint32_t level = member.level(arrives);
  if (level == kNone) return 1;
  const auto count = [&](uint32_t instance) {
    int64_t users = 0;
    for (uint32_t index : active_flows_[instance]) {
      for (const FlowMember& other : flows_[index].members)
        users += other.instance == instance && other.level(arrives) == level;
    }
    return users;
  };
  if (!ports_shared_) return std::max<int64_t>(1, count(member.instance));
  int64_t users = 0;
  for (const Sharer& sharer : SharersOf(member.instance, level))
    users += sharer.devices * count(sharer.instance);
  return std::max<int64_t>(1, users);
}

void EventLoop::FindRate(uint32_t index, int64_t* numerator, int64_t* denominator) const {
  const Flow& flow = flows_[index];
  for (const FlowMember& member : flow.members) {
    const runtime::RankProgram& program = *instances_[member.instance].program;
    const bool computes = program.streams[member.stream].computes != 0;
    int64_t computing = 1;
    for (uint32_t other_index : active_flows_[member.instance]) {
      if (other_index == index) continue;
      for (const FlowMember& other : flows_[other_index].members) {
        if (other.instance != member.instance) continue;
        int64_t factor = 0;  // thousandths
        for (const runtime::Slowdown& slowdown : program.slowdowns) {
          const bool these = (slowdown.stream == member.stream && slowdown.with == other.stream) ||
                             (slowdown.stream == other.stream && slowdown.with == member.stream);
          if (these) factor = std::max<int64_t>(factor, slowdown.thousandths);
        }
        if (factor > 0) Take(1000, factor, numerator, denominator);
        computing += factor == 0 && computes && program.streams[other.stream].computes != 0;
      }
    }
    for (const bool arrives : {false, true}) Take(1, UsersOf(member, arrives), numerator, denominator);
    Take(1, computing, numerator, denominator);
  }
}

// An event of a flow: stale ones, from before its rate changed, are left out.
void EventLoop::EndFlow(uint32_t index) {
  if (flows_[index].end != now_) return;
  Flow flow = std::move(flows_[index]);
  flows_[index].end = -1;
  free_flows_.push_back(index);
  for (const FlowMember& member : flow.members) std::erase(active_flows_[member.instance], index);
  Refresh(flow.members);
  if (flow.receive != kDone) Schedule(SaturatingAdd(now_, flow.latency), flow.receive | kArrival);
  for (uint32_t stream : flow.streams) Handle(stream);
}

}  // namespace piper::ir::simulation
