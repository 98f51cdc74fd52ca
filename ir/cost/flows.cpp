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

// The level whose link the device uses towards another: the innermost that holds both.
uint32_t EventLoop::LevelBetween(uint32_t device, uint32_t other) const {
  for (uint32_t level = 0; level < topology_.levels.size(); ++level) {
    const std::vector<Level::Group>& groups = topology_.levels[level].groups;
    auto after = std::upper_bound(groups.begin(), groups.end(), device,
                                  [](uint32_t d, const Level::Group& group) { return d < group.first; });
    if (after == groups.begin()) continue;
    const Level::Group& group = *std::prev(after);
    const uint32_t end = group.first + group.count;
    if (device < end && other >= group.first && other < end) return level;
  }
  return 0;
}

// The level of the link to its next neighbour on the ring; kNone: it takes no bandwidth there.
uint32_t EventLoop::CollectiveLevel(const Instance& instance, const TaskClass& what) const {
  const runtime::Collective& collective = instance.program->collectives[what.argument];
  const std::span<const uint32_t> group = job_.groups[instance.row->groups[collective.communicator]];
  const auto self = std::find(group.begin(), group.end(), instance.row->rank);
  if (self == group.end() || group.size() < 2) return kNone;
  const uint32_t device = DeviceOf(instance.row->rank);
  const uint32_t next = DeviceOf(self + 1 == group.end() ? group.front() : *(self + 1));
  return topology_.Between(device, next).bandwidth > 0 ? LevelBetween(device, next) : kNone;
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

// Everything on the devices of `members` gets the rate that is right from now on. Takes a copy: flows move.
void EventLoop::Refresh(std::vector<FlowMember> members) {
  for (const FlowMember& member : members) {
    for (uint32_t index : active_flows_[member.instance]) {
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

void EventLoop::FindRate(uint32_t index, int64_t* numerator, int64_t* denominator) const {
  const Flow& flow = flows_[index];
  for (const FlowMember& member : flow.members) {
    const runtime::RankProgram& program = *instances_[member.instance].program;
    const bool computes = program.streams[member.stream].computes != 0;
    int64_t on_port = 1, computing = 1;
    for (uint32_t other_index : active_flows_[member.instance]) {
      if (other_index == index) continue;
      for (const FlowMember& other : flows_[other_index].members) {
        if (other.instance != member.instance) continue;
        on_port += member.level != kNone && other.level == member.level;
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
    Take(1, on_port, numerator, denominator);
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
