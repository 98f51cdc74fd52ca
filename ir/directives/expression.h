// The gradient expression that stands on the accumulate nodes: what a reference must evaluate to be equal bit
// for bit.
//
// before:  B mb 3, B mb 2, B mb 1, B mb 0 in the order of pp[0]
// after:   expression.permuted: region layer0 folds its microbatches as 3, 2, 1, 0; a warning notes the
// change
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// After BuildStreamOrders. Leaves dag.expression.
void RecordExpression(BuildContext& context);

}  // namespace piper::ir
