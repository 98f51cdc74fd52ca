// Every file tests/fail/fail_*.piper is refused with exactly the diagnostics that its last comment block
// shows, from `// expect:` on. Rewrite the blocks with PIPER_UPDATE_GOLDENS=1. Lines `// set: name=value` are
// `--set`s,
// `// run: test` runs the file's tests instead of loading it. Lines `// csv: ROW` are a schedule to import,
// `// export: csv` exports the plan.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "frontend/frontend.h"
#include "frontend/test_runner.h"
#include "ir/check/gradients.h"
#include "ir/check/order.h"
#include "ir/dag/dag_text.h"
#include "ir/directives/directives.h"
#include "ir/pipeline.h"
#include "ir/schedule_csv/check.h"
#include "ir/schedule_csv/from_dag.h"
#include "ir/schedule_csv/parse.h"
#include "ir/support/diagnostics.h"
#include "ir/support/source.h"

namespace piper {
namespace {

constexpr char kDirectory[] = "tests/fail";
constexpr char kMarker[] = "\n// expect:\n";

struct Case {
  std::string path, source, expected;  // `source` ends before the marker
  std::vector<std::string> overrides;
  bool run_tests = false;
  std::vector<std::pair<std::string, std::string>> edits;  // of the IR text
  bool expanded = false;                                   // by `repeat`: `text` is not what the file holds
  std::string text;
  std::string csv;          // rows of a schedule to import instead
  bool export_csv = false;  // the plan
};

void ReplaceAll(const std::string& from, const std::string& to, std::string* text) {
  for (size_t at = 0; (at = text->find(from, at)) != std::string::npos; at += to.size()) {
    text->replace(at, from.size(), to);
  }
}

// "WORD = COUNT PIECE"
void Repeat(const std::string& rule, Case* test) {
  size_t equals = rule.find(" = ");
  std::string count = rule.substr(equals + 3);
  size_t space = count.find(' ');
  std::string piece = count.substr(space + 1), all;
  for (int64_t n = std::stoll(count); n > 0; --n) all += piece;
  ReplaceAll(rule.substr(0, equals), all, &test->text);
  test->expanded = true;
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Case ReadCase(const std::string& path) {
  Case result;
  result.path = path;
  std::string text = ReadAll(path);
  size_t marker = text.find(kMarker);
  result.source = text.substr(0, marker);
  if (marker == std::string::npos) {
    while (!result.source.empty() && result.source.back() == '\n') result.source.pop_back();
  } else {
    result.expected = text.substr(marker + sizeof kMarker - 1);
  }
  std::vector<std::string> repeats;
  for (size_t line = 0; line < result.source.size();) {
    size_t end = std::min(result.source.find('\n', line), result.source.size());
    std::string content = result.source.substr(line, end - line);
    if (content.rfind("// repeat: ", 0) == 0) {
      repeats.push_back(content.substr(11));
    } else {
      result.text += content + "\n";
    }
    if (content.rfind("// edit: ", 0) == 0) {
      size_t arrow = content.find(" => ");
      result.edits.emplace_back(content.substr(9, arrow - 9),
                                content.substr(std::min(arrow + 4, content.size())));
    }
    if (content.rfind("// set: ", 0) == 0) result.overrides.push_back(content.substr(8));
    if (content == "// run: test") result.run_tests = true;
    if (content.rfind("// csv: ", 0) == 0) result.csv += content.substr(8) + "\n";
    if (content == "// export: csv") result.export_csv = true;
    line = end + 1;
  }
  for (const std::string& rule : repeats) Repeat(rule, &result);
  return result;
}

// Edits the IR text of a good program, and proves what it says.
void Sabotage(const Case& test, const ir::Program& program, ir::SourceManager& sources,
              ir::DiagnosticEngine& diag) {
  std::optional<ir::BuiltDag> built = ir::BuildDag(program, false, diag);
  ASSERT_TRUE(built);
  std::string text = ir::DagToText(built->dag, &sources);
  for (const auto& [from, to] : test.edits) {
    size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from << "\n" << text;
    if (!to.empty()) {
      ReplaceAll(from, to, &text);
      continue;
    }
    size_t begin = text.rfind('\n', at) + 1;
    text.erase(begin, text.find('\n', at) + 1 - begin);
  }
  std::optional<ir::Dag> dag = ir::ParseDag(sources.Add("plan.ir", text), diag);
  if (dag && ir::CheckOrder(*dag, diag)) ir::CheckGradients(*dag, built->regions, diag);
}

// Plans as the tools make them, without the numbers: figures of the simulation only.
class Plans : public frontend::PlanService {
 public:
  std::optional<Figures> Plan(const ir::Program& program, ir::DiagnosticEngine& diag) override {
    std::optional<ir::Plan> plan = ir::BuildPlan(program, diag);
    if (!plan) return std::nullopt;
    return Figures{{"step_time", {static_cast<double>(plan->simulation.makespan), ir::UnitKind::kTime}}};
  }
  std::optional<bool> Learns(const ir::Program&, const ir::Program&, std::string* why,
                             ir::DiagnosticEngine&) override {
    *why = "nothing was run";
    return false;
  }
};

std::string Refuse(const Case& test, std::set<ir::DiagKind>* kinds) {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  frontend::LoadOptions options;
  options.overrides = test.overrides;
  if (test.expanded) options.text = test.text;
  if (!test.csv.empty()) {
    const ir::FileId file = sources.Add("schedule.csv", test.csv);
    std::optional<ir::schedule_csv::Table> table = ir::schedule_csv::Parse(file, diag);
    if (table) ir::schedule_csv::Check(*table, file, diag);
  } else if (test.run_tests) {
    Plans plans;
    frontend::RunTests(test.path, options, "", plans, sources, diag);
  } else {
    std::optional<ir::Program> program = frontend::LoadProgram(test.path, options, sources, diag);
    EXPECT_EQ(program.has_value(), !diag.HasErrors());
    if (program && !test.edits.empty()) {
      Sabotage(test, *program, sources, diag);
    } else if (program) {
      std::optional<ir::Plan> plan = ir::BuildPlan(*program, diag);
      EXPECT_EQ(plan.has_value(), !diag.HasErrors());
      if (plan && test.export_csv) {
        EXPECT_FALSE(ir::schedule_csv::FromDag(plan->dag, *program, diag));
      }
    }
  }
  for (const ir::Diagnostic& diagnostic : diag.diagnostics()) {
    kinds->insert(diagnostic.kind);
    EXPECT_TRUE(diagnostic.range.valid()) << "nowhere: " << diagnostic.message;
  }
  return diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
}

std::string AsComment(const std::string& text) {
  std::string result;
  for (size_t line = 0; line < text.size();) {
    size_t end = std::min(text.find('\n', line), text.size());
    std::string content = text.substr(line, end - line);
    result += content.empty() ? "//\n" : "// " + content + "\n";
    line = end + 1;
  }
  return result;
}

std::vector<Case> AllCases() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(kDirectory)) {
    std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && name.rfind("fail_", 0) == 0 && entry.path().extension() == ".piper") {
      paths.push_back(std::string(kDirectory) + "/" + name);
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Case> cases;
  for (const std::string& path : paths) cases.push_back(ReadCase(path));
  return cases;
}

TEST(FailGoldens, EveryCaseIsRefusedAsItSays) {
  bool update = std::getenv("PIPER_UPDATE_GOLDENS") != nullptr;
  std::set<ir::DiagKind> kinds;
  for (const Case& test : AllCases()) {
    SCOPED_TRACE(test.path);
    std::string actual = AsComment(Refuse(test, &kinds));
    EXPECT_FALSE(actual.empty()) << "nothing was reported";
    if (update) {
      if (actual != test.expected) {
        std::ofstream(test.path, std::ios::binary | std::ios::trunc) << test.source << kMarker << actual;
      }
      continue;
    }
    EXPECT_EQ(actual, test.expected);
  }
  if (update) return;
  for (ir::DiagKind kind : ir::AllDiagKinds()) {
    EXPECT_TRUE(kinds.count(kind)) << ir::DiagKindName(kind)
                                   << ": every kind of diagnostic needs a golden, tests/fail/fail_*.piper";
  }
}

}  // namespace
}  // namespace piper
