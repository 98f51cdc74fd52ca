#include "codegen/toolchain.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace piper::codegen {

namespace fs = std::filesystem;

Result<Toolchain> ReadToolchain(const std::string& path) {
  std::ifstream stream(path);
  if (!stream) return Error{fmt::format("cannot open '{}': it says where the runtime library is", path)};
  Toolchain toolchain;
  const fs::path base = fs::path(path).parent_path();
  std::string line, cxx = "c++";
  while (std::getline(stream, line)) {
    const size_t blank = line.find_first_of(" \t");
    if (line.empty() || line[0] == '#' || blank == std::string::npos) continue;
    const std::string key = line.substr(0, blank);
    const size_t begin = line.find_first_not_of(" \t", blank);
    if (begin == std::string::npos) continue;
    const std::string value = line.substr(begin);
    auto located = [&] { return (base / value).lexically_normal().string(); };
    if (key == "include") {
      toolchain.include_directory = located();
    } else if (key == "library") {
      toolchain.libraries.push_back(located());
    } else if (key == "flag") {
      toolchain.flags.push_back(value);
    } else if (key == "cxx") {
      cxx = value;
    } else {
      return Error{fmt::format("'{}': unknown entry '{}'", path, key)};
    }
  }
  std::error_code ignored;
  for (const std::string& library : toolchain.libraries) {
    if (!fs::exists(library, ignored))
      return Error{fmt::format("the runtime library '{}' is missing", library)};
  }
  if (!fs::exists(fs::path(toolchain.include_directory) / "runtime" / "main.h", ignored)) {
    return Error{fmt::format("the runtime's headers are not in '{}'", toolchain.include_directory)};
  }
  if (const char* variable = std::getenv("CXX"); variable != nullptr && *variable != '\0') {
    std::istringstream words(variable);
    for (std::string word; words >> word;) toolchain.compiler.push_back(word);
  }
  if (toolchain.compiler.empty()) toolchain.compiler = {cxx};
  return toolchain;
}

Result<Toolchain> FindToolchain() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return Error{"cannot find the directory of this program: " + error.message()};
  return ReadToolchain((self.parent_path().parent_path() / "lib" / "piper" / "toolchain.txt").string());
}

}  // namespace piper::codegen
