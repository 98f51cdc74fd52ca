#include "ir/directives/stream.h"

#include <algorithm>

#include <fmt/format.h>

namespace piper::ir {

namespace {

constexpr size_t kMaxComputeStreams = 8;  // a thread each

TemplateId Of(const BuildContext& context, const NodeTemplate& node, Pass pass) {
  return context.compute[node.region][node.copy][static_cast<size_t>(pass)];
}

// What runs right after a node that the directive moved goes with it, and so does a replay that it does not
// name with the backward pass that it serves.
void TakeAlong(BuildContext& context, const std::vector<const Directive*>& owner) {
  Dag& dag = context.dag;
  for (TemplateId t = 0; t < dag.templates.size(); ++t) {
    NodeTemplate& node = dag.templates[t];
    TemplateId with = kNone;
    if (node.kind == NodeKind::kAccumulate && !node.step_level()) {
      with = Of(context, node, Pass::kBW);
    } else if (node.kind == NodeKind::kLossFold) {
      with = Of(context, node, Pass::kF);
    } else if (node.kind == NodeKind::kCompute && node.pass == Pass::kR && owner[t] == nullptr) {
      with = Of(context, node, Pass::kBI);
      if (with == kNone) with = Of(context, node, Pass::kBW);
    }
    if (with != kNone) node.stream = dag.templates[with].stream;
  }
}

// An update comes after everything on its device that reads the parameter. Where a region's own gradient is
// part of it, that follows from the data, and on one stream from the order; else it is said.
void UpdatesAfterReaders(BuildContext& context) {
  Dag& dag = context.dag;
  std::vector<std::vector<TemplateId>> updates(context.regions.graph.parameters.size());
  for (TemplateId t = 0; t < dag.templates.size(); ++t) {
    if (dag.templates[t].kind == NodeKind::kUpdate) updates[dag.templates[t].parameter].push_back(t);
  }
  for (TemplateId t = 0; t < dag.templates.size(); ++t) {
    const NodeTemplate& node = dag.templates[t];
    if (node.kind != NodeKind::kCompute) continue;
    const Region& region = context.regions.regions[node.region];
    for (ParameterId p : region.parameters) {
      const bool waits = node.pass != Pass::kR &&
                         std::any_of(region.backward_weight.formals.begin(),
                                     region.backward_weight.formals.end(), [&](const Formal& formal) {
                                       return formal.kind == FormalKind::kGradient && formal.parameter == p;
                                     });
      if (waits) continue;
      for (TemplateId update : updates[p]) {
        if (dag.templates[update].group == node.group)
          dag.edges.push_back({t, update, false, dag.templates[update].origin});
      }
    }
  }
  context.IndexTemplates();
}

}  // namespace

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
        switch (node.kind) {
          case NodeKind::kCompute:
          case NodeKind::kUpdate:
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
            break;
          case NodeKind::kAccumulate:
          case NodeKind::kLossFold:
            diag.Error(
                    range, DiagKind::kBadStream,
                    fmt::format("{} has no stream of its own: it runs right after what it reads", node.name))
                .Hint(node.kind == NodeKind::kLossFold ? "put its F on the stream"
                                                       : "put its BW on the stream");
            return;
          default:
            diag.Error(range, DiagKind::kBadStream,
                       fmt::format("{} is about all parameters of its rank: it stays on stream compute",
                                   node.name))
                .Hint("F, B, BI, BW, R, U, messages and reductions have streams: `stream BW[layer] on side`");
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
  context.compute_streams = {InternName("compute")};
  if (context.Failed()) return;
  TakeAlong(context, owner);
  std::vector<NameId>& streams = context.compute_streams;
  for (TemplateId t = 0; t < dag.templates.size(); ++t) {
    const NodeTemplate& node = dag.templates[t];
    if (node.kind != NodeKind::kCompute && node.kind != NodeKind::kUpdate) continue;
    if (std::find(streams.begin(), streams.end(), node.stream) != streams.end()) continue;
    streams.push_back(node.stream);
    if (streams.size() <= kMaxComputeStreams) continue;
    diag.Error(owner[t] == nullptr ? SourceRange{} : owner[t]->range, DiagKind::kBadStream,
               fmt::format("'{}' is one more stream that computes: at most {} are possible, a thread each",
                           NameText(node.stream), kMaxComputeStreams))
        .Hint("let several of them share a stream");
    return;
  }
  if (streams.size() > 1) UpdatesAfterReaders(context);
}

}  // namespace piper::ir
