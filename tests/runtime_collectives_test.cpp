// Collectives between threads: every fold against its definition, every kind of data movement, disagreements.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "runtime/local_runner.h"
#include "tests/runtime_test_job.h"

namespace piper::runtime::testing {
namespace {

// A reduction's definition, term by term.
float FoldOf(FoldKind fold, std::span<const float> terms) {
  if (terms.size() == 1) return terms[0];
  const size_t left = fold == FoldKind::kPairwise ? std::bit_floor(terms.size() - 1) : terms.size() - 1;
  return FoldOf(fold, terms.first(left)) + FoldOf(fold, terms.subspan(left));
}

// `ranks` members; each gives one contribution, the last gives two; folded in `terms` order, in place.
struct Reduce {
  TestJob job;
  std::vector<Term> terms;
  static inline int64_t n = 0;
  static inline std::vector<std::vector<float>> data;  // contribution
  FoldKind fold;
  Reduce(uint32_t ranks, int64_t elements, bool computes, FoldKind kind = FoldKind::kLeft) : fold(kind) {
    n = elements;
    data.clear();
    std::mt19937 random(5);
    for (uint32_t c = 0; c <= ranks; ++c) {
      std::vector<float> values(elements);
      for (float& value : values) {
        value = static_cast<float>(static_cast<int>(random() % 2000) - 1000) *
                std::exp2(static_cast<float>(random() % 20));
      }
      data.push_back(values);
    }
    terms = {{ranks - 1, 1}};
    for (uint32_t r = 0; r < ranks; ++r) terms.push_back({r, 0});
    std::vector<uint32_t> members(ranks);
    for (uint32_t r = 0; r < ranks; ++r) members[r] = r;
    uint32_t group = job.Group(members);
    static BodyFunction fills[8] = {Fill<0>, Fill<1>, Fill<2>, Fill<3>, Fill<4>, Fill<5>, Fill<6>, Fill<7>};
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      TestRole& role = job.Role("role" + std::to_string(rank));
      role.Rank(rank, 0, {}, {group});
      uint32_t own = role.Buffer("own", BufferKind::kGradient, elements);
      uint32_t extra = role.Buffer("extra", BufferKind::kTransient, elements);
      bool last = rank + 1 == ranks;
      role.terms = terms;
      role.collectives.push_back({CollectiveKind::kAllReduce, ElementType::kF32, 0, elements, 0,
                                  static_cast<uint32_t>(terms.size()), last ? 2u : 1u, "dp.reduce", fold});
      role.Body("fill", fills[rank], 1);
      role.Body("fill extra", fills[ranks], 1);
      role.Stream("compute", true);
      role.Task(TaskKind::kCompute, "fill", 0, {own});
      role.Task(TaskKind::kCompute, "fill", 1, {extra});
      if (!computes) role.Stream("reduce", false);
      std::vector<uint32_t> operands =
          last ? std::vector<uint32_t>{own, extra, own} : std::vector<uint32_t>{own, own};
      role.Task(TaskKind::kCollective, "dp.reduce", 0, operands, {1}, -1, elements * 4);
    }
    job.Finish();
  }
  template <int c>
  static void Fill(BodyContext& context) {
    std::copy(data[c].begin(), data[c].end(), F(context, 0));
  }
  std::vector<float> Expected(uint32_t ranks, FoldKind kind) const {
    std::vector<float> sum(n), at(terms.size());
    for (int64_t i = 0; i < n; ++i) {
      for (size_t t = 0; t < terms.size(); ++t)
        at[t] = data[terms[t].contribution == 1 ? ranks : terms[t].member][i];
      sum[i] = FoldOf(kind, at);
    }
    return sum;
  }
};

void ExpectFold(uint32_t ranks, int64_t elements, bool computes, FoldKind fold) {
  Reduce reduce(ranks, elements, computes, fold);
  std::vector<float> expected = reduce.Expected(ranks, fold);
  LocalHooks hooks;
  int seen = 0;
  hooks.step_done = [&](const RankView& view, uint64_t, const StepOutcome&) {
    const float* own = reinterpret_cast<const float*>(view.executor->buffer(0));
    EXPECT_EQ(std::memcmp(own, expected.data(), expected.size() * 4), 0)
        << elements << " elements, rank " << view.rank << " of " << ranks;
    ++seen;
  };
  LocalOptions options = Steps(3);
  options.execution.delay_microseconds = elements == 5000 ? 200 : 0;
  Result<LocalResult> result = RunLocal(reduce.job.fields, options, hooks);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(seen, static_cast<int>(3 * ranks));
  EXPECT_EQ(result->ranks[0].collectives, 3);
}

TEST(RuntimeCollectives, AllReduceFoldsInTheOrderOfItsTerms) {
  for (int64_t elements : {1, 100, 4096, 5000, 100003}) {
    for (uint32_t ranks : {1u, 2u, 3u, 4u}) {
      for (bool computes : {false, true}) ExpectFold(ranks, elements, computes, FoldKind::kLeft);
    }
  }
}

TEST(RuntimeCollectives, AllReduceFoldsInPairs) {
  for (uint32_t ranks = 1; ranks <= 7; ++ranks) {
    for (int64_t elements : {1, 5000, 30011}) {
      ExpectFold(ranks, elements, false, FoldKind::kPairwise);
      Reduce reduce(ranks, elements, false, FoldKind::kPairwise);
      const bool same =
          reduce.Expected(ranks, FoldKind::kLeft) == reduce.Expected(ranks, FoldKind::kPairwise);
      // Up to three terms there is one way to pair them.
      if (ranks + 1 <= 3) {
        EXPECT_TRUE(same);
      } else if (elements > 1) {
        EXPECT_FALSE(same) << ranks;
      }
    }
  }
}

TEST(RuntimeCollectives, MembersThatFoldDifferentlyAreNamed) {
  Reduce reduce(2, 100, false);
  const_cast<Collective&>(reduce.job.fields.train[1].collectives[0]).fold = FoldKind::kPairwise;
  Result<LocalResult> result = RunLocal(reduce.job.fields, Steps(1));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), kExitInternal);
  EXPECT_NE(result.status().message().find("disagree about the collective 'dp.reduce'"), std::string::npos)
      << result.status().message();
}

TEST(RuntimeCollectives, OtherCollectivesMoveTheRightSlices) {
  constexpr uint32_t kRanks = 3;
  constexpr int64_t kElements = 10;  // chunks of 4, 4, 2
  for (CollectiveKind kind : {CollectiveKind::kReduceScatter, CollectiveKind::kAllGather,
                              CollectiveKind::kAllToAll, CollectiveKind::kBroadcast}) {
    TestJob job;
    uint32_t group = job.Group({0, 1, 2});
    static BodyFunction fills[kRanks] = {[](BodyContext& c) {
                                           for (int i = 0; i < 12; ++i) F(c, 0)[i] = static_cast<float>(i);
                                         },
                                         [](BodyContext& c) {
                                           for (int i = 0; i < 12; ++i)
                                             F(c, 0)[i] = static_cast<float>(100 + i);
                                         },
                                         [](BodyContext& c) {
                                           for (int i = 0; i < 12; ++i)
                                             F(c, 0)[i] = static_cast<float>(200 + i);
                                         }};
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      TestRole& role = job.Role("role" + std::to_string(rank));
      role.Rank(rank, 0, {}, {group});
      uint32_t in = role.Buffer("in", BufferKind::kScalar, 12),
               out = role.Buffer("out", BufferKind::kScalar, 12);
      role.collectives.push_back({kind, ElementType::kF32, 0, kElements, 0, 0, 1, "c"});
      role.Body("fill", fills[rank], 1);
      role.Stream("compute", true);
      role.Task(TaskKind::kCompute, "fill", 0, {in});
      role.Stream("c", false);
      role.Task(TaskKind::kCollective, "c", 0, {in, out}, {0}, -1, kElements * 4);
    }
    job.Finish();
    LocalHooks hooks;
    hooks.step_done = [&](const RankView& view, uint64_t, const StepOutcome&) {
      const float* out = reinterpret_cast<const float*>(view.executor->buffer(1));
      int r = static_cast<int>(view.rank);
      for (int i = 0; i < 10; ++i) {
        switch (kind) {
          case CollectiveKind::kReduceScatter:
            if (i < (r == 2 ? 2 : 4)) {
              EXPECT_EQ(out[i], 300 + 3 * (4 * r + i));
            }
            break;
          case CollectiveKind::kAllGather:
            EXPECT_EQ(out[i], 100 * (i / 4) + i % 4);
            break;
          case CollectiveKind::kAllToAll:
            EXPECT_EQ(out[i], 100 * (i / 4) + 4 * r + i % 4);
            break;
          default:
            EXPECT_EQ(out[i], i);
        }
      }
    };
    Result<LocalResult> result = RunLocal(job.fields, Steps(2), hooks);
    ASSERT_TRUE(result.ok()) << result.status().message();
  }
}

}  // namespace
}  // namespace piper::runtime::testing
