// How many streams meet at one place: what a transport of the runtime has room for, checked where the
// `stream` directives that ask for more can be named.
#pragma once

#include "ir/lower/job_storage.h"
#include "ir/program/program.h"
#include "ir/support/diagnostics.h"

namespace piper::ir {

// A kBadStream error where a rank of the role sends to (or receives from) one rank, or joins collectives, on
// more streams than a transport serves. False after one.
bool CheckLanes(const RoleStorage& role, const Program& program, DiagnosticEngine& diag);

}  // namespace piper::ir
