#include "kernels/softmax.h"

#include "kernels/column_sums.h"
#include "kernels/vector_math.h"

namespace piper::kernels::PIPER_ISA {

template <typename T>
void softmax_forward(const T* x, T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * cols;
    T* out = y + r * cols;
    auto largest = Vec<T>::Broadcast(RowMax(in, cols));
    auto sum = Vec<T>::Zero();
    int64_t c = 0;
    for (; c + kLanes <= cols; c += kLanes) {
      auto e = Exp(Vec<T>::Load(in + c) - largest);
      sum = sum + e;
      e.Store(out + c);
    }
    if (c < cols) {
      int64_t width = cols - c;
      Exp(Vec<T>::LoadPartial(in + c, width) - largest).StorePartial(out + c, width);
      sum = sum + Vec<T>::LoadPartial(out + c, width);
    }
    auto total = Vec<T>::Broadcast(ReduceAdd(sum));
    MapLanes(
        cols, out, [&](auto e) { return e / total; }, static_cast<const T*>(out));
  }
}

template <typename T>
void softmax_backward(const T* y, const T* dy, T* dx, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* p = y + r * cols;
    const T* g = dy + r * cols;
    auto dot = Vec<T>::Broadcast(SumLanes<T>(
        cols, [](auto u, auto v) { return u * v; }, p, g));
    MapLanes(
        cols, dx + r * cols, [&](auto u, auto v) { return u * (v - dot); }, p, g);
  }
}

PIPER_EXPORT_KERNEL(softmax_forward)
PIPER_EXPORT_KERNEL(softmax_backward)

}  // namespace piper::kernels::PIPER_ISA
