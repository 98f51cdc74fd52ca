// A strategy never changes what is learned: one batch under (pp, dp, m), all schedules of the library and
// several models, run in-process over the lowered programs, is bitwise equal (every loss, gradient and
// parameter over several steps) to the single-device reference of the same expression; across expressions
// loss and gradient norm agree within 1e-6. A fixed sample runs always, everything under PIPER_SOAK=1.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/pipeline_support.h"

namespace piper::testing {
namespace {

std::vector<TrainText> Matrix(const std::string& model) {
  std::vector<TrainText> cases;
  for (int64_t p : {1, 2, 4}) {
    for (int64_t dp : {1, 2}) {
      for (int64_t m : {1, 2, 4, 8}) {
        for (const char* schedule : {"gpipe", "one_f_one_b", "interleaved"}) {
          const int64_t v = std::string(schedule) == "interleaved" ? 2 : 1;
          TrainText text = Layout(model, schedule, p, v, dp, m);
          if (text.v > 1 && m % p != 0) continue;
          cases.push_back(text);
        }
      }
    }
  }
  return cases;
}

class Matrix1 : public ::testing::TestWithParam<const char*> {};

TEST_P(Matrix1, BitwiseEqualToTheReference) {
  std::vector<TrainText> cases = Matrix(GetParam());
  int ran = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    // Another sample a model: strides are coprime to the lengths of the inner loops.
    if (!Soak() && (i + std::string(GetParam()).size()) % 7 != 0) continue;
    cases[i].steps = 3;
    ExpectEqualToReference(cases[i]);
    ++ran;
  }
  EXPECT_GE(ran, 8);
}

TEST_P(Matrix1, AcrossExpressionsTheLossAndTheNormAgree) {
  double loss = 0, norm = 0;
  int ran = 0;
  for (const TrainText& text : Matrix(GetParam())) {
    if (text.schedule != "one_f_one_b") continue;
    if (!Soak() && (text.p + text.m) % 3 != 0 && text.m != 1) continue;
    std::unique_ptr<Compiled> compiled = Compile(text.Text());
    ASSERT_TRUE(compiled->ok()) << compiled->Messages();
    RunResult run = RunJob(compiled->job(), 1);
    ASSERT_EQ(run.losses.size(), 1u);
    double run_norm = GradientNorm(run);
    if (ran++ == 0) {
      loss = run.losses[0];
      norm = run_norm;
    }
    EXPECT_NEAR(run.losses[0], loss, 1e-6 * std::fabs(loss)) << text.Name();
    EXPECT_NEAR(run_norm, norm, 1e-6 * norm) << text.Name();
  }
  EXPECT_GE(ran, 6);
}

INSTANTIATE_TEST_SUITE_P(Models, Matrix1, ::testing::Values("gpt", "gpt_dropout", "llama", "skip"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace piper::testing
