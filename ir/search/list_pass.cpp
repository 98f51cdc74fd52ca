#include "ir/search/list_pass.h"

#include <algorithm>
#include <queue>

namespace piper::ir {

namespace {

using Pass = ListProblem::Pass;
using Queue = ListProblem::Queue;
using Unit = ListProblem::Unit;

constexpr uint32_t kNobody = UINT32_MAX;

class ListPass {
 public:
  ListPass(const ListProblem& problem, const ListRule& rule, ListOrder* out)
      : problem_(problem), rule_(rule), out_(*out) {
    const size_t hosts = problem.hosts.size();
    left_.assign(problem.size(), 0);
    for (const ListProblem::Arc& arc : problem.arcs) ++left_[arc.to];
    ready_.assign(problem.size(), 0);
    free_.assign(hosts, 0);
    next_.assign(hosts, 0);
    channel_.assign(problem.channels, 0);
    served_.assign(problem.queues.size(), 0);
    held_.assign(hosts * kResources, 0);
    cap_.resize(hosts * kResources);
    queues_.resize(hosts);
    units_.resize(hosts);
    for (uint32_t q = 0; q < problem.queues.size(); ++q) queues_[problem.queues[q].host].push_back(q);
    for (uint32_t u = 0; u < problem.units.size(); ++u) units_[problem.units[u].host].push_back(u);
    for (uint32_t h = 0; h < hosts; ++h) {
      for (int r = 0; r < kResources; ++r) cap_[h * kResources + r] = problem.hosts[h].cap[r];
    }
    if (rule.slack >= 0) TightenCaps();
    for (uint32_t h = 0; h < hosts; ++h) guarded_.push_back(NeedsGuard(h));
  }

  void Run() {
    out_.hosts.assign(problem_.hosts.size(), {});
    for (uint32_t h = 0; h < problem_.hosts.size(); ++h) events_.push({0, h});
    size_t done = 0;
    while (!events_.empty()) {
      const auto [time, h] = events_.top();
      events_.pop();
      if (free_[h] > time) continue;
      const uint32_t op = Choose(h, time);
      if (op == kNobody) continue;
      Start(op, h, time);
      ++done;
    }
    out_.stuck = done < problem_.size();
    out_.makespan = 0;
    for (size_t h = 0; h < free_.size(); ++h)
      out_.makespan = std::max(out_.makespan, free_[h] + problem_.hosts[h].tail);
  }

 private:
  using Event = std::pair<Picoseconds, uint32_t>;

  // In flight at most what a round trip takes at the pace of the slowest host, and a little more.
  void TightenCaps() {
    Picoseconds pace = 1;
    std::vector<Picoseconds> work(problem_.hosts.size(), 0);
    int64_t microbatches = 1;
    for (const Queue& queue : problem_.queues) {
      if (queue.count > 0) work[queue.host] += problem_.cost[queue.first] * queue.count;
    }
    for (const Unit& unit : problem_.units) microbatches = std::max<int64_t>(microbatches, unit.mb_end);
    for (Picoseconds w : work) pace = std::max(pace, w / microbatches);
    // The first microbatch alone, from the start of its F to the end of its BI: over the arcs of first
    // operations.
    std::vector<Picoseconds> ready(problem_.size(), 0), end(problem_.size(), 0);
    std::vector<uint32_t> left(left_), stack;
    for (uint32_t op = 0; op < problem_.size(); ++op) {
      if (left[op] == 0) stack.push_back(op);
    }
    while (!stack.empty()) {
      const uint32_t op = stack.back();
      stack.pop_back();
      end[op] = ready[op] + problem_.cost[op];
      for (uint32_t a = problem_.first_arc[op]; a < problem_.first_arc[op + 1]; ++a) {
        const ListProblem::Way& way = problem_.ways[problem_.arcs[a].way];
        const uint32_t to = problem_.arcs[a].to;
        ready[to] = std::max(ready[to], end[op] - way.early + way.occupancy + way.latency - way.late);
        if (--left[to] == 0) stack.push_back(to);
      }
    }
    for (uint32_t h = 0; h < problem_.hosts.size(); ++h) {
      if (!problem_.hosts[h].free) continue;
      int64_t taken = 0;
      for (uint32_t u : units_[h]) {
        const Unit& unit = problem_.units[u];
        if (unit.queues[0] == kNobody || unit.queues[1] == kNobody) continue;
        const uint32_t f = problem_.queues[unit.queues[0]].first, b = problem_.queues[unit.queues[1]].first;
        taken += (end[b] - end[f] + problem_.cost[f] + pace - 1) / pace;
      }
      int64_t& cap = cap_[h * kResources + kInFlight];
      const int64_t least = problem_.LeastCap(h, kInFlight);
      cap = std::min(cap, std::max(least, taken + rule_.slack));
    }
  }

  // Whether taking something could ever keep an older microbatch from going on.
  bool NeedsGuard(uint32_t h) const {
    if (!problem_.hosts[h].free) return false;
    for (int r = 0; r < kResources; ++r) {
      if (cap_[h * kResources + r] == kNoCap) continue;
      if (units_[h].size() > 1) return true;
      for (uint32_t q : queues_[h]) {
        if (problem_.queues[q].pass != Pass::kForward && problem_.queues[q].take[r] > 0) return true;
      }
    }
    return false;
  }

  // The banker's rule with microbatches in order: each in turn can finish on this host with what is free and
  // what the ones before it give back. The same order on every host, so that they can all finish.
  bool Safe(uint32_t h, const int64_t* held_now) const {
    int32_t begin = INT32_MAX, end = 0;
    for (uint32_t u : units_[h]) {
      const Unit& unit = problem_.units[u];
      const uint32_t f = unit.queues[0] == kNobody ? 0 : served_[unit.queues[0]];
      uint32_t last = f;
      for (int pass : {1, 2}) {
        if (unit.queues[pass] != kNobody) last = std::min(last, served_[unit.queues[pass]]);
      }
      if (f == last) continue;
      begin = std::min(begin, unit.mb_begin + static_cast<int32_t>(last));
      end = std::max(end, unit.mb_begin + static_cast<int32_t>(f));
    }
    int64_t held[kResources];
    std::copy(held_now, held_now + kResources, held);
    for (int32_t mb = begin; mb < end; ++mb) {
      // What it has of each resource, and the most that it will have on its way to the end.
      for (int r = 0; r < kResources; ++r) {
        int64_t own = 0, now = 0, most = 0;
        for (uint32_t u : units_[h]) own += Held(u, mb, r);
        now = own;
        most = own;
        for (uint32_t u : units_[h]) Pass_(u, mb, r, Pass::kForward, &now, &most);
        for (size_t i = units_[h].size(); i-- > 0;) {
          Pass_(units_[h][i], mb, r, Pass::kBackward, &now, &most);
          Pass_(units_[h][i], mb, r, Pass::kWeight, &now, &most);
        }
        if (held[r] - own + most > cap_[h * kResources + r]) return false;
        held[r] -= own;
      }
    }
    return true;
  }

  // Lets a microbatch go through a pass of a unit, if it has not yet.
  void Pass_(uint32_t u, int32_t mb, int r, Pass pass, int64_t* now, int64_t* most) const {
    const Unit& unit = problem_.units[u];
    const uint32_t q = unit.queues[static_cast<int>(pass)];
    if (q == kNobody || mb < unit.mb_begin || mb >= unit.mb_end) return;
    if (served_[q] > static_cast<uint32_t>(mb - unit.mb_begin)) return;
    *now += problem_.queues[q].take[r];
    *most = std::max(*most, *now);
    *now -= problem_.queues[q].give[r];
  }

  int64_t Held(uint32_t u, int32_t mb, int r) const {
    const Unit& unit = problem_.units[u];
    if (mb < unit.mb_begin || mb >= unit.mb_end) return 0;
    int64_t held = 0;
    for (uint32_t q : unit.queues) {
      if (q == kNobody || served_[q] <= static_cast<uint32_t>(mb - unit.mb_begin)) continue;
      held += problem_.queues[q].take[r] - problem_.queues[q].give[r];
    }
    return held;
  }

  bool Admits(uint32_t h, uint32_t q) {
    const Queue& queue = problem_.queues[q];
    const int64_t* cap = &cap_[h * kResources];
    int64_t now[kResources];
    bool takes = false;
    for (int r = 0; r < kResources; ++r) {
      takes = takes || queue.take[r] > 0;
      now[r] = held_[h * kResources + r] + queue.take[r];
      if (queue.take[r] > 0 && now[r] > cap[r]) return false;
      now[r] -= queue.give[r];
    }
    if (!takes || !guarded_[h]) return true;
    ++served_[q];
    const bool safe = Safe(h, now);
    --served_[q];
    return safe;
  }

  // Smaller is better.
  uint64_t Key(uint32_t q, uint32_t op) const {
    const Queue& queue = problem_.queues[q];
    const uint64_t rank =
        rule_.given ? problem_.priority[op] : rule_.rank_of_pass[static_cast<size_t>(queue.pass)];
    // Units are numbered along the model; a backward pass is further along where the unit stands earlier.
    const bool later = rule_.deep_first == (queue.pass == Pass::kForward);
    const uint64_t along = later ? ~queue.unit & 0xffffff : queue.unit;
    return rank << 24 | along;
  }

  uint32_t Choose(uint32_t h, Picoseconds time) {
    if (!problem_.hosts[h].free) {
      const std::vector<uint32_t>& order = problem_.hosts[h].order;
      if (next_[h] == order.size()) return kNobody;
      const uint32_t op = order[next_[h]];
      if (left_[op] > 0) return kNobody;
      if (ready_[op] > time) {
        events_.push({ready_[op], h});
        return kNobody;
      }
      ++next_[h];
      return op;
    }
    uint32_t best = kNobody;
    uint64_t best_key = 0;
    Picoseconds soonest = INT64_MAX;
    later_.clear();
    for (uint32_t q : queues_[h]) {
      const Queue& queue = problem_.queues[q];
      if (served_[q] == queue.count) continue;
      const uint32_t op = queue.first + served_[q];
      if (left_[op] > 0 || !Admits(h, q)) continue;
      const uint64_t key = Key(q, op);
      if (ready_[op] > time) {
        later_.push_back({ready_[op], key});
        soonest = std::min(soonest, ready_[op]);
      } else if (best == kNobody || key < best_key) {
        best = q;
        best_key = key;
      }
    }
    if (best == kNobody) {
      if (soonest != INT64_MAX) events_.push({soonest, h});
      return kNobody;
    }
    const uint32_t op = problem_.queues[best].first + served_[best];
    if (rule_.patience > 0) {
      const Picoseconds wait = problem_.cost[op] / 100 * rule_.patience;
      for (const auto& [arrival, key] : later_) {
        if (key >> 24 >= best_key >> 24 || arrival - time > wait) continue;
        events_.push({arrival, h});
        return kNobody;
      }
    }
    for (int r = 0; r < kResources; ++r)
      held_[h * kResources + r] += problem_.queues[best].take[r] - problem_.queues[best].give[r];
    ++served_[best];
    return op;
  }

  void Start(uint32_t op, uint32_t h, Picoseconds time) {
    out_.hosts[h].push_back(op);
    const Picoseconds end = time + problem_.cost[op];
    free_[h] = end;
    for (uint32_t a = problem_.first_arc[op]; a < problem_.first_arc[op + 1]; ++a) {
      const ListProblem::Arc arc = problem_.arcs[a];
      const Picoseconds arrival = problem_.ways[arc.way].Arrival(end, &channel_);
      ready_[arc.to] = std::max(ready_[arc.to], arrival);
      if (--left_[arc.to] > 0) continue;
      const uint32_t other = problem_.host_of[arc.to];
      if (other != h && free_[other] <= time) events_.push({time, other});
    }
    events_.push({end, h});
  }

  const ListProblem& problem_;
  const ListRule& rule_;
  ListOrder& out_;
  std::vector<uint32_t> left_;
  std::vector<Picoseconds> ready_, free_, channel_;
  std::vector<uint32_t> next_, served_;
  std::vector<int64_t> held_, cap_;
  std::vector<std::vector<uint32_t>> queues_, units_;
  std::vector<uint8_t> guarded_;
  std::vector<std::pair<Picoseconds, uint64_t>> later_;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
};

}  // namespace

void RunList(const ListProblem& problem, const ListRule& rule, ListOrder* out) {
  ListPass(problem, rule, out).Run();
}

}  // namespace piper::ir
