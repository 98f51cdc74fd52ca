// Cross-entropy of logits [rows, vocab] against targets [rows]; a negative target does not count (a target at
// or above vocab gives NaN). `scale` [1] is known at run time: usually one over the number of targets of the
// whole step.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

// loss [1] = sum over counted rows of (lse[r] - logits[r][target]) * scale[0], summed in f64 in row order and
// rounded once; lse [rows] = log of the sum of exp(logits).
PIPER_KERNEL(cross_entropy_forward, const T* logits, const int32_t* targets, const T* scale, T* loss, T* lse,
             int64_t rows, int64_t vocab);

// dlogits [rows, vocab] = dloss[0] * scale[0] * (softmax(logits) - one_hot(target)), zero in rows that do not
// count.
PIPER_KERNEL(cross_entropy_backward, const T* logits, const int32_t* targets, const T* lse, const T* scale,
             const T* dloss, T* dlogits, int64_t rows, int64_t vocab);

}  // namespace piper::kernels
