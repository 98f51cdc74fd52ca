// The program of kernel calls that a compute node runs: its region's, for its pass.
#pragma once

#include "ir/dag/dag.h"
#include "ir/model/body.h"
#include "ir/support/result.h"

namespace piper::ir {

// `node` computes: its pass is F, BI, BW or R. The body lives as long as `regions`.
inline const Body& BodyOf(const RegionGraph& regions, const NodeTemplate& node) {
  const Region& region = regions.regions[node.region];
  switch (node.pass) {
    case Pass::kF:
      return region.forward;
    case Pass::kR:
      return region.recompute;
    case Pass::kBI:
      return region.backward_input;
    case Pass::kBW:
      return region.backward_weight;
    default:
      PIPER_CHECK(false, node.name);
      return region.forward;
  }
}

}  // namespace piper::ir
