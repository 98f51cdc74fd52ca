#include "kernels/reduce.h"

#include "kernels/simd.h"

namespace piper::kernels::PIPER_ISA {

namespace {

// Adds up block by block; `y` holds the running sum of the finished blocks.
template <typename T>
void SumMiddle(const T* x, T* y, int64_t reduced, int64_t inner) {
  for (int64_t c = 0; c < inner; c += kLanes) {
    int64_t width = MinInt(kLanes, inner - c);
    auto total = Vec<T>::Zero();
    for (int64_t r0 = 0; r0 < reduced; r0 += kReduceBlock) {
      auto sum = Vec<T>::LoadPartial(x + r0 * inner + c, width);
      for (int64_t r = r0 + 1; r < MinInt(r0 + kReduceBlock, reduced); ++r) {
        sum = sum + Vec<T>::LoadPartial(x + r * inner + c, width);
      }
      total = r0 == 0 ? sum : total + sum;
    }
    total.StorePartial(y + c, width);
  }
}

template <typename T>
T LargerOrNan(T a, T b) {
  return a != a ? a : (b > a || b != b ? b : a);
}

}  // namespace

template <typename T>
void reduce_sum(const T* x, T* y, int64_t outer, int64_t reduced, int64_t inner) {
  for (int64_t o = 0; o < outer; ++o) {
    const T* source = x + o * reduced * inner;
    if (inner == 1) {
      y[o] = SumLanes<T>(
          reduced, [](auto u) { return u; }, source);
    } else {
      SumMiddle(source, y + o * inner, reduced, inner);
    }
  }
}

template <typename T>
void reduce_mean(const T* x, T* y, int64_t outer, int64_t reduced, int64_t inner) {
  reduce_sum(x, y, outer, reduced, inner);
  T count = static_cast<T>(reduced);
  for (int64_t i = 0; i < outer * inner; ++i) y[i] = y[i] / count;
}

template <typename T>
void reduce_max(const T* x, T* y, int64_t outer, int64_t reduced, int64_t inner) {
  for (int64_t o = 0; o < outer; ++o) {
    const T* source = x + o * reduced * inner;
    T* result = y + o * inner;
    for (int64_t i = 0; i < inner; ++i) result[i] = source[i];
    for (int64_t r = 1; r < reduced; ++r) {
      for (int64_t i = 0; i < inner; ++i) result[i] = LargerOrNan(result[i], source[r * inner + i]);
    }
  }
}

template <typename T>
void reduce_max_backward(const T* x, const T* y, const T* dy, T* dx, int64_t outer, int64_t reduced,
                         int64_t inner) {
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      const T* source = x + o * reduced * inner + i;
      T* gradient = dx + o * reduced * inner + i;
      T largest = y[o * inner + i];
      int64_t count = 0;
      for (int64_t r = 0; r < reduced; ++r) count += source[r * inner] == largest ? 1 : 0;
      T share = count > 0 ? dy[o * inner + i] / static_cast<T>(count) : dy[o * inner + i];
      for (int64_t r = 0; r < reduced; ++r) gradient[r * inner] = source[r * inner] == largest ? share : T{0};
    }
  }
}

PIPER_EXPORT_KERNEL(reduce_sum)
PIPER_EXPORT_KERNEL(reduce_mean)
PIPER_EXPORT_KERNEL(reduce_max)
PIPER_EXPORT_KERNEL(reduce_max_backward)

}  // namespace piper::kernels::PIPER_ISA
