#include "ir/model/interpret.h"

#include <vector>

#include "ir/support/result.h"
#include "kernels/registry.h"

namespace piper::ir {

int64_t ScratchBytes(const Body& body, DType dtype) {
  // Offsets are for f32; scaling them keeps the packing.
  return body.scratch_bytes * (dtype == DType::kF64 ? 2 : 1);
}

int64_t FormalBytes(const Formal& formal, DType dtype) {
  DType element = formal.type.dtype == DType::kI32 ? DType::kI32 : dtype;
  return formal.type.elements() * DTypeBytes(element);
}

void RunBody(const Body& body, void* const* formals, std::byte* scratch, const kernels::RandomKey& base,
             DType dtype) {
  PIPER_CHECK(dtype == DType::kF32 || dtype == DType::kF64);
  int64_t factor = dtype == DType::kF64 ? 2 : 1;
  std::vector<void*> operands;
  for (const KernelCall& call : body.calls) {
    const kernels::KernelInfo* kernel = kernels::FindKernel(call.kernel);
    PIPER_CHECK(kernel != nullptr, call.kernel);
    operands.clear();
    for (OperandRef operand : call.operands) {
      operands.push_back(operand.kind == OperandRef::Kind::kFormal
                             ? formals[operand.index]
                             : scratch + factor * body.locals[operand.index].offset);
    }
    kernels::RandomKey key = base;
    key.operation = call.random_key;
    (dtype == DType::kF64 ? kernel->f64 : kernel->f32)(operands.data(), call.ints.data(), call.scalars.data(),
                                                       &key);
  }
}

}  // namespace piper::ir
