// Proof 3 by sabotage, on plans from `.piper` text: of a GPT with a tied weight under pipeline and data
// parallelism, with clipping, buckets and stage copies, every reduce and accumulate line is deleted, doubled
// and rescaled in the IR text, and every single edit is refused.
#include <gtest/gtest.h>

#include "ir/check/gradients.h"
#include "ir/check/order.h"
#include "ir/dag/dag_text.h"
#include "tests/pipeline_support.h"
#include "tests/sabotage_text.h"

namespace piper::testing {
namespace {

using ir::DiagKind;

// The kind of the first error, if any.
std::optional<DiagKind> Prove(const std::string& text, const ir::RegionGraph& regions,
                              std::string* messages) {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  std::optional<ir::Dag> dag = ir::ParseDag(sources.Add("plan.ir", text), diag);
  if (dag && ir::CheckOrder(*dag, diag)) ir::CheckGradients(*dag, regions, diag);
  *messages = diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
  for (const ir::Diagnostic& d : diag.diagnostics()) {
    if (d.severity == ir::Severity::kError) return d.kind;
  }
  return std::nullopt;
}

// Rounds through the text: what is proved there is the plan itself.
int Sabotage(const std::string& program, const std::string& what) {
  std::unique_ptr<Compiled> compiled = Compile(program);
  EXPECT_TRUE(compiled->ok()) << what << "\n" << compiled->Messages();
  if (!compiled->ok()) return 0;
  const ir::Dag& dag = compiled->plan->dag;
  const ir::RegionGraph& regions = compiled->plan->regions;
  std::string text = ir::DagToText(dag), messages;
  EXPECT_EQ(Prove(text, regions, &messages), std::nullopt) << messages;
  std::vector<std::string> lines = ir::Lines(text);
  int edits = 0, index = 0;
  for (const ir::NodeTemplate& node : dag.templates) {
    if (node.kind != ir::NodeKind::kAccumulate && node.kind != ir::NodeKind::kAllReduce) continue;
    if (!Soak() && index++ % 5 != 0 && node.kind == ir::NodeKind::kAccumulate && !node.step_level()) continue;
    std::string quoted = "\"" + node.name + "\"";
    EXPECT_EQ(Prove(ir::Without(lines, quoted), regions, &messages), DiagKind::kGradientMissing)
        << what << ": deleted " << node.name << "\n"
        << messages;
    EXPECT_EQ(Prove(ir::Doubled(lines, quoted), regions, &messages), DiagKind::kGradientDouble)
        << what << ": doubled " << node.name << "\n"
        << messages;
    for (const char* scale : {"2", "0.5", "-1"}) {
      std::vector<std::string> scaled = lines;
      for (std::string& line : scaled) {
        if (line.rfind("node " + quoted, 0) == 0) line += std::string(" scale ") + scale;
      }
      EXPECT_EQ(Prove(ir::Join(scaled), regions, &messages), DiagKind::kGradientScale)
          << what << ": scaled " << node.name << "\n"
          << messages;
    }
    ++edits;
  }
  return edits;
}

TEST(PipelineSabotage, EveryReduceAndAccumulateOfATiedGptIsNeeded) {
  TrainText text;
  text.schedule = "one_f_one_b";
  text.p = 2;
  text.dp = 2;
  text.m = 4;
  text.train = "  clip 1.0\n";
  EXPECT_GE(Sabotage(text.Text(), "pp x dp"), 40);
  text.zero = "zero 0 [*] as dp { bucket 8 KiB }";
  EXPECT_GE(Sabotage(text.Text(), "pp x dp, buckets"), 10);
  text.directives = "  optimizer post_validation\n";
  EXPECT_GE(Sabotage(text.Text(), "pp x dp, validated afterwards"), 10);
}

TEST(PipelineSabotage, EveryReduceAndAccumulateOfThreeUsesAndTwoLossesIsNeeded) {
  TrainText text = Layout("skip", "interleaved", 2, 2, 2, 2);
  EXPECT_GE(Sabotage(text.Text(), "skip"), 10);
}

}  // namespace
}  // namespace piper::testing
