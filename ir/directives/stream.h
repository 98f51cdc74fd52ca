// stream [sel] on s
//
// before:  send layer0 -> layer1 on stream send>pp[1], recv .. on recv<pp[1], dp.reduce on reduce
// after:   `stream [send] on comm`: all sends of a rank share stream comm, in the order of their producers
//
// F, B, BI, BW, R and U, messages, collectives and the copies of `offload`. What runs right after a node goes
// with it: accumulates with their BW, the loss fold with its F; a replay that no line names goes with the
// backward pass that it serves. Norms, clipping and validation stay on `compute`. A stream on which something
// computes is a compute stream, with an order of its own (order.h, timeline.h). Messages and collectives
// there stand right behind what makes them, or before what reads them. A merge can deadlock under zero-buffer
// sends: the proof finds it.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// Leaves `compute_streams`, and where there are several the edges that keep an update behind the last reader
// of its parameter.
void ApplyStream(BuildContext& context);

}  // namespace piper::ir
