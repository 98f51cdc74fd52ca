// stream [sel] on s
//
// before:  send layer0 -> layer1 on stream send>pp[1], recv .. on recv<pp[1], dp.reduce on reduce
// after:   `stream [send] on comm`: all sends of a rank share stream comm, in the order of their producers
//
// Messages and collectives only; `on compute` merges them into the compute stream: a send right after its
// producer, a receive right before its first reader. A merge can deadlock under zero-buffer sends: the proof
// finds it.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

void ApplyStream(BuildContext& context);

}  // namespace piper::ir
