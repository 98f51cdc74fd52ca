#include "ir/schedule_csv/unit_time.h"

#include <algorithm>
#include <utility>

namespace piper::ir::schedule_csv {
namespace {

// Which forwards and (input) backwards have ended, and who waits for one.
class Results {
 public:
  explicit Results(const Extent& extent)
      : microbatches_(static_cast<size_t>(extent.microbatches)),
        stages_(extent.stages),
        done_(2 * static_cast<size_t>(extent.stages) * microbatches_, false),
        waiter_(done_.size(), -1) {}

  // The step whose result `step` waits for from another stage; false if it waits for none.
  bool Awaited(const Step& step, Step* awaited) const {
    *awaited = step;
    if (step.action == Action::kForward && step.stage > 0) {
      awaited->stage = step.stage - 1;
      return true;
    }
    if ((step.action == Action::kBackwardInput || step.action == Action::kFullBackward) &&
        step.stage + 1 < stages_) {
      awaited->stage = step.stage + 1;
      return true;
    }
    return false;
  }
  bool Ready(const Step& step) const {
    Step awaited;
    return !Awaited(step, &awaited) || Done(awaited);
  }
  // `rank` is to be woken once what `step` awaits has ended. A result has one step that waits for it.
  void Wait(const Step& step, int64_t rank) {
    Step awaited;
    if (Awaited(step, &awaited)) waiter_[Index(awaited)] = rank;
  }
  // Returns the rank that waited for `step`, or -1.
  int64_t End(const Step& step) {
    if (step.action == Action::kBackwardWeight) return -1;
    done_[Index(step)] = true;
    return waiter_[Index(step)];
  }

 private:
  bool Done(const Step& step) const { return done_[Index(step)]; }
  size_t Index(const Step& step) const {
    const size_t half = step.action == Action::kForward ? 0 : done_.size() / 2;
    return half + static_cast<size_t>(step.stage) * microbatches_ + static_cast<size_t>(step.microbatch);
  }
  size_t microbatches_;
  int32_t stages_;
  std::vector<bool> done_;  // forwards, then backwards (of inputs), by stage and microbatch
  std::vector<int64_t> waiter_;
};

}  // namespace

UnitTimes ScheduleInUnitTime(const Table& table, const Extent& extent) {
  UnitTimes times;
  Results results(extent);
  std::vector<size_t> next(table.ranks.size(), 0), active;
  for (size_t rank = 0; rank < table.ranks.size(); ++rank) {
    times.start.emplace_back(table.ranks[rank].size(), -1);
    active.push_back(rank);
  }
  for (int64_t time = 0; !active.empty(); ++time) {
    std::vector<std::pair<size_t, const Cell*>> running;
    for (size_t rank : active) {
      const std::vector<Cell>& row = table.ranks[rank];
      size_t& at = next[rank];
      while (at < row.size() && (row[at].count == 0 || !IsCompute(row[at].steps[0].action))) ++at;
      if (at == row.size()) continue;
      const Step* waits = std::find_if_not(row[at].begin(), row[at].end(),
                                           [&](const Step& step) { return results.Ready(step); });
      if (waits != row[at].end()) {
        results.Wait(*waits, static_cast<int64_t>(rank));
        continue;
      }
      running.emplace_back(rank, &row[at]);
      times.start[rank][at++] = time;
    }
    active.clear();
    for (const auto& [rank, cell] : running) {
      active.push_back(rank);
      for (const Step& step : *cell) {
        if (const int64_t woken = results.End(step); woken >= 0) active.push_back(static_cast<size_t>(woken));
      }
    }
    std::sort(active.begin(), active.end());
    active.erase(std::unique(active.begin(), active.end()), active.end());
  }
  for (uint32_t rank = 0; rank < table.ranks.size(); ++rank) {
    if (next[rank] == table.ranks[rank].size()) continue;
    for (const Step& step : table.ranks[rank][next[rank]]) {
      Step awaited;
      if (results.Ready(step) || !results.Awaited(step, &awaited)) continue;
      times.stuck.push_back({rank, next[rank], step, awaited});
      break;
    }
  }
  return times;
}

Table WithIdleCells(const Table& table, const Extent& extent) {
  const UnitTimes times = ScheduleInUnitTime(table, extent);
  Table spaced;
  for (size_t rank = 0; rank < table.ranks.size(); ++rank) {
    std::vector<Cell>& row = spaced.ranks.emplace_back();
    for (size_t i = 0; i < table.ranks[rank].size(); ++i) {
      const int64_t start = times.start[rank][i];
      if (start >= 0) row.resize(std::max(row.size(), static_cast<size_t>(start)));
      row.push_back(table.ranks[rank][i]);
    }
  }
  return spaced;
}

}  // namespace piper::ir::schedule_csv
