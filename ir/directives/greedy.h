// order on group { greedy(priority = [B, F, W], in_flight = n, memory = q) }
//
// before:  F, BI, BW of the group's stages have costs (`cost` lines, else the resource model) and no order
// after:   order pp[0] compute: F mb 0, F mb 1, BI mb 0, ..      as if it had been written out
//
// Resolved when every cost and every other order is known; all greedy hosts of a step jointly, given orders
// of other hosts as they are. Each host runs the passes of its stages (`ListProblem`, ir/search): forward, BI
// and BW, or whole backwards where no priority names BW. The order found is the shortest of list schedules
// under several rules, of which the first follows the priorities, improved by a local search within a fixed
// budget. Microbatches keep ascending order in every pass of a stage, so that gradients are summed as the
// reference sums them. `in_flight` bounds microbatches from the start of F to the end of BI (or B), counted a
// stage of the host; `memory` the bytes that passes leave for later ones. The proofs apply to the result as
// to any order.
#pragma once

#include "ir/directives/context.h"
#include "ir/directives/order.h"

namespace piper::ir {

// Fills the compute orders of `greedy_orders`. Errors: a priority that names nothing, caps under which
// nothing could go on (with the least that suffices). Where given orders are what is impossible, the default
// order stands in, and the proofs say why.
void ResolveGreedy(BuildContext& context, AtomicMarker& marker);

}  // namespace piper::ir
