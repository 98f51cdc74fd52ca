// Every kernel gives the same bits on every instruction set, f32 agrees with f64, and nothing is written out
// of bounds.
#include "kernels/isa.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/registry.h"
#include "tests/kernels_cases.h"

namespace piper::kernels {
namespace {

using testing::AllCases;
using testing::Case;
using testing::MakeOperands;
using testing::Operands;

std::string Name(const Case& test) {
  std::string text = test.kernel;
  for (int64_t i : test.ints) text += " " + std::to_string(i);
  return text;
}

// The index of the first value whose bits differ (NaNs are equal to each other), or -1.
int64_t FirstDifference(const std::vector<double>& a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(double)) != 0) return static_cast<int64_t>(i);
  }
  return -1;
}

class EveryIsa : public ::testing::Test {
 protected:
  void SetUp() override { before_ = ActiveIsa(); }
  void TearDown() override { SelectIsa(before_); }
  Isa before_ = Isa::kPlain;
};

TEST(KernelCases, CoverTheRegistry) {
  for (const KernelInfo& info : AllKernels()) {
    bool covered = false;
    for (const Case& test : AllCases()) covered = covered || std::string(test.kernel) == info.name;
    EXPECT_TRUE(covered) << info.name;
  }
}

TEST(KernelCases, HaveTheRightArity) {
  for (const Case& test : AllCases()) {
    const KernelInfo* info = FindKernel(test.kernel);
    ASSERT_NE(info, nullptr) << test.kernel;
    EXPECT_EQ(info->int_names.size(), test.ints.size()) << test.kernel;
    EXPECT_EQ(info->scalar_names.size(), test.scalars.size()) << test.kernel;
  }
}

TEST_F(EveryIsa, GivesTheSameBits) {
  for (const Case& test : AllCases()) {
    const KernelInfo* info = FindKernel(test.kernel);
    Operands inputs = MakeOperands(*info, test);
    for (bool f64 : {false, true}) {
      ASSERT_TRUE(SelectIsa(Isa::kPlain));
      std::string overrun;
      Operands plain = RunKernel(*info, test, inputs, f64, &overrun);
      for (Isa isa : {Isa::kV3, Isa::kV4}) {
        if (!SelectIsa(isa)) continue;
        Operands other = RunKernel(*info, test, inputs, f64, &overrun);
        for (size_t i = 0; i < info->operands.size(); ++i) {
          int64_t at = FirstDifference(plain.values[i], other.values[i]);
          EXPECT_EQ(at, -1) << Name(test) << (f64 ? " f64 " : " f32 ") << IsaName(isa) << " operand "
                            << info->operands[i].name << ": " << plain.values[i][at < 0 ? 0 : at] << " and "
                            << other.values[i][at < 0 ? 0 : at];
        }
      }
      EXPECT_EQ(overrun, "") << Name(test);
    }
  }
}

TEST_F(EveryIsa, SingleAgreesWithDouble) {
  for (const Case& test : AllCases()) {
    const KernelInfo* info = FindKernel(test.kernel);
    Operands inputs = MakeOperands(*info, test);
    std::string overrun;
    Operands single = RunKernel(*info, test, inputs, false, &overrun);
    Operands reference = RunKernel(*info, test, inputs, true, &overrun);
    for (size_t i = 0; i < info->operands.size(); ++i) {
      double largest = 0, difference = 0;
      for (size_t e = 0; e < reference.values[i].size(); ++e) {
        double want = reference.values[i][e], got = single.values[i][e];
        ASSERT_EQ(std::isnan(want), std::isnan(got))
            << Name(test) << " " << info->operands[i].name << " " << e;
        if (std::isnan(want)) continue;
        largest = std::max(largest, std::fabs(want));
        difference = std::max(difference, std::fabs(want - got));
      }
      EXPECT_LE(difference, 4e-6 * largest + 1e-7) << Name(test) << " operand " << info->operands[i].name;
    }
  }
}

TEST(Isa, RefusesWhatIsNotThere) {
  EXPECT_TRUE(IsaAvailable(Isa::kPlain));
  EXPECT_TRUE(IsaAvailable(ActiveIsa()));
  if (!IsaAvailable(Isa::kV4)) {
    EXPECT_FALSE(SelectIsa(Isa::kV4));
  }
}

TEST(Registry, ReadsTheDeclarations) {
  const KernelInfo* info = FindKernel("adamw_update");
  ASSERT_NE(info, nullptr);
  ASSERT_EQ(info->operands.size(), 4u);
  EXPECT_EQ(info->operands[0].role, OperandRole::kIn);
  EXPECT_EQ(info->operands[1].role, OperandRole::kInOut);
  EXPECT_STREQ(info->operands[1].name, "parameter");
  EXPECT_EQ(info->int_names.size(), 1u);
  EXPECT_EQ(info->scalar_names.size(), 7u);
  EXPECT_STREQ(info->scalar_names[6], "bias_correction2");
  EXPECT_FALSE(info->random);
  EXPECT_TRUE(FindKernel("dropout_forward")->random);
  EXPECT_EQ(FindKernel("embedding_forward")->operands[0].element, OperandElement::kI32);
  EXPECT_EQ(FindKernel("sum_of_squares")->operands[1].element, OperandElement::kF64);
  EXPECT_EQ(FindKernel("no_such_kernel"), nullptr);
}

TEST(Registry, KnowsCosts) {
  const KernelInfo* info = FindKernel("gemm");
  int64_t ints[] = {2, 3, 4, 0, 0};
  int64_t elements[3];
  info->operand_elements(ints, elements);
  EXPECT_EQ(elements[0], 8);
  EXPECT_EQ(elements[1], 12);
  EXPECT_EQ(elements[2], 6);
  EXPECT_EQ(info->flops(ints), 48);
  EXPECT_EQ(info->bytes(ints, 4), 26 * 4);
  EXPECT_EQ(info->workspace_elements(ints), 0);
}

}  // namespace
}  // namespace piper::kernels
