// run strict | run ready hint [B, F, W]          numerics reproducible | fast
//
// before:  every stream's order is followed; collectives fold in index order
// after:   `numerics fast` marks the Dag: collectives may fold in the library's order
//
// `run strict` and `numerics reproducible` state the defaults. `run ready` is refused until there is an
// arbiter.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

void ApplyRun(BuildContext& context);
void ApplyNumerics(BuildContext& context);

}  // namespace piper::ir
