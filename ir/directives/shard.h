// shard d1 | d2 .. over axis [where sel] [as name] [via flat | hierarchical]
//
// before:  F layer0 on pp[0] = {0, 1}, samples [0, 32) of the batch
// after:   replica 0 computes samples [0, 16), replica 1 [16, 32); parameters are replicated, so that each
// gradient
//          gets its reduce over {0, 1} (gradient_sync.h)
//
// Supported: the samples' dimension (data parallelism) over a product of axes. Other dimensions, `where` and
// `via` are refused by name.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// Leaves batch_axes (in mesh order), sharded_by and dag.replicas.
void ApplyShard(BuildContext& context);

}  // namespace piper::ir
