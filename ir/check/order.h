// Proof 1: data, temporal and order edges of a training DAG have no cycle, where an atomic node (a fused
// step, a whole B) counts as one: it starts when all of its inputs are there. Linear in nodes and edges.
#pragma once

#include "ir/dag/dag.h"
#include "ir/support/diagnostics.h"

namespace piper::ir {

// False after a kCycle error that shows the smallest cycle, node by node, with the `.piper` line of each
// step.
bool CheckOrder(const Dag& dag, DiagnosticEngine& diag);

}  // namespace piper::ir
