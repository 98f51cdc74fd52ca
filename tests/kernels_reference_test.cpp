// Forward kernels, copies, reductions and optimizer steps against straightforward references in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/registry.h"
#include "tests/kernels_cases.h"

namespace piper::kernels {
namespace {

using testing::Case;
using testing::MakeOperands;
using testing::OperandIndex;
using testing::Operands;
using testing::RunKernel;
using Values = std::vector<double>;

struct Executed {
  Operands before, after;
  const KernelInfo* info;
  const Values& In(const char* name) const {
    return before.values[static_cast<size_t>(OperandIndex(*info, name))];
  }
  const std::vector<int32_t>& Tokens(const char* name) const {
    return before.integers[static_cast<size_t>(OperandIndex(*info, name))];
  }
  const Values& Out(const char* name) const {
    return after.values[static_cast<size_t>(OperandIndex(*info, name))];
  }
};

Executed Execute(const Case& test, bool f64 = true) {
  Executed run;
  run.info = FindKernel(test.kernel);
  run.before = MakeOperands(*run.info, test);
  std::string overrun;
  run.after = RunKernel(*run.info, test, run.before, f64, &overrun);
  EXPECT_EQ(overrun, "") << test.kernel;
  return run;
}

void ExpectNear(const Values& got, const Values& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0;
  for (double w : want) largest = std::max(largest, std::fabs(w));
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << what << " " << i;
    } else {
      ASSERT_NEAR(got[i], want[i], tolerance * largest + 1e-300) << what << " " << i;
    }
  }
}

TEST(Reference, Gemm) {
  for (int64_t k : {1, 29, 256, 257, 600}) {
    for (int64_t flags = 0; flags < 4; ++flags) {
      int64_t m = 31, n = 47, ta = flags & 1, tb = flags >> 1;
      Executed run = Execute({"gemm", {m, n, k, ta, tb}, {}});
      Values want;
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t p = 0; p < k; ++p) {
            sum += run.In("a")[static_cast<size_t>(ta ? p * m + i : i * k + p)] *
                   run.In("b")[static_cast<size_t>(tb ? j * k + p : p * n + j)];
          }
          want.push_back(sum);
        }
      }
      ExpectNear(run.Out("c"), want, 1e-13, "gemm");
    }
  }
}

TEST(Reference, Pointwise) {
  const double pi = std::acos(-1.0);
  std::vector<std::pair<const char*, std::function<double(double)>>> functions = {
      {"neg_forward", [](double x) { return -x; }},
      {"exp_forward", [](double x) { return std::exp(x); }},
      {"log_forward", [](double x) { return std::log(x); }},
      {"sqrt_forward", [](double x) { return std::sqrt(x); }},
      {"rsqrt_forward", [](double x) { return 1 / std::sqrt(x); }},
      {"square_forward", [](double x) { return x * x; }},
      {"tanh_forward", [](double x) { return std::tanh(x); }},
      {"sigmoid_forward", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"relu_forward", [](double x) { return x > 0 ? x : 0; }},
      {"gelu_forward",
       [=](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x))); }},
      {"gelu_erf_forward", [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
      {"silu_forward", [](double x) { return x / (1 + std::exp(-x)); }},
  };
  for (const auto& [name, function] : functions) {
    Executed run = Execute({name, {133}, {}});
    Values want;
    for (double x : run.In("x")) want.push_back(function(x));
    ExpectNear(run.Out("y"), want, 1e-14, name);
  }
  std::vector<std::pair<const char*, std::function<double(double, double)>>> binary = {
      {"add", [](double a, double b) { return a + b; }},
      {"sub", [](double a, double b) { return a - b; }},
      {"mul", [](double a, double b) { return a * b; }},
      {"div", [](double a, double b) { return a / b; }},
  };
  for (const auto& [name, function] : binary) {
    Executed run = Execute({name, {133}, {}});
    Values want;
    for (size_t i = 0; i < 133; ++i) want.push_back(function(run.In("a")[i], run.In("b")[i]));
    ExpectNear(run.Out("y"), want, 1e-15, name);
  }
  Executed swiglu = Execute({"swiglu_forward", {133}, {}});
  Executed affine = Execute({"affine", {133}, {1.5, -0.25}});
  Executed scale = Execute({"scale", {133}, {1.5}});
  Executed scale_by = Execute({"scale_by", {133}, {}});
  Executed accumulate = Execute({"accumulate", {133}, {}});
  for (size_t i = 0; i < 133; ++i) {
    double g = swiglu.In("gate")[i];
    EXPECT_NEAR(swiglu.Out("y")[i], g / (1 + std::exp(-g)) * swiglu.In("up")[i], 1e-14);
    EXPECT_NEAR(affine.Out("y")[i], 1.5 * affine.In("x")[i] - 0.25, 1e-14);
    EXPECT_EQ(scale.Out("y")[i], 1.5 * scale.In("x")[i]);
    EXPECT_EQ(scale_by.Out("y")[i], scale_by.In("factor")[0] * scale_by.In("x")[i]);
    EXPECT_EQ(accumulate.Out("y")[i], accumulate.In("y")[i] + accumulate.In("x")[i]);
  }
  Executed fill = Execute({"fill", {133}, {0.75}});
  for (double y : fill.Out("y")) EXPECT_EQ(y, 0.75);
}

TEST(Reference, RowBroadcast) {
  const size_t rows = 70, cols = 21;
  Executed bias = Execute({"add_bias", {70, 21}, {}});
  Executed weight = Execute({"mul_rows", {70, 21}, {}});
  Executed sums = Execute({"sum_rows", {70, 21}, {}});
  Values want(cols);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) {
      EXPECT_EQ(bias.Out("y")[r * cols + c], bias.In("x")[r * cols + c] + bias.In("bias")[c]);
      EXPECT_EQ(weight.Out("y")[r * cols + c], weight.In("x")[r * cols + c] * weight.In("weight")[c]);
      want[c] += sums.In("x")[r * cols + c];
    }
  }
  ExpectNear(sums.Out("sums"), want, 1e-13, "sum_rows");
}

TEST(Reference, Copies) {
  for (const Case& test : testing::AllCases()) {
    std::string name = test.kernel;
    if (name != "broadcast_copy" && name != "permute_copy") continue;
    Executed run = Execute(test, false);
    int64_t index[6] = {};
    for (size_t i = 0; i < run.Out("y").size(); ++i) {
      int64_t at = 0;
      for (size_t d = 0; d < 6; ++d) at += index[d] * test.ints[6 + d];
      ASSERT_EQ(run.Out("y")[i], run.In("x")[static_cast<size_t>(at)]) << name << " " << i;
      for (size_t d = 6; d-- > 0;) {
        if (++index[d] < test.ints[d]) break;
        index[d] = 0;
      }
    }
  }
  // The middle columns of a 3 x 6 matrix go to the right of a 3 x 4 one; its left half stays.
  Executed slice = Execute({"copy_2d", {3, 2, 2, 6, 2, 4}, {}});
  for (size_t r = 0; r < 3; ++r) {
    for (size_t c = 0; c < 4; ++c) {
      double want = c < 2 ? slice.In("y")[r * 4 + c] : slice.In("x")[r * 6 + c];
      EXPECT_EQ(slice.Out("y")[r * 4 + c], want);
    }
  }
}

TEST(Reference, Reductions) {
  for (int64_t inner : {1, 19}) {
    size_t outer = 3, reduced = 135, in = static_cast<size_t>(inner);
    Executed sum = Execute({"reduce_sum", {3, 135, inner}, {}});
    Executed mean = Execute({"reduce_mean", {3, 135, inner}, {}});
    Executed largest = Execute({"reduce_max", {3, 135, inner}, {}});
    Values sums(outer * in), means(outer * in), maxima(outer * in, -1e300);
    for (size_t o = 0; o < outer; ++o) {
      for (size_t r = 0; r < reduced; ++r) {
        for (size_t i = 0; i < in; ++i) {
          double x = sum.In("x")[(o * reduced + r) * in + i];
          sums[o * in + i] += x;
          means[o * in + i] += x / static_cast<double>(reduced);
          maxima[o * in + i] = std::max(maxima[o * in + i], x);
        }
      }
    }
    ExpectNear(sum.Out("y"), sums, 1e-13, "reduce_sum");
    ExpectNear(mean.Out("y"), means, 1e-13, "reduce_mean");
    ExpectNear(largest.Out("y"), maxima, 0, "reduce_max");
  }
}

TEST(Reference, Normalisation) {
  const size_t rows = 6, cols = 37;
  Executed layer = Execute({"layer_norm_forward", {6, 37}, {1e-5}});
  Executed rms = Execute({"rms_norm_forward", {6, 37}, {1e-5}});
  Executed softmax = Execute({"softmax_forward", {6, 37}, {}});
  for (size_t r = 0; r < rows; ++r) {
    double mean = 0, variance = 0, squares = 0, exponentials = 0;
    for (size_t c = 0; c < cols; ++c) mean += layer.In("x")[r * cols + c] / cols;
    for (size_t c = 0; c < cols; ++c) {
      variance += std::pow(layer.In("x")[r * cols + c] - mean, 2) / cols;
      squares += std::pow(rms.In("x")[r * cols + c], 2) / cols;
      exponentials += std::exp(softmax.In("x")[r * cols + c]);
    }
    double rstd = 1 / std::sqrt(variance + 1e-5);
    EXPECT_NEAR(layer.Out("mean")[r], mean, 1e-13);
    EXPECT_NEAR(layer.Out("rstd")[r], rstd, 1e-13);
    EXPECT_NEAR(rms.Out("rstd")[r], 1 / std::sqrt(squares + 1e-5), 1e-13);
    for (size_t c = 0; c < cols; ++c) {
      size_t i = r * cols + c;
      EXPECT_NEAR(layer.Out("y")[i],
                  (layer.In("x")[i] - mean) * rstd * layer.In("gamma")[c] + layer.In("beta")[c], 1e-13);
      EXPECT_NEAR(rms.Out("y")[i], rms.In("x")[i] / std::sqrt(squares + 1e-5) * rms.In("weight")[c], 1e-13);
      EXPECT_NEAR(softmax.Out("y")[i], std::exp(softmax.In("x")[i]) / exponentials, 1e-14);
    }
  }
}

TEST(Reference, SoftmaxAndCrossEntropyHoldLargeLogits) {
  float x[3] = {1000.0f, 999.0f, -1000.0f}, y[3], scale = 1.0f, loss, lse;
  int32_t target = 1;
  softmax_forward(x, y, 1, 3);
  EXPECT_NEAR(y[0], 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_EQ(y[2], 0.0f);
  cross_entropy_forward(x, &target, &scale, &loss, &lse, 1, 3);
  EXPECT_NEAR(loss, 1 + std::log1p(std::exp(-1.0)), 1e-4);
}

void CheckAttention(const Case& test) {
  Executed run = Execute(test);
  int64_t batch = test.ints[0], seq = test.ints[1], heads = test.ints[2], kv_heads = test.ints[3],
          d = test.ints[4];
  bool causal = test.ints[5] != 0;
  Values want(run.Out("o").size()), lse(run.Out("lse").size());
  auto at = [&](int64_t b, int64_t s, int64_t h, int64_t count) {
    return static_cast<size_t>(((b * seq + s) * count + h) * d);
  };
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      int64_t kv = h / (heads / kv_heads);
      for (int64_t i = 0; i < seq; ++i) {
        int64_t end = causal ? i + 1 : seq;
        Values weight;
        double total = 0;
        for (int64_t j = 0; j < end; ++j) {
          double dot = 0;
          for (int64_t c = 0; c < d; ++c) {
            dot += run.In("q")[at(b, i, h, heads) + static_cast<size_t>(c)] *
                   run.In("k")[at(b, j, kv, kv_heads) + static_cast<size_t>(c)];
          }
          weight.push_back(std::exp(dot * test.scalars[0]));
          total += weight.back();
        }
        for (int64_t j = 0; j < end; ++j) {
          for (int64_t c = 0; c < d; ++c) {
            want[at(b, i, h, heads) + static_cast<size_t>(c)] +=
                weight[static_cast<size_t>(j)] / total *
                run.In("v")[at(b, j, kv, kv_heads) + static_cast<size_t>(c)];
          }
        }
        lse[static_cast<size_t>((b * heads + h) * seq + i)] = std::log(total);
      }
    }
  }
  ExpectNear(run.Out("o"), want, 1e-12, "o");
  ExpectNear(run.Out("lse"), lse, 1e-12, "lse");
}

TEST(Reference, Attention) {
  CheckAttention({"attention_forward", {2, 70, 4, 2, 16, 1}, {0.25}});
  CheckAttention({"attention_forward", {1, 141, 2, 2, 20, 0}, {0.3}});
  CheckAttention({"attention_forward", {1, 130, 6, 2, 7, 1}, {0.3}});
  CheckAttention({"attention_forward", {1, 1, 1, 1, 1, 1}, {1.0}});
  CheckAttention({"attention_forward", {1, 64, 2, 1, 33, 0}, {-0.2}});
}

TEST(Reference, AttentionBeyondTheScratch) {
  // Long enough that the packed keys of one head do not fit: rows must equal those of the last queries alone
  // when the keys are the same, here checked by uniform weights (q = 0 makes o the running mean of v).
  const int64_t seq = 3200, d = 256;
  std::vector<float> q(static_cast<size_t>(seq * d), 0.0f), k(q), v(q), o(q), lse(static_cast<size_t>(seq));
  for (int64_t s = 0; s < seq; ++s) {
    for (int64_t c = 0; c < d; ++c) v[static_cast<size_t>(s * d + c)] = static_cast<float>(s % 7);
  }
  attention_forward(q.data(), k.data(), v.data(), o.data(), lse.data(), 1, seq, 1, 1, d, 1, 1.0);
  double sum = 0;
  for (int64_t s = 0; s < seq; ++s) {
    sum += static_cast<double>(s % 7);
    double mean = sum / static_cast<double>(s + 1);
    ASSERT_NEAR(o[static_cast<size_t>(s * d)], mean, 1e-4) << s;
    ASSERT_NEAR(o[static_cast<size_t>(s * d + d - 1)], mean, 1e-4) << s;
    ASSERT_NEAR(lse[static_cast<size_t>(s)], std::log(static_cast<double>(s + 1)), 1e-5) << s;
  }
}

TEST(Reference, Rope) {
  const int64_t batch = 2, seq = 5, heads = 3, d = 8, first = 1000;
  Executed run = Execute({"rope_forward", {batch, seq, heads, d, first}, {10000.0}});
  for (int64_t row = 0; row < batch * seq * heads; ++row) {
    double position = static_cast<double>(first + row / heads % seq);
    for (int64_t i = 0; i < d / 2; ++i) {
      double angle = position * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(d));
      size_t low = static_cast<size_t>(row * d + i), high = low + static_cast<size_t>(d / 2);
      double a = run.In("x")[low], b = run.In("x")[high];
      EXPECT_NEAR(run.Out("y")[low], a * std::cos(angle) - b * std::sin(angle), 1e-11);
      EXPECT_NEAR(run.Out("y")[high], a * std::sin(angle) + b * std::cos(angle), 1e-11);
    }
  }
}

TEST(Reference, EmbeddingAndCrossEntropy) {
  Executed look = Execute({"embedding_forward", {10, 6, 5}, {}});
  for (size_t r = 0; r < 10; ++r) {
    int32_t token = look.Tokens("tokens")[r];
    for (size_t c = 0; c < 5; ++c) {
      if (token < 0) {
        EXPECT_TRUE(std::isnan(look.Out("y")[r * 5 + c]));
      } else {
        EXPECT_EQ(look.Out("y")[r * 5 + c], look.In("table")[static_cast<size_t>(token) * 5 + c]);
      }
    }
  }
  Executed loss = Execute({"cross_entropy_forward", {10, 23}, {}});
  double want = 0;
  for (size_t r = 0; r < 10; ++r) {
    double total = 0;
    for (size_t c = 0; c < 23; ++c) total += std::exp(loss.In("logits")[r * 23 + c]);
    EXPECT_NEAR(loss.Out("lse")[r], std::log(total), 1e-13);
    int32_t target = loss.Tokens("targets")[r];
    if (target < 0) continue;
    want += (std::log(total) - loss.In("logits")[r * 23 + static_cast<size_t>(target)]) * loss.In("scale")[0];
  }
  EXPECT_NEAR(loss.Out("loss")[0], want, 1e-12);
}

TEST(Reference, GlobalNorm) {
  std::vector<float> x(64 * 5 + 9);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  double whole = 0, want = 0;
  for (float v : x) want += static_cast<double>(v) * static_cast<double>(v);
  sum_of_squares(x.data(), &whole, static_cast<int64_t>(x.size()));
  EXPECT_NEAR(whole, want, 1e-12);
  // Cut at a block boundary, folding block by block gives the same bits.
  double folded = 0;
  for (size_t start = 0; start < x.size(); start += kNormBlock) {
    double block = 0;
    sum_of_squares(x.data() + start, &block,
                   std::min<int64_t>(kNormBlock, static_cast<int64_t>(x.size() - start)));
    folded += block;
  }
  EXPECT_EQ(folded, whole);
  double sums[2] = {9.0, 16.0}, factor = 0;
  clip_factor(sums, &factor, 2, 1.0);
  EXPECT_DOUBLE_EQ(factor, 1.0 / (5.0 + 1e-6));
  clip_factor(sums, &factor, 2, 10.0);
  EXPECT_EQ(factor, 1.0);
}

TEST(Reference, Optimizers) {
  const size_t n = 21;
  Values p(n), m(n), v(n), want_p(n), want_m(n), want_v(n);
  for (size_t i = 0; i < n; ++i) p[i] = want_p[i] = std::cos(static_cast<double>(i));
  for (int step = 1; step <= 4; ++step) {
    Values g(n);
    for (size_t i = 0; i < n; ++i) g[i] = std::sin(static_cast<double>(step * 10) + static_cast<double>(i));
    double c1 = 1 - std::pow(0.9, step), c2 = 1 - std::pow(0.95, step);
    adamw_update(g.data(), p.data(), m.data(), v.data(), n, 0.01, 0.9, 0.95, 1e-3, 0.1, c1, c2);
    for (size_t i = 0; i < n; ++i) {
      want_p[i] *= 1 - 0.01 * 0.1;
      want_m[i] = 0.9 * want_m[i] + 0.1 * g[i];
      want_v[i] = 0.95 * want_v[i] + 0.05 * g[i] * g[i];
      want_p[i] -= 0.01 * (want_m[i] / c1) / (std::sqrt(want_v[i] / c2) + 1e-3);
    }
    ExpectNear(p, want_p, 1e-14, "adamw");
  }
  for (bool nesterov : {false, true}) {
    Values velocity(n), want_velocity(n);
    for (int step = 1; step <= 4; ++step) {
      Values g(n);
      for (size_t i = 0; i < n; ++i) g[i] = std::sin(static_cast<double>(step * 10) + static_cast<double>(i));
      sgd_update(g.data(), p.data(), velocity.data(), n, nesterov ? 1 : 0, 0.01, 0.9, 0.1);
      for (size_t i = 0; i < n; ++i) {
        double d = g[i] + 0.1 * want_p[i];
        want_velocity[i] = 0.9 * want_velocity[i] + d;
        want_p[i] -= 0.01 * (nesterov ? d + 0.9 * want_velocity[i] : want_velocity[i]);
      }
      ExpectNear(p, want_p, 1e-13, "sgd");
    }
  }
}

TEST(Reference, FirstNonFinite) {
  std::vector<float> x(1000, 1.0f);
  EXPECT_EQ(first_non_finite(x.data(), 1000), -1);
  x[999] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(first_non_finite(x.data(), 1000), 999);
  EXPECT_EQ(first_non_finite(x.data(), 999), -1);
  x[300] = std::nanf("");
  EXPECT_EQ(first_non_finite(x.data(), 1000), 300);
  std::vector<double> y = {1.0, -std::numeric_limits<double>::infinity()};
  EXPECT_EQ(first_non_finite(y.data(), 2), 1);
  EXPECT_EQ(first_non_finite(y.data(), 0), -1);
}

}  // namespace
}  // namespace piper::kernels
