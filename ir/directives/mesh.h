// mesh [name] (pp = 4, dp = all, tp = 8 within node) [on devices[..]] [folds other]
//
// before:  devices 0..7 of the topology
// after:   mesh (pp = 4, dp = 2): pp[2] is {4, 5}; the last axis is innermost, so its devices are neighbours
//
// No graph node changes; groups and `shard .. over` speak of the axes. Without any `mesh` there is one
// axis-less mesh of device 0 (a warning names the idle rest).
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// Leaves context.meshes: the default (first, or nameless) mesh first.
void ApplyMesh(BuildContext& context);

}  // namespace piper::ir
