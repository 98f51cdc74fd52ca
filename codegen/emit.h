// A Job as C++ sources and the file that builds them. One executable a role, one that starts the right role
// for its rank (`train`), one for sampling where there is a sample job:
//   src/bodies.h/.cpp   the functions that several executables use: compiled once
//   src/job.h/.cpp      what is the same on every rank
//   src/roleK.cpp       the functions that only role K has, and its program as tables
//   src/sample.cpp      the sampling job, likewise
//   src/train.cpp       which role each rank is
//   src/target.h        what the sources were compiled to need from the processor
//   src/start.cpp       main: checks the processor, then enters the runtime
//   CMakeLists.txt      builds the same executables again
// Everything was decided in the RankProgram; this only prints. The same job gives the same bytes.
//
// Beside runtime/program.h and fmt this directory reads ir/model/body.h (names and shapes of buffers) and
// kernels/registry.h (names of arguments): rows of numbers alone would not be legible.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/model/body.h"
#include "runtime/program.h"

namespace piper::codegen {

// The ir::Body that body `body` of a role's program was made from, for names and shapes; null where unknown.
using BodyDetail = std::function<const ir::Body*(const runtime::RankProgram& program, uint32_t body)>;

struct EmitInput {
  const runtime::Job* job = nullptr;
  const runtime::Job* sample = nullptr;  // one role, forward only; null: no sampling
  BodyDetail detail;                     // may be empty
  BodyDetail sample_detail;
  std::string target_cpu = "native";   // -march
  std::string include_directory;       // holds runtime/ and kernels/: the default in CMakeLists.txt
  std::vector<std::string> libraries;  // static libraries to link, in order: likewise
};

struct EmittedFile {
  std::string path;  // relative to the output directory
  std::string text;
};
struct EmittedExecutable {
  std::string name;
  std::vector<std::string> sources;  // paths of .cpp files among the files
};
struct Emitted {
  std::vector<EmittedFile> files;
  std::vector<EmittedExecutable> executables;
  std::vector<std::string>
      baseline_sources;  // compiled without -march: they run before the processor is checked
};

Emitted Emit(const EmitInput& input);

}  // namespace piper::codegen
