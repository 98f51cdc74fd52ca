// Arithmetic between a matrix [rows, cols] and a vector [cols] that is repeated for each row.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

PIPER_KERNEL(add_bias, const T* x, const T* bias, T* y, int64_t rows,
             int64_t cols);  // y = x + bias; y may be x
PIPER_KERNEL(mul_rows, const T* x, const T* weight, T* y, int64_t rows,
             int64_t cols);  // y = x * weight; y may be x

// sums [cols]: column sums of x, in ascending row order within blocks of kReduceBlock rows, block sums in
// order.
PIPER_KERNEL(sum_rows, const T* x, T* sums, int64_t rows, int64_t cols);

}  // namespace piper::kernels
