// The f32 functions against the C library's f64 ones, in units in the last place, and their special values.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/kernels.h"

namespace piper::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The largest error of `kernel` over x, in units in the last place of the true result.
double LargestError(const std::vector<float>& x,
                    const std::function<void(const float*, float*, int64_t)>& kernel,
                    const std::function<double(double)>& truth) {
  std::vector<float> y(x.size());
  kernel(x.data(), y.data(), static_cast<int64_t>(x.size()));
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    double want = truth(x[i]);
    if (std::fabs(want) < 1.2e-38 || std::fabs(want) > 3.4e38) continue;
    float rounded = std::fabs(static_cast<float>(want));
    double unit = static_cast<double>(std::nextafter(rounded, kInfinity)) - static_cast<double>(rounded);
    largest = std::max(largest, std::fabs(static_cast<double>(y[i]) - want) / unit);
  }
  return largest;
}

std::vector<float> Range(double low, double high, int count) {
  std::vector<float> x;
  for (int i = 0; i <= count; ++i) x.push_back(static_cast<float>(low + (high - low) * i / count));
  return x;
}

std::vector<float> Geometric(double low, double high, int count) {
  std::vector<float> x;
  for (int i = 0; i <= count; ++i)
    x.push_back(static_cast<float>(low * std::pow(high / low, double(i) / count)));
  return x;
}

#define PIPER_LARGEST_ERROR(kernel, x, truth) \
  LargestError(                               \
      x, [](const float* in, float* out, int64_t n) { kernel(in, out, n); }, [](double v) { return truth; })

TEST(VectorMath, ExpIsWithinTwoUnits) {
  EXPECT_LE(PIPER_LARGEST_ERROR(exp_forward, Range(-87.3, 88.7, 400001), std::exp(v)), 2.0);
  float x[6] = {0.0f, 89.0f, -104.0f, kInfinity, -kInfinity, std::nanf("")}, y[6];
  exp_forward(x, y, 6);
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], kInfinity);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], kInfinity);
  EXPECT_EQ(y[4], 0.0f);
  EXPECT_TRUE(std::isnan(y[5]));
}

TEST(VectorMath, LogIsWithinTwoUnits) {
  EXPECT_LE(PIPER_LARGEST_ERROR(log_forward, Geometric(1e-38, 3e38, 400001), std::log(v)), 2.0);
  EXPECT_LE(PIPER_LARGEST_ERROR(log_forward, Range(0.5, 2.0, 400001), std::log(v)), 2.0);
  float x[6] = {1.0f, 0.0f, -1.0f, kInfinity, 1e-42f, std::nanf("")}, y[6];
  log_forward(x, y, 6);
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], -kInfinity);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], kInfinity);
  EXPECT_NEAR(y[4], std::log(1e-42f), 1e-4);
  EXPECT_TRUE(std::isnan(y[5]));
}

TEST(VectorMath, TanhIsWithinThreeUnits) {
  EXPECT_LE(PIPER_LARGEST_ERROR(tanh_forward, Range(-12, 12, 400001), std::tanh(v)), 3.0);
  EXPECT_LE(PIPER_LARGEST_ERROR(tanh_forward, Geometric(1e-30, 1, 100001), std::tanh(v)), 3.0);
  float x[4] = {kInfinity, -kInfinity, 100.0f, std::nanf("")}, y[4];
  tanh_forward(x, y, 4);
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], -1.0f);
  EXPECT_EQ(y[2], 1.0f);
  EXPECT_TRUE(std::isnan(y[3]));
}

TEST(VectorMath, SigmoidIsWithinThreeUnits) {
  EXPECT_LE(PIPER_LARGEST_ERROR(sigmoid_forward, Range(-87, 87, 400001), 1 / (1 + std::exp(-v))), 3.0);
}

// gelu_erf(x) = x/2 (1 + erf(x / sqrt 2)) exposes erf; far to the left 1 + erf cancels, so the error is
// absolute.
TEST(VectorMath, ErfIsAccurate) {
  std::vector<float> x = Range(-8, 8, 400001), y(x.size());
  gelu_erf_forward(x.data(), y.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    double want = 0.5 * x[i] * (1 + std::erf(x[i] / std::sqrt(2.0)));
    ASSERT_NEAR(y[i], want, 2.5e-7 * std::max(1.0, std::fabs(double(x[i])))) << x[i];
  }
}

TEST(VectorMath, ActivationsSaturateWithoutNan) {
  std::vector<float> x = {-1e30f, -1e10f, -100.0f, 100.0f, 1e10f, 1e30f}, one(6, 1.0f), y(6), dx(6);
  gelu_forward(x.data(), y.data(), 6);
  gelu_backward(x.data(), one.data(), dx.data(), 6);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(y[i], x[i] > 0 ? x[i] : -0.0f) << x[i];
    EXPECT_EQ(dx[i], x[i] > 0 ? 1.0f : 0.0f) << x[i];
  }
  silu_backward(x.data(), one.data(), dx.data(), 6);
  gelu_erf_backward(x.data(), one.data(), y.data(), 6);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(dx[i], x[i] > 0 ? 1.0f : 0.0f) << x[i];
    EXPECT_EQ(y[i], x[i] > 0 ? 1.0f : 0.0f) << x[i];
  }
}

}  // namespace
}  // namespace piper::kernels
