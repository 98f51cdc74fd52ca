// offload [sel] to host { prefetch 1 }
//
// before:  F layer0 -(saved values)-> BI layer0
// after:   F layer0 -> [offload.out] -> [offload.in] -> BI layer0
//
// Refused until saved values can leave the arena.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

void ApplyOffload(BuildContext& context);

}  // namespace piper::ir
