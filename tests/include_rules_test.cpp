// The include rules of docs/architecture.md: which directory may include which. Generated programs must build
// on a node that has no compiler libraries, so runtime/ and kernels/ never see the compiler, fmt, LLVM, Boost
// or ANTLR.
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;

// Directory -> what its quoted includes may start with.
const std::map<std::string, std::vector<std::string>>& AllowedQuoted() {
  static const std::map<std::string, std::vector<std::string>> rules = {
      {"kernels", {"kernels/"}},
      {"runtime", {"kernels/", "runtime/"}},
      {"ir/support", {"ir/support/"}},
      {"ir/model", {"ir/support/", "ir/model/", "kernels/"}},
      {"ir/program", {"ir/support/", "ir/model/", "ir/program/"}},
      {"ir/dag", {"ir/support/", "ir/model/", "ir/program/", "ir/dag/"}},
      {"ir/directives",
       {"ir/support/", "ir/model/", "ir/program/", "ir/dag/", "ir/check/", "ir/cost/", "ir/search/",
        "ir/directives/"}},
      {"ir/search", {"ir/support/", "ir/search/"}},
      {"ir/cost", {"ir/support/", "ir/model/", "ir/program/", "ir/dag/", "ir/cost/", "runtime/program.h"}},
      {"ir/lower",
       {"ir/support/", "ir/model/", "ir/program/", "ir/dag/", "ir/cost/", "ir/lower/", "runtime/program.h",
        "kernels/"}},
      {"ir/check",
       {"ir/support/", "ir/model/", "ir/program/", "ir/dag/", "ir/cost/", "ir/lower/", "ir/check/",
        "runtime/program.h"}},
      {"ir/schedule_csv", {"ir/support/", "ir/model/", "ir/program/", "ir/dag/", "ir/schedule_csv/"}},
      {"ir", {"ir/"}},
      {"frontend", {"ir/support/", "ir/model/", "ir/program/", "frontend/", "stdlib/", "grammar/"}},
      {"codegen", {"runtime/program.h", "ir/support/", "ir/model/", "codegen/", "kernels/"}},
  };
  return rules;
}

// Libraries that a directory must not see.
const std::map<std::string, std::vector<std::string>>& ForbiddenAngled() {
  static const std::map<std::string, std::vector<std::string>> rules = {
      {"kernels", {"fmt/", "llvm/", "boost/", "antlr4", "nlohmann/", "ir/", "frontend/"}},
      {"runtime", {"fmt/", "llvm/", "boost/", "antlr4", "ir/", "frontend/", "codegen/"}},
      {"ir", {"boost/", "antlr4", "mpi.h", "cuda", "nccl"}},
      {"frontend", {"boost/", "mpi.h", "cuda", "nccl"}},
      {"codegen", {"boost/", "antlr4", "llvm/", "mpi.h", "nccl"}},
  };
  return rules;
}

bool StartsWith(const std::string& text, const std::string& prefix) { return text.rfind(prefix, 0) == 0; }

// The longest rule whose directory holds the file.
template <typename Rules>
const std::vector<std::string>* Find(const Rules& rules, std::string directory) {
  while (!directory.empty()) {
    auto it = rules.find(directory);
    if (it != rules.end()) return &it->second;
    size_t slash = directory.rfind('/');
    directory = slash == std::string::npos ? "" : directory.substr(0, slash);
  }
  return nullptr;
}

TEST(IncludeRules, EveryFileKeepsThem) {
  int files = 0;
  for (const char* top : {"kernels", "runtime", "ir", "frontend", "codegen"}) {
    ASSERT_TRUE(fs::exists(top)) << "run from the source root";
    for (const auto& entry : fs::recursive_directory_iterator(top)) {
      std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp" && extension != ".inc") continue;
      ++files;
      std::string path = entry.path().generic_string();
      std::string directory = entry.path().parent_path().generic_string();
      const std::vector<std::string>* allowed = Find(AllowedQuoted(), directory);
      const std::vector<std::string>* forbidden = Find(ForbiddenAngled(), directory);
      std::ifstream in(path);
      std::string line;
      for (int number = 1; std::getline(in, line); ++number) {
        if (!StartsWith(line, "#include ")) continue;
        std::string rest = line.substr(9);
        std::string name = rest.substr(1, rest.find_first_of("\">", 1) - 1);
        if (rest[0] == '"') {
          bool ok = allowed == nullptr;
          if (allowed != nullptr) {
            for (const std::string& prefix : *allowed) ok = ok || StartsWith(name, prefix);
          }
          EXPECT_TRUE(ok) << path << ":" << number << ": " << directory << "/ may not include \"" << name
                          << "\"";
        } else if (forbidden != nullptr) {
          for (const std::string& prefix : *forbidden) {
            EXPECT_FALSE(StartsWith(name, prefix))
                << path << ":" << number << ": " << directory << "/ may not include <" << name << ">";
          }
          if (name.find("antlr4") != std::string::npos) {
            EXPECT_EQ(path, "frontend/parser.cpp") << "ANTLR stays private to the parser";
          }
        }
      }
    }
  }
  EXPECT_GT(files, 20);
}

}  // namespace
