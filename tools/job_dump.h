// A job as text for people (`piperc --emit=program`): roles, memory, parameters, and every task with what it
// waits for. Deterministic; nothing reads it back.
#pragma once

#include <string>

#include "runtime/program.h"

namespace piper::tools {

std::string DumpJob(const runtime::Job& job);

}  // namespace piper::tools
