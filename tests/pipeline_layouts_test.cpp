// Layouts beyond the matrix, each bitwise equal to the reference: uneven cuts, buckets of several sizes,
// frozen parameters, clipping, optimizers and groups, stage copies, streams that are merged and stay legal,
// orders by lanes and of fused steps, other backward orders.
#include <gtest/gtest.h>

#include <set>

#include "tests/pipeline_support.h"

namespace piper::testing {
namespace {

TEST(PipelineLayouts, UnevenCutsAreExactCovers) {
  for (const char* cut : {"[embed, 6 * layer, head]", "[embed + 5 * layer, layer, head]",
                          "[embed + layer, layer, 4 * layer + head]"}) {
    TrainText text = Layout("gpt", "one_f_one_b", 3, 1, 1, 4);
    text.cut = cut;
    ExpectEqualToReference(text);
    std::unique_ptr<Compiled> compiled = Compile(text.Text());
    ASSERT_TRUE(compiled->ok()) << compiled->Messages();
    std::set<std::string> names;
    for (const runtime::RankProgram& role : compiled->job().train) {
      for (const runtime::Parameter& parameter : role.parameters) names.insert(parameter.name);
    }
    EXPECT_EQ(names.size(), compiled->program->model.parameters.size()) << cut;
  }
  TrainText skip = Layout("skip", "gpipe", 4, 1, 2, 2);
  skip.cut = "[embed + 4 * layer, layer, layer, aux + head]";
  ExpectEqualToReference(skip);
}

TEST(PipelineLayouts, CutsThatDoNotCoverAreRefused) {
  for (const char* cut :
       {"[embed, 5 * layer, head]", "[embed, 7 * layer, head]", "[embed, 6 * layer, 2 * head]"}) {
    TrainText text = Layout("gpt", "one_f_one_b", 3, 1, 1, 4);
    text.cut = cut;
    EXPECT_TRUE(Compile(text.Text())->Has(ir::DiagKind::kBadCut)) << cut;
  }
}

TEST(PipelineLayouts, BucketsOfAnySize) {
  std::set<int64_t> counts;
  for (const char* zero : {"", "zero 0 [*] as dp { bucket 1 B }", "zero 0 [*] as dp { bucket 1 KiB }",
                           "zero 0 [*] as dp { bucket 10 KiB }", "zero 0 [*] as sync { bucket 1 MiB }",
                           "zero 0 [layer = 0..3] as dp { bucket 4 KiB }"}) {
    TrainText text = Layout("gpt", "one_f_one_b", 2, 1, 2, 4);
    text.zero = zero;
    ExpectEqualToReference(text);
    std::unique_ptr<Compiled> compiled = Compile(text.Text());
    ASSERT_TRUE(compiled->ok()) << compiled->Messages();
    counts.insert(compiled->plan->simulation.roles[0].collectives);
  }
  EXPECT_GE(counts.size(), 4u);
}

TEST(PipelineLayouts, FrozenParameters) {
  for (const char* frozen :
       {"freeze [layer = 0..2]", "freeze [layer = 3]", "freeze [attn]", "freeze [layer]"}) {
    TrainText text = Layout("gpt", "one_f_one_b", 2, 1, 2, 2);
    text.directives = std::string("  ") + frozen;
    ExpectEqualToReference(text);
    std::unique_ptr<Compiled> compiled = Compile(text.Text());
    ASSERT_TRUE(compiled->ok()) << compiled->Messages();
    RunResult run = RunJob(compiled->job(), 2);
    EXPECT_LT(run.gradients.size(), run.parameters.size()) << frozen;
  }
  // The lowest stage has nothing to learn: no backward pass reaches it.
  TrainText text = Layout("llama", "gpipe", 4, 1, 1, 2);
  text.directives = "  let low = [embed] or [layer = 0..2]\n  freeze low";
  ExpectEqualToReference(text);
}

TEST(PipelineLayouts, OptimizersGroupsAndClipping) {
  for (const char* optimizer :
       {"optimizer sgd(lr = 0.1)",
        "optimizer sgd(lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0.01)",
        "optimizer adamw(lr = warmup(2, 1e-2), weight_decay = 0.1, matrices_only = true)",
        "optimizer adamw(lr = cosine(1e-2, total = 3, warmup = 1, floor = 1e-3))\n  optimizer sgd(lr = 0.05, "
        "momentum "
        "= 0.5) where [layer = 0..3]\n  optimizer adamw(lr = 1e-3, names = [\"*.norm.*\", \"wpe\"])"}) {
    for (const char* clip : {"", "  clip 0.25\n", "  clip 1000.0\n"}) {
      TrainText text = Layout("gpt", "one_f_one_b", 2, 1, 2, 2);
      text.optimizer = optimizer;
      text.train = clip;
      text.steps = 3;
      ExpectEqualToReference(text);
    }
  }
}

// Verification takes each parameter's optimizer from the lowered job, so who gets which is checked by hand.
TEST(PipelineLayouts, EveryParameterHasItsOptimizer) {
  TrainText text = Layout("gpt", "one_f_one_b", 2, 1, 1, 2);
  text.optimizer =
      "optimizer adamw(lr = 1e-2, weight_decay = 0.1, matrices_only = true)\n  optimizer sgd(lr = 0.05, "
      "weight_decay = "
      "0.2) where [layer = 0..3]\n  optimizer adamw(lr = 1e-3, names = [\"*.norm.*\", \"wpe\"])";
  std::unique_ptr<Compiled> compiled = Compile(text.Text());
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  for (const runtime::RankProgram& role : compiled->job().train) {
    for (const runtime::Parameter& p : role.parameters) {
      std::string name = p.name;
      bool early = name.rfind("blocks.0.", 0) == 0 || name.rfind("blocks.1.", 0) == 0 ||
                   name.rfind("blocks.2.", 0) == 0;
      bool third = name.find(".norm.") != std::string::npos || name == "wpe";
      EXPECT_EQ(p.optimizer, third ? 2u : early ? 1u : 0u) << name;
      double decay = third ? 0.0 : early ? 0.2 : p.dims.size() >= 2 ? 0.1 : 0.0;
      EXPECT_EQ(p.weight_decay, decay) << name;
    }
  }
}

std::string Copies(const std::string& orders) {
  return Declarations() + R"(strategy study {
  mesh (pp = 2, dp = 2)
  cut embed, layer, head into 2 as stage
  split batch into 2 as dir, 2 as mb
  shard batch over dp
  place [stage = 0, dir = 0] on pp[0]
  place [stage = 1, dir = 0] on pp[1]
  place [stage = 0, dir = 1] on pp[1]
  place [stage = 1, dir = 1] on pp[0]
)" + orders +
         R"(}
train {
  model gpt_net
  data random(32)
  global_batch 16
  steps 2
  seed 3
  optimizer adamw(lr = 1e-2)
  clip 1.0
  on topologies.local(ranks = 4)
  using study
}
)";
}

// Two directions: each rank has a copy of both stages, and the copies' gradients are summed.
TEST(PipelineLayouts, StageCopies) {
  for (const std::string& text : {Copies(""), Copies("  zero 0 [*] as dp { bucket 4 KiB }\n")}) {
    std::unique_ptr<Compiled> compiled = Compile(text);
    ASSERT_TRUE(compiled->ok()) << compiled->Messages();
    ExpectEqualToReference(*compiled, 3, "two directions");
  }
}

TEST(PipelineLayouts, MergedStreamsThatStayLegal) {
  for (const char* stream :
       {"stream [dp.reduce] on compute", "stream [dp.reduce] on sync", "stream [send] on wire",
        "stream [loss.reduce] on other", "stream [tie.reduce] on compute"}) {
    TrainText text = Layout("gpt", "gpipe", 2, 1, 2, 4);
    text.directives = std::string("  ") + stream;
    ExpectEqualToReference(text);
  }
}

// Backward passes that are not ascending are another expression: the reference follows it, and a warning says
// so.
TEST(PipelineLayouts, OtherBackwardOrders) {
  TrainText text = Layout("gpt", "", 2, 1, 2, 4);
  text.directives =
      "  cut embed, layer, head into 2 as stage\n"
      "  for s in 0..2 {\n    place [stage = s] on pp[s]\n    order on pp[s] {\n      for i in 0..4 { "
      "F[stage = s, mb = i] }\n"
      "      for i in reversed(0..4) { B[stage = s, mb = i] }\n    }\n  }";
  std::string program = text.Text();
  // TrainText cuts by itself where there is more than one stage.
  std::string cut =
      "  cut embed, layer, head into 2 as stage\n  for s in 0..2 { place [stage = s] on pp[s % 2] }\n";
  size_t at = program.find(cut);
  ASSERT_NE(at, std::string::npos);
  program.erase(at, cut.size());
  std::unique_ptr<Compiled> compiled = Compile(program);
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  EXPECT_TRUE(compiled->Has(ir::DiagKind::kExpressionChanged));
  ExpectEqualToReference(*compiled, 2, "descending backward passes");
}

TEST(PipelineLayouts, LanesFusedStepsAndBarriers) {
  const char* orders[] = {
      // Weight gradients split off and delayed.
      "for i in 0..4 { F[stage = s, mb = i] }\nfor i in 0..4 { BI[stage = s, mb = i] }\n"
      "for i in 0..4 { BW[stage = s, mb = i] }",
      // A fused pair: forward of one microbatch beside the whole backward of another.
      "if s == 0 { for i in 0..4 { F[stage = 0, mb = i] }; for i in 0..4 { B[stage = 0, mb = i] } } else {\n"
      "F[stage = 1, mb = 0]\nfor i in 0..3 { fused(F[stage = 1, mb = i + 1], B[stage = 1, mb = i]) }\n"
      "B[stage = 1, mb = 3] }",
      // Lanes: the reductions in an order of their own.
      "for i in 0..4 { F[stage = s, mb = i] }\nbarrier\nlanes {\n  compute: for i in 0..4 { B[stage = s, mb "
      "= i] }\n"
      "  reduce: [dp.reduce]\n}",
      "steps \"4*F 4*B\"",
  };
  for (const char* order : orders) {
    TrainText text = Layout("gpt", "", 2, 1, 2, 4);
    text.directives = "  for s in 0..2 { order on pp[s] {\n" + std::string(order) + "\n} }";
    std::unique_ptr<Compiled> compiled = Compile(text.Text());
    ASSERT_TRUE(compiled->ok()) << order << "\n" << compiled->Messages();
    ExpectEqualToReference(*compiled, 2, order);
  }
}

// m = 1 everywhere, also with more stages than work.
TEST(PipelineLayouts, OneMicrobatch) {
  for (const char* schedule : {"gpipe", "one_f_one_b"}) {
    ExpectEqualToReference(Layout("gpt", schedule, 8, 1, 1, 1));
    ExpectEqualToReference(Layout("skip", schedule, 4, 1, 2, 1));
  }
  ExpectEqualToReference(Layout("llama", "interleaved", 1, 8, 1, 1));
}

// Devices of different kinds and links have programs of their own (their costs differ), and learn the same.
TEST(PipelineLayouts, DevicesThatDiffer) {
  TrainText text = Layout("gpt", "one_f_one_b", 2, 1, 2, 4);
  text.zero = "zero 0 [*] as dp { bucket 8 KiB }";
  std::string program = text.Text();
  const std::string machine = "topologies.local(ranks = 4)";
  program.replace(program.find(machine), machine.size(), "uneven");
  program += R"(topology uneven {
  device fast { compute f32 = 20 GFLOP/s }
  device slow { compute f32 = 7 GFLOP/s }
  level pair = [fast, slow] joined by { bandwidth = 25 GB/s; latency = 1 us }
  level machine = 2 of pair joined by { bandwidth = 3 GB/s; latency = 9 us }
}
)";
  std::unique_ptr<Compiled> compiled = Compile(program);
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  EXPECT_EQ(compiled->job().train.size(), 4u);
  ExpectEqualToReference(*compiled, 3, "devices that differ");
  std::unique_ptr<Compiled> even = Compile(text.Text());
  ASSERT_TRUE(even->ok()) << even->Messages();
  EXPECT_EQ(even->job().train.size(), 2u);
  RunResult a = RunJob(compiled->job(), 2), b = RunJob(even->job(), 2);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.parameters, b.parameters);
}

// The interleaved order takes groups of p microbatches; where they do not come out even, some are larger.
TEST(PipelineLayouts, InterleavedOfAnyNumberOfMicrobatches) {
  for (int64_t m : {1, 2, 3, 5, 6, 7}) {
    TrainText text = Layout("gpt", "interleaved", 4, 2, 1, 4);
    text.m = m;
    text.batch = m;
    std::unique_ptr<Compiled> compiled = Compile(text.Text());
    ASSERT_TRUE(compiled->ok()) << compiled->Messages();
    ExpectEqualToReference(*compiled, 2, text.Name());
  }
}

}  // namespace
}  // namespace piper::testing
