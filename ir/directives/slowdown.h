// slowdown compute with a2a = 1.2
//
// before:  compute and a2a overlap freely
// after:   compute takes 1.2 times as long while a2a is busy
//
// Refused until the simulator models contention between streams.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

void ApplySlowdown(BuildContext& context);

}  // namespace piper::ir
