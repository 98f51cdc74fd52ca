#include "tools/schedule_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace piper::tools {
namespace {

using runtime::Task;
using runtime::TaskKind;

std::string Label(std::span<const runtime::RankRow> ranks) {
  std::string label = "rank ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == 3) return label + ", ..";
    label += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i].rank);
  }
  return label;
}

bool IsUpdate(TaskKind kind) {
  return kind == TaskKind::kUpdate || kind == TaskKind::kClip || kind == TaskKind::kSumSquares ||
         kind == TaskKind::kSave || kind == TaskKind::kValidate || kind == TaskKind::kPartialSquares;
}

bool IsBackward(CellPass pass) {
  return pass == CellPass::kBackward || pass == CellPass::kBackwardInput || pass == CellPass::kBackwardWeight;
}

CellPass PassOf(const Task& task) {
  constexpr CellPass kPasses[] = {CellPass::kForward, CellPass::kBackwardInput, CellPass::kBackwardWeight,
                                  CellPass::kRecompute};
  return kPasses[std::min<size_t>(task.flag, 3)];
}

class CellMaker {
 public:
  CellMaker(const TimelineRow& row, std::span<const ir::StageCopy> stages,
            std::span<const char* const> strings)
      : row_(row), program_(*row.program), stages_(stages), strings_(strings) {
    for (const Task& task : program_.tasks) {
      if (task.kind != TaskKind::kCompute) continue;
      chunk_of_.emplace(task.key, 0);
      if (task.flag == 1) ++backwards_[task.key].first;
      if (task.flag == 2) ++backwards_[task.key].second;
    }
    std::vector<uint32_t> keys;
    for (const auto& [key, chunk] : chunk_of_) keys.push_back(key);
    std::sort(keys.begin(), keys.end(), [&](uint32_t a, uint32_t b) {
      const ir::StageCopy x = CopyOf(a), y = CopyOf(b);
      return std::pair(x.copy, x.stage) < std::pair(y.copy, y.stage);
    });
    for (uint32_t i = 0; i < keys.size(); ++i) chunk_of_[keys[i]] = i;
  }

  CellRow Make() {
    out_.label = row_.label;
    out_.chunks = std::max<uint32_t>(static_cast<uint32_t>(chunk_of_.size()), 1);
    uint32_t lanes = 0;
    for (const runtime::Stream& stream : program_.streams) {
      if (stream.computes == 0) {
        AddCommunication(stream);
        continue;
      }
      const size_t before = out_.cells.size();
      AddStream(stream, lanes);
      if (out_.cells.size() == before) continue;
      ++lanes;
      out_.lane_names.push_back(stream.name);
    }
    out_.lanes = std::max(lanes, 1u);
    return std::move(out_);
  }

 private:
  ir::StageCopy CopyOf(uint32_t key) const {
    return key < stages_.size() ? stages_[key] : ir::StageCopy{key, 0};
  }

  // What one atomic run of tasks does: usually one thing, several in a fused step.
  std::vector<Cell> Unit(uint32_t first, uint32_t count) const {
    std::vector<Cell> unit;
    for (uint32_t t = first; t < first + count; ++t) {
      const Task& task = program_.tasks[t];
      const bool compute = task.kind == TaskKind::kCompute;
      if (!compute && !IsUpdate(task.kind)) continue;
      Cell cell{.start = row_.timings[t].start, .end = row_.timings[t].end, .pass = CellPass::kUpdate};
      if (compute) {
        const ir::StageCopy copy = CopyOf(task.key);
        cell.pass = PassOf(task);
        cell.microbatch = task.microbatch;
        cell.stage = copy.stage;
        cell.copy = copy.copy;
        cell.chunk = chunk_of_.at(task.key);
        const auto it = backwards_.find(task.key);
        const bool split = it != backwards_.end() && it->second.first > 0 && it->second.second > 0;
        if (IsBackward(cell.pass) && !split) cell.pass = CellPass::kBackward;
      }
      bool joined = false;
      for (Cell& known : unit) {
        if (!SameStep(known, cell)) continue;
        if (known.pass != cell.pass) known.pass = CellPass::kBackward;  // BI and BW in one: a whole B
        known.start = std::min(known.start, cell.start);
        known.end = std::max(known.end, cell.end);
        joined = true;
        break;
      }
      if (!joined) unit.push_back(cell);
    }
    for (size_t i = 0; i < unit.size(); ++i) {
      unit[i].part = static_cast<uint32_t>(i);
      unit[i].parts = static_cast<uint32_t>(unit.size());
    }
    return unit;
  }

  static bool SameStep(const Cell& a, const Cell& b) {
    return a.chunk == b.chunk && a.microbatch == b.microbatch &&
           (a.pass == b.pass || (IsBackward(a.pass) && IsBackward(b.pass)));
  }

  // A unit goes on with what the one before it began: the next region of the same step.
  static bool Continues(const Cell& before, const Cell& next) {
    if (before.end != next.start || before.parts != next.parts || !SameStep(before, next)) return false;
    return before.pass == next.pass || before.pass == CellPass::kBackward || next.pass == CellPass::kBackward;
  }

  void AddStream(const runtime::Stream& stream, uint32_t lane) {
    size_t last = out_.cells.size();  // where the last unit begins
    const size_t none = last;
    for (uint32_t i = 0; i < stream.task_count;) {
      const uint32_t t = stream.first_task + i;
      const Task& task = program_.tasks[t];
      uint32_t count = 1;
      while (task.atomic != runtime::kNone && i + count < stream.task_count &&
             program_.tasks[t + count].atomic == task.atomic) {
        ++count;
      }
      i += count;
      std::vector<Cell> unit = Unit(t, count);
      if (unit.empty()) {
        // An accumulate belongs to the step that it ends.
        for (size_t c = last; c < out_.cells.size(); ++c) {
          if (out_.cells[c].end == row_.timings[t].start) out_.cells[c].end = row_.timings[t].end;
        }
        continue;
      }
      if (std::all_of(unit.begin(), unit.end(), [](const Cell& cell) { return cell.end <= cell.start; }))
        continue;
      const size_t size = out_.cells.size() - last;
      bool continues = size == unit.size() && (size > 0 && out_.cells.size() > none);
      for (size_t c = 0; continues && c < size; ++c) continues = Continues(out_.cells[last + c], unit[c]);
      if (continues) {
        for (size_t c = 0; c < size; ++c) {
          Cell& cell = out_.cells[last + c];
          cell.end = unit[c].end;
          if (cell.pass != unit[c].pass) cell.pass = CellPass::kBackward;
        }
        continue;
      }
      last = out_.cells.size();
      for (Cell& cell : unit) {
        cell.lane = lane;
        out_.cells.push_back(cell);
      }
    }
  }

  void AddCommunication(const runtime::Stream& stream) {
    for (uint32_t i = 0; i < stream.task_count; ++i) {
      const uint32_t t = stream.first_task + i;
      const Task& task = program_.tasks[t];
      const ir::TaskTiming& timing = row_.timings[t];
      if (timing.end <= timing.start) continue;
      Communication item{.start = timing.start, .end = timing.end};
      if (task.kind == TaskKind::kRecv) {
        item.kind = Communication::Kind::kReceive;
      } else if (task.kind != TaskKind::kSend) {
        item.kind = Communication::Kind::kCollective;
      }
      if (task.name < strings_.size()) item.name = strings_[task.name];
      out_.communication.push_back(item);
    }
  }

  const TimelineRow& row_;
  const runtime::RankProgram& program_;
  std::span<const ir::StageCopy> stages_;
  std::span<const char* const> strings_;
  std::map<uint32_t, uint32_t> chunk_of_;                        // by key
  std::map<uint32_t, std::pair<uint32_t, uint32_t>> backwards_;  // by key: tasks of BI, of BW
  CellRow out_;
};

}  // namespace

char CellLetter(CellPass pass) { return "FBIWRU"[static_cast<size_t>(pass)]; }

std::string_view CellPassText(CellPass pass) {
  constexpr std::string_view kTexts[] = {"forward",           "backward",  "backward, inputs",
                                         "backward, weights", "recompute", "update"};
  return kTexts[static_cast<size_t>(pass)];
}

std::vector<TimelineRow> TimelineRows(const runtime::Job& job, const ir::SimulationResult& result,
                                      bool expanded) {
  std::vector<TimelineRow> rows;
  if (expanded) {
    for (uint32_t rank = 0; rank < job.rank_count; ++rank) {
      rows.push_back({fmt::format("rank {}", rank), &job.train[job.rank_role[rank]], result.timings[rank]});
    }
    return rows;
  }
  std::vector<uint32_t> order(job.train.size());
  for (uint32_t role = 0; role < order.size(); ++role) order[role] = role;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    auto first = [&](uint32_t role) {
      return job.train[role].ranks.empty() ? 0 : job.train[role].ranks[0].rank;
    };
    return first(a) < first(b);
  });
  for (uint32_t role : order)
    rows.push_back({Label(job.train[role].ranks), &job.train[role], result.timings[role]});
  return rows;
}

CellRow MakeCells(const TimelineRow& row, std::span<const ir::StageCopy> stages,
                  std::span<const char* const> strings) {
  return CellMaker(row, stages, strings).Make();
}

}  // namespace piper::tools
