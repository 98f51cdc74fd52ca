// optimizer post_validation | synchronised
//
// before:  .. -> [clip.local] -> [clip.norm] over all ranks -> [clip.apply] -> updates
// after:   .. -> [clip.local] -> [update.save] -> updates -> [update.validate]
//                [clip.local] -> [clip.norm] over all ranks -> [update.validate]
//
// No update waits for other ranks' norms: each host updates from what it knows by itself (assuming that
// nothing is clipped, or not at all where its own part of the norm already exceeds the bound), and
// [update.validate] restores the saved copy and repeats the updates where the norm of all ranks says
// otherwise. After it the parameters have the bits of the synchronised step. Source: Qi et al., Zero Bubble
// Pipeline Parallelism (arXiv 2401.10241), section 4. `synchronised` states the default.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// What the one `optimizer` directive says; a second one is an error.
bool PostValidates(BuildContext& context);

}  // namespace piper::ir
