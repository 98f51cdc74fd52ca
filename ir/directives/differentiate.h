// From placed regions to compute nodes.
//
// before:  region layer0 with bodies F, BI, BW, placed on pp[0] for microbatches 0..8
// after:   F layer0 mb 0..8 -> BI layer0 mb 0..8 -> BW layer0 mb 0..8 on pp[0], stream compute; and F ->
// [loss.fold]
//          for each loss
//
// A pass whose body is empty (frozen, or nothing trainable below) has no node. What is recomputed has an R
// between its F and its B (recompute.h). With forward_only there is F alone.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// Leaves context.compute and the edges within a region.
void AddComputeNodes(BuildContext& context);
// [loss.fold] a (loss, copy), then [loss.reduce] over every host if there is more than one device or loss.
void AddLossNodes(BuildContext& context);

// " copy 1" for names, or nothing where a region has one copy.
std::string CopySuffix(const BuildContext& context, RegionId region, uint32_t copy);
// Every device that computes, ascending, as a group.
GroupId AllHosts(BuildContext& context);
// The tags of several regions, each once, for nodes that serve them all.
TagPath UnionTags(const BuildContext& context, const std::vector<RegionId>& regions);

}  // namespace piper::ir
