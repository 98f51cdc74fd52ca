#include "kernels/layer_norm.h"

#include "kernels/column_sums.h"
#include "kernels/simd.h"

namespace piper::kernels::PIPER_ISA {

template <typename T>
void layer_norm_forward(const T* x, const T* gamma, const T* beta, T* y, T* mean, T* rstd, int64_t rows,
                        int64_t cols, double eps) {
  T count = static_cast<T>(cols);
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * cols;
    T average = SumLanes<T>(
                    cols, [](auto u) { return u; }, in) /
                count;
    auto center = Vec<T>::Broadcast(average);
    // Two passes: the squares of differences lose nothing to cancellation. The zeros of a tail must not
    // count.
    auto squares = Vec<T>::Zero();
    int64_t c = 0;
    for (; c + kLanes <= cols; c += kLanes) {
      auto d = Vec<T>::Load(in + c) - center;
      squares = Fma(d, d, squares);
    }
    if (c < cols) {
      T differences[kLanes];
      (Vec<T>::LoadPartial(in + c, cols - c) - center).Store(differences);
      auto d = Vec<T>::LoadPartial(differences, cols - c);
      squares = Fma(d, d, squares);
    }
    T scale = T(1) / SquareRoot(ReduceAdd(squares) / count + static_cast<T>(eps));
    auto factor = Vec<T>::Broadcast(scale);
    MapLanes(
        cols, y + r * cols, [&](auto u, auto g, auto b) { return Fma((u - center) * factor, g, b); }, in,
        gamma, beta);
    mean[r] = average;
    rstd[r] = scale;
  }
}

// With n = (x - mean) rstd and g = dy gamma: dx = rstd (g - mean(g) - n mean(g n)).
template <typename T>
void layer_norm_backward_input(const T* x, const T* gamma, const T* mean, const T* rstd, const T* dy, T* dx,
                               int64_t rows, int64_t cols) {
  T count = static_cast<T>(cols);
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * cols;
    const T* gradient = dy + r * cols;
    auto center = Vec<T>::Broadcast(mean[r]);
    auto factor = Vec<T>::Broadcast(rstd[r]);
    auto sum = Vec<T>::Zero();
    auto product = Vec<T>::Zero();
    int64_t c = 0;
    for (; c + kLanes <= cols; c += kLanes) {
      auto g = Vec<T>::Load(gradient + c) * Vec<T>::Load(gamma + c);
      auto n = (Vec<T>::Load(in + c) - center) * factor;
      sum = sum + g;
      product = Fma(g, n, product);
    }
    if (c < cols) {
      int64_t width = cols - c;
      auto g = Vec<T>::LoadPartial(gradient + c, width) * Vec<T>::LoadPartial(gamma + c, width);
      auto n = (Vec<T>::LoadPartial(in + c, width) - center) * factor;
      sum = sum + g;
      product = Fma(g, n, product);
    }
    auto average = Vec<T>::Broadcast(ReduceAdd(sum) / count);
    auto average_product = Vec<T>::Broadcast(ReduceAdd(product) / count);
    MapLanes(
        cols, dx + r * cols,
        [&](auto u, auto d, auto w) {
          auto n = (u - center) * factor;
          return factor * (Fma(d, w, -average) - n * average_product);
        },
        in, gradient, gamma);
  }
}

template <typename T>
void layer_norm_backward_params(const T* x, const T* mean, const T* rstd, const T* dy, T* dgamma, T* dbeta,
                                int64_t rows, int64_t cols) {
  SumColumns<T, 2>(rows, cols, {dgamma, dbeta}, [&](auto& sum, int64_t r, int64_t c, int64_t width) {
    auto g = Vec<T>::LoadPartial(dy + r * cols + c, width);
    auto centered = Vec<T>::LoadPartial(x + r * cols + c, width) - Vec<T>::Broadcast(mean[r]);
    sum[0] = Fma(g, centered * Vec<T>::Broadcast(rstd[r]), sum[0]);
    sum[1] = sum[1] + g;
  });
}

PIPER_EXPORT_KERNEL(layer_norm_forward)
PIPER_EXPORT_KERNEL(layer_norm_backward_input)
PIPER_EXPORT_KERNEL(layer_norm_backward_params)

}  // namespace piper::kernels::PIPER_ISA
