// freeze [sel]
//
// before:  F embed -> .. -> BI layer0, BW embed, accumulate wte, update wte
// after:   F embed only; no BI below the lowest trainable parameter; no BW, accumulate, reduce, update for
// what is
//          frozen (an order may still list them: they are legally empty)
//
// A parameter is frozen with all its uses: freezing one of two tied uses is refused.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// Sets Parameter::frozen in context.graph.
void ApplyFreeze(BuildContext& context);

// Whether anything would be trained if no directive froze it: not in a file that only evaluates, whose
// strategy may say what is about training all the same.
bool Trains(const BuildContext& context);

}  // namespace piper::ir
