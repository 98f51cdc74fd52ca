// A compute-only table -> the same with UNSHARD and RESHARD, for stages whose parameters are sharded (FSDP,
// ZeRO-3): as PyTorch lists them when it lowers a schedule. A rank holds the parameters of the stages that it
// needs next, so that they are gathered before they are needed, and drops those of the others.
#pragma once

#include "ir/schedule_csv/table.h"

namespace piper::ir::schedule_csv {

// Before every cell stand the RESHARDs of stages that are no longer among the next `active` (>= 1) different
// ones of the row, that cell's first, and then the UNSHARDs of those that are new there. A fused step is
// never cut in two: the next ones may be one more at its end. A row ends with the RESHARDs of what is left.
// Stages stand in the order in which they are needed (UNSHARD) and in which they were gathered (RESHARD).
// `table`: compute steps, no idle cells.
Table WithUnsharding(const Table& table, size_t active);

// The most stages in one step: what `active` must be at least.
size_t LargestStep(const Table& table);

}  // namespace piper::ir::schedule_csv
