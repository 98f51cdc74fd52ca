#include "ir/directives/next_step.h"

#include <algorithm>

#include <fmt/format.h>

namespace piper::ir {

namespace {

constexpr size_t kMaxEdges = 1 << 20;

// The node that judges a step's updates, and the reduction that it alone waits for, run in the step after it.
void Carry(Dag& dag) {
  for (NodeTemplate& node : dag.templates) node.carried = node.carried || node.kind == NodeKind::kValidate;
  for (const TemplateEdge& edge : dag.edges) {
    NodeTemplate& from = dag.templates[edge.from];
    if (dag.templates[edge.to].kind == NodeKind::kValidate && from.kind == NodeKind::kAllReduce)
      from.carried = true;
  }
}

bool Shares(const Group& a, const Group& b) {
  return std::any_of(a.devices.begin(), a.devices.end(), [&](uint32_t device) {
    return std::find(b.devices.begin(), b.devices.end(), device) != b.devices.end();
  });
}

}  // namespace

void ApplyNextStepEdges(BuildContext& context) {
  context.checked_before.assign(context.hosts.size(), {});
  DiagnosticEngine& diag = context.diag;
  Dag& dag = context.dag;
  bool carries = false;
  context.ForEach<EdgeDirective>([&](const Directive& directive, const EdgeDirective& edge) {
    if (edge.distance == 0) return;
    if (edge.distance > 1) {
      diag.Error(directive.range, DiagKind::kBadEdge,
                 fmt::format("an edge reaches into the next step at most, not {} steps on", edge.distance))
          .Hint("write `distance 1`");
      return;
    }
    const std::vector<Instance> from = context.SelectInstances(edge.from);
    const std::vector<Instance> to = context.SelectInstances(edge.to);
    if (from.empty() && context.ReportIfEmpty(edge.from, directive.range)) return;
    if (to.empty() && context.ReportIfEmpty(edge.to, directive.range)) return;
    const auto constrained = [&](const Selector& selector) {
      return std::any_of(selector.any_of.begin(), selector.any_of.end(),
                         [&](const SelectorClause& clause) { return context.split.Constrains(clause); });
    };
    const bool pairwise = !constrained(edge.from) && !constrained(edge.to);
    const OriginId origin = dag.AddOrigin(directive.range);
    const size_t before = dag.temporal.size();
    for (const auto& [source, mb_a] : from) {
      const NodeId a = dag.Node(source, mb_a);
      for (const auto& [target, mb_b] : to) {
        const NodeId b = dag.Node(target, mb_b);
        if (pairwise && mb_a >= 0 && mb_b >= 0 && mb_a != mb_b) continue;
        if (!Shares(dag.groups[dag.templates[source].group], dag.groups[dag.templates[target].group]))
          continue;
        if (dag.temporal.size() - before >= kMaxEdges) {
          diag.Error(directive.range, DiagKind::kBadEdge, fmt::format("more than {} edges", kMaxEdges))
              .Hint("name fewer microbatches");
          return;
        }
        dag.temporal.push_back({a, b, 1, origin});
        if (dag.templates[source].kind != NodeKind::kValidate) continue;
        if (context.compute_streams.size() > 1) {
          const std::string& beside = NameText(context.compute_streams[1]);
          auto error = diag.Error(
              directive.range, DiagKind::kBadEdge,
              fmt::format("steps that overlap beside stream {}, which computes as well: where the check of a "
                          "step lags behind, a device computes on one stream",
                          beside));
          context.ForEach<StreamDirective>([&](const Directive& other, const StreamDirective& moved) {
            if (moved.stream == beside) error.Note(other.range, "the stream is named here");
          });
          error.Hint("leave out this edge, or the `stream` line");
          return;
        }
        carries = true;
        for (size_t h = 0; h < context.hosts.size(); ++h) {
          if (context.hosts[h] == dag.templates[source].group) context.checked_before[h].push_back(b);
        }
      }
    }
    if (dag.temporal.size() == before && !from.empty() && !to.empty()) {
      const NodeTemplate& a = dag.templates[from[0].node_template];
      const NodeTemplate& b = dag.templates[to[0].node_template];
      diag.Error(directive.range, DiagKind::kBadEdge,
                 fmt::format("no rank has both {} and {}: nothing carries the edge into the next step",
                             a.name, b.name))
          .Hint("join nodes of one group; across ranks the data of the next step order the rest");
    }
  });
  if (carries) Carry(dag);
  for (std::vector<NodeId>& nodes : context.checked_before) std::sort(nodes.begin(), nodes.end());
}

}  // namespace piper::ir
