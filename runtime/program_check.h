// Checks that a RankProgram holds together before anything runs: indices in range, buffers inside the arena,
// operand counts by kind, waits that name tasks. What fails here is a bug of the compiler or of a
// hand-written program.
#pragma once

#include <cstdint>

#include "runtime/program.h"
#include "runtime/status.h"

namespace piper::runtime {

Status CheckProgram(const Job& job, const RankProgram& program, uint32_t rank);

}  // namespace piper::runtime
