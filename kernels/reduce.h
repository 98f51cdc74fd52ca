// Reductions over the middle dimension of x [outer, reduced, inner]; y is [outer, inner]. Sums run in
// ascending order within blocks of kReduceBlock and add the block sums in order when inner > 1; with inner =
// 1 they use 16 lanes and a fixed tree.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

inline constexpr int64_t kReduceBlock = 64;

PIPER_KERNEL(reduce_sum, const T* x, T* y, int64_t outer, int64_t reduced, int64_t inner);
PIPER_KERNEL(reduce_mean, const T* x, T* y, int64_t outer, int64_t reduced, int64_t inner);
// The largest value; NaN if any value is NaN, minus infinity if reduced is 0.
PIPER_KERNEL(reduce_max, const T* x, T* y, int64_t outer, int64_t reduced, int64_t inner);
// dx [outer, reduced, inner]: dy divided equally among the elements that equal the maximum (as torch.amax
// does).
PIPER_KERNEL(reduce_max_backward, const T* x, const T* y, const T* dy, T* dx, int64_t outer, int64_t reduced,
             int64_t inner);

}  // namespace piper::kernels
