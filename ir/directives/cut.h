// cut a, b, c into N as stage         (balanced by cost)
// cut a, b, c into [a + 2*b, 3*b, c] as stage
//
// before:  regions embed, layer0, layer1, head
// after:   regions stage0.embed, stage0.layer0, stage1.layer1, stage1.head: `stage` is every region's
// outermost tag
//
// The *whole chain* in model order is partitioned: units are the instances of the listed tags; operations
// between units belong to the unit before, those before the first unit to stage 0, those after the last to
// the final stage. Balanced: the contiguous partition with the smallest maximum of FLOPs(F + BI + BW) /
// compute rate of the stage's device, among those the one with the smallest sum of squares, among those the
// one whose earlier stages are smaller.
#pragma once

#include <functional>

#include "ir/directives/context.h"

namespace piper::ir {

using RegionBuilder = std::function<RegionGraph(const Graph&)>;

// Tags context.graph's operations; leaves stage_tag. `build_regions` is called for a balanced cut only.
void ApplyCut(BuildContext& context, const RegionBuilder& build_regions);

// The sizes of a contiguous partition of units into parts (exposed for tests). `cost[part][unit]`, all >= 0.
std::vector<int64_t> BalancedPartition(const std::vector<std::vector<int64_t>>& cost);

}  // namespace piper::ir
