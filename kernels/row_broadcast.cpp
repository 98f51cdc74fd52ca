#include "kernels/row_broadcast.h"

#include "kernels/column_sums.h"
#include "kernels/simd.h"

namespace piper::kernels::PIPER_ISA {

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
  SumColumns<T, 1>(rows, cols, {sums}, [&](auto& sum, int64_t r, int64_t c, int64_t width) {
    sum[0] = sum[0] + Vec<T>::LoadPartial(x + r * cols + c, width);
  });
}

PIPER_EXPORT_KERNEL(add_bias)
PIPER_EXPORT_KERNEL(mul_rows)
PIPER_EXPORT_KERNEL(sum_rows)

}  // namespace piper::kernels::PIPER_ISA
