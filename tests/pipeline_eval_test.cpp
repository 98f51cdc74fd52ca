// Evaluation runs the training step's forward, at the same placement, without dropout.
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "frontend/frontend.h"
#include "ir/pipeline.h"
#include "runtime/interpreter.h"
#include "runtime/local_runner.h"

namespace piper {
namespace {

constexpr char kText[] = R"(
import std.gpt
import std.strategies
import std.topologies
model net = gpt.GPT(layers = 2, embed = 16, heads = 2, vocab = 256, seq = 8, dropout_rate = 0.25)
train {
  model        net
  data         text("tests/include_rules_test.cpp", validation = 10 %)
  global_batch 4
  steps        2
  optimizer    sgd(lr = 0.1)
  eval_every   1
  on           topologies.local(ranks = 2)
  using        strategies.gpipe(p = 2, m = 2)
}
)";

// The drop rates of a program's dropout calls.
std::multiset<double> DropRates(std::span<const runtime::RankProgram> programs) {
  std::multiset<double> rates;
  for (const runtime::RankProgram& program : programs) {
    for (const runtime::Call& call : program.calls) {
      if (std::string(call.kernel).rfind("dropout", 0) == 0)
        rates.insert(program.call_scalars[call.first_scalar]);
    }
  }
  return rates;
}

TEST(Evaluation, PassesThroughDropout) {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  frontend::LoadOptions options;
  options.text = kText;
  std::optional<ir::Program> program = frontend::LoadProgram("eval.piper", options, sources, diag);
  ASSERT_TRUE(program) << diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
  std::optional<ir::Plan> plan = ir::BuildPlan(*program, diag);
  ASSERT_TRUE(plan) << diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
  const runtime::Job& job = plan->job->job();
  std::multiset<double> train = DropRates(job.train);
  std::multiset<double> eval = DropRates(job.eval);
  EXPECT_GT(train.size(), 0u);
  EXPECT_EQ(train.count(0.25), train.size());
  ASSERT_EQ(job.eval.size(), job.train.size());
  EXPECT_GT(job.eval[0].calls.size(), 0u);
  EXPECT_EQ(eval.count(0.0), eval.size()) << "a call that drops nothing, or none";
}

// An eval block without a train block: forward passes at the strategy's placement, and the loss that a
// training program's validation has.
TEST(Evaluation, AnEvalBlockAloneRunsForwardPasses) {
  std::string alone = kText;
  alone.replace(alone.find("train {"), 7, "eval {");
  for (const char* line : {"  steps        2\n", "  optimizer    sgd(lr = 0.1)\n", "  eval_every   1\n"})
    alone.erase(alone.find(line), std::string(line).size());
  alone.insert(alone.find("  on  "), "  batches      3\n");
  const std::string file = "text(\"tests/include_rules_test.cpp\", validation = 10 %)";
  alone.replace(alone.find(file), file.size(), "text(\"tests/docs_test.cpp\")");
  std::string trained = kText;
  trained.replace(trained.find("lr = 0.1"), 8, "lr = 0");
  trained.replace(trained.find(file), file.size(), "text(\"tests/include_rules_test.cpp\")");
  trained += "eval { batches 3; data text(\"tests/docs_test.cpp\") }\n";
  std::vector<std::vector<double>> losses;
  for (const std::string& text : {alone, trained}) {
    ir::SourceManager sources;
    ir::DiagnosticEngine diag(sources);
    frontend::LoadOptions options;
    options.text = text;
    std::optional<ir::Program> program = frontend::LoadProgram("eval.piper", options, sources, diag);
    ASSERT_TRUE(program) << diag.Render(ir::DiagnosticEngine::Format::kHuman, false) << text;
    std::optional<ir::Plan> plan = ir::BuildPlan(*program, diag);
    ASSERT_TRUE(plan) << diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
    const runtime::Job& job = plan->job->job();
    if (losses.empty()) {
      for (const runtime::RankProgram& role : job.train) {
        for (const runtime::Task& task : role.tasks) {
          EXPECT_NE(task.kind, runtime::TaskKind::kUpdate);
          EXPECT_FALSE(task.kind == runtime::TaskKind::kCompute && task.flag != 0) << job.strings[task.name];
        }
      }
    }
    runtime::LocalOptions local;
    local.evaluate = true;
    local.steps = 1;
    local.bodies = runtime::MakeInterpreter;
    runtime::Result<runtime::LocalResult> run = runtime::RunLocal(job, local);
    ASSERT_TRUE(run.ok()) << run.status().message();
    losses.push_back(run->eval_losses);
  }
  ASSERT_EQ(losses[0].size(), 1u);
  EXPECT_EQ(losses[0], losses[1]);
}

// What a strategy says of backward passes is about none then: neither refused nor warned about.
TEST(Evaluation, AnEvalBlockAloneTakesAStrategyForTraining) {
  for (const char* directives :
       {"freeze [layer = 0]", "stream BW on side\nslowdown compute with side = 1.5",
        "stream F on side\nslowdown compute with side = 1.5", "recompute [layer]\noffload [layer] to host",
        "order on pp[0] { steps \"2*F 2*B\" }\norder on pp[1] { steps \"F F&B B\" }\n"
        "cost fused(F[stage = 1], B[stage = 1]) = 3 us",
        "limit 1 live F per mb\nedge B[stage = 1] -> B[stage = 0]\noptimizer post_validation"}) {
    ir::SourceManager sources;
    ir::DiagnosticEngine diag(sources);
    frontend::LoadOptions options;
    options.text = R"(import std.gpt
import std.topologies
model net = gpt.GPT(layers = 2, embed = 8, heads = 2, vocab = 16, seq = 4)
strategy s {
  mesh (pp = 2)
  cut embed, layer, head into 2 as stage
  split batch into 2 as mb
  for s in 0..2 { place [stage = s] on pp[s] }
)" + std::string(directives) +
                   R"(
}
eval {
  model net
  data random(16)
  global_batch 4
  on topologies.local(ranks = 2)
  using s
}
)";
    const std::optional<ir::Program> program = frontend::LoadProgram("eval.piper", options, sources, diag);
    ASSERT_TRUE(program) << diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
    EXPECT_TRUE(ir::BuildPlan(*program, diag)) << directives;
    EXPECT_EQ(diag.Render(ir::DiagnosticEngine::Format::kHuman, false), "") << directives;
  }
}

}  // namespace
}  // namespace piper
