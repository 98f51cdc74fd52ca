// Proof 3: every (parameter, sample) gradient is counted exactly once, at the right scale, and every copy is
// synchronised before it is updated. The DAG's accumulate, reduce, tie and clip nodes are evaluated on
// symbols: a buffer is a multiset of (region, copy, microbatches, own replica or all replicas) with a count
// and a scale, so that the proof is independent of the number of devices. Only what an update waits for
// counts; what changes a gradient without being waited for is refused. The loss's reduction and the norm's
// are checked likewise.
#pragma once

#include "ir/dag/dag.h"
#include "ir/support/diagnostics.h"

namespace piper::ir {

// False after located kGradientMissing, kGradientDouble or kGradientScale errors. A forward_only Dag has its
// loss checked only.
bool CheckGradients(const Dag& dag, const RegionGraph& regions, DiagnosticEngine& diag);

}  // namespace piper::ir
