// Gives every (host, stream) its total order, from what the orders list and from where nodes attach.
//
// before:  order pp[0] compute: F mb 0, [BI mb 0, BW mb 0]; sends, receives, reduces, updates without a place
// after:   compute: F mb 0, [BI mb 0, BW mb 0, accumulate mb 0], loss.fold, clip.local, clip.apply, update
//          send>pp[1]: in the order of their producers; recv<pp[0] on pp[1]: in the sender's order
//          reduce: this host's own by readiness, then those that span hosts in one order that all hosts share
//
// Where a device computes on several streams, its compute order is here their timeline (timeline.h), and each
// stream gets its nodes of it.
//
// Compute: an R stands right before the first node that reads what it makes, or before the fused node that
// holds it; accumulates follow their BW, the loss fold the last F that it reads, tied sums, norms, clipping
// and updates the rest (updates by readiness). On a stream of their own choice (`stream`) messages and
// collectives are placed by the compute node that they attach to: sends and reduces after it, receives before
// it. Nodes that an order lists keep the listed order; the rest of that stream stays behind the listed
// nodes that precede it by default, what spans hosts behind all of them, and before one that waits for it.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

void BuildStreamOrders(BuildContext& context);

}  // namespace piper::ir
