// A pipeline schedule as PyTorch's pipelining writes it to CSV: a row a rank, a cell a step. `2F0` is the
// forward of stage 2 on microbatch 0, `1I3` and `1W3` the two halves of a backward (inputs, weights), `0B0` a
// whole one,
// `(0F1;7B0)OVERLAP_F_B` a forward beside a backward, an empty cell a time step in which the rank waits. Rows
// with communication have `0SEND_F1`, `1RECV_F1`, `1SEND_B1`, `0RECV_B1` with a microbatch and `0UNSHARD`,
// `0RESHARD`, `0REDUCE_GRAD` without; newer versions of PyTorch add `0WAIT_SEND_F1`, `0WAIT_SEND_B1` and
// `0WAIT_REDUCE_GRAD`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/support/source.h"

namespace piper::ir::schedule_csv {

enum class Action : uint8_t {
  kForward,
  kBackwardInput,
  kBackwardWeight,
  kFullBackward,
  kSendForward,
  kReceiveForward,
  kSendBackward,
  kReceiveBackward,
  kWaitSendForward,
  kWaitSendBackward,
  kUnshard,
  kReshard,
  kReduceGradient,
  kWaitReduceGradient,
};
constexpr size_t kActions = 14;
std::string_view ActionText(Action action);  // "F", "SEND_F"
bool IsCompute(Action action);
bool IsBackward(Action action);  // I, W or B
bool TakesMicrobatch(Action action);

// Bounds of what is read: far above any schedule, far below what would overflow.
constexpr int32_t kMaxNumber = 999'999;
constexpr size_t kMaxSteps = 1'000'000;

struct Step {
  Action action = Action::kForward;
  int32_t stage = 0;
  int32_t microbatch = -1;  // -1: none
  SourceRange range;        // of the text, or the `.piper` line that listed it
  friend bool operator==(const Step& a, const Step& b) {
    return a.action == b.action && a.stage == b.stage && a.microbatch == b.microbatch;
  }
};
std::string StepText(const Step& step);  // "2F0"

// A time step of a rank: nothing, a step, or a forward beside a backward.
struct Cell {
  Step steps[2];
  uint8_t count = 0;
  const Step* begin() const { return steps; }
  const Step* end() const { return steps + count; }
  static Cell Of(const Step& step) { return {{step, {}}, 1}; }
};
std::string CellText(const Cell& cell);  // "", "2F0", "(0F1;7B0)OVERLAP_F_B"

struct Table {
  std::vector<std::vector<Cell>> ranks;
};
std::string TableText(const Table& table);  // rows end in '\n'

// What a complete table holds, in compute steps.
struct Extent {
  int32_t stages = 0, microbatches = 0;
  std::vector<uint32_t> rank_of;  // per stage
};

}  // namespace piper::ir::schedule_csv
