// The kernels as data, for those who do not call them by name: the interpreter invokes through it, the
// compiler reads operand roles, argument names, workspace sizes and costs from it. Everything but the cost
// formulas is derived from the declarations, so the registry cannot disagree with what emitted code calls.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/kernel.h"

namespace piper::kernels {

enum class OperandRole { kIn, kOut, kInOut, kWorkspace };
enum class OperandElement { kT, kI32, kF64 };  // kT is the type that the kernel is invoked for: f32 or f64

struct OperandInfo {
  const char* name;
  OperandRole role;
  OperandElement element;
};

// Calls a kernel with its arguments gathered by kind, each kind in the order of the declaration; `operands`
// includes the workspace, `key` may be null unless the kernel is random.
using InvokeFn = void (*)(void* const* operands, const int64_t* ints, const double* scalars,
                          const RandomKey* key);

struct KernelInfo {
  const char* name;
  KernelId id;
  std::vector<OperandInfo> operands;
  std::vector<const char*> int_names;
  std::vector<const char*> scalar_names;
  bool random;
  InvokeFn f32;
  InvokeFn f64;
  // Elements of each operand, in operand order (written to `elements`, one per operand), for the given sizes.
  void (*operand_elements)(const int64_t* ints, int64_t* elements);
  // Elements of T that the workspace must hold; 0 for a kernel without one.
  int64_t (*workspace_elements)(const int64_t* ints);
  // Floating-point operations; a transcendental function counts as 10.
  double (*flops)(const int64_t* ints);
  // Bytes read and written once each, for T of `element_bytes` bytes.
  double (*bytes)(const int64_t* ints, int64_t element_bytes);

  int workspace_index() const;  // index into operands, -1 for a kernel without a workspace
};

// All kernels in the order of operations.def.
const std::vector<KernelInfo>& AllKernels();

// The kernel of that name, or null.
const KernelInfo* FindKernel(std::string_view name);

}  // namespace piper::kernels
