// `fused` whose parts stand on several streams, or move data: one node of its device, by hand on the clock;
// results beside the reference on 2 and 4 ranks, with and without buffers; and what cannot be one node, with
// the steps that say so.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "ir/cost/simulator.h"
#include "ir/dag/dag_text.h"
#include "ir/lower/memory.h"
#include "tests/pipeline_support.h"
#include "tests/streams_text.h"

namespace piper::testing {
namespace {

using ir::kPsPerUs;

// When the tasks of a name that begins so, and of a microbatch, run on rank 0: from the first to the last.
ir::TaskTiming When(const Compiled& compiled, const std::string& name, int microbatch) {
  const runtime::Job& job = compiled.job();
  ir::TaskTiming found{INT64_MAX, -1};
  for (size_t t = 0; t < job.train[0].tasks.size(); ++t) {
    const runtime::Task& task = job.train[0].tasks[t];
    if (task.microbatch != microbatch || !std::string(job.strings[task.name]).starts_with(name)) continue;
    const ir::TaskTiming& timing = compiled.plan->simulation.timings[0][t];
    found = {std::min(found.start, timing.start), std::max(found.end, timing.end)};
  }
  return found;
}

void ExpectWhen(const Compiled& compiled, const std::string& name, int microbatch, int start, int end) {
  const ir::TaskTiming timing = When(compiled, name, microbatch);
  EXPECT_EQ(timing.start, start * kPsPerUs) << name << " " << microbatch;
  EXPECT_EQ(timing.end, end * kPsPerUs) << name << " " << microbatch;
}

// F0 BI0 {F1, BW0} BI1, BW1: BW takes 15 us, all else 10.
TEST(Fused, StreamsAreHeldUntilAllPartsHaveEnded) {
  const std::string free = "stream BW on side\nslowdown compute with side = 1\n";
  const std::unique_ptr<Compiled> lanes =
      MustCompile(ChainText(free + "order on pp[0] { lanes {\ncompute: F[mb = 0]; BI[mb = 0]; F[mb = 1]; "
                                   "BI[mb = 1]\nside: BW[mb = 0]; "
                                   "BW[mb = 1]\n} }\n",
                            15));
  const std::unique_ptr<Compiled> fused =
      MustCompile(ChainText(free + "order on pp[0] {\nF[mb = 0]\nBI[mb = 0]\nfused(F[mb = 1], BW[mb = "
                                   "0])\nBI[mb = 1]\nlanes { side: BW[mb = "
                                   "1] }\n}\n",
                            15));
  ASSERT_TRUE(lanes->ok() && fused->ok());
  EXPECT_EQ(lanes->plan->simulation.makespan, 55 * kPsPerUs);
  EXPECT_EQ(fused->plan->simulation.makespan, 60 * kPsPerUs);
  ExpectWhen(*fused, "F", 1, 20, 30);
  ExpectWhen(*fused, "BW", 0, 20, 35);
  ExpectWhen(*fused, "BI", 1, 35, 45);
}

// F1 could run at 10, but BW0 has its input at 20 only.
TEST(Fused, StartsWhenAllInputsOfAllPartsAreThere) {
  const std::string free = "stream B on side\nslowdown compute with side = 1\n";
  const std::unique_ptr<Compiled> fused = MustCompile(ChainText(
      free +
      "order on pp[0] {\nF[mb = 0]\nlanes { side: BI[mb = 0] }\nfused(F[mb = 1], BW[mb = 0])\nlanes { side: "
      "B[mb = 1] }\n}\n"));
  ASSERT_TRUE(fused->ok());
  ExpectWhen(*fused, "F", 1, 20, 30);
  ExpectWhen(*fused, "BW", 0, 20, 30);
  ExpectWhen(*fused, "B", 1, 30, 50);
}

// What one part needs of another holds up that part alone; two that share the compute units take as long as
// one after the other, and never longer, whatever the slowdown.
TEST(Fused, NeverCostsMoreThanItsPartsInSequence) {
  for (const char* slowdown : {"", "slowdown compute with side = 1\n", "slowdown compute with side = 1.3\n",
                               "slowdown compute with side = 2\n"}) {
    const std::unique_ptr<Compiled> fused = MustCompile(ChainText(
        std::string("stream BW on side\n") + slowdown +
            "order on pp[0] {\nF[mb = 0]\nBI[mb = 0]\nfused(F[mb = 1], BW[mb = 0])\nfused(BI[mb = 1], BW[mb "
            "= 1])\n}\n",
        15));
    ASSERT_TRUE(fused->ok());
    const ir::TaskTiming forward = When(*fused, "F", 1), weights = When(*fused, "BW", 0);
    EXPECT_EQ(forward.start, weights.start);
    const ir::Picoseconds took = std::max(forward.end, weights.end) - forward.start;
    EXPECT_LE(took, 25 * kPsPerUs) << slowdown;
    EXPECT_GE(took, 15 * kPsPerUs) << slowdown;
    // BW1 needs BI1 within their node.
    EXPECT_GE(When(*fused, "BW", 1).end, When(*fused, "BI", 1).end);
    EXPECT_EQ(fused->plan->simulation.makespan - took, (20 + 10 + 15) * kPsPerUs) << slowdown;
  }
}

struct Case {
  const char* name;
  const char* directives;  // of pp = 2, m = 4
};
class FusedCases : public ::testing::TestWithParam<Case> {};

TEST_P(FusedCases, AreRight) {
  for (int dp : {1, 2}) {
    const std::string what = std::string(GetParam().name) + ", dp " + std::to_string(dp);
    const std::unique_ptr<Compiled> compiled = MustCompile(StreamsText(2, dp, GetParam().directives));
    ASSERT_TRUE(compiled->ok()) << what;
    ExpectSound(*compiled, what);
  }
}

const Case kCases[] = {
    {"weights_beside_forward", R"(stream BW on side
for s in 0..2 { order on pp[s] {
  F[mb = 0]
  for i in 0..3 { BI[mb = i]; fused(F[mb = i + 1], BW[mb = i]) }
  BI[mb = 3]
  lanes { side: BW[mb = 3] }
} })"},
    {"attention_beside_the_rest", R"(stream [attn] on side
for s in 0..2 { order on pp[s] {
  fused(F[mb = 0, not attn], F[mb = 0, attn])
  for i in 0..3 { fused(B[mb = i, attn], B[mb = i, not attn]); fused(F[mb = i + 1, attn], F[mb = i + 1, not attn]) }
  fused(B[mb = 3], F[mb = 3, layer = 17]?)
} })"},
    {"send_beside_forward", R"(order on pp[0] {
  F[mb = 0]
  for i in 0..3 { fused(F[mb = i + 1], F[send, mb = i]) }
  for i in 0..4 { B[mb = i] }
})"},
    {"receive_beside_backward", R"(order on pp[0] {
  for i in 0..4 { F[mb = i] }
  for i in 0..4 { B[mb = i] }
}
order on pp[1] {
  F[mb = 0]
  for i in 0..3 { fused(B[mb = i], F[recv, mb = i + 1]); F[mb = i + 1] }
  B[mb = 3]
})"},
    {"both_ends", R"(order on pp[0] {
  F[mb = 0]
  for i in 0..3 { fused(F[mb = i + 1], F[send, mb = i]) }
  for i in 0..4 { B[mb = i] }
}
order on pp[1] {
  F[mb = 0]
  for i in 0..3 { fused(B[mb = i], F[recv, mb = i + 1]); F[mb = i + 1] }
  B[mb = 3]
})"},
    {"copy_back_beside_backward", R"(offload [layer] to host { prefetch 2 }
for s in 0..2 { order on pp[s] {
  for i in 0..4 { F[mb = i] }
  for i in 0..3 { fused(B[mb = i], [offload.in, mb = i + 1]) }
  B[mb = 3]
} })"},
    {"backward_beside_reduction", R"(order on pp[0] {
  for i in 0..4 { F[mb = i] }
  for i in 0..4 { B[mb = i] }
}
order on pp[1] {
  for i in 0..4 { F[mb = i] }
  for i in 0..3 { B[mb = i] }
  B[mb = 3, head]
  B[mb = 3, layer = 3]
  fused(B[mb = 3, layer = 2], [dp.reduce, layer = 3])
})"},
    {"replay_inside", R"(recompute [layer]
stream BW on side
for s in 0..2 { order on pp[s] {
  F[mb = 0]
  for i in 0..3 { BI[mb = i]; fused(F[mb = i + 1], R[mb = i + 1]?, BW[mb = i]) }
  BI[mb = 3]
  lanes { side: BW[mb = 3] }
} })"},
    {"replay_before", R"(recompute [layer]
stream BW or R on side
for s in 0..2 { order on pp[s] {
  for i in 0..4 { F[mb = i] }
  for k in 0..2 {
    fused(BI[mb = 2 * k], BW[mb = 2 * k], BI[mb = 2 * k + 1])
    lanes { side: BW[mb = 2 * k + 1] }
  }
} })"},
};
INSTANTIATE_TEST_SUITE_P(Parts, FusedCases, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Its end waits for a message that the other rank sends only after one that stands behind the node.
TEST(Fused, AMessageThatComesOnlyAfterTheNodeIsRefusedWithTheWay) {
  const std::unique_ptr<Compiled> compiled = Compile(StreamsText(2, 1, R"(order on pp[0] {
  F[mb = 0]
  fused(F[mb = 1], BI[recv, mb = 0])
  for i in 2..4 { F[mb = i] }
  for i in 0..4 { B[mb = i] }
}
order on pp[1] {
  for i in 0..3 { F[mb = i] }
  for i in 0..3 { B[mb = i] }
  F[mb = 3]
  B[mb = 3]
})"));
  EXPECT_FALSE(compiled->ok());
  EXPECT_TRUE(compiled->Has(ir::DiagKind::kCycle)) << compiled->Messages();
  const std::string messages = compiled->Messages();
  EXPECT_NE(messages.find("is made to wait for"), std::string::npos) << messages;
  EXPECT_NE(messages.find("fused(F[mb = 1], BI[recv, mb = 0])"), std::string::npos) << messages;
}

}  // namespace
}  // namespace piper::testing
