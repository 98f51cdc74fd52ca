#include "codegen/compile.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>

#include "codegen/build_file.h"
#include "codegen/process.h"

namespace piper::codegen {
namespace {

// 64-bit FNV-1a over text and its length.
class Hash {
 public:
  void Add(std::string_view text) {
    for (char c : text) state_ = (state_ ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    for (size_t rest = text.size(), i = 0; i < 8; ++i, rest >>= 8) {
      state_ = (state_ ^ static_cast<uint8_t>(rest)) * 0x100000001b3u;
    }
  }
  uint64_t state() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325u;
};

std::string ObjectOf(const std::string& source) {
  return "objects/" + std::filesystem::path(source).stem().string() + ".o";
}

}  // namespace

bool IsTargetCpu(const std::string& name) {
  return !name.empty() && name.size() <= 64 && name[0] != '-' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' ||
                  c == '+';
         });
}

// What "native" stands for here: the kernel's list of this processor's features. Empty where there is none.
std::string ProcessorFeatures() {
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0) return line;
  }
  return {};
}

std::string BuildKey(const Emitted& emitted, const Toolchain& toolchain, const std::string& target_cpu) {
  Hash hash;
  for (const EmittedFile& file : emitted.files) {
    hash.Add(file.path);
    hash.Add(file.text);
  }
  for (const std::string& word : toolchain.compiler) hash.Add(word);
  for (const std::string& flag : toolchain.flags) hash.Add(flag);
  for (const std::string& flag : EmittedCompileFlags()) hash.Add(flag);
  hash.Add(target_cpu);
  if (target_cpu == "native") hash.Add(ProcessorFeatures());
  for (const std::string& library : toolchain.libraries) {
    struct stat status = {};
    if (stat(library.c_str(), &status) != 0) continue;
    hash.Add(
        fmt::format("{} {} {}.{}", library, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec));
  }
  return fmt::format("{:016x}", hash.state());
}

Status CompileEmitted(const Emitted& emitted, const Toolchain& toolchain, const std::string& target_cpu,
                      const std::string& directory, int jobs) {
  PIPER_CHECK(IsTargetCpu(target_cpu), target_cpu);
  std::error_code error;
  std::filesystem::create_directories(directory + "/objects", error);
  if (error) return Error{fmt::format("cannot create '{}/objects': {}", directory, error.message())};

  std::vector<Command> commands;
  std::set<std::string> seen;
  for (const EmittedExecutable& executable : emitted.executables) {
    for (const std::string& source : executable.sources) {
      if (!seen.insert(source).second) continue;
      Command command;
      command.arguments = toolchain.compiler;
      for (const std::string& flag : EmittedCompileFlags()) command.arguments.push_back(flag);
      for (const std::string& flag : toolchain.flags) command.arguments.push_back(flag);
      if (std::find(emitted.baseline_sources.begin(), emitted.baseline_sources.end(), source) ==
          emitted.baseline_sources.end()) {
        command.arguments.push_back("-march=" + target_cpu);
      }
      command.arguments.push_back("-I" + toolchain.include_directory);
      // The sources' own directory, not this temporary one, is what messages and debug data should name.
      for (const char* word : {"-c", "-o"}) command.arguments.emplace_back(word);
      command.arguments.push_back(directory + "/" + ObjectOf(source));
      command.arguments.push_back(directory + "/" + source);
      command.log = directory + "/" + ObjectOf(source) + ".log";
      command.what = "compiling " + source;
      commands.push_back(std::move(command));
    }
  }
  // The largest first: with few processors the last one to start should be short.
  std::stable_sort(commands.begin(), commands.end(), [&](const Command& a, const Command& b) {
    std::error_code ignored;
    return std::filesystem::file_size(a.arguments.back(), ignored) >
           std::filesystem::file_size(b.arguments.back(), ignored);
  });
  if (Status status = RunCommands(commands, jobs); !status.ok()) return status;

  commands.clear();
  for (const EmittedExecutable& executable : emitted.executables) {
    Command command;
    command.arguments = toolchain.compiler;
    for (const std::string& flag : toolchain.flags) command.arguments.push_back(flag);
    command.arguments.emplace_back("-o");
    command.arguments.push_back(directory + "/" + executable.name);
    for (const std::string& source : executable.sources)
      command.arguments.push_back(directory + "/" + ObjectOf(source));
    for (const std::string& library : toolchain.libraries) command.arguments.push_back(library);
    command.arguments.emplace_back("-pthread");
    command.log = directory + "/objects/" + executable.name + ".link.log";
    command.what = "linking " + executable.name;
    commands.push_back(std::move(command));
  }
  return RunCommands(commands, jobs);
}

}  // namespace piper::codegen
