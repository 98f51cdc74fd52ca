#include "kernels/copy.h"

#include "kernels/simd.h"
#include "kernels/transpose.h"

namespace piper::kernels::PIPER_ISA {

namespace {

// Copies with an arbitrary read pattern; the innermost dimension is specialised for strides 1 and 0, which is
// what broadcasts and most permutations have.
template <typename T>
void StridedCopy(const T* x, T* y, const int64_t (&size)[6], const int64_t (&stride)[6]) {
  int64_t index[5] = {0, 0, 0, 0, 0};
  int64_t outer = 1;
  for (int d = 0; d < 5; ++d) outer *= size[d];
  int64_t inner = size[5];
  int64_t inner_stride = stride[5];
  const T* source = x;
  for (int64_t o = 0; o < outer; ++o) {
    if (inner_stride == 1) {
      for (int64_t i = 0; i < inner; ++i) y[i] = source[i];
    } else if (inner_stride == 0) {
      T value = inner > 0 ? source[0] : T{0};
      for (int64_t i = 0; i < inner; ++i) y[i] = value;
    } else {
      for (int64_t i = 0; i < inner; ++i) y[i] = source[i * inner_stride];
    }
    y += inner;
    for (int d = 4; d >= 0; --d) {
      source += stride[d];
      if (++index[d] < size[d]) break;
      source -= size[d] * stride[d];
      index[d] = 0;
    }
  }
}

// The transpose of the two innermost dimensions in 16 x 16 tiles, so that neither side is read or written
// with a large stride for long: the case size4 and size5 both large, stride4 = 1.
template <typename T>
void TransposeTiles(const T* x, T* y, int64_t rows, int64_t cols, int64_t col_stride) {
  constexpr int64_t kTile = 16;
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    int64_t r1 = MinInt(r0 + kTile, rows);
    for (int64_t c0 = 0; c0 < cols; c0 += kTile) {
      int64_t c1 = MinInt(c0 + kTile, cols);
      TransposeBlock(x + c0 * col_stride + r0, col_stride, c1 - c0, r1 - r0, y + r0 * cols + c0, cols);
    }
  }
}

template <typename T>
void CopyDimensions(const T* x, T* y, const int64_t (&size)[6], const int64_t (&stride)[6]) {
  if (stride[4] != 1 || size[4] < 8 || size[5] < 8) {
    StridedCopy(x, y, size, stride);
    return;
  }
  int64_t index[4] = {0, 0, 0, 0};
  int64_t outer = size[0] * size[1] * size[2] * size[3];
  const T* source = x;
  for (int64_t o = 0; o < outer; ++o) {
    TransposeTiles(source, y, size[4], size[5], stride[5]);
    y += size[4] * size[5];
    for (int d = 3; d >= 0; --d) {
      source += stride[d];
      if (++index[d] < size[d]) break;
      source -= size[d] * stride[d];
      index[d] = 0;
    }
  }
}

}  // namespace

template <typename T>
void broadcast_copy(const T* x, T* y, int64_t size0, int64_t size1, int64_t size2, int64_t size3,
                    int64_t size4, int64_t size5, int64_t stride0, int64_t stride1, int64_t stride2,
                    int64_t stride3, int64_t stride4, int64_t stride5) {
  CopyDimensions(x, y, {size0, size1, size2, size3, size4, size5},
                 {stride0, stride1, stride2, stride3, stride4, stride5});
}

template <typename T>
void permute_copy(const T* x, T* y, int64_t size0, int64_t size1, int64_t size2, int64_t size3, int64_t size4,
                  int64_t size5, int64_t stride0, int64_t stride1, int64_t stride2, int64_t stride3,
                  int64_t stride4, int64_t stride5) {
  CopyDimensions(x, y, {size0, size1, size2, size3, size4, size5},
                 {stride0, stride1, stride2, stride3, stride4, stride5});
}

template <typename T>
void copy_2d(const T* x, T* y, int64_t rows, int64_t cols, int64_t x_offset, int64_t x_stride,
             int64_t y_offset, int64_t y_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* source = x + x_offset + r * x_stride;
    T* destination = y + y_offset + r * y_stride;
    for (int64_t c = 0; c < cols; ++c) destination[c] = source[c];
  }
}

PIPER_EXPORT_KERNEL(broadcast_copy)
PIPER_EXPORT_KERNEL(permute_copy)
PIPER_EXPORT_KERNEL(copy_2d)

}  // namespace piper::kernels::PIPER_ISA
