// SiLU, y = x sigmoid(x), and SwiGLU, y = silu(gate) * up (Shazeer, arXiv:2002.05202), on n values. Outputs
// may be the same array as an input.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

PIPER_KERNEL(silu_forward, const T* x, T* y, int64_t n);
PIPER_KERNEL(silu_backward, const T* x, const T* dy, T* dx, int64_t n);
PIPER_KERNEL(swiglu_forward, const T* gate, const T* up, T* y, int64_t n);
PIPER_KERNEL(swiglu_backward, const T* gate, const T* up, const T* dy, T* dgate, T* dup, int64_t n);

}  // namespace piper::kernels
