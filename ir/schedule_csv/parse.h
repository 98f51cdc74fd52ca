// CSV text -> Table, strictly: a cell is exactly one step of the grammar in table.h, or empty. PyTorch's own
// reader takes the beginning of a cell and ignores what follows (`2F0garbage` is 2F0 to it); here that is an
// error. Rows may have different lengths, as those that PyTorch writes do.
#pragma once

#include <optional>

#include "ir/schedule_csv/table.h"
#include "ir/support/diagnostics.h"

namespace piper::ir::schedule_csv {

// Rows are ranks. Every cell that is wrong is reported (bad-csv); then there is no table.
std::optional<Table> Parse(FileId file, DiagnosticEngine& diag);

}  // namespace piper::ir::schedule_csv
