// Runs the Calls of bodies through the kernels' registry: the same machine code that emitted functions call
// by name, so both give the same bits. A library of its own (piper_interpreter): generated programs do not
// link it.
#pragma once

#include <memory>

#include "runtime/executor.h"
#include "runtime/program.h"

namespace piper::runtime {

// For one program; both outlive the runner. A body that names an unknown kernel, or gives one the wrong
// number of arguments, ends the process with an internal error that names the kernel and the operation.
std::unique_ptr<BodyRunner> MakeInterpreter(const Job& job, const RankProgram& program);

}  // namespace piper::runtime
