// [override] place [sel] on group
//
// before:  F stage0.layer0 mb 0..8                       no device
// after:   F stage0.layer0 mb 0..8 on pp[0]              every device of the slice, one a replica
//
//          place [stage = 0, dir = 0] on pp[0]; place [stage = 0, dir = 1] on pp[3]
// after:   F stage0.layer0 mb 0..4 on pp[0], F stage0.layer0 copy 1 mb 4..8 on pp[3]: two copies of the
// region, each
//          with the microbatches of its split index, their gradients summed over the product group
//
// Every (region, microbatch) needs exactly one group; a second one is an error unless it overrides. Without
// any `place` stage s goes on position s of the mesh's one axis that the batch is not sharded over; with no
// such axis, everything goes on the whole mesh. A placed group leaves exactly the batch's axes free, and
// groups are equal or disjoint: they are the hosts.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// After the regions are built. Leaves copies, hosts, dag.groups and dag.device_replica.
void ApplyPlace(BuildContext& context);

}  // namespace piper::ir
