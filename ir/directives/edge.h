// edge a -> b
//
// before:  F stage0.. on pp[0], F stage1.. on pp[1]                    no order between them
// after:   on one host: a temporal edge a node pair, a -> b
//          between hosts: edge.send on a's host, edge.recv on b's, a message without payload:
//          a -> edge.send -> edge.recv -> b, replica by replica
//
// Without split indices on either side, nodes of the same microbatch are joined (a message a microbatch);
// otherwise every selected a precedes every selected b (one message a pair of hosts). A node of several
// hosts, such as a collective, stands on whichever of them the other end shares. Cycles are proof 1's to
// find.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// After all other nodes are made, before anything refers to a node by its id: renumbers.
void ApplyEdge(BuildContext& context);

}  // namespace piper::ir
