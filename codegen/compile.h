// Emitted sources -> executables, by the C++ compiler that the toolchain names: objects in parallel, then
// links in parallel, each source once however many executables link it.
#pragma once

#include <string>
#include <vector>

#include "codegen/emit.h"
#include "codegen/toolchain.h"
#include "ir/support/result.h"

namespace piper::codegen {

// Changes whenever the executables might: sources, flags, compiler, size and time of the runtime libraries.
std::string BuildKey(const Emitted& emitted, const Toolchain& toolchain, const std::string& target_cpu);

// `directory` holds the emitted files; executables appear directly in it, objects in objects/.
Status CompileEmitted(const Emitted& emitted, const Toolchain& toolchain, const std::string& target_cpu,
                      const std::string& directory, int jobs);

// Letters, digits, '-', '_', '.', '+': what -march may be given.
bool IsTargetCpu(const std::string& name);

}  // namespace piper::codegen
