#include "ir/search/list_schedule.h"

#include <algorithm>
#include <tuple>

#include "ir/search/list_pass.h"
#include "ir/search/order_search.h"
#include "ir/search/order_timing.h"

namespace piper::ir {

namespace {

// What no order can beat: a host's first possible start, all of its work, its tail; and the longest way.
Picoseconds LowerBound(const ListProblem& problem) {
  std::vector<Picoseconds> ready(problem.size(), 0);
  std::vector<uint32_t> left(problem.size(), 0), stack;
  for (const ListProblem::Arc& arc : problem.arcs) ++left[arc.to];
  for (uint32_t op = 0; op < problem.size(); ++op) {
    if (left[op] == 0) stack.push_back(op);
  }
  std::vector<Picoseconds> first(problem.hosts.size(), INT64_MAX), work(problem.hosts.size(), 0);
  Picoseconds bound = 0;
  while (!stack.empty()) {
    const uint32_t op = stack.back();
    stack.pop_back();
    const uint32_t h = problem.host_of[op];
    first[h] = std::min(first[h], ready[op]);
    work[h] += problem.cost[op];
    const Picoseconds end = ready[op] + problem.cost[op];
    bound = std::max(bound, end + problem.hosts[h].tail);
    for (uint32_t a = problem.first_arc[op]; a < problem.first_arc[op + 1]; ++a) {
      const ListProblem::Way& way = problem.ways[problem.arcs[a].way];
      const uint32_t to = problem.arcs[a].to;
      ready[to] = std::max(ready[to], end - way.early + way.occupancy + way.latency - way.late);
      if (--left[to] == 0) stack.push_back(to);
    }
  }
  for (size_t h = 0; h < problem.hosts.size(); ++h) {
    if (work[h] > 0) bound = std::max(bound, first[h] + work[h] + problem.hosts[h].tail);
  }
  return bound;
}

std::vector<ListRule> Rules() {
  std::vector<ListRule> rules = {{}};  // as given
  for (int slack : {-1, 1, 0, 2}) {
    for (int patience : {0, 50, 100}) {
      for (const auto& [f, b, w] : {std::tuple(1, 0, 2), std::tuple(0, 1, 2), std::tuple(2, 0, 1)}) {
        for (bool deep : {true, false}) {
          ListRule rule;
          rule.given = false;
          rule.rank_of_pass[0] = static_cast<uint8_t>(f);
          rule.rank_of_pass[1] = static_cast<uint8_t>(b);
          rule.rank_of_pass[2] = static_cast<uint8_t>(w);
          rule.patience = patience;
          rule.slack = slack;
          rule.deep_first = deep;
          rules.push_back(rule);
        }
      }
    }
  }
  return rules;
}

}  // namespace

int64_t ListProblem::LeastCap(uint32_t h, Resource resource) const {
  int64_t least = 0;
  int32_t end = 0;
  for (const Unit& unit : units) {
    if (unit.host == h) end = std::max(end, unit.mb_end);
  }
  for (int32_t mb = 0; mb < end; ++mb) {
    int64_t now = 0;
    const auto pass = [&](const Unit& unit, int p) {
      if (unit.host != h || mb < unit.mb_begin || mb >= unit.mb_end || unit.queues[p] == UINT32_MAX) return;
      const Queue& queue = queues[unit.queues[p]];
      now += queue.take[resource];
      least = std::max(least, now);
      now -= queue.give[resource];
    };
    for (const Unit& unit : units) pass(unit, 0);
    for (size_t u = units.size(); u-- > 0;) {
      pass(units[u], 1);
      pass(units[u], 2);
    }
  }
  return least;
}

ListOrder ResolveOrder(const ListProblem& problem, uint64_t budget) {
  ListOrder best, next;
  const Picoseconds bound = LowerBound(problem);
  const bool one_unit_a_host = [&] {
    std::vector<uint32_t> count(problem.hosts.size(), 0);
    return std::all_of(problem.units.begin(), problem.units.end(),
                       [&](const ListProblem::Unit& unit) { return ++count[unit.host] < 2; });
  }();
  uint64_t spent = 0;
  for (const ListRule& rule : Rules()) {
    // Listing takes several times as long as timing.
    if (spent > budget / 2 && !best.stuck) break;
    // One stage a host leaves nothing to choose but when: where one rule is stuck, all are.
    if (spent > 0 && best.stuck && one_unit_a_host) break;
    if (!rule.deep_first && one_unit_a_host) continue;
    RunList(problem, rule, &next);
    spent += uint64_t{8} * (problem.size() + 8);
    if (next.stuck || (!best.stuck && next.makespan >= best.makespan)) continue;
    std::swap(best, next);
    if (best.makespan <= bound) break;
  }
  if (best.stuck || best.makespan <= bound || spent >= budget) return best;
  ImproveOrder(problem, bound, budget - spent, &best);
  return best;
}

Picoseconds TimeOrder(const ListProblem& problem, const std::vector<std::vector<uint32_t>>& hosts) {
  return OrderTiming(problem).Time(hosts);
}

}  // namespace piper::ir
