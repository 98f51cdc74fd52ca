// Element counts and floating-point operations of every kernel as functions of its sizes: the part of the
// registry that declarations do not hold.
#pragma once

#include <cstddef>
#include <cstdint>

namespace piper::kernels {

struct KernelShape {
  int64_t elements[10];  // per operand, in operand order
  size_t count;
  double flops;
};

#define PIPER_OPERATION(name) KernelShape name##_shape(const int64_t* ints);
#include "kernels/operations.def"
#undef PIPER_OPERATION

}  // namespace piper::kernels
