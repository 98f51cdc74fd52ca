// Evaluation runs the training step's forward, at the same placement, without dropout.
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "frontend/frontend.h"
#include "ir/pipeline.h"

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
      if (std::string(call.kernel).rfind("dropout", 0) == 0) rates.insert(program.call_scalars[call.first_scalar]);
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

}  // namespace
}  // namespace piper
