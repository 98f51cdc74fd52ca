// What a table must hold to be the schedule of a training step: every stage on one rank, every stage and
// microbatch once forward and once backward (whole, or inputs and weights), in an order that each rank can
// follow. Steps of communication must belong to a step and have another end; they say nothing else that the
// others do not.
#pragma once

#include <optional>

#include "ir/schedule_csv/table.h"
#include "ir/support/diagnostics.h"

namespace piper::ir::schedule_csv {

// Reports bad-csv at the steps of `table`, which was parsed from `file`.
std::optional<Extent> Check(const Table& table, FileId file, DiagnosticEngine& diag);

}  // namespace piper::ir::schedule_csv
