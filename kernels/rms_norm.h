// Root-mean-square normalisation over the last dimension of [rows, cols]: y = x rstd weight with
// rstd = 1 / sqrt(mean(x^2) + eps). weight is [cols], rstd [rows].
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

PIPER_KERNEL(rms_norm_forward, const T* x, const T* weight, T* y, T* rstd, int64_t rows, int64_t cols,
             double eps);
PIPER_KERNEL(rms_norm_backward_input, const T* x, const T* weight, const T* rstd, const T* dy, T* dx,
             int64_t rows, int64_t cols);
PIPER_KERNEL(rms_norm_backward_weight, const T* x, const T* rstd, const T* dy, T* dweight, int64_t rows,
             int64_t cols);

}  // namespace piper::kernels
