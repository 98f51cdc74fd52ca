// Proof 3 by sabotage: every reduce and accumulate line of a plan's text is deleted, doubled and rescaled,
// and every single edit must be refused.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/dag_test_support.h"

namespace piper::ir {
namespace {

struct Case {
  const char* name;
  int64_t p, m, dp;
  bool tied, clip, copies = false;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string Join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

void ReplaceAll(std::string* text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text->find(from, at)) != std::string::npos; at += to.size())
    text->replace(at, from.size(), to);
}

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

// Removes a node from the text: its line, its edges and its places in orders.
std::string Without(const std::vector<std::string>& lines, const std::string& quoted) {
  std::vector<std::string> kept;
  for (std::string line : lines) {
    bool about = line.find(quoted) != std::string::npos;
    if (about && (line.rfind("node ", 0) == 0 || line.rfind("edge ", 0) == 0)) {
      if (line.rfind("edge ", 0) == 0 || line.rfind("node " + quoted, 0) == 0) continue;
    }
    if (about && line.rfind("  ", 0) == 0) {
      // "; \"name\" 3" within a bracket or a repetition, or a line of its own.
      for (size_t at; (at = line.find(quoted)) != std::string::npos;) {
        size_t end = at + quoted.size();
        while (end < line.size() &&
               (line[end] == ' ' || line[end] == '-' || std::isdigit(static_cast<unsigned char>(line[end]))))
          ++end;
        if (end < line.size() && line[end] == ';') {
          line.erase(at, end + 2 - at);
        } else if (at >= 2 && line.compare(at - 2, 2, "; ") == 0) {
          line.erase(at - 2, end - at + 2);
          if (at - 2 < line.size() && line[at - 2] != ' ') line.insert(at - 2, " ");
        } else {
          line.clear();
        }
      }
      if (line.find('"') == std::string::npos) continue;
    }
    kept.push_back(line);
  }
  return Join(kept);
}

// A second node that does the same, beside the first.
std::string Doubled(const std::vector<std::string>& lines, const std::string& quoted) {
  std::string twin = quoted.substr(0, quoted.size() - 1) + " twin\"";
  std::vector<std::string> kept;
  for (const std::string& line : lines) {
    kept.push_back(line);
    if (line.find(quoted) == std::string::npos) continue;
    std::string copy = line;
    ReplaceAll(&copy, quoted, twin);
    if (line.rfind("node " + quoted, 0) == 0 || line.rfind("edge ", 0) == 0) {
      kept.push_back(copy);
    } else if (line.rfind("  ", 0) == 0) {
      std::string& both = kept.back();
      for (size_t at = 0; (at = both.find(quoted, at)) != std::string::npos;) {
        size_t end = at + quoted.size();
        while (end < both.size() && (both[end] == ' ' || std::isdigit(static_cast<unsigned char>(both[end]))))
          ++end;
        while (both[end - 1] == ' ') --end;
        std::string item = both.substr(at, end - at);
        std::string again = item;
        ReplaceAll(&again, quoted, twin);
        both.insert(end, "; " + again);
        at = end + 2 + again.size();
      }
    }
  }
  return Join(kept);
}

TEST_P(Sabotage, EveryEditIsRefused) {
  const Case& c = GetParam();
  TestProgram test = c.copies ? Bidirectional(c.dp) : TestProgram({3, 32, 4, c.tied}, c.p * c.dp);
  test.program.train.clip = c.clip ? 1.0 : 0.0;
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
    for (const char* word : {"-> \"accumulate", "reduce", "clip", "-> \"update", "loss.fold"})
      sync |= lines[i].find(word) != std::string::npos;
    if (!sync) continue;
    std::vector<std::string> cut = lines;
    cut.erase(cut.begin() + static_cast<ptrdiff_t>(i));
    std::vector<DiagKind> kinds = Prove(Join(cut), built.regions);
    // A second path may still order the two (accumulate -> clip.local beside accumulate -> tie.reduce): only
    // then may the plan stand.
    if (kinds.empty()) {
      EXPECT_TRUE(c.clip && lines[i].find("-> \"clip.local") != std::string::npos) << lines[i];
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
                      Case{"copies", 2, 4, 1, true, false, true},
                      Case{"copies_dp_clip", 2, 4, 2, true, true, true}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace piper::ir
