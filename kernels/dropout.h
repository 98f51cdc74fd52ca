// Inverted dropout: an element is kept with probability 1 - rate and then divided by 1 - rate. Whether
// element e of sample s is kept depends on the key and on (global sample, e) alone, so the mask is the same
// however the batch is divided. x is [n / elements_per_sample, elements_per_sample]. The output may be the
// same array as the input.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

PIPER_KERNEL(dropout_forward, const T* x, T* y, int64_t n, int64_t elements_per_sample, double rate,
             const RandomKey& key);
// The same mask and factor, recomputed from the key and applied to dy.
PIPER_KERNEL(dropout_backward, const T* dy, T* dx, int64_t n, int64_t elements_per_sample, double rate,
             const RandomKey& key);

}  // namespace piper::kernels
