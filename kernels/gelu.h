// The Gaussian error linear unit on n values. Outputs may be the same array as an input.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

// The tanh form: y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), Hendrycks and Gimpel, arXiv:1606.08415.
PIPER_KERNEL(gelu_forward, const T* x, T* y, int64_t n);
PIPER_KERNEL(gelu_backward, const T* x, const T* dy, T* dx, int64_t n);

// The exact form: y = x/2 (1 + erf(x / sqrt(2))).
PIPER_KERNEL(gelu_erf_forward, const T* x, T* y, int64_t n);
PIPER_KERNEL(gelu_erf_backward, const T* x, const T* dy, T* dx, int64_t n);

}  // namespace piper::kernels
