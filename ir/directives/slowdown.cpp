#include "ir/directives/slowdown.h"

namespace piper::ir {

void ApplySlowdown(BuildContext& context) {
  context.ForEach<SlowdownDirective>([&](const Directive& directive, const SlowdownDirective&) {
    context.diag
        .Error(directive.range, DiagKind::kUnsupported,
               "`slowdown` is not supported yet: streams overlap freely")
        .Hint("`cost` lines set what a node takes");
  });
}

}  // namespace piper::ir
