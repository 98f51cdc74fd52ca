// edge a -> b distance 1
//
// before:  a step ends, on a rank, when all that it lists has ended: a of step n precedes b of step n + 1
// already after:   `after "a" -> "b" distance 1`; and where a is [update.validate]: it, and [clip.norm] that
// it waits for,
//          are `carried`: they run within the step after theirs, the check right before b or before the first
//          BW there, whichever comes first (from then on gradients are overwritten)
//
// So ranks go on to the next step without waiting for each other: what they begin there rests on updates that
// are not validated yet, and is begun again where those were wrong.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// Once templates are indexed and before orders are laid: marks templates as carried, leaves
// context.checked_before and the temporal edges.
void ApplyNextStepEdges(BuildContext& context);

}  // namespace piper::ir
