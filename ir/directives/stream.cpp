#include "ir/directives/stream.h"

#include <fmt/format.h>

namespace piper::ir {

void ApplyStream(BuildContext& context) {
  DiagnosticEngine& diag = context.diag;
  Dag& dag = context.dag;
  std::vector<const Directive*> owner(dag.templates.size());
  context.ForEach<StreamDirective>([&](const Directive& directive, const StreamDirective& spec) {
    SourceRange range = spec.select.range.valid() ? spec.select.range : directive.range;
    if (spec.stream == "send" || spec.stream == "recv" || spec.stream.empty()) {
      diag.Error(directive.range, DiagKind::kBadStream,
                 fmt::format("'{}' stands for a stream a pair of ranks, not for one stream", spec.stream))
          .Hint("choose a name of its own, such as comm");
      return;
    }
    bool any = false;
    NameId stream = InternName(spec.stream);
    for (const SelectorClause& clause : spec.select.any_of) {
      if (context.split.Constrains(clause)) {
        diag.Error(range, DiagKind::kBadStream,
                   fmt::format("{} names a microbatch; all microbatches of a node share its stream",
                               spec.select.ToString()));
        return;
      }
      for (TemplateId t : context.MatchTemplates(clause)) {
        NodeTemplate& node = dag.templates[t];
        any = true;
        bool moves = false;
        switch (node.kind) {
          case NodeKind::kSend:
          case NodeKind::kRecv:
          case NodeKind::kPermute:
          case NodeKind::kReduce:
          case NodeKind::kAllReduce:
          case NodeKind::kAllGather:
          case NodeKind::kReduceScatter:
          case NodeKind::kAllToAll:
          case NodeKind::kBroadcast:
          case NodeKind::kOffload:
          case NodeKind::kPrefetch:
            moves = true;
            break;
          default:
            break;
        }
        if (!moves) {
          diag.Error(range, DiagKind::kBadStream,
                     fmt::format("{} computes: it stays on stream compute", node.name))
              .Hint("name what moves data: [send], [recv], [dp.reduce], [tie.reduce], ..");
          return;
        }
        if (owner[t] != nullptr && owner[t] != &directive) {
          diag.Error(directive.range, DiagKind::kConflict, fmt::format("{} has a second stream", node.name))
              .Note(owner[t]->range, "the first one is here");
          return;
        }
        owner[t] = &directive;
        node.stream = stream;
        node.origin = dag.AddOrigin(directive.range);
      }
    }
    if (!any) context.ReportIfEmpty(spec.select, directive.range);
  });
}

}  // namespace piper::ir
