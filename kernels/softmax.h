// Softmax over the last dimension of [rows, cols].
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

PIPER_KERNEL(softmax_forward, const T* x, T* y, int64_t rows, int64_t cols);
PIPER_KERNEL(softmax_backward, const T* y, const T* dy, T* dx, int64_t rows, int64_t cols);

}  // namespace piper::kernels
