// An order may list steps of other hosts, where they stand is then a claim about them:
//
//   order on pp[0] { F[stage = 0, mb = 0]; F[stage = 1, mb = 0]; B[stage = 1, mb = 0]; B[stage = 0, mb = 0] }
//
// before:  claims: F stage1 mb 0 comes after F stage0 mb 0, B stage0 mb 0 after B stage1 mb 0, ..
// after:   the same DAG; every claim was found to follow from data edges, orders and `edge` lines
//
// A claim whose opposite follows is refused with the path that says so; one of which neither follows is
// refused with the `edge` line that would make it true.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// After all orders and temporal edges. Not for forward-only builds, where steps between are missing.
void CheckForeignSteps(BuildContext& context);

}  // namespace piper::ir
