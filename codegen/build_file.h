// The CMakeLists.txt beside the emitted sources: a person can build the same executables again, here or on a
// machine that has only the runtime and a C++20 compiler.
#pragma once

#include <string>

#include "codegen/emit.h"

namespace piper::codegen {

std::string BuildFileText(const EmitInput& input, const Emitted& emitted);

// The compiler flags of emitted sources, without -march, includes and file names.
const std::vector<std::string>& EmittedCompileFlags();

}  // namespace piper::codegen
