#include "kernels/row_broadcast.h"

#include "kernels/reduce.h"
#include "kernels/simd.h"

namespace piper::kernels::PIPER_ISA {

namespace {

// One block of up to kReduceBlock rows of columns [c, c + width): sums in row order, added to sums.
template <typename T>
void SumRowBlock(const T* x, T* sums, int64_t rows, int64_t cols, int64_t c, int64_t width, bool first) {
  auto sum = Vec<T>::LoadPartial(x + c, width);
  for (int64_t r = 1; r < rows; ++r) sum = sum + Vec<T>::LoadPartial(x + r * cols + c, width);
  if (!first) sum = Vec<T>::LoadPartial(sums + c, width) + sum;
  sum.StorePartial(sums + c, width);
}

}  // namespace

template <typename T>
void add_bias(const T* x, const T* bias, T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    MapLanes(
        cols, y + r * cols, [](auto u, auto v) { return u + v; }, x + r * cols, bias);
  }
}

template <typename T>
void mul_rows(const T* x, const T* weight, T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    MapLanes(
        cols, y + r * cols, [](auto u, auto v) { return u * v; }, x + r * cols, weight);
  }
}

template <typename T>
void sum_rows(const T* x, T* sums, int64_t rows, int64_t cols) {
  if (rows == 0) {
    for (int64_t c = 0; c < cols; ++c) sums[c] = 0;
  }
  for (int64_t r = 0; r < rows; r += kReduceBlock) {
    int64_t count = MinInt(kReduceBlock, rows - r);
    for (int64_t c = 0; c < cols; c += kLanes) {
      SumRowBlock(x + r * cols, sums, count, cols, c, MinInt(kLanes, cols - c), r == 0);
    }
  }
}

PIPER_EXPORT_KERNEL(add_bias)
PIPER_EXPORT_KERNEL(mul_rows)
PIPER_EXPORT_KERNEL(sum_rows)

}  // namespace piper::kernels::PIPER_ISA
