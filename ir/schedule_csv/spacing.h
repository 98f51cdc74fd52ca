// Where the empty cells of a compute-only table stand. They say nothing: a rank does its steps in their
// order, and PyTorch drops empty cells when it lowers a schedule. But its classes write some, each by a rule
// of its own, so that a column is roughly a time step; these rules are kept here, so that what was imported
// can be written again as it was.
#pragma once

#include "ir/schedule_csv/table.h"

namespace piper::ir::schedule_csv {

enum class Spacing : uint8_t {
  kNone,   // no empty cells: PyTorch's GPipe, 1F1B and DualPipeV
  kTicks,  // those of unit time (unit_time.h): LoopedBFS and ZBVZeroBubble
  // Interleaved1F1B, on rank r of p with v stages: r at the beginning; p - r behind the forwards of the
  // warm-up, and one before each backward behind the last forward.
  kInterleaved,
  // InterleavedZeroBubble: r at the beginning, p - 1 - r behind the forwards of the warm-up, and then one in
  // each time step in which a forward waits for that of the stage before. Backwards never wait.
  kInterleavedZeroBubble,
};

// `table`: compute steps, no idle cells, not stuck. The last two spacings want stages in loops, stage s on
// rank s mod p.
Table WithSpacing(const Table& table, const Extent& extent, Spacing spacing);

}  // namespace piper::ir::schedule_csv
