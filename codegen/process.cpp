#include "codegen/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

extern char** environ;

namespace piper::codegen {
namespace {

volatile sig_atomic_t caught_signal = 0;
void CatchSignal(int signal) { caught_signal = signal; }

// While it lives, the signals that ask us to stop only set a flag, so that what is half done can be removed.
class StopSignals {
 public:
  StopSignals() {
    caught_signal = 0;
    struct sigaction action = {};
    action.sa_handler = CatchSignal;  // no SA_RESTART: waitpid must return
    for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &action, &old_[i]);
  }
  ~StopSignals() {
    for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &old_[i], nullptr);
  }

 private:
  static constexpr int kSignals[3] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction old_[3];
};

std::string ReadLog(const std::string& path) {
  constexpr size_t kMax = 16384;
  std::ifstream stream(path, std::ios::binary);
  std::string text(kMax, '\0');
  stream.read(text.data(), kMax);
  text.resize(static_cast<size_t>(stream.gcount()));
  return text;
}

Result<pid_t> Start(const Command& command) {
  std::vector<char*> argv;
  for (const std::string& argument : command.arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, command.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  // A process group of its own: a compiler driver has children that must end with it.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return Error{fmt::format("cannot run '{}': {}", command.arguments[0], std::strerror(error))};
  return pid;
}

}  // namespace

Status RunCommands(const std::vector<Command>& commands, int jobs) {
  StopSignals stop_signals;
  std::map<pid_t, size_t> running;
  std::string error;
  size_t failed = commands.size(), next = 0;
  auto fail = [&](size_t index, std::string message) {
    if (index < failed) {
      failed = index;
      error = std::move(message);
    }
    for (const auto& [pid, unused] : running) kill(-pid, SIGTERM);
  };
  while (next < commands.size() || !running.empty()) {
    // A signal may have come while a compiler was being started.
    if (caught_signal != 0 && failed == commands.size()) {
      fail(0, fmt::format("stopped by signal {}", static_cast<int>(caught_signal)));
    }
    const bool stopped = failed < commands.size();
    if (!stopped && next < commands.size() && running.size() < static_cast<size_t>(std::max(jobs, 1))) {
      Result<pid_t> pid = Start(commands[next]);
      if (pid.ok()) {
        running.emplace(*pid, next);
      } else {
        fail(next, pid.error());
      }
      ++next;
      continue;
    }
    if (running.empty()) break;
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0 && errno == EINTR) {
      if (caught_signal != 0) fail(0, fmt::format("stopped by signal {}", static_cast<int>(caught_signal)));
      continue;
    }
    if (pid < 0) return Error{fmt::format("cannot wait for a child process: {}", std::strerror(errno))};
    const auto it = running.find(pid);
    if (it == running.end()) continue;
    const size_t index = it->second;
    running.erase(it);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (stopped) continue;  // we ended it
    const std::string why = WIFSIGNALED(status) ? fmt::format("killed by signal {}", WTERMSIG(status))
                                                : fmt::format("exit code {}", WEXITSTATUS(status));
    fail(index, fmt::format("{} failed ({}):\n{}", commands[index].what, why, ReadLog(commands[index].log)));
  }
  if (failed < commands.size()) return Error{error};
  return Ok();
}

int StopSignal() { return static_cast<int>(caught_signal); }

int AvailableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace piper::codegen
