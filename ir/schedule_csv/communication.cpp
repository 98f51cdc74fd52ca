#include "ir/schedule_csv/communication.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "ir/schedule_csv/unshard.h"
#include "ir/support/result.h"

namespace piper::ir::schedule_csv {
namespace {

class Lister {
 public:
  Lister(const Table& table, const Extent& extent, const Communication& communication)
      : extent_(extent), waits_(communication.waits), received_(table.ranks.size()) {
    out_.ranks.resize(table.ranks.size());
    for (const std::vector<Cell>& row : table.ranks)
      todo_.push_back(WithReductions(row, communication.reduced));
  }

  Table Run() {
    std::vector<size_t> next(todo_.size(), 0);
    for (bool left = true; left;) {
      left = false;
      bool progress = false;
      for (uint32_t rank = 0; rank < todo_.size(); ++rank) {
        if (next[rank] == todo_[rank].size()) continue;
        left = true;
        const Cell& cell = todo_[rank][next[rank]];
        if (!std::all_of(cell.begin(), cell.end(), [&](const Step& step) { return Ready(rank, step); }))
          continue;
        List(rank, cell);
        ++next[rank];
        progress = true;
      }
      PIPER_CHECK(!left || progress, "the order is stuck");
    }
    if (waits_) AddSendWaits();
    return std::move(out_);
  }

 private:
  using Key = std::pair<Action, std::pair<int32_t, int32_t>>;
  static Key KeyOf(const Step& step) { return {step.action, {step.stage, step.microbatch}}; }
  static Step With(const Step& step, Action action, int32_t stage) {
    return {action, stage, step.microbatch, step.range};
  }

  std::vector<Cell> WithReductions(const std::vector<Cell>& row, const std::vector<bool>& reduced) const {
    std::map<int32_t, int32_t> ended;  // weight gradients, per stage
    std::vector<Cell> result;
    for (const Cell& cell : row) {
      result.push_back(cell);
      for (const Step& step : cell) {
        if (step.action != Action::kBackwardWeight && step.action != Action::kFullBackward) continue;
        if (++ended[step.stage] != extent_.microbatches || !reduced[static_cast<size_t>(step.stage)])
          continue;
        result.push_back(Cell::Of({Action::kReduceGradient, step.stage, -1, step.range}));
        if (waits_) result.push_back(Cell::Of({Action::kWaitReduceGradient, step.stage, -1, step.range}));
      }
    }
    return result;
  }

  // What a step needs of the neighbouring stage: received, or made here.
  bool Ready(uint32_t rank, const Step& step) const {
    const std::set<Key>& here = received_[rank];
    if (step.action == Action::kForward && step.stage > 0) {
      return here.count(KeyOf(With(step, Action::kReceiveForward, step.stage))) != 0 ||
             here.count(KeyOf(With(step, Action::kForward, step.stage - 1))) != 0;
    }
    if ((step.action == Action::kBackwardInput || step.action == Action::kFullBackward) &&
        step.stage + 1 < extent_.stages) {
      return here.count(KeyOf(With(step, Action::kReceiveBackward, step.stage))) != 0 ||
             here.count(KeyOf(With(step, Action::kBackwardInput, step.stage + 1))) != 0;
    }
    return true;
  }

  void List(uint32_t rank, const Cell& cell) {
    out_.ranks[rank].push_back(cell);
    for (const Step& step : cell) {
      const bool forward = step.action == Action::kForward;
      const bool backward = step.action == Action::kBackwardInput || step.action == Action::kFullBackward;
      if (!forward && !backward) continue;
      received_[rank].insert(
          KeyOf(With(step, forward ? Action::kForward : Action::kBackwardInput, step.stage)));
      const int32_t peer_stage = step.stage + (forward ? 1 : -1);
      if (peer_stage < 0 || peer_stage >= extent_.stages) continue;
      const uint32_t peer = extent_.rank_of[static_cast<size_t>(peer_stage)];
      if (peer == rank) continue;
      const Step receive =
          With(step, forward ? Action::kReceiveForward : Action::kReceiveBackward, peer_stage);
      out_.ranks[rank].push_back(
          Cell::Of(With(step, forward ? Action::kSendForward : Action::kSendBackward, step.stage)));
      out_.ranks[peer].push_back(Cell::Of(receive));
      received_[peer].insert(KeyOf(receive));
    }
  }

  void AddSendWaits() {
    for (std::vector<Cell>& row : out_.ranks) {
      std::vector<Cell> result;
      std::vector<Step> pending;  // sends, in order
      for (const Cell& cell : row) {
        result.push_back(cell);
        for (const Step& step : cell) {
          if (step.action == Action::kSendForward || step.action == Action::kSendBackward)
            pending.push_back(step);
        }
        for (const Step& step : cell) {
          if (step.action != Action::kFullBackward && step.action != Action::kBackwardInput) continue;
          const Step sent = With(step, Action::kSendForward, step.stage);
          const auto it = std::find(pending.begin(), pending.end(), sent);
          if (it == pending.end()) continue;
          result.push_back(Cell::Of(With(step, Action::kWaitSendForward, step.stage)));
          pending.erase(it);
        }
      }
      for (const Step& step : pending) {
        const bool forward = step.action == Action::kSendForward;
        result.push_back(
            Cell::Of(With(step, forward ? Action::kWaitSendForward : Action::kWaitSendBackward, step.stage)));
      }
      row = std::move(result);
    }
  }

  const Extent& extent_;
  bool waits_;
  std::vector<std::vector<Cell>> todo_;
  std::vector<std::set<Key>> received_;  // per rank: what was received, and what was made
  Table out_;
};

}  // namespace

Table WithCommunication(const Table& table, const Extent& extent, const Communication& communication) {
  if (communication.active_stages == 0) return Lister(table, extent, communication).Run();
  return Lister(WithUnsharding(table, communication.active_stages), extent, communication).Run();
}

}  // namespace piper::ir::schedule_csv
