// Properties that strategies rely on: products do not depend on how rows or columns are divided, dropout
// masks and initial values depend on the key and the global index alone, reductions on fixed trees.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#define PIPER_ISA isa_test  // the portable form of the internal headers
#define PIPER_ISA_LEVEL 0
#include "kernels/kernels.h"
#include "kernels/random.h"

namespace piper::kernels {
namespace {

std::vector<float> Numbers(int64_t n, uint64_t operation) {
  std::vector<float> x(static_cast<size_t>(n));
  uniform_fill(x.data(), n, 0, -1.0, 1.0, {.seed = 1, .operation = operation});
  return x;
}

// C by the definition: one chain per block of kGemmBlockK, block sums added in order.
float Chain(const std::vector<float>& a, const std::vector<float>& b, int64_t i, int64_t j, int64_t n,
            int64_t k) {
  float total = 0;
  for (int64_t k0 = 0; k0 < k; k0 += kGemmBlockK) {
    float sum = 0;
    for (int64_t p = k0; p < std::min(k, k0 + kGemmBlockK); ++p) {
      sum = std::fmaf(a[static_cast<size_t>(i * k + p)], b[static_cast<size_t>(p * n + j)], sum);
    }
    total = k0 == 0 ? sum : total + sum;
  }
  return total;
}

TEST(GemmBits, AreTheStatedChain) {
  for (auto [m, n, k] : {std::array<int64_t, 3>{61, 83, 700}, {14, 32, 256}, {1, 1, 5}, {450, 17, 512}}) {
    std::vector<float> a = Numbers(m * k, 1), b = Numbers(k * n, 2), c(static_cast<size_t>(m * n));
    gemm(a.data(), b.data(), c.data(), m, n, k, 0, 0);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        ASSERT_EQ(c[static_cast<size_t>(i * n + j)], Chain(a, b, i, j, n, k)) << i << " " << j;
      }
    }
  }
}

TEST(GemmBits, DoNotDependOnHowRowsAreDivided) {
  const int64_t m = 100, n = 70, k = 300;
  std::vector<float> a = Numbers(m * k, 1), b = Numbers(k * n, 2), whole(m * n), parts(m * n);
  gemm(a.data(), b.data(), whole.data(), m, n, k, 0, 0);
  for (int64_t start = 0, size = 1; start < m; start += size, ++size) {
    gemm(a.data() + start * k, b.data(), parts.data() + start * n, std::min(size, m - start), n, k, 0, 0);
  }
  EXPECT_EQ(whole, parts);
}

TEST(GemmBits, DoNotDependOnTransposition) {
  const int64_t m = 50, n = 37, k = 290;
  std::vector<float> a = Numbers(m * k, 1), b = Numbers(k * n, 2), at(a.size()), bt(b.size());
  permute_copy(a.data(), at.data(), 1, 1, 1, 1, k, m, 0, 0, 0, 0, 1, k);
  permute_copy(b.data(), bt.data(), 1, 1, 1, 1, n, k, 0, 0, 0, 0, 1, n);
  std::vector<float> want(m * n), got(m * n);
  gemm(a.data(), b.data(), want.data(), m, n, k, 0, 0);
  gemm(at.data(), b.data(), got.data(), m, n, k, 1, 0);
  EXPECT_EQ(want, got);
  gemm(a.data(), bt.data(), got.data(), m, n, k, 0, 1);
  EXPECT_EQ(want, got);
  gemm(at.data(), bt.data(), got.data(), m, n, k, 1, 1);
  EXPECT_EQ(want, got);
  gemm_batched(a.data(), b.data(), got.data(), 1, m, n, k, 0, 0);
  EXPECT_EQ(want, got);
}

TEST(AttentionBits, DoNotDependOnTheBatch) {
  const int64_t batch = 3, seq = 70, heads = 4, kv = 2, d = 16;
  int64_t queries = seq * heads * d, keys = seq * kv * d;
  std::vector<float> q = Numbers(batch * queries, 1), k = Numbers(batch * keys, 2),
                     v = Numbers(batch * keys, 3);
  std::vector<float> o(q.size()), one(q.size()), lse(static_cast<size_t>(batch * heads * seq)),
      lse_one(lse.size());
  attention_forward(q.data(), k.data(), v.data(), o.data(), lse.data(), batch, seq, heads, kv, d, 1, 0.25);
  for (int64_t b = 0; b < batch; ++b) {
    attention_forward(q.data() + b * queries, k.data() + b * keys, v.data() + b * keys,
                      one.data() + b * queries, lse_one.data() + b * heads * seq, 1, seq, heads, kv, d, 1,
                      0.25);
  }
  EXPECT_EQ(o, one);
  EXPECT_EQ(lse, lse_one);
}

TEST(Attention, GroupedHeadsEqualRepeatedKeys) {
  const int64_t seq = 70, heads = 4, kv = 2, d = 16;
  std::vector<float> q = Numbers(seq * heads * d, 1), k = Numbers(seq * kv * d, 2),
                     v = Numbers(seq * kv * d, 3);
  std::vector<float> wide_k(q.size()), wide_v(q.size()), grouped(q.size()), repeated(q.size());
  std::vector<float> lse(static_cast<size_t>(heads * seq));
  broadcast_copy(k.data(), wide_k.data(), 1, 1, seq, kv, 2, d, 0, 0, kv * d, d, 0, 1);
  broadcast_copy(v.data(), wide_v.data(), 1, 1, seq, kv, 2, d, 0, 0, kv * d, d, 0, 1);
  attention_forward(q.data(), k.data(), v.data(), grouped.data(), lse.data(), 1, seq, heads, kv, d, 1, 0.25);
  attention_forward(q.data(), wide_k.data(), wide_v.data(), repeated.data(), lse.data(), 1, seq, heads, heads,
                    d, 1, 0.25);
  EXPECT_EQ(grouped, repeated);
}

TEST(Dropout, KeepsTheStatedShare) {
  const int64_t n = 1 << 20;
  std::vector<float> x(n, 1.0f), y(n);
  for (double rate : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    dropout_forward(x.data(), y.data(), n, n / 64, rate, {.seed = 3, .operation = 9});
    double kept = 0;
    for (float v : y) {
      kept += v != 0 ? 1 : 0;
      if (v != 0) {
        ASSERT_EQ(v, static_cast<float>(1 / (1 - rate)));
      }
    }
    double deviation = std::sqrt(rate * (1 - rate) / n);
    EXPECT_NEAR(kept / n, 1 - rate, 5 * deviation) << rate;
  }
}

TEST(Dropout, MaskDoesNotDependOnHowSamplesAreDivided) {
  const int64_t samples = 8, elements = 101;
  std::vector<float> x(samples * elements, 1.0f), whole(x.size()), parts(x.size());
  RandomKey key{.seed = 3, .operation = 9, .step = 2};
  dropout_forward(x.data(), whole.data(), samples * elements, elements, 0.4, key);
  for (int64_t s = 0; s < samples; s += 2) {
    key.first_sample = static_cast<uint64_t>(s);
    dropout_forward(x.data(), parts.data() + s * elements, 2 * elements, elements, 0.4, key);
  }
  EXPECT_EQ(whole, parts);
  // Samples 1, 4, 7 drawn with a stride.
  key.first_sample = 1;
  key.sample_stride = 3;
  std::vector<float> strided(3 * elements);
  dropout_forward(x.data(), strided.data(), 3 * elements, elements, 0.4, key);
  for (int64_t i = 0; i < elements; ++i) {
    ASSERT_EQ(strided[static_cast<size_t>(2 * elements + i)], whole[static_cast<size_t>(7 * elements + i)]);
  }
}

TEST(Dropout, StreamsDiffer) {
  const int64_t n = 512;
  std::vector<float> x(n, 1.0f), base(n), y(n);
  RandomKey key{.seed = 3, .operation = 9, .step = 2, .first_sample = 4};
  dropout_forward(x.data(), base.data(), n, n, 0.5, key);
  for (int field = 0; field < 4; ++field) {
    RandomKey other = key;
    (field == 0   ? other.seed
     : field == 1 ? other.operation
     : field == 2 ? other.step
                  : other.first_sample) += 1;
    dropout_forward(x.data(), y.data(), n, n, 0.5, other);
    int equal = 0;
    for (size_t i = 0; i < y.size(); ++i) equal += y[i] == base[i] ? 1 : 0;
    EXPECT_NEAR(equal, n / 2, 80) << field;
  }
  dropout_backward(x.data(), y.data(), n, n, 0.5, key);
  EXPECT_EQ(base, y);
}

TEST(Initialize, ShardsDrawWhatTheWholeDraws) {
  const int64_t n = 1000;
  RandomKey key{.seed = 5, .operation = 77};
  std::vector<float> whole(n), parts(n);
  normal_fill(whole.data(), n, 0, 0.0, 0.02, key);
  for (int64_t start = 0; start < n; start += 123) {
    normal_fill(parts.data() + start, std::min<int64_t>(123, n - start), start, 0.0, 0.02, key);
  }
  EXPECT_EQ(whole, parts);
  std::vector<double> reference(n);
  normal_fill(reference.data(), n, 0, 0.0, 0.02, key);
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(reference[i], static_cast<double>(whole[i]));
}

TEST(Initialize, MomentsAreRight) {
  const int64_t n = 1 << 20;
  std::vector<float> x(n);
  normal_fill(x.data(), n, 0, 0.5, 2.0, {.seed = 5, .operation = 77});
  double mean = 0, square = 0, fourth = 0;
  for (float v : x) {
    double z = (v - 0.5) / 2;
    mean += z / n;
    square += z * z / n;
    fourth += z * z * z * z / n;
  }
  EXPECT_NEAR(mean, 0, 5e-3);
  EXPECT_NEAR(square, 1, 7e-3);
  EXPECT_NEAR(fourth, 3, 5e-2);
  uniform_fill(x.data(), n, 0, -1.0, 3.0, {.seed = 5, .operation = 78});
  mean = square = 0;
  for (float v : x) {
    ASSERT_GE(v, -1.0f);
    ASSERT_LT(v, 3.0f);
    mean += static_cast<double>(v) / n;
    square += (static_cast<double>(v) - 1) * (static_cast<double>(v) - 1) / n;
  }
  EXPECT_NEAR(mean, 1, 6e-3);
  EXPECT_NEAR(square, 16.0 / 12, 6e-3);
}

// The known answers that Random123 publishes for Philox4x32-10 (kat_vectors).
TEST(Philox, GivesTheKnownAnswers) {
  uint32_t numbers[isa_test::kRandomBlock];
  isa_test::RandomNumbers(0, 0, 0, numbers);
  EXPECT_EQ(numbers[0], 0x6627e8d5u);
  EXPECT_EQ(numbers[16], 0xe169c58du);
  EXPECT_EQ(numbers[32], 0xbc57ac4cu);
  EXPECT_EQ(numbers[48], 0x9b00dbd8u);
}

}  // namespace
}  // namespace piper::kernels
