// Which schedule of the library a table is, if any: an import that reads `schedules.zbv(rank, ranks,
// microbatches)` says more than a hundred steps.
#pragma once

#include <string>

#include "ir/schedule_csv/spacing.h"
#include "ir/schedule_csv/table.h"

namespace piper::tools {

// The call that lists the same steps on every rank, in terms of `rank`, `ranks` and `microbatches`; empty if
// there is none. Candidates are the schedules of std.schedules whose stages lie on ranks as those of the
// table do.
std::string KnownSchedule(const ir::schedule_csv::Table& table, const ir::schedule_csv::Extent& extent);

// How PyTorch's class of a schedule spaces its cells: of the known ones by name, of all others by time steps.
ir::schedule_csv::Spacing SpacingOf(const ir::schedule_csv::Table& table,
                                    const ir::schedule_csv::Extent& extent);

}  // namespace piper::tools
