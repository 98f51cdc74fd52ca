// Runs programs by argument vector, several at a time. Never a shell: no text of a user is ever parsed as a
// command.
#pragma once

#include <string>
#include <vector>

#include "ir/support/result.h"

namespace piper::codegen {

struct Command {
  std::vector<std::string> arguments;  // [0] is looked up in PATH
  std::string log;                     // file that receives both output streams
  std::string what;                    // for messages: "compile src/role0.cpp"
};

// Runs all, at most `jobs` at a time, in order of start. After the first failure (or SIGINT, SIGTERM, SIGHUP)
// starts no more, ends those that run and waits for them. The error holds the failed command's output. No
// children of the caller's own may be running: any that ends is taken for one of these.
Status RunCommands(const std::vector<Command>& commands, int jobs);
// The signal that ended the last RunCommands early, 0: none.
int StopSignal();

// The processors that this process may use; at least 1.
int AvailableProcessors();

}  // namespace piper::codegen
