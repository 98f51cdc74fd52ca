// Layer normalisation over the last dimension of [rows, cols]: y = (x - mean) rstd gamma + beta with
// rstd = 1 / sqrt(variance + eps) and the biased variance. gamma and beta are [cols], mean and rstd [rows].
// The two backward kernels are separate so that input and weight gradients can be scheduled apart.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

PIPER_KERNEL(layer_norm_forward, const T* x, const T* gamma, const T* beta, T* y, T* mean, T* rstd,
             int64_t rows, int64_t cols, double eps);
PIPER_KERNEL(layer_norm_backward_input, const T* x, const T* gamma, const T* mean, const T* rstd, const T* dy,
             T* dx, int64_t rows, int64_t cols);
PIPER_KERNEL(layer_norm_backward_params, const T* x, const T* mean, const T* rstd, const T* dy, T* dgamma,
             T* dbeta, int64_t rows, int64_t cols);

}  // namespace piper::kernels
