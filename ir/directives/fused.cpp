#include "ir/directives/fused.h"

#include <algorithm>
#include <tuple>

namespace piper::ir {

FusedEdges::FusedEdges(const Dag& dag, const std::vector<std::span<const OrderItem>>& orders)
    : dag_(dag), orders_(orders), incoming_(dag.templates.size()), outgoing_(dag.templates.size()) {
  for (uint32_t o = 0; o < orders.size(); ++o) {
    for (uint32_t i = 0; i < orders[o].size(); ++i) places_.push_back({orders[o][i].node, {o, i}});
  }
  std::sort(places_.begin(), places_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const TemplateEdge& edge : dag.edges) {
    if (dag.templates[edge.to].carried && !dag.templates[edge.from].carried) continue;
    incoming_[edge.to].push_back(edge.from);
    outgoing_[edge.from].push_back(edge.to);
  }
  for (const TemporalEdge& edge : dag.temporal) {
    if (edge.distance != 0) continue;
    earlier_.emplace_back(edge.to, edge.from);
    later_.emplace_back(edge.from, edge.to);
  }
  std::sort(earlier_.begin(), earlier_.end());
  std::sort(later_.begin(), later_.end());
}

template <typename F>
void FusedEdges::ForEachNeighbour(NodeId node, bool before, F visit) const {
  const auto known = [&](NodeId other) {
    const auto at = std::lower_bound(places_.begin(), places_.end(), other,
                                     [](const auto& place, NodeId n) { return place.first < n; });
    if (at != places_.end() && at->first == other) visit(other, at->second);
  };
  const TemplateId t = dag_.TemplateOf(node);
  const NodeTemplate& here = dag_.templates[t];
  const int32_t mb = dag_.MicrobatchOf(node);
  for (TemplateId other : (before ? incoming_ : outgoing_)[t]) {
    const NodeTemplate& there = dag_.templates[other];
    if (here.step_level() || there.step_level()) {
      for (NodeId n = dag_.first_node[other]; n < dag_.first_node[other + 1]; ++n) known(n);
    } else if (mb >= there.mb_begin && mb < there.mb_end) {
      known(dag_.Node(other, mb));
    }
  }
  const std::vector<std::pair<NodeId, NodeId>>& temporal = before ? earlier_ : later_;
  auto edge = std::lower_bound(temporal.begin(), temporal.end(), std::pair<NodeId, NodeId>(node, 0));
  for (; edge != temporal.end() && edge->first == node; ++edge) known(edge->second);
}

std::vector<FusedEdges::Part> FusedEdges::PartsOf(const FusedNode& node) const {
  std::vector<Part> parts;
  for (NodeId member : node.members) {
    const auto at = std::lower_bound(places_.begin(), places_.end(), member,
                                     [](const auto& place, NodeId n) { return place.first < n; });
    if (at == places_.end() || at->first != member) continue;
    const Place place = at->second;
    auto part =
        std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.order == place.order; });
    if (part == parts.end()) part = parts.insert(parts.end(), {place.order, place.position, place.position});
    part->first = std::min(part->first, place.position);
    part->last = std::max(part->last, place.position);
  }
  // What runs right after a part goes with it.
  for (Part& part : parts) {
    const std::span<const OrderItem> items = orders_[part.order];
    while (part.last + 1 < items.size()) {
      const OrderItem& last = items[part.last];
      const OrderItem& next = items[part.last + 1];
      const NodeTemplate& what = dag_.templates[dag_.TemplateOf(next.node)];
      const bool attached = what.kind == NodeKind::kAccumulate && !what.step_level();
      if (!attached && (last.atomic == kNone || next.atomic != last.atomic)) break;
      ++part.last;
    }
  }
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.order < b.order; });
  return parts;
}

bool FusedEdges::Within(const std::vector<Part>& parts, const Place& place) {
  return std::any_of(parts.begin(), parts.end(), [&](const Part& part) {
    return part.order == place.order && place.position >= part.first && place.position <= part.last;
  });
}

std::vector<std::pair<NodeId, NodeId>> FusedEdges::Of(const FusedNode& node) const {
  const std::vector<Part> parts = PartsOf(node);
  // Streams run in order, so that the first and last node of a part speak for all of it; but of receives each
  // arrives by itself.
  std::vector<std::vector<NodeId>> begins(parts.size()), ends(parts.size());
  for (size_t p = 0; p < parts.size(); ++p) {
    const std::span<const OrderItem> items = orders_[parts[p].order];
    begins[p].push_back(items[parts[p].first].node);
    for (uint32_t i = parts[p].first; i <= parts[p].last; ++i) {
      const bool receives = dag_.templates[dag_.TemplateOf(items[i].node)].kind == NodeKind::kRecv;
      if (receives || i == parts[p].last) ends[p].push_back(items[i].node);
    }
  }
  std::vector<std::pair<NodeId, NodeId>> edges;
  const auto connect = [&](const std::vector<NodeId>& from, const std::vector<NodeId>& to) {
    for (NodeId a : from) {
      for (NodeId b : to) edges.emplace_back(a, b);
    }
  };
  const auto on_own_stream = [&](const Place& place) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const Part& part) { return part.order == place.order; });
  };
  for (size_t p = 0; p < parts.size(); ++p) {
    const std::span<const OrderItem> items = orders_[parts[p].order];
    for (size_t q = 0; q < parts.size(); ++q) {
      if (p == q) continue;
      if (parts[p].first > 0) connect({items[parts[p].first - 1].node}, begins[q]);
      if (parts[p].last + 1 < items.size()) connect(ends[q], {items[parts[p].last + 1].node});
    }
    for (uint32_t i = parts[p].first; i <= parts[p].last; ++i) {
      // On the node's own streams these stand before or behind the parts there.
      ForEachNeighbour(items[i].node, true, [&](NodeId other, const Place& place) {
        const bool arrives = dag_.templates[dag_.TemplateOf(other)].kind == NodeKind::kRecv;
        if (arrives ? Within(parts, place) : on_own_stream(place)) return;
        for (const std::vector<NodeId>& begin : begins) connect({other}, begin);
      });
      ForEachNeighbour(items[i].node, false, [&](NodeId other, const Place& place) {
        if (on_own_stream(place)) return;
        for (const std::vector<NodeId>& end : ends) connect(end, {other});
      });
    }
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

void FusedEdges::CollectBegins(const FusedNode& node, std::map<NodeId, NodeId>* begins) const {
  for (const Part& part : PartsOf(node)) {
    for (uint32_t i = part.first; i <= part.last; ++i)
      (*begins)[orders_[part.order][i].node] = orders_[part.order][part.first].node;
  }
}

void ApplyFused(BuildContext& context) {
  Dag& dag = context.dag;
  for (size_t h = 0; h < context.hosts.size(); ++h) {
    const auto here = [&](const FusedNode& node) { return node.host == h; };
    if (std::none_of(context.fused_nodes.begin(), context.fused_nodes.end(), here)) continue;
    std::vector<std::span<const OrderItem>> orders;
    for (const StreamOrder& order : dag.orders) {
      if (order.group == context.hosts[h]) orders.push_back(order.items);
    }
    const FusedEdges edges(dag, orders);
    for (const FusedNode& node : context.fused_nodes) {
      if (!here(node)) continue;
      edges.CollectBegins(node, &context.part_begins);
      for (const auto& [from, to] : edges.Of(node)) dag.temporal.push_back({from, to, 0, node.origin});
    }
  }
}

}  // namespace piper::ir
