#include "tests/kernels_cases.h"

#include <cstring>

namespace piper::kernels::testing {
namespace {

std::vector<Case> BuildCases() {
  std::vector<Case> cases = {
      {"gemm", {37, 53, 29, 0, 0}, {}},
      {"gemm", {37, 53, 29, 1, 0}, {}},
      {"gemm", {37, 53, 29, 0, 1}, {}},
      {"gemm", {37, 53, 29, 1, 1}, {}},
      {"gemm", {45, 64, 515, 0, 0}, {}},
      {"gemm", {17, 70, 300, 1, 1}, {}},
      {"gemm", {1, 1, 1, 0, 0}, {}},
      {"gemm", {3, 5, 0, 0, 0}, {}},
      {"gemm", {28, 32, 1024, 0, 0}, {}},
      {"gemm", {500, 33, 17, 0, 0}, {}},
      {"gemm", {460, 40, 512, 0, 1}, {}},
      {"gemm", {5, 4200, 20, 0, 1}, {}},
      {"gemm", {16, 48, 256, 1, 0}, {}},
      {"gemm_batched", {3, 10, 18, 7, 0, 0}, {}},
      {"gemm_batched", {2, 10, 18, 7, 1, 1}, {}},
      {"embedding_forward", {9, 11, 21}, {}},
      {"embedding_backward", {30, 11, 21}, {}},
      {"affine", {77}, {1.5, -0.25}},
      {"scale", {77}, {0.3}},
      {"scale_by", {77}, {}},
      {"accumulate", {77}, {}},
      {"fill", {77}, {0.1}},
      {"add_bias", {5, 37}, {}},
      {"mul_rows", {5, 37}, {}},
      {"sum_rows", {131, 37}, {}},
      {"broadcast_copy", {1, 2, 3, 4, 5, 6, 0, 0, 24, 6, 0, 1}, {}},
      {"broadcast_copy", {1, 1, 1, 3, 4, 5, 0, 0, 0, 0, 1, 0}, {}},
      {"permute_copy", {1, 1, 2, 3, 20, 30, 0, 0, 1800, 20, 1, 60}, {}},
      {"permute_copy", {1, 2, 3, 2, 5, 4, 0, 120, 1, 3, 6, 30}, {}},
      {"copy_2d", {7, 9, 3, 20, 2, 11}, {}},
      {"reduce_sum", {5, 171, 1}, {}},
      {"reduce_sum", {3, 135, 19}, {}},
      {"reduce_mean", {5, 71, 1}, {}},
      {"reduce_mean", {3, 7, 35}, {}},
      {"reduce_max", {5, 71, 1}, {}},
      {"reduce_max", {3, 7, 35}, {}},
      {"reduce_max_backward", {3, 7, 35}, {}},
      {"softmax_forward", {7, 53}, {}},
      {"softmax_backward", {7, 53}, {}},
      {"layer_norm_forward", {9, 53}, {1e-5}},
      {"layer_norm_backward_input", {9, 53}, {}},
      {"layer_norm_backward_params", {139, 53}, {}},
      {"rms_norm_forward", {9, 53}, {1e-5}},
      {"rms_norm_backward_input", {9, 53}, {}},
      {"rms_norm_backward_weight", {139, 53}, {}},
      {"attention_forward", {2, 70, 4, 2, 16, 1}, {0.25}},
      {"attention_forward", {1, 141, 2, 2, 20, 0}, {0.3}},
      {"attention_forward", {1, 67, 2, 1, 64, 1}, {0.125}},
      {"attention_forward", {1, 150, 4, 1, 24, 1}, {0.2}},
      {"attention_backward", {1, 150, 4, 1, 24, 1}, {0.2}},
      {"attention_backward", {2, 70, 4, 2, 16, 1}, {0.25}},
      {"attention_backward", {1, 141, 2, 2, 20, 0}, {0.3}},
      {"attention_backward", {1, 67, 2, 1, 64, 1}, {0.125}},
      {"rope_forward", {2, 7, 3, 36, 11}, {10000.0}},
      {"rope_backward", {2, 7, 3, 36, 11}, {10000.0}},
      {"dropout_forward", {330, 110}, {0.3}},
      {"dropout_backward", {330, 110}, {0.3}},
      {"cross_entropy_forward", {13, 53}, {}},
      {"cross_entropy_backward", {13, 53}, {}},
      {"sum_of_squares", {1000}, {}},
      {"clip_factor", {3}, {0.5}},
      {"sgd_update", {77, 0}, {0.1, 0.9, 0.01}},
      {"sgd_update", {77, 1}, {0.1, 0.9, 0.01}},
      {"adamw_update", {77}, {0.1, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001}},
      {"normal_fill", {1001, 37}, {0.5, 0.02}},
      {"uniform_fill", {1001, 37}, {-0.5, 0.25}},
  };
  for (const char* name : {"add", "sub", "mul", "div", "swiglu_forward", "swiglu_backward"}) {
    cases.push_back({name, {77}, {}});
  }
  for (const KernelInfo& info : AllKernels()) {
    bool covered = false;
    for (const Case& test : cases) covered = covered || std::string(test.kernel) == info.name;
    bool unary = info.int_names.size() == 1 && info.scalar_names.empty() && !info.random;
    if (!covered && unary) cases.push_back({info.name, {77}, {}});
  }
  return cases;
}

// A small generator of our own: tests must not depend on the library's distributions.
struct Generator {
  uint64_t state;
  double Next() {  // [-1, 1)
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state >> 40) * 0x1p-23 - 1.0;
  }
};

bool MustBePositive(const std::string& kernel, const std::string& operand) {
  if (operand == "rstd" || operand == "v" || operand == "sums") return kernel.rfind("attention", 0) != 0;
  bool root = kernel.rfind("log", 0) == 0 || kernel.rfind("sqrt", 0) == 0 || kernel.rfind("rsqrt", 0) == 0;
  if (root) return operand == "x" || operand == "y";
  return kernel == "div" && operand == "b";
}

constexpr int64_t kGuard = 24;
constexpr double kGuardValue = 12345.0;

template <typename T>
void CheckGuards(const std::vector<T>& buffer, const char* name, std::string* overrun) {
  for (int64_t i = 0; i < kGuard; ++i) {
    bool intact = buffer[static_cast<size_t>(i)] == static_cast<T>(kGuardValue) &&
                  buffer[buffer.size() - 1 - static_cast<size_t>(i)] == static_cast<T>(kGuardValue);
    if (!intact && overrun->empty()) *overrun = name;
  }
}

template <typename To, typename From>
std::vector<To> Guarded(const std::vector<From>& values) {
  std::vector<To> buffer(values.size() + 2 * kGuard, static_cast<To>(kGuardValue));
  for (size_t i = 0; i < values.size(); ++i) buffer[i + kGuard] = static_cast<To>(values[i]);
  return buffer;
}

}  // namespace

const std::vector<Case>& AllCases() {
  static const std::vector<Case> cases = BuildCases();
  return cases;
}

int OperandIndex(const KernelInfo& info, const std::string& name) {
  for (size_t i = 0; i < info.operands.size(); ++i) {
    if (info.operands[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

Operands MakeOperands(const KernelInfo& info, const Case& test) {
  std::vector<int64_t> elements(info.operands.size());
  info.operand_elements(test.ints.data(), elements.data());
  Operands operands;
  operands.values.resize(info.operands.size());
  operands.integers.resize(info.operands.size());
  for (size_t i = 0; i < info.operands.size(); ++i) {
    const OperandInfo& operand = info.operands[i];
    Generator generator{17 * (i + 1)};
    for (int64_t e = 0; e < elements[i]; ++e) {
      double x = generator.Next();
      if (operand.element == OperandElement::kI32) {
        // Tokens and targets below the vocabulary (the second size), with some that do not count.
        operands.integers[i].push_back(e % 5 == 4 ? -1 : static_cast<int32_t>((x + 1) * 0.5 * test.ints[1]));
      } else if (MustBePositive(info.name, operand.name)) {
        operands.values[i].push_back(static_cast<float>(0.3 + (x + 1)));
      } else {
        operands.values[i].push_back(static_cast<float>(2 * x));
      }
    }
  }
  return operands;
}

Operands RunKernel(const KernelInfo& info, const Case& test, const Operands& operands, bool f64,
                   std::string* overrun) {
  size_t count = info.operands.size();
  std::vector<std::vector<float>> floats(count);
  std::vector<std::vector<double>> doubles(count);
  std::vector<std::vector<int32_t>> integers(count);
  std::vector<void*> pointers;
  for (size_t i = 0; i < count; ++i) {
    if (info.operands[i].element == OperandElement::kI32) {
      integers[i] = Guarded<int32_t>(operands.integers[i]);
      pointers.push_back(integers[i].data() + kGuard);
    } else if (f64 || info.operands[i].element == OperandElement::kF64) {
      doubles[i] = Guarded<double>(operands.values[i]);
      pointers.push_back(doubles[i].data() + kGuard);
    } else {
      floats[i] = Guarded<float>(operands.values[i]);
      pointers.push_back(floats[i].data() + kGuard);
    }
  }
  (f64 ? info.f64 : info.f32)(pointers.data(), test.ints.data(), test.scalars.data(), &test.key);
  Operands results = operands;
  for (size_t i = 0; i < count; ++i) {
    const char* name = info.operands[i].name;
    for (size_t e = 0; e < operands.values[i].size(); ++e) {
      results.values[i][e] = floats[i].empty() ? doubles[i][e + kGuard] : floats[i][e + kGuard];
    }
    if (!integers[i].empty()) CheckGuards(integers[i], name, overrun);
    if (!doubles[i].empty()) CheckGuards(doubles[i], name, overrun);
    if (!floats[i].empty()) CheckGuards(floats[i], name, overrun);
  }
  return results;
}

}  // namespace piper::kernels::testing
