// recompute [sel]
//
// before:  F layer0 -(saved values)-> BI layer0
// after:   F layer0 -(inputs)-> R layer0 -(saved values)-> BI layer0
//
// Refused until replayed regions are nodes of their own.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

void ApplyRecompute(BuildContext& context);

}  // namespace piper::ir
