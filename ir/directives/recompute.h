// recompute [sel]                      recompute [sel] keep [sel]
//
// before:  F layer0 -(saved values)-> BI layer0
// after:   F layer0 -(nothing)-> .. R layer0 -(saved values)-> BI layer0, BW layer0
//
// By units (units.h): what a unit's F makes is kept only for readers outside of
// the unit: its own later passes read what R makes again. R replays the calls of F that they need, on the
// unit's inputs, which are kept, and with the same random keys, so gradients keep their bits. A region that
// is in `keep`, or of which nothing is needed again, has no R. Values that come from another host are
// received once and kept.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// Leaves context.recompute and the bodies Region::recompute.
void ApplyRecompute(BuildContext& context);

// Later passes of `reader` read what R of `producer` makes, not what its F made.
bool ReadsReplay(const BuildContext& context, RegionId reader, RegionId producer);
// A backward body reads what its region's F left: a saved value, or an output of its own.
bool ReadsOwnForward(const Body& backward);

}  // namespace piper::ir
