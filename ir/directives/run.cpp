#include "ir/directives/run.h"

namespace piper::ir {

void ApplyRun(BuildContext& context) {
  const Directive* first = context.Single<RunDirective>("`run`");
  if (first == nullptr) return;
  const auto& run = std::get<RunDirective>(first->body);
  if (!run.ready) return;
  context.diag.Error(first->range, DiagKind::kUnsupported, "`run ready` is not supported yet")
      .Hint("`run strict` is: every stream follows its order");
}

void ApplyNumerics(BuildContext& context) {
  const Directive* first = context.Single<NumericsDirective>("`numerics`");
  if (first == nullptr || !std::get<NumericsDirective>(first->body).fast) return;
  context.dag.expression.pairwise = true;
  for (NodeTemplate& node : context.dag.templates) node.pairwise = SumsReplicas(node);
}

}  // namespace piper::ir
