// Exit codes of piper and piperc (sysexits numbers, as the generated programs use).
#pragma once

namespace piper::tools {

constexpr int kExitOk = 0;
constexpr int kExitInput = 1;  // a diagnosed error in the input; a test or a verification that failed
constexpr int kExitUsage = 2;  // the command line
constexpr int kExitInternal = 70;
constexpr int kExitIo = 74;  // a file, a process, a compiler
constexpr int kExitTemporary = 75;

}  // namespace piper::tools
