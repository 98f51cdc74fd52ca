#include "ir/schedule_csv/spacing.h"

#include <algorithm>
#include <set>
#include <utility>

#include "ir/schedule_csv/unit_time.h"

namespace piper::ir::schedule_csv {
namespace {

bool IsForward(const Cell& cell) { return cell.count == 1 && cell.steps[0].action == Action::kForward; }

struct Loop {
  size_t ranks, chunks, forwards, round;  // forwards of a rank; microbatches of the first round
};

Loop LoopOf(const Table& table, const Extent& extent) {
  const size_t ranks = table.ranks.size(), microbatches = static_cast<size_t>(extent.microbatches);
  const size_t chunks = static_cast<size_t>(extent.stages) / ranks;
  const size_t rounds = std::max<size_t>(1, microbatches / ranks);
  return {ranks, chunks, chunks * microbatches, (microbatches + rounds - 1) / rounds};
}

// Empty cells at the beginning of a row and behind its warm-up.
std::vector<Cell> Padded(const std::vector<Cell>& row, size_t before, size_t warm, size_t behind) {
  std::vector<Cell> result(before);
  for (size_t i = 0; i < row.size(); ++i) {
    result.push_back(row[i]);
    if (i + 1 == warm) result.resize(result.size() + behind);
  }
  return result;
}

Table InterleavedSpacing(const Table& table, const Extent& extent) {
  const Loop loop = LoopOf(table, extent);
  Table spaced;
  for (size_t rank = 0; rank < loop.ranks; ++rank) {
    const std::vector<Cell>& row = table.ranks[rank];
    const size_t hops = 2 * (loop.ranks - 1 - rank);
    const size_t warm = std::min(loop.forwards, (loop.chunks - 1) * loop.round + hops);
    // The first backward can stand in this column at the earliest.
    const size_t first = loop.chunks * loop.ranks + hops;
    std::vector<Cell>& out =
        spaced.ranks.emplace_back(Padded(row, rank, warm, first > warm + rank ? first - warm - rank : 0));
    // What is left of the row behind the last forward.
    size_t tail = out.size();
    while (tail > 0 && !IsForward(out[tail - 1])) --tail;
    std::vector<Cell> drained(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(tail));
    bool paired = loop.forwards > warm;  // the last forward has its backward behind it
    for (size_t i = tail; i < out.size(); ++i) {
      if (!paired && out[i].count > 0) drained.emplace_back();
      drained.push_back(out[i]);
      paired = false;
    }
    out = std::move(drained);
  }
  return spaced;
}

Table InterleavedZeroBubbleSpacing(const Table& table, const Extent& extent) {
  const Loop loop = LoopOf(table, extent);
  Table padded, spaced;
  for (size_t rank = 0; rank < loop.ranks; ++rank) {
    const size_t hops = loop.ranks - 1 - rank;
    const size_t warm = std::min(loop.forwards, (loop.chunks - 1) * loop.round + hops);
    padded.ranks.push_back(Padded(table.ranks[rank], rank, warm, hops));
  }
  spaced.ranks.resize(loop.ranks);
  std::set<std::pair<int32_t, int32_t>> done;  // forwards of time steps that are over: stage, microbatch
  std::vector<size_t> next(loop.ranks, 0);
  for (bool left = true; left;) {
    left = false;
    std::vector<std::pair<int32_t, int32_t>> ended;
    for (size_t rank = 0; rank < loop.ranks; ++rank) {
      if (next[rank] == padded.ranks[rank].size()) continue;
      left = true;
      const Cell& cell = padded.ranks[rank][next[rank]];
      const Step& step = cell.steps[0];
      if (IsForward(cell)) {
        if (step.stage > 0 && done.count({step.stage - 1, step.microbatch}) == 0) {
          spaced.ranks[rank].emplace_back();
          continue;
        }
        ended.emplace_back(step.stage, step.microbatch);
      }
      spaced.ranks[rank].push_back(cell);
      ++next[rank];
    }
    done.insert(ended.begin(), ended.end());
  }
  return spaced;
}

}  // namespace

Table WithSpacing(const Table& table, const Extent& extent, Spacing spacing) {
  switch (spacing) {
    case Spacing::kNone:
      return table;
    case Spacing::kTicks:
      return WithIdleCells(table, extent);
    case Spacing::kInterleaved:
      return InterleavedSpacing(table, extent);
    case Spacing::kInterleavedZeroBubble:
      return InterleavedZeroBubbleSpacing(table, extent);
  }
  return table;
}

}  // namespace piper::ir::schedule_csv
