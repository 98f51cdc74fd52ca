// For tests of the programs themselves: a scratch directory, and a program run by argument vector with its
// output, or started and left running.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace piper::test {

class ScratchDirectory {
 public:
  ScratchDirectory() {
    const char* base = std::getenv("TMPDIR");
    path_ = std::string(base != nullptr ? base : "/tmp") + "/piper_test_XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string Contents(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

struct Outcome {
  int code = -1;  // 128 + n if killed by signal n
  std::string out, err;
};

// A program that runs; its standard streams are files.
struct RunningProgram {
  pid_t pid = -1;
  std::string out, err;  // paths

  Outcome Wait() const {
    int status = 0;
    waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), Contents(out), Contents(err)};
  }
};

// `variables` are "NAME=value", added to the environment.
inline RunningProgram StartProgram(const ScratchDirectory& scratch, const std::vector<std::string>& arguments,
                                   const std::string& input = {},
                                   const std::vector<std::string>& variables = {}) {
  RunningProgram program{-1, scratch / "stdout.txt", scratch / "stderr.txt"};
  const std::string in = scratch / "stdin.txt";
  std::ofstream(in, std::ios::binary) << input;
  program.pid = fork();
  if (program.pid == 0) {
    const int files[3] = {open(in.c_str(), O_RDONLY),
                          open(program.out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644),
                          open(program.err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644)};
    for (int i = 0; i < 3; ++i) dup2(files[i], i);
    for (const std::string& variable : variables) putenv(const_cast<char*>(variable.c_str()));
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  return program;
}

inline Outcome RunProgram(const ScratchDirectory& scratch, const std::vector<std::string>& arguments,
                          const std::string& input = {}) {
  return StartProgram(scratch, arguments, input).Wait();
}

}  // namespace piper::test
