#include "kernels/arithmetic.h"

#include "kernels/simd.h"

namespace piper::kernels::PIPER_ISA {

template <typename T>
void add(const T* a, const T* b, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u, auto v) { return u + v; }, a, b);
}

template <typename T>
void sub(const T* a, const T* b, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u, auto v) { return u - v; }, a, b);
}

template <typename T>
void mul(const T* a, const T* b, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u, auto v) { return u * v; }, a, b);
}

template <typename T>
void div(const T* a, const T* b, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u, auto v) { return u / v; }, a, b);
}

template <typename T>
void affine(const T* x, T* y, int64_t n, double slope, double offset) {
  auto a = Vec<T>::Broadcast(static_cast<T>(slope));
  auto b = Vec<T>::Broadcast(static_cast<T>(offset));
  MapLanes(
      n, y, [&](auto u) { return Fma(a, u, b); }, x);
}

template <typename T>
void scale(const T* x, T* y, int64_t n, double factor) {
  auto a = Vec<T>::Broadcast(static_cast<T>(factor));
  MapLanes(
      n, y, [&](auto u) { return a * u; }, x);
}

template <typename T>
void scale_by(const T* x, const T* factor, T* y, int64_t n) {
  auto a = Vec<T>::Broadcast(factor[0]);
  MapLanes(
      n, y, [&](auto u) { return a * u; }, x);
}

template <typename T>
void accumulate(const T* x, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u, auto v) { return u + v; }, static_cast<const T*>(y), x);
}

template <typename T>
void fill(T* y, int64_t n, double value) {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(value);
}

PIPER_EXPORT_KERNEL(add)
PIPER_EXPORT_KERNEL(sub)
PIPER_EXPORT_KERNEL(mul)
PIPER_EXPORT_KERNEL(div)
PIPER_EXPORT_KERNEL(affine)
PIPER_EXPORT_KERNEL(scale)
PIPER_EXPORT_KERNEL(scale_by)
PIPER_EXPORT_KERNEL(accumulate)
PIPER_EXPORT_KERNEL(fill)

}  // namespace piper::kernels::PIPER_ISA
