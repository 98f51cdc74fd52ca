// What every rank of a job shares, as tables: groups, optimizers, inputs, strings, sizes.
#pragma once

#include <string>

#include "runtime/program.h"

namespace piper::codegen {

// Tables named k<prefix>..., and `Job Make<prefix>Job(train, eval)`, for a namespace in which the names of
// runtime/program.h are visible.
std::string JobText(const runtime::Job& job, const std::string& prefix);

}  // namespace piper::codegen
