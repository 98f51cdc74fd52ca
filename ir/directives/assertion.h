// assert peak_memory < 70 GiB          (step_time, peak_memory, bubble, exposed([..]), bytes(axis), mfu)
//
// before and after: the graph is the same; the plan is refused if its simulation does not satisfy the bound.
//
// Here only the form is checked (metric, unit, selector, axis); the plan's own figures decide once it is
// simulated.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

void CheckAssertions(BuildContext& context);

}  // namespace piper::ir
