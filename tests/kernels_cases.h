// One or more calls of every kernel with sizes that leave tails in every loop, and the machinery to run a
// kernel by name on generated operands. Shared by the kernels' tests.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/registry.h"

namespace piper::kernels::testing {

struct Case {
  const char* kernel;
  std::vector<int64_t> ints;
  std::vector<double> scalars;
  RandomKey key = {.seed = 7, .operation = 0x1234567, .step = 3, .first_sample = 5, .sample_stride = 1};
};

// Covers every kernel of the registry (a test asserts it).
const std::vector<Case>& AllCases();

// The operands of one call. Values of T are kept in f64 and rounded to f32 first, so that an f32 and an f64
// run start from the same numbers; after RunKernel they hold the results.
struct Operands {
  std::vector<std::vector<double>> values;     // for kT and kF64 operands
  std::vector<std::vector<int32_t>> integers;  // for kI32 operands
};

// Deterministic inputs for the case; operands that must be positive (variances, arguments of log and sqrt)
// are.
Operands MakeOperands(const KernelInfo& info, const Case& test);

// Runs the kernel on copies of the operands in T = float or double and returns all of them afterwards. Guard
// values around each operand are checked: `overrun` names the first operand that was written outside its
// bounds.
Operands RunKernel(const KernelInfo& info, const Case& test, const Operands& operands, bool f64,
                   std::string* overrun);

int OperandIndex(const KernelInfo& info, const std::string& name);  // -1 if there is none

}  // namespace piper::kernels::testing
