// Every file tests/fail/fail_*.piper is refused with exactly the diagnostics that its last comment block
// shows, from `// expect:` on. Rewrite the blocks with PIPER_UPDATE_GOLDENS=1. Lines `// set: name=value` are
// `--set`s,
// `// run: test` runs the file's tests instead of loading it.
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
#include "ir/pipeline.h"
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
};

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
  for (size_t line = 0; line < result.source.size();) {
    size_t end = std::min(result.source.find('\n', line), result.source.size());
    std::string content = result.source.substr(line, end - line);
    if (content.rfind("// set: ", 0) == 0) result.overrides.push_back(content.substr(8));
    if (content == "// run: test") result.run_tests = true;
    line = end + 1;
  }
  return result;
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
  if (test.run_tests) {
    Plans plans;
    frontend::RunTests(test.path, options, "", plans, sources, diag);
  } else {
    std::optional<ir::Program> program = frontend::LoadProgram(test.path, options, sources, diag);
    EXPECT_EQ(program.has_value(), !diag.HasErrors());
    if (program) {
      bool planned = ir::BuildPlan(*program, diag).has_value();
      EXPECT_EQ(planned, !diag.HasErrors());
    }
  }
  for (const ir::Diagnostic& diagnostic : diag.diagnostics()) kinds->insert(diagnostic.kind);
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
  // What no `.piper` text of sensible size can provoke has its tests elsewhere.
  const std::set<ir::DiagKind> elsewhere = {
      ir::DiagKind::kFileTooLarge,  // frontend_parser_errors_test
      ir::DiagKind::kGradientMissing,
      ir::DiagKind::kGradientDouble,  // sabotaged IR text: the directives derive
      ir::DiagKind::kGradientScale,
      ir::DiagKind::kBadIrText,  // what would have to be wrong
  };
  for (ir::DiagKind kind : ir::AllDiagKinds()) {
    EXPECT_NE(kinds.count(kind) != 0, elsewhere.count(kind) != 0)
        << ir::DiagKindName(kind) << ": every kind of diagnostic needs a golden, tests/fail/fail_*.piper";
  }
}

}  // namespace
}  // namespace piper
