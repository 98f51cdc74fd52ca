#include "ir/directives/limit.h"

#include <algorithm>

#include <fmt/format.h>

namespace piper::ir {

namespace {

// Something that is alive: from the start of its first node to the end of its last release.
struct Life {
  std::pair<uint32_t, int32_t> unit;  // (template or 0 with `per mb`, microbatch)
  NodeId first = 0, release = 0;
  size_t start = SIZE_MAX, end = 0;  // positions on the host's compute stream
};

}  // namespace

void ApplyLimit(BuildContext& context) {
  DiagnosticEngine& diag = context.diag;
  Dag& dag = context.dag;
  std::vector<std::vector<TemplateId>> outgoing;
  std::vector<size_t> position;
  context.ForEach<LimitDirective>([&](const Directive& directive, const LimitDirective& limit) {
    if (limit.count < 1) {
      diag.Error(directive.range, DiagKind::kBadLimit,
                 fmt::format("a limit of {}: at least one must be able to live", limit.count));
      return;
    }
    bool per_microbatch = !limit.per.empty();
    if (per_microbatch && !context.split.IsSplit(InternName(limit.per))) {
      diag.Error(directive.range, DiagKind::kBadLimit, fmt::format("'{}' is no split index", limit.per))
          .Hint(fmt::format("`per {}` counts microbatches", dag.split_dims.back().first));
      return;
    }
    if (outgoing.empty()) {
      outgoing.resize(dag.templates.size());
      for (const TemplateEdge& edge : dag.edges) outgoing[edge.from].push_back(edge.to);
      position.resize(dag.node_count());
    }
    bool any = false;
    OriginId origin = dag.AddOrigin(directive.range);
    for (size_t h = 0; h < context.hosts.size(); ++h) {
      const StreamOrder& order = context.ComputeOrder(h);
      const std::vector<OrderItem>& items = context.timelines.empty() ? order.items : context.timelines[h];
      for (size_t i = 0; i < items.size(); ++i) position[items[i].node] = i;
      std::map<std::pair<uint32_t, int32_t>, Life> lives;
      std::vector<int32_t> microbatches;
      for (const SelectorClause& clause : limit.select.any_of) {
        for (TemplateId t : context.MatchTemplates(clause)) {
          const NodeTemplate& node = dag.templates[t];
          if (node.group != order.group) continue;
          if (!context.Computes(node.stream) || node.step_level()) {
            diag.Error(directive.range, DiagKind::kBadLimit,
                       fmt::format("{} does not live a microbatch long on a stream that computes", node.name))
                .Hint("limit F: its activations live until the backward pass");
            return;
          }
          // Freed by the last compute node of this host that reads what it left.
          std::vector<TemplateId> readers;
          for (TemplateId next : outgoing[t]) {
            if (dag.templates[next].group == node.group && context.Computes(dag.templates[next].stream) &&
                !dag.templates[next].step_level())
              readers.push_back(next);
          }
          if (node.pass == Pass::kF) {
            std::erase_if(readers, [&](TemplateId r) { return dag.templates[r].pass == Pass::kF; });
          }
          microbatches.clear();
          context.split.Collect(clause, node.mb_begin, node.mb_end, &microbatches);
          for (int32_t mb : microbatches) {
            any = true;
            NodeId id = dag.Node(t, mb);
            Life& life = lives[{per_microbatch ? 0 : t, mb}];
            if (position[id] < life.start) {
              life.start = position[id];
              life.first = id;
            }
            for (TemplateId r : readers) {
              if (mb < dag.templates[r].mb_begin || mb >= dag.templates[r].mb_end) continue;
              NodeId reader = dag.Node(r, mb);
              if (position[reader] >= life.end) {
                life.end = position[reader];
                life.release = reader;
              }
            }
          }
        }
      }
      std::vector<Life> started, released;
      for (const auto& entry : lives) {
        if (entry.second.end > 0) started.push_back(entry.second);
      }
      released = started;
      std::sort(started.begin(), started.end(),
                [](const Life& a, const Life& b) { return a.start < b.start; });
      std::sort(released.begin(), released.end(), [](const Life& a, const Life& b) { return a.end < b.end; });
      auto count = static_cast<size_t>(std::min<int64_t>(limit.count, INT32_MAX));
      for (size_t i = 0; i + count < started.size(); ++i) {
        if (released[i].end < started[i + count].start) {
          dag.temporal.push_back({released[i].release, started[i + count].first, 0, origin});
          continue;
        }
        // The most that the order has alive at once is the smallest bound that it keeps.
        size_t peak = 0, freed = 0;
        for (size_t k = 0; k < started.size(); ++k) {
          while (freed < released.size() && released[freed].end < started[k].start) ++freed;
          peak = std::max(peak, k + 1 - freed);
        }
        diag.Error(
                directive.range, DiagKind::kBadLimit,
                fmt::format("at most {} live would deadlock: the order on {} starts {} before {} frees one",
                            limit.count, dag.groups[order.group].text, dag.NodeName(started[i + count].first),
                            dag.NodeName(released[i].release)))
            .Note(dag.origins[order.origin], "the order is here")
            .Hint(fmt::format("this order keeps {}", peak));
        return;
      }
    }
    if (!any && !context.forward_only) context.ReportIfEmpty(limit.select, directive.range);
  });
}

}  // namespace piper::ir
