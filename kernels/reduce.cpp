#include "kernels/reduce.h"

#include "kernels/column_sums.h"
#include "kernels/simd.h"

namespace piper::kernels::PIPER_ISA {

namespace {

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
      SumColumns<T, 1>(reduced, inner, {y + o * inner}, [&](auto& sum, int64_t r, int64_t c, int64_t width) {
        sum[0] = sum[0] + Vec<T>::LoadPartial(source + r * inner + c, width);
      });
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
    if (reduced == 0) {
      for (int64_t i = 0; i < inner; ++i) result[i] = -static_cast<T>(__builtin_inf());
      continue;
    }
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
