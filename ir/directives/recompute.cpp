#include "ir/directives/recompute.h"

namespace piper::ir {

void ApplyRecompute(BuildContext& context) {
  context.ForEach<RecomputeDirective>([&](const Directive& directive, const RecomputeDirective&) {
    context.diag.Error(directive.range, DiagKind::kUnsupported, "`recompute` is not supported yet")
        .Hint("more microbatches or more stages lower the peak as well");
  });
}

}  // namespace piper::ir
