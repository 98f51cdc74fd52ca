// Several streams of a device that compute, from `.piper` text: `lanes` on two compute streams and one for
// messages, run beside the reference on 2 and 4 ranks, with and without buffers; a thread a stream; memory
// that no stream takes from another; the clock's figures; orders that nobody wrote.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "ir/dag/dag_text.h"
#include "ir/lower/memory.h"
#include "runtime/interpreter.h"
#include "tests/pipeline_support.h"
#include "tests/streams_text.h"
#include "tools/timeline.h"

namespace piper::testing {
namespace {

int ComputingStreams(const runtime::RankProgram& program) {
  int computing = 0;
  for (const runtime::Stream& stream : program.streams)
    computing += stream.computes != 0 && stream.task_count > 0;
  return computing;
}

void ExpectRight(const std::string& text, int computing, const std::string& what) {
  const std::unique_ptr<Compiled> compiled = MustCompile(text);
  ASSERT_TRUE(compiled->ok());
  for (const runtime::RankProgram& program : compiled->job().train)
    EXPECT_EQ(ComputingStreams(program), computing) << what;
  ExpectSound(*compiled, what);
}

TEST(Streams, LanesOfTwoComputeStreamsAndMessages) {
  const std::pair<int, int> kGrids[] = {{2, 1}, {1, 2}, {2, 2}, {4, 1}};
  for (const auto& [p, dp] : kGrids)
    ExpectRight(LanesText(p, dp), 2, "pp " + std::to_string(p) + ", dp " + std::to_string(dp));
}

struct Case {
  const char* name;
  const char* directives;
  int computing;  // streams
};
class StreamCases : public ::testing::TestWithParam<Case> {};

TEST_P(StreamCases, AreRight) {
  for (int dp : {1, 2}) {
    if (dp == 2 && !Soak() && GetParam().name[0] % 2 == 0) continue;
    ExpectRight(StreamsText(2, dp, GetParam().directives), GetParam().computing,
                std::string(GetParam().name) + ", dp " + std::to_string(dp));
  }
}

const Case kCases[] = {
    {"weights_aside", "stream BW on side", 2},
    {"attention_aside", "stream [attn] on side", 2},
    {"forward_aside", "stream F on side", 2},
    {"all_aside", "stream [*] on side", 2},  // updates stay
    {"updates_aside", "stream U on side", 2},
    {"three", "stream BW on side\nstream F[attn] or F[embed] on third\nstream U on last", 4},
    {"replays", "recompute [layer]\nstream R on again\nstream BW on side", 3},
    {"replays_follow", "recompute [layer]\nstream B on side", 2},
    {"offload", "offload [layer] to host { prefetch 1 }\nstream BW on side\nlimit 2 live F per mb", 2},
    {"offload_aside", "offload [layer] to host\nstream [offload.in] on side\nstream BW on side", 2},
    {"messages_beside_weights", "stream BW on side\nstream [send] on side", 2},
    {"receives_beside_weights", "stream BW on side\nstream [recv] on side", 2},
    {"reduces_beside_weights", "stream BW on side\nstream [dp.reduce] or [tie.reduce] on side", 2},
    {"weights_beside_reduces", "stream BW on reduce", 2},
    {"post_validation", "stream BW on side\nstream U on last\noptimizer post_validation", 3},
    {"free_of_each_other", "stream BW on side\nslowdown compute with side = 1", 2},
    {"side_listed_alone",
     "stream BW on side\nfor s in 0..2 { order on pp[s] { side: for i in 0..4 { BW[mb = i] } } }", 2},
    {"compute_listed_alone",
     "stream BW on side\nfor s in 0..2 { order on pp[s] { for i in 0..4 { F[mb = i] }\nfor i in 0..4 { BI[mb "
     "= i] } } }",
     2},
    {"descending",
     "stream BW on side\nfor s in 0..2 { order on pp[s] { lanes {\ncompute: for i in 0..4 { F[mb = i]; BI[mb "
     "= i] }\n"
     "side: for i in reversed(0..4) { BW[mb = i] } } } }",
     2},
    {"barrier",
     "stream BW on side\nfor s in 0..2 { order on pp[s] {\nlanes {\ncompute: for i in 0..4 { F[mb = i]; "
     "BI[mb = i] }\n"
     "side: BW[mb = 0]\n}\nbarrier\nlanes { side: for i in 1..4 { BW[mb = i] } } } }",
     2},
};
INSTANTIATE_TEST_SUITE_P(Directives, StreamCases, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- the clock

ir::Picoseconds StepTime(const std::string& directives) {
  const std::unique_ptr<Compiled> compiled = MustCompile(ChainText(directives));
  return compiled->ok() ? compiled->plan->simulation.makespan : -1;
}

// F0 BI0 F1 BI1 on compute, BW0 beside F1, BW1 after BI1; each takes 10 us.
TEST(Streams, TheClockSharesWhatComputes) {
  const std::string order =
      "order on pp[0] { lanes {\ncompute: F[mb = 0]; BI[mb = 0]; F[mb = 1]; BI[mb = 1]\nside: BW[mb = 0]; "
      "BW[mb = 1]\n} }\n";
  EXPECT_EQ(StepTime("stream BW on side\n" + order), 60 * ir::kPsPerUs);
  EXPECT_EQ(StepTime("stream BW on side\nslowdown compute with side = 1\n" + order), 50 * ir::kPsPerUs);
  // Both go at 2/3 until BW0 and F1 end, at 35.
  EXPECT_EQ(StepTime("stream BW on side\nslowdown compute with side = 1.5\n" + order), 55 * ir::kPsPerUs);
  EXPECT_EQ(StepTime("stream BW on side\nslowdown compute with side = 2\n" + order), 60 * ir::kPsPerUs);
}

TEST(Streams, FiguresAndPicturesShowEachStream) {
  const std::unique_ptr<Compiled> compiled =
      MustCompile(ChainText("stream BW on side\nslowdown compute with side = 1\norder on pp[0] { lanes "
                            "{\ncompute: F[mb = 0]; BI[mb = 0]; F[mb = "
                            "1]; BI[mb = 1]\nside: BW[mb = 0]; BW[mb = 1]\n} }\n"));
  ASSERT_TRUE(compiled->ok());
  const ir::SimulationResult& simulation = compiled->plan->simulation;
  // A device is busy while any of its streams computes.
  EXPECT_EQ(simulation.roles[0].busy, 50 * ir::kPsPerUs);
  const std::vector<tools::CellRow> rows = tools::MakeCellRows(
      tools::TimelineRows(compiled->job(), simulation, false), {}, compiled->job().strings);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].lanes, 2u);
  tools::TimelineOptions options;
  options.columns = 67;
  EXPECT_EQ(tools::RenderTimeline(rows, simulation.makespan, options),
            "rank 0 compute |F0--------I0--------F1--------I1--------..........|\n"
            "       side    |....................W0--------..........W1--------|\n"
            "                0                                            50 us\n"
            "                F forward  I backward, inputs  W backward, weights\n"
            "                . idle\n");
}

// ---- threads

// The first BW of microbatch 0 ends only when an F of microbatch 1 has begun, and that only when the BW has.
class MeetingBodies : public runtime::BodyRunner {
 public:
  MeetingBodies(const runtime::Job& job, const runtime::RankProgram& program)
      : program_(program), inner_(runtime::MakeInterpreter(job, program)) {}
  void Run(uint32_t body, runtime::BodyContext& context) override {
    const std::string_view name = program_.bodies[body].name;
    if (name.ends_with("_bwd_weight")) Meet(&weights_, forward_);
    if (name.ends_with("_fwd") && context.first_sample > 0) Meet(&forward_, weights_);
    inner_->Run(body, context);
  }
  static std::atomic<int> met;

 private:
  static void Meet(std::atomic<bool>* mine, const std::atomic<bool>& other) {
    if (mine->exchange(true)) return;
    const auto start = std::chrono::steady_clock::now();
    while (!other && std::chrono::steady_clock::now() - start < std::chrono::seconds(20))
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    met += other;
  }
  const runtime::RankProgram& program_;
  std::unique_ptr<runtime::BodyRunner> inner_;
  std::atomic<bool> weights_{false}, forward_{false};
};
std::atomic<int> MeetingBodies::met{0};

TEST(Streams, EachRunsOnAThreadOfItsOwn) {
  const std::unique_ptr<Compiled> compiled = MustCompile(ChainText(
      "stream BW on side\norder on pp[0] { lanes {\ncompute: F[mb = 0]; BI[mb = 0]; F[mb = 1]; BI[mb "
      "= 1]\nside: BW[mb = 0]; BW[mb = 1]\n} }\n"));
  ASSERT_TRUE(compiled->ok());
  runtime::LocalOptions options;
  options.steps = 1;
  options.bodies = [](const runtime::Job& job, const runtime::RankProgram& program) {
    return std::make_unique<MeetingBodies>(job, program);
  };
  MeetingBodies::met = 0;
  const runtime::Result<runtime::LocalResult> run = runtime::RunLocal(compiled->job(), options);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(MeetingBodies::met, 2);
}

// ---- limit

// Three layers of 10 us a pass, but the last layer's BW takes 60 on a stream of its own: it starts before the
// others and ends after them.
std::string SlowWeightsText(const std::string& limit, const std::string& order) {
  return R"(import std.topologies
module Layer(width: dim) {
  param w: [width, out = width] = normal(0.3)
  forward(x: [batch, width]) -> [batch, width] { x + tanh(rename(x @ w, out, width)) }
}
module Net(width: dim) {
  layers = [Layer(width) for i in 0..3]
  forward(x: [batch, width], y: [batch, width]) -> loss {
    let a = tag layer { layers[0](x) }
    let b = tag layer { layers[1](a) }
    return tag layer { mse(layers[2](b), y) }
  }
}
model net = Net(width = 4)
topology ideal {
  device unit { compute bf16 = 1 TFLOP/s }
  level all = 1 of unit
}
strategy study {
  mesh (pp = 1)
  cut layer into 1 as stage
  split batch into 2 as mb
  cost F[layer] = 10 us
  cost BI[layer] = 10 us
  cost BW[layer = 0] = 10 us
  cost BW[layer = 1] = 10 us
  cost BW[layer = 2] = 60 us
  stream BW[layer = 2] on side
  slowdown compute with side = 1
)" + limit +
         order + R"(}
train {
  model net
  data random()
  steps 1
  global_batch 4
  optimizer sgd(0.1)
  on ideal
  using study
}
)";
}

// What a limit frees may end on several streams: all of it is waited for, not what starts last.
TEST(Streams, ALimitWaitsForEveryStreamThatFrees) {
  const std::string order =
      "order on pp[0] {\ncompute: for i in 0..2 { F[mb = i]; BI[mb = i]; BW[mb = i, layer = 0..2] }\n"
      "side: for i in 0..2 { BW[mb = i, layer = 2] }\n}\n";
  // F0 0-30, BI0 -50, BW0 of two layers -70, of the last one 40-100; microbatch 1 follows at 70.
  const std::unique_ptr<Compiled> free = MustCompile(SlowWeightsText("", order));
  ASSERT_TRUE(free->ok());
  EXPECT_EQ(free->plan->simulation.makespan, 170 * ir::kPsPerUs);
  EXPECT_EQ(free->plan->simulation.roles[0].peak_activations, 2);
  // Or at 100.
  const std::unique_ptr<Compiled> bound = MustCompile(SlowWeightsText("limit 1 live F per mb\n", order));
  ASSERT_TRUE(bound->ok());
  EXPECT_EQ(bound->plan->simulation.makespan, 200 * ir::kPsPerUs);
  EXPECT_EQ(bound->plan->simulation.roles[0].peak_activations, 1);
  ExpectEqualToReference(*bound, 2, "limit");
}

// Where nobody says which of two streams comes first, a limit may: F1 would start at 20, when BW0 does.
TEST(Streams, ALimitMayHoldBackAnotherStream) {
  const std::string order =
      "order on pp[0] { lanes {\ncompute: F[mb = 0]; BI[mb = 0]; F[mb = 1]; BI[mb = 1]\nside: BW[mb = 0]; "
      "BW[mb = 1]\n} }\n";
  EXPECT_EQ(StepTime("stream BW on side\nslowdown compute with side = 1\nlimit 1 live F per mb\n" + order),
            60 * ir::kPsPerUs);
  // Not where an order says otherwise.
  const auto refused = [](const std::string& stream, const std::string& compute, const std::string& side) {
    return Compile(ChainText(stream + "\nlimit 1 live F per mb\norder on pp[0] {\ncompute: " + compute +
                             "\nside: " + side + "\n}\n"));
  };
  const std::unique_ptr<Compiled> same =
      refused("stream BW on side", "F[mb = 0]; F[mb = 1]; BI[mb = 0]; BI[mb = 1]", "BW[mb = 0]; BW[mb = 1]");
  EXPECT_TRUE(same->Has(ir::DiagKind::kBadLimit)) << same->Messages();
  const std::unique_ptr<Compiled> other =
      refused("stream B on side", "F[mb = 0]; F[mb = 1]", "B[mb = 1]; B[mb = 0]");
  EXPECT_TRUE(other->Has(ir::DiagKind::kCycle)) << other->Messages();
}

// ---- orders that nobody wrote

// A note about such an order says which line it comes from.
TEST(Streams, WhatFollowsFromAStreamLineIsLocated) {
  const std::unique_ptr<Compiled> compiled = MustCompile(
      ChainText("stream BW on side\norder on pp[0] { F[mb = 0]; F[mb = 1]; BI[mb = 1]; BI[mb = 0] }\n"));
  ASSERT_TRUE(compiled->Has(ir::DiagKind::kExpressionChanged)) << compiled->Messages();
  for (const ir::Diagnostic& diagnostic : compiled->diag.diagnostics()) {
    EXPECT_TRUE(diagnostic.range.valid()) << diagnostic.message;
  }
  EXPECT_NE(compiled->Messages().find("  stream BW on side"), std::string::npos) << compiled->Messages();
}

// Of what could start: the least microbatch, F before B, by model order.
TEST(Streams, AStreamWithoutAnOrderRunsWhatIsReady) {
  const std::unique_ptr<Compiled> compiled = MustCompile(
      ChainText("stream BW on side\norder on pp[0] { F[mb = 0]; F[mb = 1]; BI[mb = 1]; BI[mb = 0] }\n"));
  ASSERT_TRUE(compiled->ok());
  const std::string text = ir::DagToText(compiled->plan->dag);
  std::string weights;
  for (const ir::StreamOrder& order : compiled->plan->dag.orders) {
    if (ir::NameText(order.stream) != "side") continue;
    for (const ir::OrderItem& item : order.items) {
      const std::string name = compiled->plan->dag.NodeName(item.node);
      if (name.starts_with("BW")) weights += name.substr(name.find(" mb")) + ";";
    }
  }
  // BI1 ends at 30, BI0 at 40: so does BW1, and BW0 follows.
  EXPECT_EQ(weights, " mb 1; mb 1; mb 0; mb 0;") << text;
}

}  // namespace
}  // namespace piper::testing
