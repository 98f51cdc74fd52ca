// The orders of a DAG's compute streams -> Table: what `piper export csv` writes.
#pragma once

#include <optional>

#include "ir/dag/dag.h"
#include "ir/program/program.h"
#include "ir/schedule_csv/table.h"
#include "ir/support/diagnostics.h"

namespace piper::ir::schedule_csv {

// Compute only, without idle cells; a row a host (a rank of the pipeline: its data-parallel replicas do the
// same), by the host's first device. The BI and BW of a stage that leave together are B, as is the backward
// of a stage that has only one of the two. Recompute is part of a backward there and is left out. `reduced`:
// per stage, whether its gradients are summed over replicas. Reports not-expressible where the format has no
// words: a stage with several copies, a stage whose regions are ordered apart, compute on several streams.
struct Export {
  Table table;
  std::vector<GroupId> hosts;   // a row
  std::vector<NameId> streams;  // likewise: where it computes
  Extent extent;
  std::vector<bool> reduced;
};
std::optional<Export> FromDag(const Dag& dag, const Program& program, DiagnosticEngine& diag);

}  // namespace piper::ir::schedule_csv
