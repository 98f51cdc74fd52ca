// Functions of one variable on n values, and their derivatives: dx = dy * f'. The name of the first operand
// of a backward kernel says what it needs: x, the input of the forward, or y, its output. Outputs may be the
// same array as an input.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

PIPER_KERNEL(neg_forward, const T* x, T* y, int64_t n);  // its own derivative
PIPER_KERNEL(exp_forward, const T* x, T* y, int64_t n);
PIPER_KERNEL(exp_backward, const T* y, const T* dy, T* dx, int64_t n);
PIPER_KERNEL(log_forward, const T* x, T* y, int64_t n);
PIPER_KERNEL(log_backward, const T* x, const T* dy, T* dx, int64_t n);
PIPER_KERNEL(sqrt_forward, const T* x, T* y, int64_t n);
PIPER_KERNEL(sqrt_backward, const T* y, const T* dy, T* dx, int64_t n);
PIPER_KERNEL(rsqrt_forward, const T* x, T* y, int64_t n);  // 1 / sqrt(x)
PIPER_KERNEL(rsqrt_backward, const T* y, const T* dy, T* dx, int64_t n);
PIPER_KERNEL(square_forward, const T* x, T* y, int64_t n);
PIPER_KERNEL(square_backward, const T* x, const T* dy, T* dx, int64_t n);
PIPER_KERNEL(tanh_forward, const T* x, T* y, int64_t n);
PIPER_KERNEL(tanh_backward, const T* y, const T* dy, T* dx, int64_t n);
PIPER_KERNEL(sigmoid_forward, const T* x, T* y, int64_t n);
PIPER_KERNEL(sigmoid_backward, const T* y, const T* dy, T* dx, int64_t n);
PIPER_KERNEL(relu_forward, const T* x, T* y, int64_t n);
PIPER_KERNEL(relu_backward, const T* x, const T* dy, T* dx, int64_t n);  // 0 at x = 0

}  // namespace piper::kernels
