#include "ir/directives/offload.h"

namespace piper::ir {

void ApplyOffload(BuildContext& context) {
  context.ForEach<OffloadDirective>([&](const Directive& directive, const OffloadDirective&) {
    context.diag.Error(directive.range, DiagKind::kUnsupported, "`offload` is not supported yet")
        .Hint("more microbatches or more stages lower the peak as well");
  });
}

}  // namespace piper::ir
