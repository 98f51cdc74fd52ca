#include "ir/schedule_csv/unshard.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "ir/support/result.h"

namespace piper::ir::schedule_csv {
namespace {

// The stages of a row by the step that needs each of them next.
class NextNeeds {
 public:
  explicit NextNeeds(const std::vector<Cell>& row) {
    for (size_t at = 0; at < row.size(); ++at) {
      for (size_t part = 0; part < row[at].count; ++part) {
        Uses& uses = uses_[row[at].steps[part].stage];
        if (uses.places.empty()) order_.emplace(at, part, row[at].steps[part].stage);
        uses.places.emplace_back(at, part);
      }
    }
  }

  // The next different stages: as many as make `count` at the end of a step, or all that are left.
  std::vector<int32_t> Window(size_t count) const {
    std::vector<int32_t> window;
    size_t at = 0;
    for (const auto& [place, part, stage] : order_) {
      if (window.size() >= count && place != at) break;
      at = place;
      window.push_back(stage);
    }
    return window;
  }

  // The steps of `cell` are over.
  void Pass(const Cell& cell) {
    for (const Step& step : cell) {
      Uses& uses = uses_.at(step.stage);
      const auto [place, part] = uses.places[uses.next];
      order_.erase({place, part, step.stage});
      if (++uses.next == uses.places.size()) continue;
      order_.emplace(uses.places[uses.next].first, uses.places[uses.next].second, step.stage);
    }
  }

 private:
  struct Uses {
    std::vector<std::pair<size_t, size_t>> places;  // cell, part
    size_t next = 0;
  };
  std::map<int32_t, Uses> uses_;
  std::set<std::tuple<size_t, size_t, int32_t>> order_;  // each stage's next place
};

bool Holds(const std::vector<int32_t>& stages, int32_t stage) {
  return std::find(stages.begin(), stages.end(), stage) != stages.end();
}

std::vector<Cell> Unsharded(const std::vector<Cell>& row, size_t active) {
  NextNeeds needs(row);
  std::vector<int32_t> gathered;  // in the order in which they were
  std::vector<Cell> result;
  auto list = [&](Action action, int32_t stage, const Cell& near) {
    result.push_back(Cell::Of({action, stage, -1, near.steps[0].range}));
  };
  for (const Cell& cell : row) {
    const std::vector<int32_t> window = needs.Window(active);
    std::vector<int32_t> kept;
    for (int32_t stage : gathered) {
      if (Holds(window, stage)) {
        kept.push_back(stage);
      } else {
        list(Action::kReshard, stage, cell);
      }
    }
    gathered = std::move(kept);
    for (int32_t stage : window) {
      if (Holds(gathered, stage)) continue;
      gathered.push_back(stage);
      list(Action::kUnshard, stage, cell);
    }
    result.push_back(cell);
    needs.Pass(cell);
  }
  for (int32_t stage : gathered) list(Action::kReshard, stage, row.back());
  return result;
}

}  // namespace

Table WithUnsharding(const Table& table, size_t active) {
  PIPER_CHECK(active >= LargestStep(table), "a step has more stages than may be gathered");
  Table result;
  for (const std::vector<Cell>& row : table.ranks) result.ranks.push_back(Unsharded(row, active));
  return result;
}

size_t LargestStep(const Table& table) {
  size_t largest = 1;
  for (const std::vector<Cell>& row : table.ranks) {
    for (const Cell& cell : row) {
      if (cell.count == 2 && cell.steps[0].stage != cell.steps[1].stage) largest = 2;
    }
  }
  return largest;
}

}  // namespace piper::ir::schedule_csv
