// Gradient synchronisation, derived: it cannot be forgotten.
//
// before:  BW embed on pp[0], BW head on pp[1]; both use wte; two replicas
// after:   BW embed -> accumulate -> [dp.reduce] on pp[0], BW head -> accumulate -> [dp.reduce] on pp[1];
//          both -> [tie.reduce]; then on each of pp[0], pp[1]: -> [clip.local] -> [clip.norm] -> [clip.apply]
//          -> update
//
// A reduce stands where a parameter's uses are replicated (the batch's axes, stage copies), a tied sum where
// it has several using regions or hosts that do not use it differentiably, clipping where the train block
// asks for it. dag.h says exactly what each node does; `zero` says how reduces are bucketed.
#pragma once

#include "ir/directives/context.h"
#include "ir/directives/zero.h"

namespace piper::ir {

// `post_validates`: updates do not wait for the norm of all ranks (post_validation.h).
void AddGradientSync(BuildContext& context, const std::vector<ReducePolicy>& policies, bool post_validates);

}  // namespace piper::ir
