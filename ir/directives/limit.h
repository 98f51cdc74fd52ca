// limit 2 live [sel]            limit 6 live F per mb
//
// before:  F mb 0, F mb 1, F mb 2, B mb 0 .. on one host
// after:   the end of the (i)th release -> the start of the (i + n)th, as temporal edges
//
// What F started lives until its region's last backward node has ended (anything else, until its last reader
// has). The edges delay; where the stream order starts a node before the bound can free one, they would
// deadlock: refused, with the smallest bound that the order keeps.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// After BuildStreamOrders.
void ApplyLimit(BuildContext& context);

}  // namespace piper::ir
