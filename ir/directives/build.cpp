#include "ir/directives/directives.h"

namespace piper::ir {

std::optional<BuiltDag> BuildDag(const Program& program, bool forward_only, DiagnosticEngine& diag) {
  return BuildDagWith(program, forward_only, diag, BuildRegions);
}

}  // namespace piper::ir
