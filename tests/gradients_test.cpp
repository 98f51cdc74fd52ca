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

// Of what is summed, every term: a tied use or a stage copy left out, or counted twice; a microbatch whose BW
// nothing adds; a holder that takes no update; a reduction that does not wait for the last BW.
TEST_P(Sabotage, EveryTermOfASumIsNeeded) {
  const Case& c = GetParam();
  TestProgram test = c.copies ? Bidirectional(c.dp) : TestProgram({3, 32, 4, c.tied}, c.p * c.dp);
  test.program.train.clip = c.clip ? 1.0 : 0.0;
  if (c.validated) test.Add("optimizer post_validation", OptimizerDirective{true});
  if (!c.copies) test.Pipeline(c.p, c.m, c.dp);
  const BuiltDag built = test.MustBuild();
  const auto prove = [&](const Dag& dag) -> std::optional<DiagKind> {
    SourceManager sources;
    DiagnosticEngine diag(sources);
    CheckGradients(dag, built.regions, diag);
    last_.clear();  // origins lie in the plan's own sources
    for (const Diagnostic& d : diag.diagnostics()) last_ += d.message + "\n";
    for (const Diagnostic& d : diag.diagnostics()) {
      if (d.severity == Severity::kError) return d.kind;
    }
    return std::nullopt;
  };
  ASSERT_EQ(prove(built.dag), std::nullopt) << last_;
  int terms = 0, microbatches = 0, updates = 0, early = 0;
  for (TemplateId t = 0; t < built.dag.templates.size(); ++t) {
    const NodeTemplate& node = built.dag.templates[t];
    const bool sums =
        node.step_level() && (node.kind == NodeKind::kAccumulate || node.kind == NodeKind::kAllReduce);
    for (size_t i = 0; sums && i < node.gradients.size(); ++i) {
      Dag without = built.dag, twice = built.dag;
      auto& left = without.templates[t].gradients;
      left.erase(left.begin() + static_cast<ptrdiff_t>(i));
      twice.templates[t].gradients.push_back(node.gradients[i]);
      EXPECT_EQ(prove(without), DiagKind::kGradientMissing) << node.name << " without term " << i << "\n"
                                                            << last_;
      EXPECT_EQ(prove(twice), DiagKind::kGradientDouble) << node.name << " with term " << i << " twice\n"
                                                         << last_;
      ++terms;
    }
    if (node.kind == NodeKind::kAccumulate && !node.step_level()) {
      Dag fewer = built.dag;
      --fewer.templates[t].mb_end;
      EXPECT_EQ(prove(fewer), DiagKind::kGradientMissing) << node.name << "\n" << last_;
      ++microbatches;
    }
    if (node.kind == NodeKind::kUpdate) {
      Dag without = built.dag;
      without.templates[t].kind = NodeKind::kFree;
      EXPECT_EQ(prove(without), DiagKind::kGradientMissing) << node.name << "\n" << last_;
      ++updates;
    }
  }
  for (size_t e = 0; e < built.dag.edges.size(); ++e) {
    const NodeTemplate& from = built.dag.templates[built.dag.edges[e].from];
    const NodeTemplate& to = built.dag.templates[built.dag.edges[e].to];
    if (from.kind != NodeKind::kAccumulate || from.step_level() || to.gradients.empty() || !to.step_level() ||
        to.kind == NodeKind::kNorm)
      continue;
    Dag cut = built.dag;
    cut.edges.erase(cut.edges.begin() + static_cast<ptrdiff_t>(e));
    EXPECT_EQ(prove(cut), DiagKind::kGradientMissing) << from.name << " -> " << to.name << "\n" << last_;
    // The update still waits for that BW, but the reduction before it does not.
    for (TemplateId t = 0; t < cut.templates.size(); ++t) {
      const NodeTemplate& update = cut.templates[t];
      if (update.kind == NodeKind::kUpdate && update.parameter == from.parameter &&
          update.group == from.group)
        cut.edges.push_back({built.dag.edges[e].from, t});
    }
    EXPECT_EQ(prove(cut), DiagKind::kGradientMissing) << from.name << " -> " << to.name << "\n" << last_;
    // (Where several hosts hold the parameter, another's update may be the first to miss it.)
    early += last_.find("it would reduce before the last BW") != std::string::npos;
  }
  EXPECT_GT(microbatches, 0);
  EXPECT_GT(updates, 0);
  if (c.tied || c.dp > 1 || c.copies) {
    EXPECT_GT(terms, 0);
  }
  if (c.p == 1 && (c.tied || c.dp > 1)) {
    EXPECT_GT(early, 0);
  }
}

// A check that is carried into the next step must come before gradients are overwritten there, and go by the
// norm of the step that it judges.
TEST(Carried, IsRefusedWhereItIsTooLate) {
  TestProgram test({2, 8}, 2);
  test.program.train.clip = 1;
  test.Pipeline(2, 2);
  test.Add("optimizer post_validation", OptimizerDirective{true});
  EdgeDirective edge{Sel(0, {{"update.validate"}}), Sel(kPassBW, {})};
  edge.distance = 1;
  test.Add("edge [update.validate] -> BW distance 1", edge);
  const BuiltDag built = test.MustBuild();
  const auto prove = [&](const std::string& text) {
    SourceManager sources;
    DiagnosticEngine diag(sources);
    std::optional<Dag> dag = ParseDag(sources.Add("plan.ir", text), diag);
    if (dag && CheckOrder(*dag, diag)) CheckGradients(*dag, built.regions, diag);
    return diag.Render(DiagnosticEngine::Format::kHuman, false);
  };
  const std::string text = DagToText(built.dag);
  EXPECT_EQ(prove(text), "");
  // Behind the first BW of its stream.
  std::string late = text;
  const std::string check = "  \"update.validate pp[1]\"\n";
  const size_t at = late.find(check, late.find("order \"pp[1]\" compute"));
  ASSERT_NE(at, std::string::npos) << text;
  late.erase(at, check.size());
  const size_t updates = late.find("  \"clip.local pp[1]\"", at);
  ASSERT_NE(updates, std::string::npos) << text;
  late.insert(updates, check);
  EXPECT_NE(prove(late).find("which overwrites what it judges"), std::string::npos) << prove(late);
  // In its own step, by the norm of the step before.
  std::string apart = text;
  const size_t node = apart.find("node \"update.validate pp[0]\"");
  const size_t mark = apart.find(" carried", node);
  apart.erase(mark, 8);
  // Where it stands that is a cycle within one step; carried, one over a distance, which is none.
  EXPECT_NE(prove(apart).find("waits for itself"), std::string::npos) << prove(apart);
  const std::string first = "  \"update.validate pp[0]\"\n";
  const size_t stands = apart.find(first, apart.find("order \"pp[0]\" compute"));
  ASSERT_NE(stands, std::string::npos);
  apart.erase(stands, first.size());
  apart.insert(apart.find("\n}", stands) + 1, first);
  EXPECT_NE(prove(apart).find("of the step before"), std::string::npos) << prove(apart);
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
