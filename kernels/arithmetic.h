// Element by element arithmetic on n values. Outputs may be the same array as an input.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

PIPER_KERNEL(add, const T* a, const T* b, T* y, int64_t n);  // y = a + b
PIPER_KERNEL(sub, const T* a, const T* b, T* y, int64_t n);  // y = a - b
PIPER_KERNEL(mul, const T* a, const T* b, T* y, int64_t n);  // y = a * b
PIPER_KERNEL(div, const T* a, const T* b, T* y, int64_t n);  // y = a / b

// y = slope * x + offset, fused (one rounding); slope and offset are first rounded to T.
PIPER_KERNEL(affine, const T* x, T* y, int64_t n, double slope, double offset);
// y = factor * x; factor is first rounded to T.
PIPER_KERNEL(scale, const T* x, T* y, int64_t n, double factor);
// y = factor[0] * x, for a factor that is only known at run time.
PIPER_KERNEL(scale_by, const T* x, const T* factor, T* y, int64_t n);
// y += x.
PIPER_KERNEL(accumulate, const T* x, PIPER_INOUT T* y, int64_t n);
// y = value, rounded to T.
PIPER_KERNEL(fill, T* y, int64_t n, double value);

}  // namespace piper::kernels
