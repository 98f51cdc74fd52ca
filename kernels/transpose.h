// Transposition of a block, four by four in registers: packing for products and permuted copies go through
// it.
#pragma once

#include "kernels/simd.h"

namespace piper::kernels::PIPER_ISA {

// y[c * y_stride + r] = x[r * x_stride + c] for r < rows, c < cols.
template <typename T>
inline void TransposeBlock(const T* x, int64_t x_stride, int64_t rows, int64_t cols, T* y, int64_t y_stride) {
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) y[c * y_stride + r] = x[r * x_stride + c];
  }
}

#if PIPER_ISA_LEVEL >= 3

inline void TransposeFour(const float* x, int64_t x_stride, float* y, int64_t y_stride) {
  __m128 a = _mm_loadu_ps(x);
  __m128 b = _mm_loadu_ps(x + x_stride);
  __m128 c = _mm_loadu_ps(x + 2 * x_stride);
  __m128 d = _mm_loadu_ps(x + 3 * x_stride);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(y, a);
  _mm_storeu_ps(y + y_stride, b);
  _mm_storeu_ps(y + 2 * y_stride, c);
  _mm_storeu_ps(y + 3 * y_stride, d);
}

// The last four of a side that is no multiple of four overlap the ones before: they write the same values
// again.
inline void TransposeBlock(const float* x, int64_t x_stride, int64_t rows, int64_t cols, float* y,
                           int64_t y_stride) {
  if (rows < 4 || cols < 4) {
    TransposeBlock<float>(x, x_stride, rows, cols, y, y_stride);
    return;
  }
  for (int64_t c0 = 0; c0 < cols; c0 += 4) {
    int64_t c = MinInt(c0, cols - 4);
    for (int64_t r0 = 0; r0 < rows; r0 += 4) {
      int64_t r = MinInt(r0, rows - 4);
      TransposeFour(x + r * x_stride + c, x_stride, y + c * y_stride + r, y_stride);
    }
  }
}

#endif

}  // namespace piper::kernels::PIPER_ISA
