// run strict | run ready hint [B, F, W]          numerics reproducible | fast
//
// before:  every stream's order is followed; gradients fold over replicas from the left
// after:   `numerics fast`: the [dp.reduce] nodes and the recorded expression fold in pairs
//
// `run strict` and `numerics reproducible` state the defaults. `run ready` is refused until there is an
// arbiter. Losses, tied sums and the norm keep their folds: they are short or need to be exact.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

void ApplyRun(BuildContext& context);
void ApplyNumerics(BuildContext& context);

}  // namespace piper::ir
