// Where the runtime that emitted programs link against lies, and how its compiler is called. The build and
// the installation each write a small file, `lib/piper/toolchain.txt` beside the `bin` that holds piperc:
//   include ../../include/piper     holds runtime/ and kernels/
//   library ../libpiper_runtime.a   in link order
//   flag    -fsanitize=address      for compiling and linking (sanitizer builds)
//   cxx     /usr/bin/c++            unless CXX says otherwise
// Relative paths are relative to the file.
#pragma once

#include <string>
#include <vector>

#include "ir/support/result.h"

namespace piper::codegen {

struct Toolchain {
  std::vector<std::string> compiler;  // argument vector: CXX is split at blanks
  std::string include_directory;
  std::vector<std::string> libraries;
  std::vector<std::string> flags;
};

// Of the executable that runs now. Everything named exists.
Result<Toolchain> FindToolchain();
Result<Toolchain> ReadToolchain(const std::string& path);

}  // namespace piper::codegen
