#include "kernels/gelu.h"

#include "kernels/vector_math.h"

namespace piper::kernels::PIPER_ISA {

namespace {

// With the tanh form, (1 + tanh(u)) / 2 = sigmoid(2u): one exponential and one division.
template <typename T>
Vec<T> TwiceInner(Vec<T> x) {
  constexpr double kTwiceRootTwoOverPi = 1.5957691216057308;
  Vec<T> cubic = Fma(x * x, Vec<T>::Broadcast(T(0.044715 * kTwiceRootTwoOverPi)),
                     Vec<T>::Broadcast(T(kTwiceRootTwoOverPi)));
  return x * cubic;
}

// d(2u)/dx.
template <typename T>
Vec<T> TwiceInnerSlope(Vec<T> x) {
  constexpr double kTwiceRootTwoOverPi = 1.5957691216057308;
  return Fma(x * x, Vec<T>::Broadcast(T(3 * 0.044715 * kTwiceRootTwoOverPi)),
             Vec<T>::Broadcast(T(kTwiceRootTwoOverPi)));
}

// The normal distribution's cumulative and density functions.
template <typename T>
Vec<T> NormalCumulative(Vec<T> x) {
  Vec<T> half = Vec<T>::Broadcast(T(0.5));
  return Fma(Erf(x * Vec<T>::Broadcast(T(0.70710678118654752440))), half, half);
}
template <typename T>
Vec<T> NormalDensity(Vec<T> x) {
  return Exp(x * x * Vec<T>::Broadcast(T(-0.5))) * Vec<T>::Broadcast(T(0.39894228040143267794));
}

}  // namespace

template <typename T>
void gelu_forward(const T* x, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u) { return u * Sigmoid(TwiceInner<T>(u)); }, x);
}

template <typename T>
void gelu_backward(const T* x, const T* dy, T* dx, int64_t n) {
  MapLanes(
      n, dx,
      [](auto u, auto g) {
        auto s = Sigmoid(TwiceInner<T>(u));
        auto slope = Fma(-s, s, s) * TwiceInnerSlope<T>(u);
        // Far out the polynomial overflows while s (1 - s) is zero: the product is then zero too.
        slope = Select(Equal(s, Vec<T>::Zero()), Vec<T>::Zero(), slope);
        slope = Select(Equal(s, Vec<T>::Broadcast(T(1))), Vec<T>::Zero(), slope);
        return g * Fma(u, slope, s);
      },
      x, dy);
}

template <typename T>
void gelu_erf_forward(const T* x, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u) { return u * NormalCumulative<T>(u); }, x);
}

template <typename T>
void gelu_erf_backward(const T* x, const T* dy, T* dx, int64_t n) {
  MapLanes(
      n, dx, [](auto u, auto g) { return g * Fma(u, NormalDensity<T>(u), NormalCumulative<T>(u)); }, x, dy);
}

PIPER_EXPORT_KERNEL(gelu_forward)
PIPER_EXPORT_KERNEL(gelu_backward)
PIPER_EXPORT_KERNEL(gelu_erf_forward)
PIPER_EXPORT_KERNEL(gelu_erf_backward)

}  // namespace piper::kernels::PIPER_ISA
