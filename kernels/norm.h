// The global gradient norm, exact in order: f64 sums over aligned blocks of kNormBlock elements, block sums
// added in index order, so that the pieces of a parameter that is divided at block boundaries fold to the
// same value.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

inline constexpr int64_t kNormBlock = 64;

// sum [1] (f64) = sum of x^2.
PIPER_KERNEL(sum_of_squares, const T* x, double* sum, int64_t n);

// factor [1] = min(1, max_norm / (norm + 1e-6)) with norm = sqrt(sums[0] + sums[1] + ...), the formula of
// torch.nn.utils.clip_grad_norm_.
PIPER_KERNEL(clip_factor, const double* sums, T* factor, int64_t count, double max_norm);

}  // namespace piper::kernels
