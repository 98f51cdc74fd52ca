#include "ir/schedule_csv/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "ir/schedule_csv/unit_time.h"

namespace piper::ir::schedule_csv {
namespace {

class Checker {
 public:
  Checker(const Table& table, FileId file, DiagnosticEngine& diag)
      : table_(table), file_(file), diag_(diag) {}

  std::optional<Extent> Run() {
    Collect();
    if (diag_.HasErrors()) return std::nullopt;
    Complete();
    if (diag_.HasErrors()) return std::nullopt;
    Orders();
    Gathered();
    Messages();
    if (diag_.HasErrors()) return std::nullopt;
    Progress();
    if (diag_.HasErrors()) return std::nullopt;
    return extent_;
  }

 private:
  struct Place {
    uint32_t rank = 0;
    size_t position = 0;  // among the rank's steps; the parts of a cell run one after another
    Step step;
  };
  using Key = std::tuple<Action, int32_t, int32_t>;  // action, stage, microbatch

  DiagnosticEngine::Builder Error(SourceRange range, std::string message) {
    return diag_.Error(range, DiagKind::kBadCsv, std::move(message));
  }
  const Place* Find(Action action, int32_t stage, int32_t microbatch) const {
    const auto it = places_.find({action, stage, microbatch});
    return it == places_.end() ? nullptr : &it->second;
  }
  // The end of a rank's row: where something is missing.
  SourceRange EndOf(uint32_t rank) const {
    for (auto cell = table_.ranks[rank].rbegin(); cell != table_.ranks[rank].rend(); ++cell) {
      if (cell->count > 0) return cell->steps[cell->count - 1].range;
    }
    return {file_, 0, 0};
  }

  void Collect() {
    std::map<int32_t, Place> first_of;  // per stage
    for (uint32_t rank = 0; rank < table_.ranks.size(); ++rank) {
      size_t position = 0;
      for (const Cell& cell : table_.ranks[rank]) {
        for (const Step& step : cell) {
          const Place place{rank, position++, step};
          const auto [owner, new_stage] = first_of.emplace(step.stage, place);
          if (!new_stage && owner->second.rank != rank) {
            Error(step.range, fmt::format("stage {} stands on rank {} and on rank {}", step.stage,
                                          owner->second.rank, rank))
                .Note(owner->second.step.range, fmt::format("rank {} has it here", owner->second.rank))
                .Hint("a stage belongs to one rank; every row is a rank");
          }
          // Parameters may be gathered and dropped more than once.
          if (step.action == Action::kUnshard || step.action == Action::kReshard) continue;
          const auto [known, fresh] = places_.emplace(Key{step.action, step.stage, step.microbatch}, place);
          if (!fresh) {
            Error(step.range, fmt::format("{} is listed twice", StepText(step)))
                .Note(known->second.step.range, "the first time")
                .Hint("every step happens once; remove one of the two");
          }
          if (IsCompute(step.action)) {
            extent_.stages = std::max(extent_.stages, step.stage + 1);
            extent_.microbatches = std::max(extent_.microbatches, step.microbatch + 1);
          }
        }
      }
    }
    for (int32_t stage = 0; stage < extent_.stages; ++stage) {
      const auto owner = first_of.find(stage);
      if (owner == first_of.end()) {
        Error(first_of.rbegin()->second.step.range,
              fmt::format("stage {} stands on no rank, and stage {} on rank {}", stage,
                          first_of.rbegin()->first, first_of.rbegin()->second.rank))
            .Hint("stages count from 0 without gaps");
        return;
      }
      extent_.rank_of.push_back(owner->second.rank);
    }
    if (first_of.rbegin()->first >= extent_.stages) {
      Error(first_of.rbegin()->second.step.range, fmt::format("stage {} has no F", first_of.rbegin()->first))
          .Hint("every stage has a forward and a backward a microbatch");
    }
  }

  void Complete() {
    for (int32_t stage = 0; stage < extent_.stages; ++stage) {
      for (int32_t i = 0; i < extent_.microbatches; ++i) {
        if (diag_.error_count() >= DiagnosticEngine::kMaxErrors) return;  // there may be 10^12 of them
        const Place* whole = Find(Action::kFullBackward, stage, i);
        const Place* inputs = Find(Action::kBackwardInput, stage, i);
        const Place* weights = Find(Action::kBackwardWeight, stage, i);
        const uint32_t rank = extent_.rank_of[static_cast<size_t>(stage)];
        auto missing = [&](std::string what, std::string hint) {
          Error(EndOf(rank), fmt::format("rank {} has no {} of stage {} for microbatch {}, of {}", rank, what,
                                         stage, i, extent_.microbatches))
              .Hint(std::move(hint));
        };
        if (Find(Action::kForward, stage, i) == nullptr)
          missing("forward", fmt::format("list {}F{} in its row", stage, i));
        if (whole != nullptr && (inputs != nullptr || weights != nullptr)) {
          const Place* half = inputs != nullptr ? inputs : weights;
          Error(std::max(whole->step.range, half->step.range),
                fmt::format("{} and {}: the backward is listed whole and in halves", StepText(whole->step),
                            StepText(half->step)))
              .Note(std::min(whole->step.range, half->step.range), "the other one")
              .Hint("B is I and W together: keep B, or both I and W");
        } else if (whole == nullptr && inputs == nullptr && weights == nullptr) {
          missing("backward",
                  fmt::format("list {}B{}, or {}I{} and {}W{}, in its row", stage, i, stage, i, stage, i));
        } else if (whole == nullptr && weights == nullptr) {
          missing("weight gradient",
                  fmt::format("list {}W{} in its row, or {}B{} for {}I{}", stage, i, stage, i, stage, i));
        } else if (whole == nullptr && inputs == nullptr) {
          missing("input gradient",
                  fmt::format("list {}I{} in its row, or {}B{} for {}W{}", stage, i, stage, i, stage, i));
        }
      }
    }
  }

  void Before(const Place* first, const Place* second) {
    if (first == nullptr || second == nullptr || first->position < second->position) return;
    Error(second->step.range, fmt::format("{} stands before {}, whose result it needs",
                                          StepText(second->step), StepText(first->step)))
        .Note(first->step.range, "which stands here")
        .Hint("list it behind");
  }

  // Within a rank: F before its backward, I before its W, a receive before and a send behind its step, a
  // reduction behind all that it sums, and waits behind what they wait for.
  void Orders() {
    for (int32_t stage = 0; stage < extent_.stages; ++stage) {
      const Place* reduced = Find(Action::kReduceGradient, stage, -1);
      Before(reduced, Find(Action::kWaitReduceGradient, stage, -1));
      for (int32_t i = 0; i < extent_.microbatches; ++i) {
        const Place* forward = Find(Action::kForward, stage, i);
        Before(forward, Find(Action::kFullBackward, stage, i));
        Before(forward, Find(Action::kBackwardInput, stage, i));
        Before(Find(Action::kBackwardInput, stage, i), Find(Action::kBackwardWeight, stage, i));
        Before(Find(Action::kReceiveForward, stage, i), forward);
        Before(forward, Find(Action::kSendForward, stage, i));
        Before(Find(Action::kSendForward, stage, i), Find(Action::kWaitSendForward, stage, i));
        Before(Find(Action::kSendBackward, stage, i), Find(Action::kWaitSendBackward, stage, i));
        for (Action backward : {Action::kBackwardInput, Action::kFullBackward}) {
          Before(Find(Action::kReceiveBackward, stage, i), Find(backward, stage, i));
          Before(Find(backward, stage, i), Find(Action::kSendBackward, stage, i));
        }
        for (Action last : {Action::kBackwardWeight, Action::kFullBackward})
          Before(Find(last, stage, i), reduced);
      }
    }
  }

  // Parameters of a stage that has an UNSHARD or a RESHARD are gathered once before each use and dropped
  // once.
  void Gathered() {
    for (const std::vector<Cell>& row : table_.ranks) {
      std::map<int32_t, bool> gathered;  // stages that are sharded
      for (const Cell& cell : row) {
        for (const Step& step : cell) {
          if (step.action == Action::kUnshard || step.action == Action::kReshard)
            gathered[step.stage] = false;
        }
      }
      if (gathered.empty()) continue;
      for (const Cell& cell : row) {
        for (const Step& step : cell) {
          const auto it = gathered.find(step.stage);
          if (it == gathered.end()) continue;
          if (step.action == Action::kUnshard) {
            if (it->second) Refuse(step, "are gathered already", "RESHARD");
            it->second = true;
          } else if (step.action == Action::kReshard) {
            if (!it->second) Refuse(step, "are not gathered", "UNSHARD");
            it->second = false;
          } else if (IsCompute(step.action) && !it->second) {
            Refuse(step, "are not gathered", "UNSHARD");
            it->second = true;  // said once
          }
        }
      }
    }
  }
  void Refuse(const Step& step, std::string_view state, std::string_view missing) {
    Error(step.range,
          fmt::format("{} where the parameters of stage {} {}", StepText(step), step.stage, state))
        .Hint(fmt::format("list {}{} before it", step.stage, missing));
  }

  // Every send has its receive on the neighbouring stage, and a wait belongs to a send.
  void Messages() {
    struct Pair {
      Action from, to;
      int32_t shift;
    };
    constexpr Pair kPairs[] = {{Action::kSendForward, Action::kReceiveForward, 1},
                               {Action::kReceiveForward, Action::kSendForward, -1},
                               {Action::kSendBackward, Action::kReceiveBackward, -1},
                               {Action::kReceiveBackward, Action::kSendBackward, 1},
                               {Action::kWaitSendForward, Action::kSendForward, 0},
                               {Action::kWaitSendBackward, Action::kSendBackward, 0},
                               {Action::kWaitReduceGradient, Action::kReduceGradient, 0}};
    for (const auto& [key, place] : places_) {
      for (const Pair& pair : kPairs) {
        if (place.step.action != pair.from) continue;
        Step other = place.step;
        other.action = pair.to;
        other.stage += pair.shift;
        if (other.stage >= 0 && Find(other.action, other.stage, other.microbatch) != nullptr) continue;
        Error(place.step.range, fmt::format("{} has no {}", StepText(place.step),
                                            other.stage < 0 ? "other end" : StepText(other)))
            .Hint("a send of stage s is received by stage s + 1 (forward) or s - 1 (backward)");
      }
    }
  }

  void Progress() {
    const UnitTimes times = ScheduleInUnitTime(table_, extent_);
    if (times.stuck.empty()) return;
    auto waits = [](const UnitTimes::Stuck& stuck) {
      return fmt::format("rank {} waits at {} for stage {}'s", stuck.rank, StepText(stuck.step),
                         stuck.awaited.stage);
    };
    DiagnosticEngine::Builder error =
        Error(times.stuck[0].step.range, "the ranks wait for each other: " + waits(times.stuck[0]));
    for (size_t i = 1; i < std::min<size_t>(times.stuck.size(), 5); ++i) {
      error.Note(times.stuck[i].step.range, waits(times.stuck[i]));
    }
    error.Hint("list what another rank waits for before what waits for it");
  }

  const Table& table_;
  FileId file_;
  DiagnosticEngine& diag_;
  std::map<Key, Place> places_;
  Extent extent_;
};

}  // namespace

std::optional<Extent> Check(const Table& table, FileId file, DiagnosticEngine& diag) {
  return Checker(table, file, diag).Run();
}

}  // namespace piper::ir::schedule_csv
