#include "ir/search/order_timing.h"

#include <algorithm>

namespace piper::ir {

OrderTiming::OrderTiming(const ListProblem& problem) : problem_(problem), missing_(problem.size(), 0) {
  for (const ListProblem::Arc& arc : problem.arcs) ++missing_[arc.to];
  left_.resize(problem.size());
  ready_.resize(problem.size());
  end_.resize(problem.size());
  binding_.resize(problem.size());
  sender_.resize(problem.size());
  free_.resize(problem.hosts.size());
  next_.resize(problem.hosts.size());
  channel_.resize(problem.channels);
}

Picoseconds OrderTiming::Time(const std::vector<std::vector<uint32_t>>& hosts) {
  std::copy(missing_.begin(), missing_.end(), left_.begin());
  std::fill(ready_.begin(), ready_.end(), 0);
  std::fill(sender_.begin(), sender_.end(), UINT32_MAX);
  std::fill(free_.begin(), free_.end(), 0);
  std::fill(next_.begin(), next_.end(), 0);
  std::fill(channel_.begin(), channel_.end(), 0);
  runnable_.clear();
  for (uint32_t h = static_cast<uint32_t>(hosts.size()); h-- > 0;) runnable_.push_back(h);
  size_t done = 0;
  while (!runnable_.empty()) {
    const uint32_t h = runnable_.back();
    runnable_.pop_back();
    const std::vector<uint32_t>& order = hosts[h];
    uint32_t at = next_[h];
    while (at < order.size() && left_[order[at]] == 0) {
      const uint32_t op = order[at];
      Picoseconds start = free_[h];
      binding_[op] = at > 0 ? order[at - 1] : UINT32_MAX;
      if (ready_[op] > start) {
        start = ready_[op];
        binding_[op] = sender_[op];
      }
      const Picoseconds end = start + problem_.cost[op];
      free_[h] = end;
      end_[op] = end;
      ++at;
      ++done;
      for (uint32_t a = problem_.first_arc[op]; a < problem_.first_arc[op + 1]; ++a) {
        const ListProblem::Arc arc = problem_.arcs[a];
        const Picoseconds arrival = problem_.ways[arc.way].Arrival(end, &channel_);
        if (arrival > ready_[arc.to]) {
          ready_[arc.to] = arrival;
          sender_[arc.to] = op;
        }
        if (--left_[arc.to] > 0) continue;
        const uint32_t other = problem_.host_of[arc.to];
        if (other != h && next_[other] < hosts[other].size() && hosts[other][next_[other]] == arc.to)
          runnable_.push_back(other);
      }
    }
    next_[h] = at;
  }
  if (done < problem_.size()) return -1;
  Picoseconds makespan = 0;
  sum_of_ends_ = 0;
  last_op_ = UINT32_MAX;
  for (size_t h = 0; h < hosts.size(); ++h) {
    const Picoseconds end = free_[h] + problem_.hosts[h].tail;
    sum_of_ends_ += end;
    if (hosts[h].empty() || (last_op_ != UINT32_MAX && end <= makespan)) continue;
    makespan = end;
    last_op_ = hosts[h].back();
  }
  return makespan;
}

}  // namespace piper::ir
