// One sequence a host out of the orders of its compute streams, where it has several.
//
// before:  pp[0] compute: F mb 0, F mb 1, BI mb 0, BI mb 1   side (no order): BW mb 0, BW mb 1
// after:   side: BW mb 0, BW mb 1
//          timeline of pp[0]: F mb 0, F mb 1, BI mb 0, BI mb 1, BW mb 0, BW mb 1
//
// What follows from the compute order of a host (the order of its messages, reductions and updates, where
// replays and the copies of `offload` stand, what `limit` bounds) follows from this sequence. It is the order
// in which the nodes would start if every one took what it costs and messages took nothing, so it is legal,
// and so is what it gives a compute stream that no order lists: of the nodes there that could start, the one
// of the least microbatch goes first, F before B, then by model order. Listed orders that contradict each
// other give some sequence; proof 1 reports the cycle.
#pragma once

#include "ir/directives/order.h"

namespace piper::ir {

// Nothing where no device computes on more than one stream. Else leaves `timelines`, and an order in
// `host_orders` for every stream that computes F, BI or BW.
void MergeComputeStreams(BuildContext& context, AtomicMarker& marker);

}  // namespace piper::ir
