#include "kernels/rms_norm.h"

#include "kernels/column_sums.h"
#include "kernels/simd.h"

namespace piper::kernels::PIPER_ISA {

template <typename T>
void rms_norm_forward(const T* x, const T* weight, T* y, T* rstd, int64_t rows, int64_t cols, double eps) {
  T count = static_cast<T>(cols);
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * cols;
    T squares = SumLanes<T>(
        cols, [](auto u) { return u * u; }, in);
    rstd[r] = T(1) / SquareRoot(squares / count + static_cast<T>(eps));
    auto factor = Vec<T>::Broadcast(rstd[r]);
    MapLanes(
        cols, y + r * cols, [&](auto u, auto w) { return u * factor * w; }, in, weight);
  }
}

// With n = x rstd and g = dy weight: dx = rstd (g - n mean(g n)).
template <typename T>
void rms_norm_backward_input(const T* x, const T* weight, const T* rstd, const T* dy, T* dx, int64_t rows,
                             int64_t cols) {
  T count = static_cast<T>(cols);
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * cols;
    const T* gradient = dy + r * cols;
    auto factor = Vec<T>::Broadcast(rstd[r]);
    T dot = SumLanes<T>(
        cols, [&](auto u, auto d, auto w) { return d * w * (u * factor); }, in, gradient, weight);
    auto average = Vec<T>::Broadcast(dot / count);
    MapLanes(
        cols, dx + r * cols, [&](auto u, auto d, auto w) { return factor * (d * w - u * factor * average); },
        in, gradient, weight);
  }
}

template <typename T>
void rms_norm_backward_weight(const T* x, const T* rstd, const T* dy, T* dweight, int64_t rows,
                              int64_t cols) {
  SumColumns<T, 1>(rows, cols, {dweight}, [&](auto& sum, int64_t r, int64_t c, int64_t width) {
    auto n = Vec<T>::LoadPartial(x + r * cols + c, width) * Vec<T>::Broadcast(rstd[r]);
    sum[0] = Fma(Vec<T>::LoadPartial(dy + r * cols + c, width), n, sum[0]);
  });
}

PIPER_EXPORT_KERNEL(rms_norm_forward)
PIPER_EXPORT_KERNEL(rms_norm_backward_input)
PIPER_EXPORT_KERNEL(rms_norm_backward_weight)

}  // namespace piper::kernels::PIPER_ISA
