// Copies that change the arrangement of elements: broadcast, permutation, and the strided rows of split,
// concat and slice. y is contiguous with dimensions size0..size5 (pad with leading ones); x is read at
// sum(index_i * stride_i), strides in elements.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

// Broadcast: a repeated dimension has stride 0.
PIPER_KERNEL(broadcast_copy, const T* x, T* y, int64_t size0, int64_t size1, int64_t size2, int64_t size3,
             int64_t size4, int64_t size5, int64_t stride0, int64_t stride1, int64_t stride2, int64_t stride3,
             int64_t stride4, int64_t stride5);

// Permutation: the strides are those of x's dimensions in the order in which y has them.
PIPER_KERNEL(permute_copy, const T* x, T* y, int64_t size0, int64_t size1, int64_t size2, int64_t size3,
             int64_t size4, int64_t size5, int64_t stride0, int64_t stride1, int64_t stride2, int64_t stride3,
             int64_t stride4, int64_t stride5);

// y[y_offset + r * y_stride + c] = x[x_offset + r * x_stride + c] for r < rows, c < cols; offsets and strides
// in elements. The rest of y keeps its value.
PIPER_KERNEL(copy_2d, const T* x, PIPER_INOUT T* y, int64_t rows, int64_t cols, int64_t x_offset,
             int64_t x_stride, int64_t y_offset, int64_t y_stride);

}  // namespace piper::kernels
