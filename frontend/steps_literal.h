// The run-length order literal, `steps "8*F 3*(F B)"`: decoded by hand, since a long order written out would
// keep a parser generator busy for seconds. Grammar: StepRun in ast.h. Internal to frontend/.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "frontend/ast.h"

namespace piper::frontend {

// Where in the text the literal is wrong, and how.
struct StepsError {
  size_t begin = 0, end = 0;
  std::string message;
  std::string hint;
};

// Decodes into the arena. Nesting is bounded by kMaxDepth.
std::optional<StepsError> DecodeSteps(std::string_view text, Arena& arena, List<StepRun>* runs);

}  // namespace piper::frontend
