// edge a -> b
//
// before:  dp.reduce layer3 on reduce, B layer1 mb 7 on compute: in any order
// after:   a temporal edge: b starts after a has ended
//
// If neither side names a split index, instances of the same microbatch are joined; otherwise every selected
// a precedes every selected b. Both ends lie on one host: no message would carry the edge elsewhere.
// Distances are refused.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

void ApplyEdge(BuildContext& context);

}  // namespace piper::ir
