#include "kernels/silu.h"

#include "kernels/vector_math.h"

namespace piper::kernels::PIPER_ISA {

namespace {

// silu'(x) = s (1 + x (1 - s)) = s + x s (1 - s).
template <typename T>
Vec<T> SiluSlope(Vec<T> x, Vec<T> s) {
  return Fma(x, Fma(-s, s, s), s);
}

}  // namespace

template <typename T>
void silu_forward(const T* x, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u) { return u * Sigmoid(u); }, x);
}

template <typename T>
void silu_backward(const T* x, const T* dy, T* dx, int64_t n) {
  MapLanes(
      n, dx, [](auto u, auto g) { return g * SiluSlope<T>(u, Sigmoid(u)); }, x, dy);
}

template <typename T>
void swiglu_forward(const T* gate, const T* up, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u, auto v) { return u * Sigmoid(u) * v; }, gate, up);
}

template <typename T>
void swiglu_backward(const T* gate, const T* up, const T* dy, T* dgate, T* dup, int64_t n) {
  auto step = [&](int64_t i, int64_t width) {
    auto u = Vec<T>::LoadPartial(gate + i, width);
    auto v = Vec<T>::LoadPartial(up + i, width);
    auto g = Vec<T>::LoadPartial(dy + i, width);
    auto s = Sigmoid(u);
    (g * v * SiluSlope<T>(u, s)).StorePartial(dgate + i, width);
    (g * (u * s)).StorePartial(dup + i, width);
  };
  ForLanes(n, step);
}

PIPER_EXPORT_KERNEL(silu_forward)
PIPER_EXPORT_KERNEL(silu_backward)
PIPER_EXPORT_KERNEL(swiglu_forward)
PIPER_EXPORT_KERNEL(swiglu_backward)

}  // namespace piper::kernels::PIPER_ISA
