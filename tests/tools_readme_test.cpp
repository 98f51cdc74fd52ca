// The C++ that the README shows is what piperc prints for the example beside it; PIPER_UPDATE_GOLDENS=1 puts
// it there. (The report and the timeline are docs_test's.)
#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "tests/tools_process.h"

namespace piper::tools {
namespace {

// The line of `text` that `at` lies in, without its newline.
std::string LineAt(const std::string& text, size_t at) {
  const size_t begin = text.rfind('\n', at) + 1;
  return text.substr(begin, text.find('\n', at) - begin);
}

// What stands in `printed` for a block of the README: a function, known by the comment before it, or rows of
// a table, known by their comments up to the source line, under the table's head (" .." at its end: cut).
std::string Wanted(const std::string& block, const std::string& printed) {
  std::vector<std::string> lines;
  std::istringstream in(block);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  if (lines.empty()) return {};
  if (lines[0].rfind("// Region", 0) == 0) {
    const size_t begin = printed.find(lines[0].substr(0, lines[0].find(':') + 1));
    return begin == std::string::npos ? "" : printed.substr(begin, printed.find("\n}\n", begin) + 3 - begin);
  }
  std::string text;
  for (const std::string& line : lines) {
    const size_t comment = line.find("// "), place = line.find(" @ ");
    if (comment == std::string::npos || place == std::string::npos) {
      const bool cut = line.ends_with(" ..");
      const bool there =
          printed.find("\n" + (cut ? line.substr(0, line.size() - 3) : line + "\n")) != std::string::npos;
      text += (there ? line : "(nothing like: " + line + ")") + "\n";
      continue;
    }
    const size_t at = printed.find(line.substr(comment, place + 3 - comment));
    text += (at == std::string::npos ? "(no row " + line.substr(comment) + ")" : LineAt(printed, at)) + "\n";
  }
  return text;
}

TEST(ToolsReadme, QuotedCodeIsWhatPipercPrints) {
  std::string readme = test::Contents("README.md");
  ASSERT_NE(readme.find("`piperc examples/gpt_1f1b.piper -o out`"), std::string::npos)
      << "run from the source root";
  test::ScratchDirectory scratch;
  const test::Outcome printed =
      test::RunProgram(scratch, {PIPERC_BINARY, "examples/gpt_1f1b.piper", "--emit=cpp"});
  ASSERT_EQ(printed.code, 0) << printed.err;
  int blocks = 0;
  for (size_t at = readme.find("```cpp\n"); at != std::string::npos; at = readme.find("```cpp\n", at + 1)) {
    ++blocks;
    const size_t begin = at + 7, length = readme.find("```", begin) - begin;
    const std::string block = readme.substr(begin, length), wanted = Wanted(block, printed.out);
    EXPECT_GT(wanted.size(), 100u);
    if (block == wanted) continue;
    if (std::getenv("PIPER_UPDATE_GOLDENS") != nullptr) {
      readme.replace(begin, length, wanted);
      std::ofstream("README.md", std::ios::binary) << readme;
    } else {
      EXPECT_EQ(block, wanted) << "PIPER_UPDATE_GOLDENS=1 updates the README";
    }
  }
  EXPECT_GE(blocks, 2);
}

}  // namespace
}  // namespace piper::tools
