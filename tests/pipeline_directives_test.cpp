// Every directive matters: with its line taken out, a plan's text, its trace, its result, or its acceptance
// changes, in the way that the directive promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ir/dag/dag_text.h"
#include "tests/pipeline_support.h"

namespace piper::testing {
namespace {

// What a run can be seen to do.
struct Seen {
  bool accepted = false;
  std::string messages;
  std::string ir;
  std::vector<std::string> trace;  // tasks of every role by start time, with times
  ir::Picoseconds makespan = 0;
  size_t ranks = 0;
  std::vector<double> losses;
  std::vector<std::pair<std::string, std::vector<float>>> gradients, parameters;
};

Seen Look(const std::string& text) {
  Seen seen;
  std::unique_ptr<Compiled> compiled = Compile(text);
  seen.messages = compiled->Messages();
  seen.accepted = compiled->ok();
  if (!compiled->ok()) return seen;
  seen.ir = ir::DagToText(compiled->plan->dag);
  const runtime::Job& job = compiled->job();
  const ir::SimulationResult& simulation = compiled->plan->simulation;
  seen.makespan = simulation.makespan;
  for (const runtime::RankProgram& role : job.train) {
    if (!role.tasks.empty()) seen.ranks += role.ranks.size();
  }
  for (size_t role = 0; role < job.train.size(); ++role) {
    std::vector<std::pair<ir::Picoseconds, std::string>> tasks;
    for (size_t t = 0; t < job.train[role].tasks.size(); ++t) {
      const runtime::Task& task = job.train[role].tasks[t];
      tasks.emplace_back(simulation.timings[role][t].start,
                         std::string(job.train[role].streams[task.stream].name) + " " +
                             job.strings[task.name] + " " + std::to_string(task.microbatch));
    }
    std::stable_sort(tasks.begin(), tasks.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [start, name] : tasks)
      seen.trace.push_back(std::to_string(role) + " " + std::to_string(start) + " " + name);
  }
  RunResult run = RunJob(job, 2);
  seen.losses = run.losses;
  seen.gradients = run.gradients;
  seen.parameters = run.parameters;
  return seen;
}

class Directive : public ::testing::Test {
 protected:
  // `lines` of a strategy for a GPT on four devices; the one that begins with `@` is the one under test.
  void Compare(const std::string& lines, const std::string& declarations = "") {
    std::string with, without;
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) {
      size_t at = line.find('@');
      if (at == std::string::npos) {
        without += line + "\n";
        with += line + "\n";
      } else {
        with += line.substr(0, at) + line.substr(at + 1) + "\n";
      }
    }
    ASSERT_NE(with, without);
    with_ = Look(Program(with) + declarations);
    without_ = Look(Program(without) + declarations);
    ASSERT_TRUE(with_.accepted) << with_.messages;
  }
  static std::string Program(const std::string& lines) {
    return Declarations() + "strategy study {\n" + lines +
           "}\ntrain {\n  model gpt_net\n  data random(32)\n  global_batch 16\n  steps 2\n  seed 5\n  "
           "optimizer "
           "adamw(lr = 1e-2)\n  on topologies.local(ranks = 4)\n  using study\n}\n";
  }
  void ExpectSameNumbers() {
    EXPECT_EQ(with_.losses, without_.losses);
    EXPECT_EQ(with_.gradients, without_.gradients);
    EXPECT_EQ(with_.parameters, without_.parameters);
  }
  Seen with_, without_;
};

const char kPipeline[] =
    "mesh (pp = 2)\ncut embed, layer, head into 2 as stage\nsplit batch into 4 as mb\n"
    "for s in 0..2 { place [stage = s] on pp[s] }\n";
const char kReplicas[] = "mesh (dp = 2)\nsplit batch into 2 as mb\nshard batch over dp\n";

TEST_F(Directive, Mesh) {
  Compare("@mesh (pp = 2)\ncut embed, layer, head into 2 as stage\nsplit batch into 4 as mb\n");
  EXPECT_EQ(with_.ranks, 2u);
  ASSERT_TRUE(without_.accepted) << without_.messages;
  EXPECT_EQ(without_.ranks, 1u);
  EXPECT_NE(with_.trace, without_.trace);
  ExpectSameNumbers();
}

TEST_F(Directive, Cut) {
  Compare(
      "mesh (pp = 2)\n@cut embed, layer, head into [embed + layer, 5 * layer + head] as stage\nsplit batch "
      "into 4 as mb\n");
  EXPECT_NE(with_.ir.find("stage"), std::string::npos);
  EXPECT_EQ(without_.ir.find("stage"), std::string::npos);
  EXPECT_NE(with_.trace, without_.trace);
}

TEST_F(Directive, Split) {
  Compare("mesh (pp = 2)\ncut embed, layer, head into 2 as stage\n@split batch into 4 as mb\n");
  ASSERT_TRUE(without_.accepted) << without_.messages;
  EXPECT_NE(with_.trace, without_.trace);
  EXPECT_NE(with_.gradients, without_.gradients);  // another expression
  EXPECT_NEAR(with_.losses[0], without_.losses[0], 1e-6 * with_.losses[0]);
}

TEST_F(Directive, Place) {
  Compare(
      "mesh (pp = 2)\ncut embed, layer, head into [embed + layer, 5 * layer + head] as stage\nsplit batch "
      "into 4 as mb\n"
      "@for s in 0..2 { place [stage = s] on pp[1 - s] }\n");
  ASSERT_TRUE(without_.accepted) << without_.messages;
  EXPECT_NE(with_.ir, without_.ir);
  EXPECT_NE(with_.trace, without_.trace);
  ExpectSameNumbers();
}

TEST_F(Directive, Shard) {
  Compare("mesh (dp = 2)\nsplit batch into 2 as mb\n@shard batch over dp\n");
  EXPECT_NE(with_.ir.find("dp.reduce"), std::string::npos);
  // Without it either nothing says what the second device is for, or everything runs on both.
  if (without_.accepted) {
    EXPECT_EQ(without_.ir.find("dp.reduce"), std::string::npos);
    EXPECT_NE(with_.trace, without_.trace);
  }
}

TEST_F(Directive, Zero) {
  Compare(std::string(kReplicas) + "@zero 0 [*] as dp { bucket 8 KiB }\n");
  ASSERT_TRUE(without_.accepted) << without_.messages;
  EXPECT_LT(with_.trace.size(), without_.trace.size());
  EXPECT_LT(with_.makespan, without_.makespan);  // fewer latencies
  ExpectSameNumbers();
}

TEST_F(Directive, Order) {
  Compare(std::string(kPipeline) + "@for s in 0..2 { order on pp[s] { schedules.one_f_one_b(s, 2, 4) } }\n");
  ASSERT_TRUE(without_.accepted) << without_.messages;
  EXPECT_NE(with_.trace, without_.trace);
  EXPECT_LT(with_.makespan, without_.makespan);
  ExpectSameNumbers();
}

TEST_F(Directive, Lanes) {
  Compare(std::string(kReplicas) +
          "zero 0 [*] as dp { bucket 8 KiB }\n"
          "order on dp {\n  for i in 0..2 { F[mb = i] }\n  for i in 0..2 { B[mb = i] }\n"
          "@  lanes { reduce: [dp.reduce, embed]; [dp.reduce, not embed] }\n}\n");
  ASSERT_TRUE(without_.accepted) << without_.messages;
  EXPECT_NE(with_.ir, without_.ir);
  EXPECT_NE(with_.trace, without_.trace);
  EXPECT_GE(with_.makespan, without_.makespan);  // the first bucket that is ready now waits
  ExpectSameNumbers();
}

TEST_F(Directive, Fused) {
  // The fused pair takes the place of its parts, one after the other.
  auto order = [](const char* pair) {
    return std::string(kPipeline) +
           "order on pp[0] { schedules.one_f_one_b(0, 2, 4) }\n"
           "order on pp[1] {\n  F[stage = 1, mb = 0]\n  for i in 0..3 { " +
           pair + " }\n  B[stage = 1, mb = 3]\n}\n";
  };
  with_ = Look(Program(order("fused(B[stage = 1, mb = i], F[stage = 1, mb = i + 1])")));
  without_ = Look(Program(order("B[stage = 1, mb = i]; F[stage = 1, mb = i + 1]")));
  ASSERT_TRUE(with_.accepted && without_.accepted) << with_.messages << without_.messages;
  EXPECT_NE(with_.ir, without_.ir);
  EXPECT_NE(with_.trace, without_.trace);
  EXPECT_GT(with_.makespan, without_.makespan);  // results leave at the end of the pair
  ExpectSameNumbers();
}

TEST_F(Directive, Barrier) {
  Compare(std::string(kReplicas) +
          "order on dp {\n  for i in 0..2 { F[mb = i] }\n  for i in 0..2 { B[mb = i] }\n@  barrier\n"
          "  lanes { reduce: [dp.reduce] }\n}\n");
  ASSERT_TRUE(without_.accepted) << without_.messages;
  EXPECT_NE(with_.trace, without_.trace);
  EXPECT_GT(with_.makespan, without_.makespan);  // no reduction beside the backward passes
  ExpectSameNumbers();
}

// `send` stands for a stream a peer: what was listed for each of them lies before the barrier, and what is
// listed next for each of them behind it.
TEST_F(Directive, BarrierHoldsForEveryPeer) {
  std::unique_ptr<Compiled> compiled = Compile(Program(R"(
mesh (pp = 3)
cut embed, layer, head into 3 as stage
split batch into 2 as mb
for s in 0..3 { place [stage = s] on pp[s] }
for s in [0, 2] { order on pp[s] { schedules.gpipe(s, 3, 2) } }
order on pp[1] {
  lanes {
    compute: F[mb = 0]; F[mb = 1]
    send: F[send, mb = 0]; F[send, mb = 1]
  }
  lanes {
    compute: B[mb = 0]
    send: BI[send, mb = 0]
  }
  barrier
  lanes {
    compute: B[mb = 1]
    send: BI[send, mb = 1]
  }
}
)"));
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  const ir::Dag& dag = compiled->plan->dag;
  std::set<std::string> edges;
  for (const ir::TemporalEdge& edge : dag.temporal)
    edges.insert(dag.NodeName(edge.from) + " -> " + dag.NodeName(edge.to));
  size_t to_next = 0, to_previous = 0, crossing = 0;  // the last message forward, the last one backward
  for (const std::string& edge : edges) {
    to_next += edge.rfind("send stage1", 0) == 0 && edge.find("-> BI stage1") != std::string::npos;
    to_previous += edge.rfind("send d stage1", 0) == 0 && edge.find("-> BI stage1") != std::string::npos;
    crossing += edge.find("-> send ") != std::string::npos;
  }
  std::string all;
  for (const std::string& edge : edges) all += edge + "\n";
  EXPECT_EQ(to_next, 1u) << all;
  EXPECT_EQ(to_previous, 1u) << all;
  EXPECT_EQ(crossing, 2u) << all;  // behind the computation, and behind the other peer's
}

// What a list of messages or reductions leaves out never comes before what it waits for: the partial norm
// that is passed on behind all values, tied sums and the norm behind all reductions.
TEST_F(Directive, WhatIsNotListedStaysBehind) {
  for (const char* lines : {R"(
optimizer post_validation
order on pp[0] {
  compute: F[mb = 0]; F[mb = 1]; B[mb = 0]; B[mb = 1]
  send: F[send, mb = 1]; F[send, mb = 0]
}
order on pp[1] { F[mb = 1]; F[mb = 0]; B[mb = 1]; B[mb = 0] }
)",
                            R"(
for s in 0..2 { order on pp[s] { schedules.looped_bfs(s, 2, 2, 2); lanes { reduce: [dp.reduce, stage = s]; [dp.reduce, stage = s + 2] } } }
)"}) {
    const bool looped = std::string(lines).find("looped") != std::string::npos;
    std::string text = Program(
        std::string("mesh (pp = 2, dp = 2)\nshard batch over dp\nsplit batch into 2 as mb\n") +
        (looped ? "cut embed, layer, head into 4 as stage\nfor s in 0..4 { place [stage = s] on pp[s % 2] }\n"
                : "cut embed, layer, head into 2 as stage\nfor s in 0..2 { place [stage = s] on pp[s] }\n") +
        lines);
    text.replace(text.find("  seed 5"), 8, "  clip 0.5\n  seed 5");
    std::unique_ptr<Compiled> compiled = Compile(text);
    ASSERT_TRUE(compiled->ok()) << compiled->Messages();
    ExpectEqualToReference(*compiled, 2, lines);
  }
}

TEST_F(Directive, Edge) {
  Compare(std::string(kReplicas) + "@edge BW[embed, mb = last] -> [dp.reduce, layer = 5]\n");
  ASSERT_TRUE(without_.accepted) << without_.messages;
  EXPECT_NE(with_.ir.find("after"), std::string::npos);
  EXPECT_NE(with_.trace, without_.trace);
  EXPECT_GT(with_.makespan, without_.makespan);
  ExpectSameNumbers();
}

TEST_F(Directive, Limit) {
  // gpipe has all four alive: a bound of two cannot be kept; under 1F1B it can, and stands in the plan.
  std::string gpipe =
      std::string(kPipeline) + "for s in 0..2 { order on pp[s] { schedules.gpipe(s, 2, 4) } }\n";
  EXPECT_TRUE(Look(Program(gpipe)).accepted);
  Seen refused = Look(Program(gpipe + "limit 2 live F per mb\n"));
  EXPECT_FALSE(refused.accepted);
  EXPECT_NE(refused.messages.find("bad-limit"), std::string::npos) << refused.messages;
  Compare(std::string(kPipeline) +
          "for s in 0..2 { order on pp[s] { schedules.one_f_one_b(s, 2, 4) } }\n@limit 2 live F per mb\n");
  ASSERT_TRUE(without_.accepted) << without_.messages;
  EXPECT_NE(with_.ir, without_.ir);
  ExpectSameNumbers();
}

TEST_F(Directive, Stream) {
  Compare(std::string(kReplicas) + "@stream [dp.reduce] on compute\n");
  ASSERT_TRUE(without_.accepted) << without_.messages;
  EXPECT_NE(with_.trace, without_.trace);
  EXPECT_GT(with_.makespan, without_.makespan);  // nothing overlaps any more
  ExpectSameNumbers();
}

// A transport serves eight streams at one place: what asks for more is refused here, not when ranks start.
TEST_F(Directive, StreamsBeyondWhatATransportServes) {
  auto reductions = [](int streams) {
    std::string lines = kReplicas;
    for (int i = 0; i < streams; ++i) {
      lines += "stream [dp.reduce, " +
               (i == 6   ? "embed"
                : i == 7 ? "head"
                         : "layer = " + std::to_string(i)) +
               "] on r" + std::to_string(i) + "\n";
    }
    return Look(Program(lines));
  };
  // With the loss's own stream, seven and eight are the last that fit and the first that do not.
  EXPECT_TRUE(reductions(7).accepted) << reductions(7).messages;
  Seen refused = reductions(8);
  EXPECT_FALSE(refused.accepted);
  EXPECT_NE(
      refused.messages.find("rank 0 joins collectives on 9 streams; at most 8 are possible [bad-stream]"),
      std::string::npos)
      << refused.messages;
  auto messages = [](int streams) {
    std::string lines =
        "mesh (pp = 2)\ncut embed, layer, head into 18 as stage\nsplit batch into 2 as mb\n"
        "for s in 0..18 { place [stage = s] on pp[s % 2] }\n";
    for (int i = 0; i < streams; ++i) {
      lines += "stream [send, stage = " + std::to_string(2 * i) + "] on s" + std::to_string(i) + "\n";
    }
    std::string text =
        Program(lines) + "model deep = gpt.GPT(layers = 16, embed = 16, heads = 2, vocab = 32, seq = 8)\n";
    text.replace(text.find("model gpt_net\n"), 13, "model deep");
    return Look(text);
  };
  EXPECT_TRUE(messages(7).accepted) << messages(7).messages;
  refused = messages(9);
  EXPECT_FALSE(refused.accepted);
  EXPECT_NE(refused.messages.find("rank 0 sends to rank 1 on"), std::string::npos) << refused.messages;
}

// Merged streams can deadlock: 1F1B whose sends share the compute stream.
TEST_F(Directive, StreamThatDeadlocks) {
  std::string lines =
      std::string(kPipeline) + "for s in 0..2 { order on pp[s] { schedules.one_f_one_b(s, 2, 4) } }\n";
  EXPECT_TRUE(Look(Program(lines)).accepted);
  Seen refused = Look(Program(lines + "stream [send or recv] on compute\n"));
  EXPECT_FALSE(refused.accepted);
  EXPECT_NE(refused.messages.find("[deadlock]"), std::string::npos) << refused.messages;
  EXPECT_NE(refused.messages.find("rank 0"), std::string::npos) << refused.messages;
  EXPECT_NE(refused.messages.find("rank 1"), std::string::npos) << refused.messages;
}

TEST_F(Directive, Freeze) {
  Compare(std::string(kPipeline) + "@freeze [layer = 0..2]\n");
  ASSERT_TRUE(without_.accepted) << without_.messages;
  EXPECT_LT(with_.gradients.size(), without_.gradients.size());
  EXPECT_NE(with_.parameters, without_.parameters);
  EXPECT_EQ(with_.losses[0], without_.losses[0]);
  EXPECT_NE(with_.losses[1], without_.losses[1]);
  EXPECT_LT(with_.makespan, without_.makespan);
}

TEST_F(Directive, Optimizer) {
  Compare(std::string(kPipeline) + "@optimizer post_validation\n");
  ASSERT_TRUE(without_.accepted) << without_.messages;
  EXPECT_NE(with_.ir, without_.ir);
  EXPECT_NE(with_.trace, without_.trace);
  ExpectSameNumbers();
  EXPECT_FALSE(
      Look(Program(std::string(kPipeline) + "optimizer post_validation\noptimizer synchronised\n")).accepted);
}

// Directives take selectors joined outside their brackets, too.
TEST_F(Directive, FreezeOfTwoSelectors) {
  Compare(std::string(kPipeline) + "@freeze [layer = 0] or [layer = 1]\n");
  Seen range = Look(Program(std::string(kPipeline) + "freeze [layer = 0..2]\n"));
  ASSERT_TRUE(range.accepted) << range.messages;
  EXPECT_EQ(with_.gradients, range.gradients);
  EXPECT_EQ(with_.parameters, range.parameters);
  EXPECT_NE(with_.parameters, without_.parameters);
}

TEST_F(Directive, Numerics) {
  const std::string four = "mesh (dp = 4)\nsplit batch into 2 as mb\nshard batch over dp\n";
  Compare(four + "@numerics fast\n");
  ASSERT_TRUE(without_.accepted) << without_.messages;
  EXPECT_NE(with_.ir, without_.ir);
  EXPECT_EQ(with_.trace, without_.trace);
  EXPECT_EQ(with_.losses[0], without_.losses[0]);
  // Other bits, and close: sums of four terms of about their size, rounded in another order.
  EXPECT_NE(with_.gradients, without_.gradients);
  ASSERT_EQ(with_.gradients.size(), without_.gradients.size());
  for (size_t p = 0; p < with_.gradients.size(); ++p) {
    const std::vector<float>&a = with_.gradients[p].second, &b = without_.gradients[p].second;
    ASSERT_EQ(a.size(), b.size());
    float largest = 0;
    for (float x : b) largest = std::max(largest, std::fabs(x));
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], 2e-5 * largest) << with_.gradients[p].first << " " << i;
  }
  // Two terms have one sum.
  Compare(std::string(kReplicas) + "@numerics fast\n");
  ExpectSameNumbers();
  Seen both = Look(Program(std::string(kReplicas) + "numerics fast\nnumerics reproducible\n"));
  EXPECT_FALSE(both.accepted);
}

TEST_F(Directive, Cost) {
  Compare(std::string(kPipeline) + "@cost F[stage = 1] = 1 ms\n");
  ASSERT_TRUE(without_.accepted) << without_.messages;
  EXPECT_GE(with_.makespan, 4 * ir::kPsPerMs);
  EXPECT_LT(without_.makespan, 4 * ir::kPsPerMs);
  ExpectSameNumbers();
}

TEST_F(Directive, Assert) {
  for (const char* bound : {"step_time < 1 ns", "peak_memory < 1 KiB", "bubble < 1 %", "bytes(pp) < 1 B",
                            "mfu > 99 %", "exposed([send or recv]) < 0.001 %"}) {
    std::string line = std::string("assert ") + bound + "\n";
    Seen refused = Look(Program(kPipeline + line));
    EXPECT_FALSE(refused.accepted) << bound;
    EXPECT_NE(refused.messages.find("assert-failed"), std::string::npos) << bound << "\n" << refused.messages;
    // The other way round it holds.
    size_t sign = line.find_first_of("<>");
    line[sign] = line[sign] == '<' ? '>' : '<';
    Seen accepted = Look(Program(kPipeline + line));
    EXPECT_TRUE(accepted.accepted) << accepted.messages;
  }
}

TEST_F(Directive, OverrideAndUse) {
  std::string base = "use strategies.pipeline_by(schedules.gpipe, 2, 4)\n";
  auto program = [&](const std::string& lines) { return "import std.strategies\n" + Program(lines); };
  Seen plain = Look(program(base));
  Seen moved =
      Look(program(base + "override place [stage = 0] on pp[1]\noverride place [stage = 1] on pp[0]\n"));
  // The orders of the strategy are for the other placement.
  ASSERT_TRUE(plain.accepted) << plain.messages;
  EXPECT_FALSE(moved.accepted);
  EXPECT_NE(moved.messages.find("order-"), std::string::npos) << moved.messages;
}

}  // namespace
}  // namespace piper::testing
