// Parameter updates in place, with the formulas of torch.optim. Scalars are rounded to T once.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

// SGD: d = gradient + weight_decay * parameter; velocity = momentum * velocity + d; d = nesterov ? d +
// momentum * velocity : velocity; parameter -= learning_rate * d. velocity starts at zero.
PIPER_KERNEL(sgd_update, const T* gradient, PIPER_INOUT T* parameter, PIPER_INOUT T* velocity, int64_t n,
             int64_t nesterov, double learning_rate, double momentum, double weight_decay);

// AdamW (Loshchilov and Hutter, arXiv:1711.05101): parameter *= 1 - learning_rate * weight_decay;
// m = m + (1 - beta1) (gradient - m); v = beta2 v + (1 - beta2) gradient^2;
// parameter -= learning_rate / bias_correction1 * m / (sqrt(v) / sqrt(bias_correction2) + eps)
// with bias_correction_i = 1 - beta_i^step.
PIPER_KERNEL(adamw_update, const T* gradient, PIPER_INOUT T* parameter, PIPER_INOUT T* m, PIPER_INOUT T* v,
             int64_t n, double learning_rate, double beta1, double beta2, double eps, double weight_decay,
             double bias_correction1, double bias_correction2);

}  // namespace piper::kernels
