// The scan that names a non-finite value.
#pragma once

#include <cstdint>

namespace piper::kernels {

// The index of the first infinity or NaN in x[0..n), or -1. Not a registry kernel: it returns a value.
int64_t first_non_finite(const float* x, int64_t n);
int64_t first_non_finite(const double* x, int64_t n);

}  // namespace piper::kernels
