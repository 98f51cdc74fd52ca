// The output directory: ours or refused, all or nothing. And running programs.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "codegen/compile.h"
#include "codegen/output_directory.h"
#include "codegen/process.h"
#include "codegen/toolchain.h"

namespace piper::codegen {
namespace {

namespace fs = std::filesystem;

class CodegenDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "piper_directory_XXXXXX";
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string At(const std::string& name) const { return root_ + "/" + name; }
  std::vector<std::string> Names(const std::string& directory) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  static std::string Contents(const std::string& path) {
    std::ifstream stream(path);
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
  }
  std::string root_;
};

TEST_F(CodegenDirectory, CommitMovesEverythingAndRemovesWhatIsGone) {
  {
    Result<OutputDirectory> directory = OutputDirectory::Open(At("out/"));
    ASSERT_TRUE(directory.ok()) << directory.error();
    ASSERT_TRUE(directory->Write("src/a.cpp", "a").ok());
    ASSERT_TRUE(directory->Write("b", "b").ok());
    EXPECT_EQ(directory->committed_key(), "");
    ASSERT_TRUE(directory->Commit({"src/a.cpp", "b"}, "one").ok());
  }
  EXPECT_EQ(Names(At("out")), (std::vector<std::string>{"b", "piperc.manifest", "src"}));
  std::ofstream(At("out/mine.txt")) << "kept";
  {
    Result<OutputDirectory> directory = OutputDirectory::Open(At("out"));
    ASSERT_TRUE(directory.ok()) << directory.error();
    EXPECT_EQ(directory->committed_key(), "one");
    ASSERT_TRUE(directory->Write("src/c.cpp", "c").ok());
    ASSERT_TRUE(directory->Commit({"src/c.cpp"}, "two").ok());
    EXPECT_EQ(directory->committed_key(), "two");
  }
  EXPECT_EQ(Names(At("out")), (std::vector<std::string>{"mine.txt", "piperc.manifest", "src"}));
  EXPECT_EQ(Names(At("out/src")), (std::vector<std::string>{"c.cpp"}));
  fs::remove(At("out/src/c.cpp"));
  Result<OutputDirectory> directory = OutputDirectory::Open(At("out"));
  ASSERT_TRUE(directory.ok());
  EXPECT_EQ(directory->committed_key(), "") << "a file is missing: build again";
}

TEST_F(CodegenDirectory, WhatIsNotOursIsRefused) {
  fs::create_directory(At("home"));
  std::ofstream(At("home/thesis.txt")) << "important";
  Result<OutputDirectory> directory = OutputDirectory::Open(At("home"));
  ASSERT_FALSE(directory.ok());
  EXPECT_EQ(directory.error(),
            "'" + At("home") +
                "' is not empty and was not written by piperc (it has no piperc.manifest); name "
                "another directory");
  EXPECT_EQ(Names(At("home")), (std::vector<std::string>{"thesis.txt"}));
  std::ofstream(At("file")) << "x";
  EXPECT_FALSE(OutputDirectory::Open(At("file")).ok());
  EXPECT_FALSE(OutputDirectory::Open(At("no/parent")).ok());
  EXPECT_FALSE(OutputDirectory::Open("").ok());
}

TEST_F(CodegenDirectory, OneWriterAtATime) {
  Result<OutputDirectory> first = OutputDirectory::Open(At("out"));
  ASSERT_TRUE(first.ok());
  Result<OutputDirectory> second = OutputDirectory::Open(At("out"));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error(), "another piperc is writing to '" + At("out") + "'");
}

TEST_F(CodegenDirectory, WithoutCommitNothingRemains) {
  { ASSERT_TRUE(OutputDirectory::Open(At("out"))->Write("a/b/c", "text").ok()); }
  EXPECT_FALSE(fs::exists(At("out")));
  // What a killed piperc left is cleared by the next.
  fs::create_directories(At("out/.piperc-killed/src"));
  { ASSERT_TRUE(OutputDirectory::Open(At("out")).ok()); }
  EXPECT_TRUE(Names(At("out")).empty());
}

TEST_F(CodegenDirectory, AManifestCannotReachOutside) {
  fs::create_directory(At("out"));
  std::ofstream(At("victim")) << "precious";
  std::ofstream(At("out/piperc.manifest")) << "piperc output 1\nkey x\nfile ../victim\nfile /etc/hostname\n";
  {
    Result<OutputDirectory> directory = OutputDirectory::Open(At("out"));
    ASSERT_TRUE(directory.ok());
    ASSERT_TRUE(directory->Write("a", "a").ok());
    ASSERT_TRUE(directory->Commit({"a"}, "y").ok());
  }
  EXPECT_EQ(Contents(At("victim")), "precious");
}

TEST_F(CodegenDirectory, CommandsRunWithoutAShellAndReportTheFirstFailure) {
  Status status = RunCommands({{{"echo", "$HOME; `id`", "*"}, At("one.log"), "echo"},
                               {{"sh", "-c", "echo out; echo err >&2"}, At("two.log"), "sh"}},
                              2);
  ASSERT_TRUE(status.ok()) << status.error();
  EXPECT_EQ(Contents(At("one.log")), "$HOME; `id` *\n");
  EXPECT_EQ(Contents(At("two.log")), "out\nerr\n");
  status = RunCommands(
      {{{"sleep", "60"}, At("a.log"), "first"}, {{"sh", "-c", "echo broken; exit 3"}, At("b.log"), "second"}},
      2);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error(), "second failed (exit code 3):\nbroken\n");
  status = RunCommands({{{"piper-no-such-program"}, At("c.log"), "third"}}, 1);
  ASSERT_FALSE(status.ok());
  EXPECT_NE((status.ok() ? "" : status.error()).find("piper-no-such-program"), std::string::npos);
}

TEST_F(CodegenDirectory, TargetCpuIsAName) {
  EXPECT_TRUE(IsTargetCpu("x86-64-v3"));
  EXPECT_TRUE(IsTargetCpu("native"));
  EXPECT_FALSE(IsTargetCpu(""));
  EXPECT_FALSE(IsTargetCpu("-O0"));
  EXPECT_FALSE(IsTargetCpu("native -fplugin=x"));
}

TEST_F(CodegenDirectory, AToolchainThatLacksSomethingSaysWhat) {
  std::ofstream(At("toolchain.txt")) << "include .\nlibrary libnothing.a\n";
  Result<Toolchain> toolchain = ReadToolchain(At("toolchain.txt"));
  ASSERT_FALSE(toolchain.ok());
  EXPECT_EQ(toolchain.error(), "the runtime library '" + At("libnothing.a") + "' is missing");
}

}  // namespace
}  // namespace piper::codegen
