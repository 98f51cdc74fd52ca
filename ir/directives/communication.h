// Communication, materialised once: every dependency of one region's pass on another's becomes an edge where
// both run on one host, and a message where they do not.
//
// before:  layer0 on pp[0], layer1 on pp[1], layer1 reads `x` of layer0
// after:   F layer0 -> send x -> recv x -> F layer1             forward: one pair a (value, destination host)
//          BI layer1 -> send dx -> recv dx -> BI layer0          backward: one pair a partial cotangent
//
// Ranks pair by replica index (the identity map over the batch's axes). Sends and receives have default
// streams of their own, one an ordered pair of hosts.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

void AddCommunication(BuildContext& context);

}  // namespace piper::ir
