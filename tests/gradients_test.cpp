// Proof 3 by sabotage: every reduce and accumulate line of a plan's text is deleted, doubled and rescaled,
// and every single edit must be refused.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/dag_test_support.h"
#include "tests/sabotage_text.h"

namespace piper::ir {
namespace {

struct Case {
  const char* name;
  int64_t p, m, dp;
  bool tied, clip, copies = false, validated = false;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class Sabotage : public ::testing::TestWithParam<Case> {
 protected:
  // Parses and proves; the kinds of the errors.
  std::vector<DiagKind> Prove(const std::string& text, const RegionGraph& regions) {
    SourceManager sources;
    DiagnosticEngine diag(sources);
    std::optional<Dag> dag = ParseDag(sources.Add("plan.ir", text), diag);
    if (dag && CheckOrder(*dag, diag)) CheckGradients(*dag, regions, diag);
    std::vector<DiagKind> kinds;
    for (const Diagnostic& d : diag.diagnostics()) {
      if (d.severity == Severity::kError) kinds.push_back(d.kind);
    }
    last_ = diag.Render(DiagnosticEngine::Format::kHuman, false);
    return kinds;
  }
  std::string last_;
};

bool IsGradientKind(DiagKind kind) {
  return kind == DiagKind::kGradientMissing || kind == DiagKind::kGradientDouble ||
         kind == DiagKind::kGradientScale;
}

TEST_P(Sabotage, EveryEditIsRefused) {
  const Case& c = GetParam();
  TestProgram test = c.copies ? Bidirectional(c.dp) : TestProgram({3, 32, 4, c.tied}, c.p * c.dp);
  test.program.train.clip = c.clip ? 1.0 : 0.0;
  if (c.validated) test.Add("optimizer post_validation", OptimizerDirective{true});
  if (!c.copies) test.Pipeline(c.p, c.m, c.dp);
  if (!c.copies && c.p > 1) test.OneForwardOneBackward(c.p, c.m);
  BuiltDag built = test.MustBuild();
  std::string text = DagToText(built.dag);
  ASSERT_TRUE(Prove(text, built.regions).empty()) << last_;
  std::vector<std::string> lines = Lines(text);
  int edits = 0;
  for (const NodeTemplate& node : built.dag.templates) {
    if (node.kind != NodeKind::kAccumulate && node.kind != NodeKind::kAllReduce) continue;
    std::string quoted = "\"" + node.name + "\"";
    std::vector<DiagKind> kinds = Prove(Without(lines, quoted), built.regions);
    ASSERT_FALSE(kinds.empty()) << "deleted " << node.name;
    EXPECT_EQ(kinds[0], DiagKind::kGradientMissing) << "deleted " << node.name << "\n" << last_;

    kinds = Prove(Doubled(lines, quoted), built.regions);
    ASSERT_FALSE(kinds.empty()) << "doubled " << node.name;
    EXPECT_EQ(kinds[0], DiagKind::kGradientDouble) << "doubled " << node.name << "\n" << last_;

    for (const char* scale : {"2", "0.5", "0"}) {
      std::vector<std::string> scaled = lines;
      for (std::string& line : scaled) {
        if (line.rfind("node " + quoted, 0) == 0) line += std::string(" scale ") + scale;
      }
      kinds = Prove(Join(scaled), built.regions);
      ASSERT_FALSE(kinds.empty()) << "scaled " << node.name;
      EXPECT_EQ(kinds[0], DiagKind::kGradientScale) << "scaled " << node.name << "\n" << last_;
    }
    // The line alone, deleted or doubled, does not even parse.
    std::vector<std::string> alone, twice;
    for (const std::string& line : lines) {
      if (line.rfind("node " + quoted, 0) != 0) alone.push_back(line);
      twice.push_back(line);
      if (line.rfind("node " + quoted, 0) == 0) twice.push_back(line);
    }
    EXPECT_FALSE(Prove(Join(alone), built.regions).empty());
    EXPECT_FALSE(Prove(Join(twice), built.regions).empty());
    ++edits;
  }
  EXPECT_GT(edits, 0);
  // Every edge of the synchronisation, too.
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].rfind("edge ", 0) != 0) continue;
    bool sync = false;
    for (const char* word : {"-> \"accumulate", "reduce", "clip", "update", "loss.fold"})
      sync |= lines[i].find(word) != std::string::npos;
    if (!sync) continue;
    std::vector<std::string> cut = lines;
    cut.erase(cut.begin() + static_cast<ptrdiff_t>(i));
    std::vector<DiagKind> kinds = Prove(Join(cut), built.regions);
    // A second path may still order the two (accumulate -> clip.local beside accumulate -> tie.reduce): only
    // then may the plan stand.
    if (kinds.empty()) {
      EXPECT_TRUE((c.clip || c.validated) && lines[i].find("-> \"clip.local") != std::string::npos)
          << lines[i];
    } else {
      EXPECT_TRUE(IsGradientKind(kinds[0])) << lines[i] << "\n" << last_;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Sabotage,
    ::testing::Values(Case{"single", 1, 2, 1, false, false}, Case{"single_tied", 1, 2, 1, true, false},
                      Case{"dp", 1, 2, 4, true, false}, Case{"pp_tied", 3, 4, 1, true, true},
                      Case{"pp_dp_tied", 2, 4, 2, true, false}, Case{"pp_dp_clip", 2, 4, 2, true, true},
                      Case{"validated", 2, 4, 2, true, true, false, true},
                      Case{"validated_alone", 1, 2, 1, false, false, false, true},
                      Case{"copies", 2, 4, 1, true, false, true},
                      Case{"copies_dp_clip", 2, 4, 2, true, true, true}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace piper::ir
