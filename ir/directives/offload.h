// offload [sel] to host { prefetch 1 }
//
// before:  F layer0 -(saved values)-> BI layer0, BW layer0
// after:   F layer0 -> [offload.out] layer0 -> [offload.in] layer0 -(saved values)-> BI layer0, BW layer0
//
// What a region's F leaves for later passes on its host (saved values, and outputs that a backward pass or an
// R reads again) is copied to host memory and its bytes are given back; it is copied back before the first
// node that reads it. What is replayed (recompute.h) does not travel; what a replay reads does. A value that
// a message brought leaves with its *receiver*, the first region of that place whose F reads it, by a pair of
// copies of its own. Copies run on
// two streams of their own, `offload` and `prefetch`, in the order of the F and of the first readers.
// `prefetch n`: the copies back of a unit (units.h) and microbatch wait until the first reader of the one
// that is n before it, in the order of the compute stream, may start; with 0, of itself.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// Leaves context.offload, `leaves` and `receivers`. After ApplyRecompute.
void ApplyOffload(BuildContext& context);
// Leaves `fetches` and `received_fetches`; the edges to readers in other regions are added by
// AddCommunication.
void AddOffloadNodes(BuildContext& context);
// Adds the temporal edges of `prefetch`, once the compute streams are complete.
void BoundPrefetch(BuildContext& context);

// Later passes of `reader` read what came back of `producer`, not what its F left.
bool ReadsFetched(const BuildContext& context, RegionId reader, RegionId producer);

}  // namespace piper::ir
