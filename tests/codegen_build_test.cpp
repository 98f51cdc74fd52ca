// Emitted code for real: it compiles without a warning, trains bit for bit like the interpreter, holds no
// interpreter, and comes out the same twice. Also what happens to the directory when something goes wrong.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "codegen/compile.h"
#include "codegen/emit.h"
#include "codegen/output_directory.h"
#include "codegen/process.h"
#include "codegen/toolchain.h"
#include "runtime/interpreter.h"
#include "runtime/local_runner.h"
#include "tests/codegen_job.h"

namespace piper::codegen {
namespace {

namespace fs = std::filesystem;

// A directory that goes away.
class Scratch {
 public:
  Scratch() : path_(::testing::TempDir() + "piper_build_XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string Contents(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::vector<std::string> Names(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

Emitted EmitJob(const ir::JobStorage& storage, const Toolchain& toolchain) {
  EmitInput input;
  input.job = &storage.job();
  input.target_cpu = "native";
  input.include_directory = toolchain.include_directory;
  input.libraries = toolchain.libraries;
  return Emit(input);
}

Status Build(const ir::JobStorage& storage, const std::string& path) {
  Result<Toolchain> toolchain = FindToolchain();
  if (!toolchain.ok()) return Error{toolchain.error()};
  const Emitted emitted = EmitJob(storage, *toolchain);
  Result<OutputDirectory> directory = OutputDirectory::Open(path);
  if (!directory.ok()) return Error{directory.error()};
  std::vector<std::string> paths;
  for (const EmittedFile& file : emitted.files) {
    if (Status status = directory->Write(file.path, file.text); !status.ok()) return status;
    paths.push_back(file.path);
  }
  Status status = CompileEmitted(emitted, *toolchain, "native", directory->staging(), AvailableProcessors());
  if (!status.ok()) return status;
  for (const EmittedExecutable& executable : emitted.executables) paths.push_back(executable.name);
  return directory->Commit(paths, BuildKey(emitted, *toolchain, "native"));
}

Status RunProgram(std::vector<std::string> arguments, const std::string& log) {
  return RunCommands({{std::move(arguments), log, "running"}}, 1);
}

std::vector<double> Losses(const std::string& metrics) {
  std::vector<double> losses;
  std::ifstream stream(metrics);
  for (std::string line; std::getline(stream, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.contains("loss") && row["loss"].is_number()) losses.push_back(row["loss"]);
  }
  return losses;
}

TEST(CodegenBuild, TwentyStepsAreBitwiseThoseOfTheInterpreter) {
  Scratch scratch;
  const auto storage = test::MakeSmallJob();
  Status status = Build(*storage, scratch / "out");
  ASSERT_TRUE(status.ok()) << status.error();
  EXPECT_EQ(Names(scratch / "out"), (std::vector<std::string>{"CMakeLists.txt", "piperc.manifest", "role0",
                                                              "role1", "src", "train"}));
  status =
      RunProgram({scratch / "out/train", "--quiet", "--metrics", scratch / "metrics.jsonl"}, scratch / "log");
  ASSERT_TRUE(status.ok()) << status.error();

  runtime::LocalOptions options;
  options.bodies = runtime::MakeInterpreter;
  auto expected = runtime::RunLocal(storage->job(), options);
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  const std::vector<double> losses = Losses(scratch / "metrics.jsonl");
  ASSERT_EQ(losses.size(), 20u);
  EXPECT_EQ(losses, expected->losses);
  EXPECT_NE(losses.back(), losses.front());

  for (const char* name : {"out/role0", "out/role1", "out/train"}) {
    const std::string binary = Contents(scratch / name);
    EXPECT_EQ(binary.find("Interpreter"), std::string::npos) << name << " holds the interpreter";
  }
  // A role knows nothing of the other's parameters.
  EXPECT_EQ(Contents(scratch / "out/role0").find("head.w"), std::string::npos);
  EXPECT_EQ(Contents(scratch / "out/role1").find("wte.weight"), std::string::npos);
}

TEST(CodegenBuild, HostileNamesCompileAndRun) {
  Scratch scratch;
  Status status = Build(*test::MakeSmallJob(test::HostileNames()), scratch / "out");
  ASSERT_TRUE(status.ok()) << status.error();
  status = RunProgram({scratch / "out/train", "--quiet", "--steps", "2"}, scratch / "log");
  EXPECT_TRUE(status.ok()) << status.error();
}

TEST(CodegenBuild, TwoBuildsHaveTheSameBytes) {
  Scratch scratch;
  ASSERT_TRUE(Build(*test::MakeSmallJob(), scratch / "a").ok());
  ASSERT_TRUE(Build(*test::MakeSmallJob(), scratch / "b").ok());
  for (const char* name : {"train", "role0", "role1", "src/role0.cpp", "CMakeLists.txt", "piperc.manifest"}) {
    EXPECT_TRUE(Contents(scratch / "a/" + name) == Contents(scratch / "b/" + name)) << name;
  }
}

TEST(CodegenBuild, AHundredThousandTasksCompileInSeconds) {
  Scratch scratch;
  Result<Toolchain> toolchain = FindToolchain();
  ASSERT_TRUE(toolchain.ok()) << toolchain.error();
  const Emitted emitted = EmitJob(*test::MakeLongJob(100'000), *toolchain);
  Result<OutputDirectory> directory = OutputDirectory::Open(scratch / "out");
  ASSERT_TRUE(directory.ok());
  for (const EmittedFile& file : emitted.files) ASSERT_TRUE(directory->Write(file.path, file.text).ok());
  const auto start = std::chrono::steady_clock::now();
  Status status = CompileEmitted(emitted, *toolchain, "native", directory->staging(), 2);
  ASSERT_TRUE(status.ok()) << status.error();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  RecordProperty("seconds", std::to_string(seconds));
  std::printf("100,000 tasks: %.2f s for all executables\n", seconds);
  EXPECT_LT(seconds, 40) << "straight-line code takes 86 s";
}

TEST(CodegenBuild, AFailureLeavesNothingBehind) {
  Scratch scratch;
  Result<Toolchain> toolchain = FindToolchain();
  ASSERT_TRUE(toolchain.ok()) << toolchain.error();
  Emitted emitted = EmitJob(*test::MakeSmallJob(), *toolchain);
  for (EmittedFile& file : emitted.files) {
    if (file.path == "src/role1.cpp") file.text += "this is not C++\n";
  }
  {
    Result<OutputDirectory> directory = OutputDirectory::Open(scratch / "out");
    ASSERT_TRUE(directory.ok());
    for (const EmittedFile& file : emitted.files) ASSERT_TRUE(directory->Write(file.path, file.text).ok());
    Status status = CompileEmitted(emitted, *toolchain, "native", directory->staging(), 2);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().find("compiling src/role1.cpp failed (exit code 1)"), std::string::npos)
        << status.error();
    EXPECT_NE(status.error().find("this is not C++"), std::string::npos) << status.error();
  }
  EXPECT_FALSE(fs::exists(scratch / "out"));
}

}  // namespace
}  // namespace piper::codegen
