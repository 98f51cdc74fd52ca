#include "kernels/norm.h"

#include "kernels/simd.h"

namespace piper::kernels::PIPER_ISA {

template <typename T>
void sum_of_squares(const T* x, double* sum, int64_t n) {
  double total = 0.0;
  for (int64_t start = 0; start < n; start += kNormBlock) {
    // Eight strided sums and a fixed tree; a short last block counts as padded with zeros.
    double lanes[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int64_t end = MinInt(start + kNormBlock, n);
    int64_t i = start;
    for (; i + 8 <= end; i += 8) {
      for (int64_t j = 0; j < 8; ++j) {
        double v = static_cast<double>(x[i + j]);
        lanes[j] = __builtin_fma(v, v, lanes[j]);
      }
    }
    for (int64_t j = 0; i + j < end; ++j) {
      double v = static_cast<double>(x[i + j]);
      lanes[j] = __builtin_fma(v, v, lanes[j]);
    }
    total +=
        ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  }
  sum[0] = total;
}

template <typename T>
void clip_factor(const double* sums, T* factor, int64_t count, double max_norm) {
  double total = 0.0;
  for (int64_t i = 0; i < count; ++i) total += sums[i];
  double ratio = max_norm / (__builtin_sqrt(total) + 1e-6);
  factor[0] = static_cast<T>(ratio > 1.0 ? 1.0 : ratio);
}

PIPER_EXPORT_KERNEL(sum_of_squares)
PIPER_EXPORT_KERNEL(clip_factor)

}  // namespace piper::kernels::PIPER_ISA
