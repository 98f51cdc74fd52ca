// cost sel = 1 us          cost fused(f, b) = 2 us          cost [send] = 1 MiB
//
// before:  F stage0.attn, F stage0.mlp          costs from the resource model
// after:   `cost F[stage] = 10 us`: each instance of `stage` costs 10 us in F: its regions share the figure
// in
//          proportion to their FLOPs (exactly: the parts add up)
//
// The innermost tag named carries the figure; without a tag, or for inserted nodes, every node costs it.
// Bytes replace the payload of messages and collectives; both ends of a message share one figure.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// Sets cost and cost_bytes of templates; leaves fused_costs for the order.
void ApplyCost(BuildContext& context);
// After the orders: every `cost fused` must have met a step.
void CheckFusedCosts(BuildContext& context);

}  // namespace piper::ir
