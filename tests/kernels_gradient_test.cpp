// Every backward kernel against f64 central differences of its forward kernel. Operands are matched by name:
// the gradient of operand `x` is `dx`, that of the first output of the forward kernel seeds the backward
// kernel.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/registry.h"
#include "tests/kernels_cases.h"

namespace piper::kernels {
namespace {

using testing::Case;
using testing::MakeOperands;
using testing::OperandIndex;
using testing::Operands;
using testing::RunKernel;

struct Backward {
  const char* kernel;
  std::vector<double> scalars;
};

struct Pair {
  Case forward;
  std::vector<Backward> backward;  // called with the sizes of the forward kernel
};

size_t FirstOutput(const KernelInfo& info) {
  for (size_t i = 0; i < info.operands.size(); ++i) {
    if (info.operands[i].role == OperandRole::kOut) return i;
  }
  return 0;
}

// sum of seed * output of the forward kernel.
double Objective(const KernelInfo& info, const Case& test, const Operands& operands,
                 const std::vector<double>& seed) {
  std::string overrun;
  Operands results = RunKernel(info, test, operands, true, &overrun);
  const std::vector<double>& y = results.values[FirstOutput(info)];
  double total = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    if (!std::isnan(y[i])) total += seed[i] * y[i];  // the row of a token outside the vocabulary
  }
  return total;
}

void ExpectDerivative(const KernelInfo& info, const Case& test, Operands operands,
                      const std::vector<double>& seed, size_t input, const std::vector<double>& gradient,
                      const char* kernel) {
  double largest = 0;
  for (double g : gradient) largest = std::max(largest, std::fabs(g));
  EXPECT_GT(largest, 0) << kernel;
  size_t step = gradient.size() > 150 ? gradient.size() / 97 : 1;
  for (size_t e = 0; e < gradient.size(); e += step) {
    double& x = operands.values[input][e];
    double before = x;
    double h = 2e-5;
    x = before + h;
    double above = Objective(info, test, operands, seed);
    x = before - h;
    double below = Objective(info, test, operands, seed);
    x = before;
    double want = (above - below) / (2 * h);
    EXPECT_NEAR(gradient[e], want, 2e-7 * largest + 1e-8)
        << kernel << " d" << info.operands[input].name << "[" << e << "]";
  }
}

void CheckPair(const Pair& pair) {
  const KernelInfo& forward = *FindKernel(pair.forward.kernel);
  Operands operands = MakeOperands(forward, pair.forward);
  std::string overrun;
  Operands results = RunKernel(forward, pair.forward, operands, true, &overrun);
  size_t output = FirstOutput(forward);
  std::vector<double> seed(results.values[output].size());
  for (size_t i = 0; i < seed.size(); ++i) seed[i] = std::cos(1.7 * static_cast<double>(i) + 0.3);
  for (const Backward& backward : pair.backward) {
    const KernelInfo* info = FindKernel(backward.kernel);
    ASSERT_NE(info, nullptr) << backward.kernel;
    Case test = pair.forward;
    test.kernel = backward.kernel;
    test.scalars = backward.scalars;
    Operands gradients = MakeOperands(*info, test);
    std::string seed_name = "d" + std::string(forward.operands[output].name);
    for (size_t i = 0; i < info->operands.size(); ++i) {
      std::string name = info->operands[i].name;
      int known = OperandIndex(forward, name);
      if (known >= 0) {
        gradients.values[i] = results.values[static_cast<size_t>(known)];
        gradients.integers[i] = results.integers[static_cast<size_t>(known)];
      } else if (info->operands[i].role == OperandRole::kIn) {
        ASSERT_TRUE(name == seed_name || name == "dout") << backward.kernel << " " << name;
        gradients.values[i] = seed;
      }
    }
    gradients = RunKernel(*info, test, gradients, true, &overrun);
    int checked = 0;
    for (size_t i = 0; i < info->operands.size(); ++i) {
      if (info->operands[i].role != OperandRole::kOut) continue;
      int input = OperandIndex(forward, std::string(info->operands[i].name).substr(1));
      ASSERT_GE(input, 0) << backward.kernel << " " << info->operands[i].name;
      ExpectDerivative(forward, pair.forward, operands, seed, static_cast<size_t>(input), gradients.values[i],
                       backward.kernel);
      ++checked;
    }
    EXPECT_GT(checked, 0) << backward.kernel;
  }
  EXPECT_EQ(overrun, "");
}

std::vector<Pair> AllPairs() {
  std::vector<Pair> pairs = {
      {{"embedding_forward", {9, 11, 5}, {}}, {{"embedding_backward", {}}}},
      {{"reduce_max", {3, 7, 5}, {}}, {{"reduce_max_backward", {}}}},
      {{"swiglu_forward", {37}, {}}, {{"swiglu_backward", {}}}},
      {{"softmax_forward", {5, 21}, {}}, {{"softmax_backward", {}}}},
      {{"layer_norm_forward", {5, 21}, {1e-3}},
       {{"layer_norm_backward_input", {}}, {"layer_norm_backward_params", {}}}},
      {{"rms_norm_forward", {5, 21}, {1e-3}},
       {{"rms_norm_backward_input", {}}, {"rms_norm_backward_weight", {}}}},
      {{"attention_forward", {2, 9, 4, 2, 6, 1}, {0.4}}, {{"attention_backward", {0.4}}}},
      {{"attention_forward", {1, 70, 2, 1, 4, 1}, {0.5}}, {{"attention_backward", {0.5}}}},
      {{"attention_forward", {1, 66, 2, 2, 3, 0}, {0.5}}, {{"attention_backward", {0.5}}}},
      {{"rope_forward", {2, 5, 3, 6, 2}, {100.0}}, {{"rope_backward", {100.0}}}},
      {{"dropout_forward", {60, 30}, {0.4}}, {{"dropout_backward", {0.4}}}},
      {{"cross_entropy_forward", {7, 19}, {}}, {{"cross_entropy_backward", {}}}},
  };
  for (const KernelInfo& info : AllKernels()) {
    std::string name = info.name;
    size_t at = name.rfind("_forward");
    if (at == std::string::npos || info.int_names.size() != 1 || info.operands.size() != 2) continue;
    std::string backward = name.substr(0, at) + "_backward";
    if (const KernelInfo* found = FindKernel(backward)) {
      pairs.push_back({{info.name, {37}, {}}, {{found->name, {}}}});
    }
  }
  return pairs;
}

TEST(Gradients, MatchCentralDifferences) {
  for (const Pair& pair : AllPairs()) {
    SCOPED_TRACE(pair.forward.kernel);
    CheckPair(pair);
  }
}

TEST(Gradients, EveryBackwardKernelIsChecked) {
  std::vector<Pair> pairs = AllPairs();
  for (const KernelInfo& info : AllKernels()) {
    if (std::string(info.name).find("_backward") == std::string::npos) continue;
    bool covered = false;
    for (const Pair& pair : pairs) {
      for (const Backward& backward : pair.backward)
        covered = covered || std::string(backward.kernel) == info.name;
    }
    EXPECT_TRUE(covered) << info.name;
  }
}

}  // namespace
}  // namespace piper::kernels
