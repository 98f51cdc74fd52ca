#include "ir/directives/edge.h"

#include <algorithm>

#include <fmt/format.h>

namespace piper::ir {

namespace {

struct Instance {
  TemplateId node_template;
  int32_t microbatch;
};

constexpr size_t kMaxEdges = 1 << 20;

std::vector<Instance> Instances(const BuildContext& context, const Selector& selector) {
  std::vector<Instance> found;
  std::vector<int32_t> microbatches;
  for (const SelectorClause& clause : selector.any_of) {
    for (TemplateId t : context.MatchTemplates(clause)) {
      const NodeTemplate& node = context.dag.templates[t];
      if (node.step_level()) {
        found.push_back({t, -1});
        continue;
      }
      microbatches.clear();
      context.split.Collect(clause, node.mb_begin, node.mb_end, &microbatches);
      for (int32_t mb : microbatches) found.push_back({t, mb});
    }
  }
  std::sort(found.begin(), found.end(), [](const Instance& a, const Instance& b) {
    return std::tuple(a.node_template, a.microbatch) < std::tuple(b.node_template, b.microbatch);
  });
  found.erase(std::unique(found.begin(), found.end(),
                          [](const Instance& a, const Instance& b) {
                            return a.node_template == b.node_template && a.microbatch == b.microbatch;
                          }),
              found.end());
  return found;
}

bool Shares(const Dag& dag, GroupId a, GroupId b) {
  const auto& first = dag.groups[a].devices;
  const auto& second = dag.groups[b].devices;
  return std::any_of(first.begin(), first.end(),
                     [&](uint32_t d) { return std::find(second.begin(), second.end(), d) != second.end(); });
}

}  // namespace

void ApplyEdge(BuildContext& context) {
  DiagnosticEngine& diag = context.diag;
  Dag& dag = context.dag;
  context.ForEach<EdgeDirective>([&](const Directive& directive, const EdgeDirective& edge) {
    if (edge.distance != 0) {
      diag.Error(directive.range, DiagKind::kUnsupported, "an edge into the next step is not supported yet")
          .Hint("within the step, leave the distance out");
      return;
    }
    std::vector<Instance> from = Instances(context, edge.from), to = Instances(context, edge.to);
    if (from.empty() && context.ReportIfEmpty(edge.from, directive.range)) return;
    if (to.empty() && context.ReportIfEmpty(edge.to, directive.range)) return;
    auto constrained = [&](const Selector& selector) {
      return std::any_of(selector.any_of.begin(), selector.any_of.end(),
                         [&](const SelectorClause& c) { return context.split.Constrains(c); });
    };
    bool pairwise = !constrained(edge.from) && !constrained(edge.to);
    OriginId origin = dag.AddOrigin(directive.range);
    size_t before = dag.temporal.size();
    const Instance* apart[2] = {nullptr, nullptr};
    for (const Instance& a : from) {
      for (const Instance& b : to) {
        if (pairwise && a.microbatch >= 0 && b.microbatch >= 0 && a.microbatch != b.microbatch) continue;
        if (a.node_template == b.node_template && a.microbatch == b.microbatch) {
          diag.Error(directive.range, DiagKind::kBadEdge,
                     fmt::format("{} would wait for itself", dag.templates[a.node_template].name));
          return;
        }
        if (!Shares(dag, dag.templates[a.node_template].group, dag.templates[b.node_template].group)) {
          apart[0] = &a;
          apart[1] = &b;
          continue;
        }
        if (dag.temporal.size() - before >= kMaxEdges) {
          diag.Error(directive.range, DiagKind::kBadEdge, fmt::format("more than {} edges", kMaxEdges))
              .Hint("name fewer microbatches");
          return;
        }
        dag.temporal.push_back(
            {dag.first_node[a.node_template] +
                 static_cast<NodeId>(
                     a.microbatch < 0 ? 0 : a.microbatch - dag.templates[a.node_template].mb_begin),
             dag.first_node[b.node_template] +
                 static_cast<NodeId>(
                     b.microbatch < 0 ? 0 : b.microbatch - dag.templates[b.node_template].mb_begin),
             0, origin});
      }
    }
    if (dag.temporal.size() == before && apart[0] != nullptr) {
      const NodeTemplate& a = dag.templates[apart[0]->node_template];
      const NodeTemplate& b = dag.templates[apart[1]->node_template];
      diag.Error(directive.range, DiagKind::kBadEdge,
                 fmt::format("{} is on {} and {} on {}: no message carries the edge", a.name,
                             dag.groups[a.group].text, b.name, dag.groups[b.group].text))
          .Hint("join nodes of one group; data edges order the rest");
    } else if (dag.temporal.size() == before && !from.empty() && !to.empty()) {
      diag.Error(directive.range, DiagKind::kBadEdge, "the two ends have no microbatch in common")
          .Hint("name the microbatches on both sides: every selected first node then precedes every second");
    }
  });
}

}  // namespace piper::ir
