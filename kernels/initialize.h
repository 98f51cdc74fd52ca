// Initial values drawn by counter: element i of y is a function of the key's seed and operation (a hash of
// the parameter's name) and of the global element first_element + i, so that a shard draws what the whole
// would.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

// Normal values by the Box-Muller transform.
PIPER_KERNEL(normal_fill, T* y, int64_t n, int64_t first_element, double mean, double stddev,
             const RandomKey& key);
// Uniform values in [low, high).
PIPER_KERNEL(uniform_fill, T* y, int64_t n, int64_t first_element, double low, double high,
             const RandomKey& key);

}  // namespace piper::kernels
