// optimizer post_validation | synchronised
//
// before:  .. -> [clip.local] -> [clip.norm] over all ranks -> [clip.apply] -> updates
// after:   .. -> [clip.local] -> [clip.partial] -> [update.save] -> updates -> [update.validate]
//                [clip.partial] -> [clip.send] -> [clip.recv] -> [clip.partial] of the next host
//                [clip.local] -> [clip.norm] over all ranks -> [update.validate]
//
// No update waits for the norm of all ranks: each host updates from what is known as far as itself, the
// squares of the hosts before it and its own (assuming that nothing is clipped, or not at all where that sum
// already exceeds the bound or is not finite), and [update.validate] restores the saved copy and repeats the
// updates where the norm of all ranks says otherwise. After it the parameters have the bits of the
// synchronised step, whatever the partial sums were: they only decide who updates early. Source: Qi et al.,
// Zero Bubble Pipeline Parallelism (arXiv 2401.10241), section 4. `synchronised` states the default.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// What the one `optimizer` directive says; a second one is an error.
bool PostValidates(BuildContext& context);

}  // namespace piper::ir
