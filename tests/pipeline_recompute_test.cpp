// `recompute`, end to end: the same bits as without it and as the reference, memory that falls by exactly
// what is given back, and R nodes that are costed and ordered like any other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "ir/lower/memory.h"
#include "tests/pipeline_support.h"

namespace piper::testing {
namespace {

// A region that keeps 2 * 1024 * 4 bytes a microbatch (the result of tanh), between two that keep next to
// nothing.
std::string WideText(const std::string& order, const std::string& directives, int64_t ranks = 1) {
  return R"(import std.topologies
topology free(ranks: int) { device d { memory = 1 GiB }; level all = ranks of d joined by {} }
module Wide(width: dim, inner: dim) {
  param up: [width, inner] = normal(0.3)
  param down: [inner, width] = normal(0.3)
  forward(x: [batch, width]) -> [batch, width] { tanh(x @ up) @ down }
}
module Net(width: dim) {
  param into: [features = 4, width] = normal(0.5)
  wide = Wide(width, 1024)
  forward(x: [batch, features = 4], y: [batch, width]) -> loss {
    let h = tag embed { x @ into }
    let z = tag wide { wide(h) }
    return tag head { mse(z, y) }
  }
}
model net = Net(width = 4)
strategy study {
  mesh (dp = )" +
         std::to_string(ranks) + R"()
  split batch into 4 as mb
  shard batch over dp
)" + directives +
         "\n  order on all {\n" + order + R"(
  }
}
train {
  model net
  data random()
  global_batch )" +
         std::to_string(8 * ranks) + R"(
  steps 2
  optimizer sgd(0.1)
  on free(ranks = )" +
         std::to_string(ranks) + R"()
  using study
}
)";
}
constexpr int64_t kSaved = 2 * 1024 * 4;  // samples x inner x bytes
const char* const kAllForwardFirst = "for i in 0..4 { F[mb = i] }\nfor i in 0..4 { B[mb = i] }";

int64_t CountPass(const runtime::RankProgram& program, ir::Pass pass) {
  return std::count_if(program.tasks.begin(), program.tasks.end(), [&](const runtime::Task& task) {
    return task.kind == runtime::TaskKind::kCompute && task.flag == static_cast<uint8_t>(pass);
  });
}

// ---- the same bits

// A fused step that holds both the F and the B of a microbatch has its R between them.
TEST(Recompute, WithinAFusedStep) {
  for (const std::string steps : {"for i in 0..4 { fused(F[mb = i], B[mb = i]) }",
                                  "for i in 0..4 { fused(F[mb = i], BI[mb = i]); BW[mb = i] }"}) {
    for (const char* recompute : {"  recompute [wide]", "  recompute [*]"}) {
      std::unique_ptr<Compiled> with = MustCompile(WideText(steps, recompute));
      std::unique_ptr<Compiled> without = MustCompile(WideText(steps, ""));
      ExpectSameBits(*with, *without, steps + recompute);
    }
  }
}

TEST(Recompute, LearnsWhatTheReferenceLearns) {
  struct Case {
    const char* model;
    const char* schedule;
    int64_t p, v, dp, m;
    std::string directives;
  };
  std::vector<Case> cases = {
      {"gpt_dropout", "", 1, 1, 1, 2, "  recompute [*]"},
      {"gpt_dropout", "one_f_one_b", 2, 1, 2, 4, "  recompute [layer]"},
      {"gpt_dropout", "zb1p", 2, 1, 1, 4, "  recompute [layer]"},
      {"gpt_dropout", "interleaved", 2, 2, 1, 2, "  recompute [stage]"},
      {"llama", "gpipe", 2, 1, 1, 2, "  recompute [attn]\n  recompute [mlp]"},
      {"skip", "zb1p", 4, 1, 1, 4, "  recompute [stage]"},
  };
  if (Soak()) {
    for (const char* model : {"gpt_dropout", "llama", "skip"}) {
      for (const char* schedule : {"gpipe", "one_f_one_b", "eager_1f1b", "zb1p", "zb2p"}) {
        for (int64_t p : {2, 4}) {
          for (int64_t dp : {1, 2}) {
            for (const char* select : {"[*]", "[layer]", "[stage]", "[stage = 0]", "[layer = 1..3]"}) {
              cases.push_back({model, schedule, p, 1, dp, p + 2, std::string("  recompute ") + select});
            }
          }
        }
      }
    }
  }
  for (const Case& c : cases) {
    TrainText text = Layout(c.model, c.schedule, c.p, c.v, c.dp, c.m);
    text.batch = 2 * c.m * c.dp;
    std::unique_ptr<Compiled> without = MustCompile(text.Text());
    text.directives = c.directives;
    std::unique_ptr<Compiled> with = MustCompile(text.Text());
    const std::string what = text.Name() + c.directives;
    ASSERT_TRUE(with->ok() && without->ok()) << what;
    ExpectEqualToReference(*with, 2, what);
    ExpectSameBits(*with, *without, what);
    int64_t replays = 0;  // of all roles: some hold nothing that is replayed
    for (const runtime::RankProgram& program : with->job().train) {
      replays += CountPass(program, ir::Pass::kR);
      EXPECT_EQ(ir::VerifyMemory(program), "") << what;
    }
    EXPECT_GT(replays, 0) << what;
  }
}

TEST(Recompute, FrozenPartsHaveNothingToReplay) {
  TrainText text;
  text.model = "llama";
  text.p = 2, text.m = 2, text.schedule = "one_f_one_b";
  text.directives = "  freeze [embed]\n  freeze [layer = 0..3]\n  recompute [layer]";
  std::unique_ptr<Compiled> compiled = MustCompile(text.Text());
  ASSERT_TRUE(compiled->ok());
  ExpectEqualToReference(*compiled, 2, "frozen");
  for (const ir::NodeTemplate& node : compiled->plan->dag.templates) {
    if (node.pass != ir::Pass::kR) continue;
    for (const ir::TagInstance& tag : node.tags)
      EXPECT_FALSE(tag.name == "layer" && tag.index < 3) << node.name;
  }
}

// ---- memory

// The peak stands at the BW of microbatch 1, the first whose gradients need buffers of their own (that of
// microbatch 0 writes where they accumulate). Without: the results of tanh of microbatches 1, 2 and 3 are
// alive. With: that of 1, just made again. All else is the same.
TEST(Recompute, GivesBackExactlyWhatItMakesAgain) {
  std::unique_ptr<Compiled> without = MustCompile(WideText(kAllForwardFirst, ""));
  std::unique_ptr<Compiled> with = MustCompile(WideText(kAllForwardFirst, "  recompute [wide]"));
  ASSERT_TRUE(with->ok() && without->ok());
  const runtime::RankProgram &before = without->job().train[0], &after = with->job().train[0];
  EXPECT_EQ(before.live_bytes - after.live_bytes, 2 * kSaved);
  EXPECT_LT(after.arena_bytes, before.arena_bytes);
  RunResult plain = RunJob(without->job(), 1), run = RunJob(with->job(), 1);
  EXPECT_EQ(plain.ranks[0].peak_live_bytes - run.ranks[0].peak_live_bytes, 2 * kSaved);
  EXPECT_EQ(plain.ranks[0].high_water_bytes, before.arena_bytes);
  EXPECT_EQ(run.ranks[0].high_water_bytes, after.arena_bytes);
  // The product that follows tanh is not replayed: nothing reads it again.
  for (const ir::Region& region : with->plan->regions.regions) {
    if (region.recompute.empty()) continue;
    EXPECT_EQ(region.recompute.calls.size(), 2u);  // of three
    EXPECT_EQ(region.forward.flops - region.recompute.flops, 2.0 * 2 * 1024 * 4);
  }
}

// A unit keeps its inputs and nothing within: a stage as a unit holds less than its layers as units.
TEST(Recompute, LargerUnitsKeepLess) {
  int64_t live[3];
  const char* directives[] = {"", "  recompute [layer]", "  recompute [stage]"};
  for (int i = 0; i < 3; ++i) {
    TrainText text;
    text.model = "gpt";
    text.p = 2, text.m = 32, text.schedule = "gpipe", text.batch = 32;
    text.directives = directives[i];
    std::unique_ptr<Compiled> compiled = MustCompile(text.Text());
    ASSERT_TRUE(compiled->ok());
    live[i] = compiled->job().train[0].live_bytes;
  }
  EXPECT_LT(live[1], live[0]);
  EXPECT_LT(live[2], live[1]);
}

TEST(Recompute, KeepLeavesRegionsOut) {
  TrainText text;
  text.m = 2;
  text.directives = "  recompute [layer] keep [attn]";
  std::unique_ptr<Compiled> compiled = MustCompile(text.Text());
  ASSERT_TRUE(compiled->ok());
  bool any = false;
  for (const ir::NodeTemplate& node : compiled->plan->dag.templates) {
    if (node.pass != ir::Pass::kR) continue;
    any = true;
    for (const ir::TagInstance& tag : node.tags) EXPECT_NE(tag.name, "attn") << node.name;
  }
  EXPECT_TRUE(any);
  ExpectEqualToReference(*compiled, 2, "keep");
}

// ---- costs

TEST(Recompute, CostsWhatItsForwardCosts) {
  const std::string costs = "  cost F[*] = 0 s\n  cost B[*] = 0 s\n  cost [accumulate] = 0 s\n";
  for (const auto& [lines, each] :
       {std::pair<const char*, int64_t>{"  cost F[wide] = 3 us\n  cost B[wide] = 5 us\n", 3},
        {"  cost F[wide] = 3 us\n  cost B[wide] = 5 us\n  cost R[wide] = 7 us\n", 7}}) {
    std::unique_ptr<Compiled> compiled =
        MustCompile(WideText(kAllForwardFirst, std::string("  recompute [wide]\n") + lines));
    ASSERT_TRUE(compiled->ok());
    EXPECT_EQ(compiled->plan->simulation.makespan, 4 * (3 + 5 + each) * ir::Picoseconds{1'000'000}) << lines;
  }
  // A stage's figure is shared by its replays, exactly.
  TrainText text;
  text.p = 2, text.m = 4, text.schedule = "zb1p";
  text.directives = "  recompute [stage]\n  cost F[stage] = 10 us";
  std::unique_ptr<Compiled> compiled = MustCompile(text.Text());
  ASSERT_TRUE(compiled->ok());
  ir::Picoseconds total = 0;
  for (const ir::NodeTemplate& node : compiled->plan->dag.templates) {
    if (node.pass == ir::Pass::kR) total += node.cost;
  }
  EXPECT_EQ(total, 2 * 10 * ir::Picoseconds{1'000'000});
}

// ---- order

// The compute tasks in stream order: "F0 R0 BI0 ..", of the region with the given word in its name.
std::string Sequence(const Compiled& compiled, const std::string& word, size_t role = 0) {
  std::string text;
  const runtime::RankProgram& program = compiled.job().train[role];
  for (const runtime::Task& task : program.tasks) {
    if (task.kind != runtime::TaskKind::kCompute) continue;
    const std::string name = compiled.job().strings[task.name];
    if (name.find(word) == std::string::npos) continue;
    text += (text.empty() ? "" : " ") + name.substr(0, name.find(' ')) + std::to_string(task.microbatch);
  }
  return text;
}

TEST(Recompute, StandsBeforeTheFirstBackwardThatNeedsIt) {
  EXPECT_EQ(Sequence(*MustCompile(WideText(kAllForwardFirst, "  recompute [wide]")), "wide"),
            "F0 F1 F2 F3 R0 BI0 BW0 R1 BI1 BW1 R2 BI2 BW2 R3 BI3 BW3");
  // Split backward: before BI, and its results stay for BW.
  const std::string split =
      "for i in 0..4 { F[mb = i] }\nBI[mb = 0]; BI[mb = 1]; BW[mb = 0]; B[mb = 2]; BI[mb = 3]; BW[mb = 3]; "
      "BW[mb = 1]";
  std::unique_ptr<Compiled> compiled = MustCompile(WideText(split, "  recompute [wide]"));
  EXPECT_EQ(Sequence(*compiled, "wide"), "F0 F1 F2 F3 R0 BI0 R1 BI1 BW0 R2 BI2 BW2 R3 BI3 BW3 BW1");
  ASSERT_TRUE(compiled->ok());
  ExpectEqualToReference(*compiled, 2, "split backward");
  ExpectSameBits(*compiled, *MustCompile(WideText(split, "")), "split backward");
  // A fused step starts when all of it can: R stands before it.
  const std::string fused =
      "F[mb = 0]; F[mb = 1]\nfused(F[mb = 2], B[mb = 0]); fused(F[mb = 3], B[mb = 1]); B[mb = 2]; B[mb = 3]";
  compiled = MustCompile(WideText(fused, "  recompute [wide]"));
  EXPECT_EQ(Sequence(*compiled, "wide"), "F0 F1 R0 F2 BI0 BW0 R1 F3 BI1 BW1 R2 BI2 BW2 R3 BI3 BW3");
  ASSERT_TRUE(compiled->ok());
  ExpectEqualToReference(*compiled, 2, "fused");
}

TEST(Recompute, CanBeListed) {
  const std::string early =
      "for i in 0..4 { F[mb = i] }\nR[mb = 0]; R[mb = 1]; B[mb = 0]; R[mb = 2]; B[mb = 1]\n"
      "fused(R[mb = 3], B[mb = 2]); B[mb = 3]";
  std::unique_ptr<Compiled> compiled = MustCompile(WideText(early, "  recompute [wide]"));
  EXPECT_EQ(Sequence(*compiled, "wide"), "F0 F1 F2 F3 R0 R1 BI0 BW0 R2 BI1 BW1 R3 BI2 BW2 BI3 BW3");
  ASSERT_TRUE(compiled->ok());
  ExpectEqualToReference(*compiled, 2, "listed");
  // Two replays are alive at once, instead of one.
  std::unique_ptr<Compiled> late = MustCompile(WideText(kAllForwardFirst, "  recompute [wide]"));
  EXPECT_EQ(compiled->job().train[0].live_bytes - late->job().train[0].live_bytes, kSaved);
  // Too late, or before what it replays.
  for (const char* order : {"for i in 0..4 { F[mb = i]; B[mb = i]; R[mb = i] }",
                            "for i in 0..4 { R[mb = i]; F[mb = i]; B[mb = i] }"}) {
    std::unique_ptr<Compiled> refused = Compile(WideText(order, "  recompute [wide]"));
    EXPECT_FALSE(refused->ok());
    EXPECT_TRUE(refused->Has(ir::DiagKind::kCycle)) << refused->Messages();
  }
}

// ---- memory is counted per pass (with whole B, BI and BW mixed in any order)

TEST(Passes, TheLastWeightPassReleasesAndTriggersTheReduction) {
  const std::string orders[] = {
      "for i in 0..4 { F[mb = i] }\nB[mb = 3]; BI[mb = 0]; BI[mb = 2]; BW[mb = 2]; B[mb = 1]; BW[mb = 0]",
      "F[mb = 0]; BI[mb = 0]; F[mb = 1]; B[mb = 1]; F[mb = 2]; F[mb = 3]; B[mb = 3]; BI[mb = 2]; BW[mb = 0]; "
      "BW[mb = 2]",
      "for i in 0..4 { F[mb = i]; BI[mb = i] }\nBW[mb = 3]; BW[mb = 2]; BW[mb = 0]; BW[mb = 1]",
  };
  const int32_t last[] = {0, 2, 1};
  for (int i = 0; i < 3; ++i) {
    for (const char* directives : {"  cost F[*] = 1 us\n  cost B[*] = 2 us",
                                   "  recompute [wide]\n  cost F[*] = 1 us\n  cost B[*] = 2 us"}) {
      std::unique_ptr<Compiled> compiled = MustCompile(WideText(orders[i], directives, 2));
      ASSERT_TRUE(compiled->ok());
      ExpectEqualToReference(*compiled, 2, orders[i]);
      const runtime::RankProgram& program = compiled->job().train[0];
      const std::vector<ir::TaskTiming>& timings = compiled->plan->simulation.timings[0];
      // The reduction of `up` starts when the last BW of its region has ended.
      ir::Picoseconds ended = -1, started = -1;
      int32_t at = -1;
      for (size_t t = 0; t < program.tasks.size(); ++t) {
        const std::string name = compiled->job().strings[program.tasks[t].name];
        if (name == "BW wide" && timings[t].end > ended)
          ended = timings[t].end, at = program.tasks[t].microbatch;
        if (name.rfind("dp.reduce", 0) == 0 && name.find("wide.up") != std::string::npos)
          started = timings[t].start;
      }
      EXPECT_EQ(at, last[i]);
      EXPECT_EQ(started, ended) << orders[i];
      // What F or R left for the backward passes is released by the BW of its microbatch.
      std::vector<uint32_t> last_user(program.buffers.size(), runtime::kNone);
      for (uint32_t t = 0; t < program.tasks.size(); ++t) {
        for (uint32_t k = 0; k < program.tasks[t].operand_count; ++k)
          last_user[program.task_operands[program.tasks[t].first_operand + k]] = t;
      }
      int seen = 0;
      for (uint32_t b = 0; b < program.buffers.size(); ++b) {
        const std::string name = program.buffers[b].name;
        const bool kept = std::string(directives).find("recompute") == std::string::npos
                              ? name == "wide.tanh"
                              : name == "wide.tanh again";
        if (!kept) continue;
        ++seen;
        EXPECT_EQ(program.tasks[last_user[b]].flag, static_cast<uint8_t>(ir::Pass::kBW)) << orders[i];
      }
      EXPECT_EQ(seen, 4);
    }
  }
}

}  // namespace
}  // namespace piper::testing
