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

}  // namespace
}  // namespace piper::tools
