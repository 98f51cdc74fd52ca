#include "kernels/optimizer.h"

#include "kernels/simd.h"

namespace piper::kernels::PIPER_ISA {

template <typename T>
void sgd_update(const T* gradient, T* parameter, T* velocity, int64_t n, int64_t nesterov,
                double learning_rate, double momentum, double weight_decay) {
  auto rate = Vec<T>::Broadcast(static_cast<T>(-learning_rate));
  auto inertia = Vec<T>::Broadcast(static_cast<T>(momentum));
  auto decay = Vec<T>::Broadcast(static_cast<T>(weight_decay));
  auto step = [&](int64_t i, int64_t width) {
    auto p = Vec<T>::LoadPartial(parameter + i, width);
    auto d = Fma(decay, p, Vec<T>::LoadPartial(gradient + i, width));
    auto v = Fma(inertia, Vec<T>::LoadPartial(velocity + i, width), d);
    v.StorePartial(velocity + i, width);
    if (nesterov != 0) {
      d = Fma(inertia, v, d);
    } else {
      d = v;
    }
    Fma(rate, d, p).StorePartial(parameter + i, width);
  };
  ForLanes(n, step);
}

template <typename T>
void adamw_update(const T* gradient, T* parameter, T* m, T* v, int64_t n, double learning_rate, double beta1,
                  double beta2, double eps, double weight_decay, double bias_correction1,
                  double bias_correction2) {
  auto keep = Vec<T>::Broadcast(static_cast<T>(1.0 - learning_rate * weight_decay));
  auto rest1 = Vec<T>::Broadcast(static_cast<T>(1.0 - beta1));
  auto decay2 = Vec<T>::Broadcast(static_cast<T>(beta2));
  auto rest2 = Vec<T>::Broadcast(static_cast<T>(1.0 - beta2));
  auto root = Vec<T>::Broadcast(static_cast<T>(__builtin_sqrt(bias_correction2)));
  auto epsilon = Vec<T>::Broadcast(static_cast<T>(eps));
  auto step = Vec<T>::Broadcast(static_cast<T>(-(learning_rate / bias_correction1)));
  auto update = [&](int64_t i, int64_t width) {
    auto g = Vec<T>::LoadPartial(gradient + i, width);
    auto first = Vec<T>::LoadPartial(m + i, width);
    first = Fma(rest1, g - first, first);
    auto second = Vec<T>::LoadPartial(v + i, width);
    second = Fma(rest2 * g, g, decay2 * second);
    auto p = keep * Vec<T>::LoadPartial(parameter + i, width);
    auto denominator = Sqrt(second) / root + epsilon;
    p = Fma(step, first / denominator, p);
    first.StorePartial(m + i, width);
    second.StorePartial(v + i, width);
    p.StorePartial(parameter + i, width);
  };
  ForLanes(n, update);
}

PIPER_EXPORT_KERNEL(sgd_update)
PIPER_EXPORT_KERNEL(adamw_update)

}  // namespace piper::kernels::PIPER_ISA
