// What `recompute` and `offload` share: selectors about whole regions, and *units*. A unit is an instance of
// the innermost tag that the selector names (each layer of [layer], each attention of [layer, attn]); without
// a tag, each region.
#pragma once

#include <string_view>
#include <vector>

#include "ir/directives/context.h"

namespace piper::ir {

// Claims the regions of `select` without those of `keep` (may be null). Reports passes, microbatches and
// inserted nodes in the selector as `kind`, names that nothing has, a selection that is empty, and a region
// claimed before:
// "`verb` is about regions", "layer0 is `done` twice".
void ClaimUnits(BuildContext& context, const Directive& directive, const Selector& select,
                const Selector* keep, DiagKind kind, std::string_view verb, std::string_view done,
                Units* units);

// The copies of both regions are computed by the same hosts, microbatch by microbatch.
bool SamePlace(const BuildContext& context, RegionId a, RegionId b);

}  // namespace piper::ir
