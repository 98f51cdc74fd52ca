// Every example in the tree is, for one step, bitwise the single-device reference on the data that it names.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/tools_process.h"

namespace piper::tools {
namespace {

TEST(ToolsExamples, EachOneVerifies) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(PIPER_EXAMPLES)) {
    if (entry.path().extension() == ".piper") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  ASSERT_GE(files.size(), 7u);
  test::ScratchDirectory scratch;
  for (const std::string& file : files) {
    std::vector<std::string> arguments = {PIPER_BINARY, "run",     file, "--no-timeline",
                                          "--verify",   "--steps", "1"};
    // Where a system has no licence texts, a text that lies beside the examples does.
    if (!std::filesystem::exists("/usr/share/common-licenses") &&
        test::Contents(file).find("/usr/share/common-licenses") != std::string::npos) {
      arguments.insert(arguments.end(), {"--data", PIPER_EXAMPLES "/../README.md"});
    }
    const test::Outcome outcome = test::RunProgram(scratch, arguments);
    EXPECT_EQ(outcome.code, 0) << file << "\n" << outcome.out << outcome.err;
    EXPECT_NE(outcome.out.find("is bitwise equal to the single-device reference"), std::string::npos) << file;
  }
}

// The order that was found, pasted back, is the same plan.
TEST(ToolsExamples, ExportedOrdersStandInForGreedy) {
  test::ScratchDirectory scratch;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(scratch / name) << text;
    return scratch / name;
  };
  std::string text = test::Contents(PIPER_EXAMPLES "/gpt_greedy.piper");
  const size_t data = text.find("  data ");
  ASSERT_NE(data, std::string::npos);
  text.replace(data, text.find('\n', data) - data, "  data random()");
  const std::string found = write("found.piper", text);
  const test::Outcome exported = test::RunProgram(scratch, {PIPER_BINARY, "export", "order", found});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_EQ(exported.out.rfind("order on pp[0] { steps \"", 0), 0u) << exported.out;
  const size_t order = text.find("order on pp {");
  ASSERT_NE(order, std::string::npos);
  text.replace(order, text.find('\n', order) - order, exported.out);
  const std::string pasted = write("pasted.piper", text);
  const auto report = [&](const std::string& file) {
    const test::Outcome outcome = test::RunProgram(scratch, {PIPER_BINARY, "run", file});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  EXPECT_EQ(report(pasted), report(found));
  EXPECT_EQ(test::RunProgram(scratch, {PIPER_BINARY, "export", "order", pasted}).out, exported.out);
}

}  // namespace
}  // namespace piper::tools
