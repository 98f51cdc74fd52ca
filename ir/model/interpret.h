// Runs a body by walking its calls through the kernel registry: what tests and the single-device reference
// use. The executor has its own walk over the same calls (runtime/); both reach the same kernels, so both get
// the same bits.
#pragma once

#include <cstddef>

#include "ir/model/body.h"
#include "kernels/kernel.h"

namespace piper::ir {

// `formals` holds one pointer a formal, in formal order; those that alias another are not looked at.
// `scratch` has ScratchBytes(body, dtype) bytes, 64-byte aligned; it may be null if that is 0.
// `base.operation` is replaced by each call's random key. With kF64 every real formal and local holds
// doubles, integers stay; otherwise dtype is kF32.
void RunBody(const Body& body, void* const* formals, std::byte* scratch, const kernels::RandomKey& base,
             DType dtype);

int64_t ScratchBytes(const Body& body, DType dtype);
// Bytes of a formal's buffer when reals are of that type.
int64_t FormalBytes(const Formal& formal, DType dtype);

}  // namespace piper::ir
