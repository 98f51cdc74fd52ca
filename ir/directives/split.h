// split batch into m as mb            (also: split batch into 2 as dir, m / 2 as mb)
//
// before:  F layer0                   one node for the replica's samples
// after:   F layer0 mb 0..m           m nodes, each with its own slice: microbatch i of replica d holds
// samples
//                                     [(d * m + i) * b, + b), b = global batch / (dp * m)
//
// The microbatch index is linear in the order written (the first split dimension is major). Without `split`
// there is one microbatch, mb = 0. Splitting other dimensions, or inside a region, is refused by name.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// Leaves split, dag.split_dims, dag.microbatches, dag.samples_per_microbatch and the graph at the slice's
// shapes.
void ApplySplit(BuildContext& context);

}  // namespace piper::ir
