#include "ir/search/order_search.h"

#include <algorithm>
#include <cmath>

#include "ir/search/order_timing.h"

namespace piper::ir {

namespace {

// A generator of our own (xorshift64*): the same numbers with every standard library.
class Random {
 public:
  uint64_t Next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1dull;
  }
  uint32_t Below(uint32_t bound) {
    return static_cast<uint32_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_ = 0x9e3779b97f4a7c15ull;
};

class Annealing {
 public:
  Annealing(const ListProblem& problem, Picoseconds bound, uint64_t budget, ListOrder* best)
      : problem_(problem), timing_(problem), bound_(bound), budget_(budget), best_(*best), now_(best->hosts) {
    place_.resize(problem.size());
    for (const std::vector<uint32_t>& order : now_) Number(order, 0, order.size());
  }

  void Run() {
    double energy = Energy(timing_.Time(now_));
    best_energy_ = energy;
    CollectCritical();
    const uint64_t cost = problem_.size() + 8;
    const uint64_t tries = budget_ / cost;
    const double scale = static_cast<double>(best_.makespan);
    // Several coolings, each from the best order so far.
    constexpr uint64_t kRounds = 4;
    for (uint64_t round = 0; round < kRounds && best_.makespan > bound_; ++round) {
      if (round > 0) {
        now_ = best_.hosts;
        for (const std::vector<uint32_t>& order : now_) Number(order, 0, order.size());
        energy = Energy(timing_.Time(now_));
        CollectCritical();
      }
      const uint64_t steps = tries / kRounds;
      const double hot = 0.02 * scale, cold = 0.0005 * scale;
      for (uint64_t step = 0; step < steps && best_.makespan > bound_; ++step) {
        const double heat =
            hot * std::pow(cold / hot, static_cast<double>(step) / static_cast<double>(steps));
        if (!Propose()) continue;
        const Picoseconds makespan = Fits(host_) ? timing_.Time(now_) : -1;
        const double next = makespan < 0 ? 0 : Energy(makespan);
        if (makespan >= 0 && (next <= energy || random_.Unit() < std::exp((energy - next) / heat))) {
          energy = next;
          CollectCritical();
          if (makespan < best_.makespan || (makespan == best_.makespan && energy < best_energy_)) {
            best_.makespan = makespan;
            best_.hosts = now_;
            best_energy_ = energy;
          }
          continue;
        }
        Undo();
      }
    }
  }

 private:
  // Equal makespans differ by how early the hosts are done.
  double Energy(Picoseconds makespan) const {
    return static_cast<double>(makespan) +
           0.1 * static_cast<double>(timing_.SumOfEnds()) / static_cast<double>(problem_.hosts.size());
  }

  void Number(const std::vector<uint32_t>& order, size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) place_[order[i]] = static_cast<uint32_t>(i);
  }

  // Operations on the critical path that stand on free hosts.
  void CollectCritical() {
    critical_.clear();
    for (uint32_t op = timing_.LastOp(); op != UINT32_MAX; op = timing_.Binding(op)) {
      if (problem_.queue_of[op] != UINT32_MAX) critical_.push_back(op);
    }
  }

  // Moves one operation to another place on its host.
  bool Propose() {
    if (critical_.empty()) return false;
    const uint32_t op = critical_[random_.Below(static_cast<uint32_t>(critical_.size()))];
    host_ = problem_.host_of[op];
    std::vector<uint32_t>& order = now_[host_];
    const size_t from = place_[op];
    const uint32_t kind = random_.Below(8);
    size_t to = 0;
    if (kind < 4) {
      to = kind % 2 == 0 ? from + 1 : from - 1;
    } else {
      const uint32_t reach = 1 + random_.Below(8);
      to = kind % 2 == 0 ? from + reach : from - reach;
    }
    if (to >= order.size()) return false;
    from_ = from;
    to_ = to;
    // Of one queue nothing passes: then this is another operation's move.
    const uint32_t queue = problem_.queue_of[op];
    const size_t step = to > from ? 1 : static_cast<size_t>(-1);
    for (size_t i = from; i != to; i += step) {
      if (problem_.queue_of[order[i + step]] == queue) return false;
    }
    Shift(from, to);
    return true;
  }

  void Shift(size_t from, size_t to) {
    std::vector<uint32_t>& order = now_[host_];
    const auto begin = order.begin();
    const auto f = static_cast<ptrdiff_t>(from), t = static_cast<ptrdiff_t>(to);
    if (from < to) {
      std::rotate(begin + f, begin + f + 1, begin + t + 1);
    } else {
      std::rotate(begin + t, begin + f, begin + f + 1);
    }
    Number(order, std::min(from, to), std::max(from, to) + 1);
  }

  void Undo() { Shift(to_, from_); }

  bool Fits(uint32_t h) const {
    const ListProblem::Host& host = problem_.hosts[h];
    for (int r = 0; r < kResources; ++r) {
      if (host.cap[r] == kNoCap) continue;
      int64_t held = 0;
      for (uint32_t op : now_[h]) {
        const ListProblem::Queue& queue = problem_.queues[problem_.queue_of[op]];
        held += queue.take[r];
        if (queue.take[r] > 0 && held > host.cap[r]) return false;
        held -= queue.give[r];
      }
    }
    return true;
  }

  const ListProblem& problem_;
  OrderTiming timing_;
  const Picoseconds bound_;
  const uint64_t budget_;
  ListOrder& best_;
  double best_energy_ = 0;
  std::vector<std::vector<uint32_t>> now_;
  std::vector<uint32_t> place_;  // per operation: where it stands on its host
  std::vector<uint32_t> critical_;
  Random random_;
  uint32_t host_ = 0;
  size_t from_ = 0, to_ = 0;
};

}  // namespace

void ImproveOrder(const ListProblem& problem, Picoseconds bound, uint64_t budget, ListOrder* best) {
  Annealing(problem, bound, budget, best).Run();
}

}  // namespace piper::ir
