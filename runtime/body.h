// What emitted bodies are written in: typed views of their operands and scratch, and the key of a random
// operation. The interpreter makes the same key, so both draw the same numbers.
#pragma once

#include <cstdint>

#include "kernels/kernel.h"
#include "runtime/program.h"

namespace piper::runtime {

// Operand `formal`, which the body only reads.
template <typename T>
const T* Input(const BodyContext& context, uint32_t formal) {
  return static_cast<const T*>(context.operands[formal]);
}
// Operand `formal`, which the body writes.
template <typename T>
T* Output(const BodyContext& context, uint32_t formal) {
  return static_cast<T*>(context.operands[formal]);
}
// Bytes [offset, ..) of the scratch.
template <typename T>
T* Scratch(const BodyContext& context, int64_t offset) {
  return reinterpret_cast<T*>(context.scratch + offset);
}
// `operation` identifies the operation in the model (Call::random_key); the rest is the slice that the body
// works on.
inline kernels::RandomKey Key(const BodyContext& context, uint64_t operation) {
  return {.seed = context.seed,
          .operation = operation,
          .step = context.step,
          .first_sample = context.first_sample,
          .sample_stride = 1};
}

}  // namespace piper::runtime
