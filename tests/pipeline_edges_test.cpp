// Edges between hosts: a message without payload carries them. From `.piper` text: what is accepted holds on
// the clock and in the executor, with and without buffers, and learns the same; what closes a cycle is
// refused.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <sstream>

#include "ir/dag/dag_text.h"
#include "runtime/interpreter.h"
#include "tests/pipeline_support.h"
#include "tests/schedules_support.h"

namespace piper::testing {
namespace {

// One region a stage, so that a step of a stage is one task; the first has a ramp before it.
std::string Chain(const std::string& schedule, int p, int m, const std::string& directives) {
  std::string text = ChainProgram(
      Find(schedule), p, m,
      "  cost F[layer] = 10 us\n  cost BI[layer] = 11 us\n  cost BW[layer] = 9 us\n" + directives,
      kIdealMachine);
  return text;
}

// The task of pass `pass` of the layer of stage `stage` and a microbatch: (rank, task); nothing if there is
// none.
struct At {
  uint32_t role = 0, task = 0;
};
std::optional<At> FindTask(const runtime::Job& job, const std::string& name, int mb) {
  for (uint32_t r = 0; r < job.train.size(); ++r) {
    for (uint32_t t = 0; t < job.train[r].tasks.size(); ++t) {
      const runtime::Task& task = job.train[r].tasks[t];
      if (task.microbatch == mb && job.strings[task.name] == name) return At{r, t};
    }
  }
  return std::nullopt;
}
std::string Name(const char* pass, int stage) {
  const std::string number = std::to_string(stage);
  return std::string(pass) + " stage" + number + ".layer" + (stage == 0 ? "" : number);
}

struct Link {
  const char* from_pass = "F";
  int from_stage = 0, from_mb = 0;
  const char* to_pass = "F";
  int to_stage = 0, to_mb = 0;
  std::string Text() const {
    std::ostringstream out;
    out << "  edge " << from_pass << "[layer, stage = " << from_stage << ", mb = " << from_mb << "] -> "
        << to_pass << "[layer, stage = " << to_stage << ", mb = " << to_mb << "]\n";
    return out.str();
  }
};

ir::Picoseconds Slack(const Compiled& compiled, const Link& link) {
  std::optional<At> a = FindTask(compiled.job(), Name(link.from_pass, link.from_stage), link.from_mb);
  std::optional<At> b = FindTask(compiled.job(), Name(link.to_pass, link.to_stage), link.to_mb);
  EXPECT_TRUE(a && b) << link.Text();
  if (!a || !b) return 0;
  const auto& timings = compiled.plan->simulation.timings;
  return timings[b->role][b->task].start - timings[a->role][a->task].end;
}

// Runs it and looks at the clock of the machine: within one process, what follows an edge starts later.
void ExpectHolds(const Compiled& compiled, const std::vector<Link>& links) {
  for (bool rendezvous : {false, true}) {
    runtime::LocalOptions options;
    options.bodies = runtime::MakeInterpreter;
    options.rendezvous = rendezvous;
    options.execution.record_timings = true;
    options.execution.delay_microseconds = 40;
    options.execution.delay_seed = 3;
    options.execution.stall_seconds = 30;
    runtime::Result<runtime::LocalResult> run = runtime::RunLocal(compiled.job(), options);
    ASSERT_TRUE(run.ok()) << run.status().message();
    for (const Link& link : links) {
      std::optional<At> a = FindTask(compiled.job(), Name(link.from_pass, link.from_stage), link.from_mb);
      std::optional<At> b = FindTask(compiled.job(), Name(link.to_pass, link.to_stage), link.to_mb);
      ASSERT_TRUE(a && b);
      EXPECT_LE(run->timings[a->role][a->task].end, run->timings[b->role][b->task].start) << link.Text();
    }
  }
}

TEST(PipelineEdges, AnEdgeBetweenRanksIsAMessageWithoutPayload) {
  // Rank 3 must not start microbatch 0 before rank 0 has gone through all its forwards of 0 .. 3.
  const Link link{"F", 0, 3, "F", 3, 0};
  std::unique_ptr<Compiled> plain = Compile(Chain("one_f_one_b", 4, 8, ""));
  std::unique_ptr<Compiled> with = Compile(Chain("one_f_one_b", 4, 8, link.Text()));
  ASSERT_TRUE(plain->ok() && with->ok()) << plain->Messages() << with->Messages();
  EXPECT_LT(Slack(*plain, link), 0);
  EXPECT_GE(Slack(*with, link), 0);
  EXPECT_GT(with->plan->simulation.makespan, plain->plan->simulation.makespan);
  int sends = 0, receives = 0;
  for (const ir::NodeTemplate& node : with->plan->dag.templates) {
    for (ir::NameId name : node.names) {
      sends += ir::NameText(name) == "edge.send";
      receives += ir::NameText(name) == "edge.recv";
    }
  }
  EXPECT_EQ(sends, 1);
  EXPECT_EQ(receives, 1);
  // One message more on rank 0, of no bytes.
  EXPECT_EQ(with->plan->simulation.roles[0].messages, plain->plan->simulation.roles[0].messages + 1);
  EXPECT_EQ(with->plan->simulation.roles[0].message_bytes, plain->plan->simulation.roles[0].message_bytes);
  ExpectHolds(*with, {link});
  ExpectEqualToReference(*with, 2, "an edge");
  // The plan's text has it, and reads back.
  const std::string text = ir::DagToText(with->plan->dag);
  EXPECT_NE(text.find("edge.recv F stage0.layer -> F stage3.layer3"), std::string::npos) << text;
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  std::optional<ir::Dag> again = ir::ParseDag(sources.Add("plan.ir", text), diag);
  ASSERT_TRUE(again) << diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
  EXPECT_EQ(ir::DagToText(*again), text);
}

TEST(PipelineEdges, WithoutSplitIndicesMicrobatchesMatch) {
  std::unique_ptr<Compiled> with =
      Compile(Chain("gpipe", 3, 4, "  edge F[layer, stage = 2] -> B[layer, stage = 0]\n"));
  ASSERT_TRUE(with->ok()) << with->Messages();
  int nodes = 0;
  for (const ir::NodeTemplate& node : with->plan->dag.templates) {
    if (!node.names.empty() && ir::NameText(node.names[0]) == "edge.send")
      nodes += static_cast<int>(node.node_count());
  }
  EXPECT_EQ(nodes, 4);
  std::vector<Link> links;
  for (int mb = 0; mb < 4; ++mb) links.push_back({"F", 2, mb, "BI", 0, mb});
  for (const Link& link : links) EXPECT_GE(Slack(*with, link), 0);
  ExpectHolds(*with, links);
  ExpectEqualToReference(*with, 1, "matching microbatches");
}

TEST(PipelineEdges, RangesAndEmptyEnds) {
  // Several nodes on both sides: all of these before all of those, one message a pair of hosts.
  std::unique_ptr<Compiled> ranges = Compile(Chain(
      "gpipe", 4, 4, "  edge F[layer, stage = 0..2, mb = [0, 2..4]] -> F[layer, stage = 2..4, mb = 1..3]\n"));
  ASSERT_TRUE(ranges->ok()) << ranges->Messages();
  std::vector<Link> links;
  for (int from : {0, 1}) {
    for (int to : {2, 3}) {
      for (int a : {0, 2, 3}) {
        for (int b : {1, 2}) links.push_back({"F", from, a, "F", to, b});
      }
    }
  }
  for (const Link& link : links) EXPECT_GE(Slack(*ranges, link), 0) << link.Text();
  ExpectHolds(*ranges, links);
  // `?`: the loop's first edge has no source.
  std::unique_ptr<Compiled> maybe = Compile(
      Chain("gpipe", 4, 4,
            "  for i in 0..4 { edge F[layer, stage = i - 1, mb = 3]? -> F[layer, stage = i, mb = 1] }\n"));
  ASSERT_TRUE(maybe->ok()) << maybe->Messages();
  EXPECT_GE(Slack(*maybe, {"F", 0, 3, "F", 1, 1}), 0);
  EXPECT_GE(Slack(*maybe, {"F", 2, 3, "F", 3, 1}), 0);
}

TEST(PipelineEdges, ReplicasMeetTheirOwn) {
  TrainText text;
  text.schedule = "one_f_one_b";
  text.p = 2;
  text.dp = 2;
  text.m = 4;
  text.directives =
      "  edge F[stage = 0, mb = 1] -> F[stage = 1, mb = 0]\n"
      "  edge [dp.reduce, head] -> [update, embed]?\n  edge B[stage = 1, mb = last] -> [dp.reduce, stage = "
      "0]\n";
  ExpectEqualToReference(text);
  std::unique_ptr<Compiled> compiled = Compile(text.Text());
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  runtime::LocalOptions options;
  options.execution.stall_seconds = 30;
  const RunResult plain = RunJob(compiled->job(), options);
  options.rendezvous = true;
  options.execution.delay_microseconds = 50;
  const RunResult met = RunJob(compiled->job(), options);
  EXPECT_EQ(plain.losses, met.losses);
  EXPECT_EQ(plain.parameters, met.parameters);
}

TEST(PipelineEdges, StreamsCostsAndOrdersReachTheMessage) {
  const Link link{"F", 0, 3, "F", 3, 0};
  std::unique_ptr<Compiled> priced =
      Compile(Chain("one_f_one_b", 4, 8, link.Text() + "  cost [edge.send] = 7 us\n"));
  ASSERT_TRUE(priced->ok()) << priced->Messages();
  EXPECT_EQ(Slack(*priced, link), 7 * ir::kPsPerUs);
  std::unique_ptr<Compiled> moved = Compile(Chain(
      "one_f_one_b", 4, 8, link.Text() + "  stream [edge.send] on signal\n  stream [edge.recv] on signal\n"));
  ASSERT_TRUE(moved->ok()) << moved->Messages();
  ExpectHolds(*moved, {link});
  std::unique_ptr<Compiled> merged =
      Compile(Chain("one_f_one_b", 4, 8, link.Text() + "  stream [edge.*] on compute\n"));
  ASSERT_TRUE(merged->ok()) << merged->Messages();
  ExpectHolds(*merged, {link});
}

TEST(PipelineEdges, ACycleIsRefusedByName) {
  // Rank 1's F of microbatch 0 needs rank 0's, which is made to wait for it.
  std::unique_ptr<Compiled> cycle = Compile(Chain("gpipe", 2, 2, Link{"F", 1, 0, "F", 0, 0}.Text()));
  ASSERT_FALSE(cycle->ok());
  EXPECT_TRUE(cycle->Has(ir::DiagKind::kCycle)) << cycle->Messages();
  for (const char* part :
       {"F stage0.layer mb 0 is made to wait for edge.recv F stage1.layer1 -> F stage0.layer",
        "study.piper:"})
    EXPECT_NE(cycle->Messages().find(part), std::string::npos) << cycle->Messages();
  // Two edges that only together close one.
  std::unique_ptr<Compiled> both =
      Compile(Chain("gpipe", 3, 3, Link{"F", 0, 2, "F", 2, 0}.Text() + Link{"F", 2, 1, "F", 0, 1}.Text()));
  ASSERT_FALSE(both->ok());
  EXPECT_TRUE(both->Has(ir::DiagKind::kCycle)) << both->Messages();
}

// Parts of one node run as they are listed.
TEST(PipelineEdges, InsideANode) {
  EXPECT_TRUE(Compile(Chain("gpipe", 2, 2, Link{"BI", 1, 0, "BW", 1, 0}.Text()))->ok());
  std::unique_ptr<Compiled> back = Compile(Chain("gpipe", 2, 2, Link{"BW", 1, 0, "BI", 1, 0}.Text()));
  ASSERT_FALSE(back->ok());
  EXPECT_TRUE(back->Has(ir::DiagKind::kCycle)) << back->Messages();
  EXPECT_NE(back->Messages().find("in one fused node, and waits for it"), std::string::npos)
      << back->Messages();
}

// Random edges. Those that the timeline without them keeps are accepted; what is accepted holds.
TEST(PipelineEdges, RandomEdges) {
  std::mt19937 random(11);
  const char* passes[] = {"F", "BI", "BW"};
  int accepted = 0, refused = 0, crossing = 0;
  const std::vector<std::pair<const char*, std::pair<int, int>>> schedules = {
      {"gpipe", {3, 4}}, {"one_f_one_b", {4, 6}}, {"zb1p", {3, 5}}, {"interleaved_v2", {2, 4}}};
  const int rounds = Soak() ? 400 : 12;
  for (const auto& [schedule, size] : schedules) {
    const auto [p, m] = size;
    const int stages = p * Find(schedule).v;
    std::unique_ptr<Compiled> plain = Compile(Chain(schedule, p, m, ""));
    ASSERT_TRUE(plain->ok()) << plain->Messages();
    for (int round = 0; round < rounds; ++round) {
      std::vector<Link> links;
      std::string directives;
      bool kept = true;
      const int count = 1 + static_cast<int>(random() % 4);
      for (int i = 0; i < count; ++i) {
        auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
        Link link{passes[pick(3)], pick(stages), pick(m), passes[pick(3)], pick(stages), pick(m)};
        // Within one node there is nothing to see on the clock.
        if (link.from_stage == link.to_stage && link.from_mb == link.to_mb) link.to_mb = (link.to_mb + 1) % m;
        const ir::Picoseconds slack = Slack(*plain, link);
        // Half of them are turned so that they go with the timeline.
        if (slack < 0 && pick(3) != 0) {
          std::swap(link.from_pass, link.to_pass);
          std::swap(link.from_stage, link.to_stage);
          std::swap(link.from_mb, link.to_mb);
        }
        kept = kept && Slack(*plain, link) >= 0;
        crossing += link.from_stage % p != link.to_stage % p;
        links.push_back(link);
        directives += link.Text();
      }
      std::unique_ptr<Compiled> with = Compile(Chain(schedule, p, m, directives));
      if (!with->ok()) {
        EXPECT_FALSE(kept) << directives << with->Messages();
        EXPECT_TRUE(with->Has(ir::DiagKind::kCycle) || with->Has(ir::DiagKind::kDeadlock) ||
                    with->Has(ir::DiagKind::kBadEdge))
            << with->Messages();
        ++refused;
        continue;
      }
      ++accepted;
      for (const Link& link : links) EXPECT_GE(Slack(*with, link), 0) << directives;
      EXPECT_GE(with->plan->simulation.makespan, plain->plan->simulation.makespan);
      if (round % 4 == 0) ExpectHolds(*with, links);
      if (round % 8 == 0) ExpectEqualToReference(*with, 1, directives);
    }
  }
  EXPECT_GT(accepted, rounds);
  EXPECT_GT(refused, rounds / 2);
  EXPECT_GT(crossing, rounds);
}

// An order that lists the updates lays the reduces that they wait for; on the compute stream those are laid
// once all the same.
TEST(Orders, ListedUpdatesBesideReducesOnCompute) {
  std::unique_ptr<Compiled> compiled = Compile(
      "import std.gpt\nimport std.topologies\n"
      "model net = gpt.GPT(layers = 2, embed = 4, heads = 2, vocab = 8, seq = 4)\n"
      "strategy s {\n  mesh (pp = 1, dp = all)\n  shard batch over dp\n"
      "  order on pp[0] { F; B; U[*] }\n  stream [dp.reduce] on compute\n}\n"
      "train {\n  model net\n  data random(8)\n  steps 2\n  global_batch 2\n  optimizer sgd(0.1)\n"
      "  on topologies.local(ranks = 2)\n  using s\n}\n");
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  ExpectEqualToReference(*compiled, 2, "updates listed beside reduces");
}

}  // namespace
}  // namespace piper::testing
