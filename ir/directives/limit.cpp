#include "ir/directives/limit.h"

#include <algorithm>

#include <fmt/format.h>

namespace piper::ir {

namespace {

// A node, and where it stands on its stream.
struct Place {
  NameId stream = 0;
  size_t position = 0;  // in the host's compute order, or the timeline of several
  NodeId node = 0;
};

// The first (or last) of the places of each stream.
void Keep(std::vector<Place>& places, const Place& place, bool first) {
  for (Place& kept : places) {
    if (kept.stream != place.stream) continue;
    if (first ? place.position < kept.position : place.position > kept.position) kept = place;
    return;
  }
  places.push_back(place);
}

bool Earlier(const Place& a, const Place& b) { return a.position < b.position; }

// Something that is alive: from the start of the first of its nodes to the end of the last release, where
// both may stand on several streams.
struct Life {
  std::vector<Place> starts, releases;  // one a stream
  const Place& start() const { return *std::min_element(starts.begin(), starts.end(), Earlier); }
  const Place& end() const { return *std::max_element(releases.begin(), releases.end(), Earlier); }
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
    std::string refusal;  // what the first host says that cannot keep it
    OriginId refused_by = 0;
    size_t least = 0;
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
            const NodeId id = dag.Node(t, mb);
            Life& life = lives[{per_microbatch ? 0 : t, mb}];
            Keep(life.starts, {node.stream, position[id], id}, true);
            for (TemplateId r : readers) {
              if (mb < dag.templates[r].mb_begin || mb >= dag.templates[r].mb_end) continue;
              const NodeId reader = dag.Node(r, mb);
              Keep(life.releases, {dag.templates[r].stream, position[reader], reader}, false);
            }
          }
        }
      }
      std::vector<Life> started, released;
      for (auto& entry : lives) {
        if (!entry.second.releases.empty()) started.push_back(std::move(entry.second));
      }
      released = started;
      std::sort(started.begin(), started.end(),
                [](const Life& a, const Life& b) { return Earlier(a.start(), b.start()); });
      std::sort(released.begin(), released.end(),
                [](const Life& a, const Life& b) { return Earlier(a.end(), b.end()); });
      const auto count = static_cast<size_t>(std::min<int64_t>(limit.count, INT32_MAX));
      std::vector<Place> over;  // per stream, the last of the releases so far
      for (size_t i = 0; i + count < started.size(); ++i) {
        for (const Place& release : released[i].releases) Keep(over, release, false);
        // On one stream what stands behind a start cannot end before it. Of several the timeline is an
        // estimate: which of them comes first is for the edges to say, and whether they can for the proofs.
        const Place* stuck = nullptr;
        for (const Place& start : started[i + count].starts) {
          for (const Place& release : over) {
            if (release.stream == start.stream && release.position >= start.position) stuck = &release;
          }
        }
        if (stuck == nullptr) {
          for (const Place& start : started[i + count].starts) {
            for (const Place& release : over) dag.temporal.push_back({release.node, start.node, 0, origin});
          }
          continue;
        }
        if (refusal.empty()) {
          refusal =
              fmt::format("at most {} live would deadlock: the order on {} starts {} before {} frees one",
                          limit.count, dag.groups[order.group].text,
                          dag.NodeName(started[i + count].start().node), dag.NodeName(stuck->node));
          refused_by = order.origin;
        }
        // The most that an order has alive at once is the smallest bound that it keeps; hosts before this one
        // keep the bound that is refused here.
        size_t freed = 0;
        for (size_t k = 0; k < started.size(); ++k) {
          while (freed < released.size() && Earlier(released[freed].end(), started[k].start())) ++freed;
          least = std::max(least, k + 1 - freed);
        }
        break;
      }
    }
    if (!refusal.empty()) {
      auto error = diag.Error(directive.range, DiagKind::kBadLimit, std::move(refusal));
      if (refused_by != 0) error.Note(dag.origins[refused_by], "the order is here");
      error.Hint(
          fmt::format("{} {}", context.hosts.size() > 1 ? "the orders keep" : "this order keeps", least));
    }
    if (!any && !context.forward_only) context.ReportIfEmpty(limit.select, directive.range);
  });
}

}  // namespace piper::ir
