#include "runtime/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "kernels/optimizer.h"

namespace piper::runtime {

double LearningRate(const Optimizer& optimizer, uint64_t step) {
  int64_t now = static_cast<int64_t>(step);
  if (optimizer.schedule != 0 && now < optimizer.warmup) {
    return optimizer.peak * static_cast<double>(now + 1) / static_cast<double>(optimizer.warmup);
  }
  if (optimizer.schedule != 2) return optimizer.peak;
  int64_t length = std::max<int64_t>(1, optimizer.total - optimizer.warmup);
  double part = std::min(1.0, static_cast<double>(now - optimizer.warmup) / static_cast<double>(length));
  return optimizer.floor +
         0.5 * (optimizer.peak - optimizer.floor) * (1.0 + std::cos(std::numbers::pi * part));
}

template <typename T>
void UpdateParameter(const Optimizer& optimizer, uint64_t step, double weight_decay, const T* gradient,
                     T* value, T* state0, T* state1, int64_t elements) {
  double rate = LearningRate(optimizer, step);
  if (optimizer.kind == 1) {
    double count = static_cast<double>(step + 1);
    kernels::adamw_update(gradient, value, state0, state1, elements, rate, optimizer.beta1, optimizer.beta2,
                          optimizer.eps, weight_decay, 1.0 - std::pow(optimizer.beta1, count),
                          1.0 - std::pow(optimizer.beta2, count));
    return;
  }
  if (state0 != nullptr) {
    kernels::sgd_update(gradient, value, state0, elements, int64_t{optimizer.nesterov}, rate,
                        optimizer.momentum, weight_decay);
    return;
  }
  // Without momentum the velocity is a scratch block that is zero before each use, so the bits are the
  // kernel's.
  constexpr int64_t kBlock = 1024;
  T velocity[kBlock];
  for (int64_t at = 0; at < elements; at += kBlock) {
    int64_t count = std::min(kBlock, elements - at);
    std::memset(velocity, 0, sizeof velocity);
    kernels::sgd_update(gradient + at, value + at, velocity, count, int64_t{0}, rate, 0.0, weight_decay);
  }
}

template void UpdateParameter(const Optimizer&, uint64_t, double, const float*, float*, float*, float*,
                              int64_t);
template void UpdateParameter(const Optimizer&, uint64_t, double, const double*, double*, double*, double*,
                              int64_t);

}  // namespace piper::runtime
