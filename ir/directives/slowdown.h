// slowdown compute with a2a = 1.2
//
// before:  compute and a2a overlap freely
// after:   on the clock, while tasks of both run at once on a device each takes 1.2 times as long
//
// A stream that stands for one a pair of hosts (send, recv) may be slowed down beside itself. The factor lies
// between 1 and 2: beyond, running one after the other would be faster.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// Once every node has its stream.
void ApplySlowdown(BuildContext& context);

}  // namespace piper::ir
