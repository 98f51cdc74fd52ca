#include "kernels/unary.h"

#include "kernels/vector_math.h"

namespace piper::kernels::PIPER_ISA {

template <typename T>
void neg_forward(const T* x, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u) { return -u; }, x);
}

template <typename T>
void exp_forward(const T* x, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u) { return Exp(u); }, x);
}

template <typename T>
void exp_backward(const T* y, const T* dy, T* dx, int64_t n) {
  MapLanes(
      n, dx, [](auto u, auto g) { return g * u; }, y, dy);
}

template <typename T>
void log_forward(const T* x, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u) { return Log(u); }, x);
}

template <typename T>
void log_backward(const T* x, const T* dy, T* dx, int64_t n) {
  MapLanes(
      n, dx, [](auto u, auto g) { return g / u; }, x, dy);
}

template <typename T>
void sqrt_forward(const T* x, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u) { return Sqrt(u); }, x);
}

template <typename T>
void sqrt_backward(const T* y, const T* dy, T* dx, int64_t n) {
  MapLanes(
      n, dx, [](auto u, auto g) { return g / (u + u); }, y, dy);
}

template <typename T>
void rsqrt_forward(const T* x, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u) { return Vec<T>::Broadcast(T(1)) / Sqrt(u); }, x);
}

template <typename T>
void rsqrt_backward(const T* y, const T* dy, T* dx, int64_t n) {
  MapLanes(
      n, dx, [](auto u, auto g) { return Vec<T>::Broadcast(T(-0.5)) * g * u * u * u; }, y, dy);
}

template <typename T>
void square_forward(const T* x, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u) { return u * u; }, x);
}

template <typename T>
void square_backward(const T* x, const T* dy, T* dx, int64_t n) {
  MapLanes(
      n, dx, [](auto u, auto g) { return g * (u + u); }, x, dy);
}

template <typename T>
void tanh_forward(const T* x, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u) { return Tanh(u); }, x);
}

template <typename T>
void tanh_backward(const T* y, const T* dy, T* dx, int64_t n) {
  MapLanes(
      n, dx, [](auto u, auto g) { return g * Fma(-u, u, Vec<T>::Broadcast(T(1))); }, y, dy);
}

template <typename T>
void sigmoid_forward(const T* x, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u) { return Sigmoid(u); }, x);
}

template <typename T>
void sigmoid_backward(const T* y, const T* dy, T* dx, int64_t n) {
  MapLanes(
      n, dx, [](auto u, auto g) { return g * Fma(-u, u, u); }, y, dy);
}

// A NaN stays: it is not below zero.
template <typename T>
void relu_forward(const T* x, T* y, int64_t n) {
  MapLanes(
      n, y, [](auto u) { return Select(u < Vec<T>::Zero(), Vec<T>::Zero(), u); }, x);
}

template <typename T>
void relu_backward(const T* x, const T* dy, T* dx, int64_t n) {
  MapLanes(
      n, dx, [](auto u, auto g) { return Select(u > Vec<T>::Zero(), g, Vec<T>::Zero()); }, x, dy);
}

PIPER_EXPORT_KERNEL(neg_forward)
PIPER_EXPORT_KERNEL(exp_forward)
PIPER_EXPORT_KERNEL(exp_backward)
PIPER_EXPORT_KERNEL(log_forward)
PIPER_EXPORT_KERNEL(log_backward)
PIPER_EXPORT_KERNEL(sqrt_forward)
PIPER_EXPORT_KERNEL(sqrt_backward)
PIPER_EXPORT_KERNEL(rsqrt_forward)
PIPER_EXPORT_KERNEL(rsqrt_backward)
PIPER_EXPORT_KERNEL(square_forward)
PIPER_EXPORT_KERNEL(square_backward)
PIPER_EXPORT_KERNEL(tanh_forward)
PIPER_EXPORT_KERNEL(tanh_backward)
PIPER_EXPORT_KERNEL(sigmoid_forward)
PIPER_EXPORT_KERNEL(sigmoid_backward)
PIPER_EXPORT_KERNEL(relu_forward)
PIPER_EXPORT_KERNEL(relu_backward)

}  // namespace piper::kernels::PIPER_ISA
