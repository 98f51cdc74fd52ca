#include "ir/directives/timeline.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "ir/cost/resource_model.h"
#include "ir/dag/region_body.h"
#include "ir/directives/fused.h"

namespace piper::ir {

namespace {

bool IsPass(const NodeTemplate& node) { return node.kind == NodeKind::kCompute && node.pass != Pass::kR; }

class Timeline {
 public:
  Timeline(BuildContext& context, AtomicMarker& marker)
      : context_(context), dag_(context.dag), marker_(marker) {}

  void Run() {
    unit_of_.assign(dag_.node_count(), kNone);
    template_of_.resize(dag_.node_count());
    for (TemplateId t = 0; t < dag_.templates.size(); ++t)
      std::fill(template_of_.begin() + dag_.first_node[t], template_of_.begin() + dag_.first_node[t + 1], t);
    context_.timelines.assign(context_.hosts.size(), {});
    for (size_t h = 0; h < context_.hosts.size(); ++h) {
      for (NameId stream : context_.compute_streams) AddLane(h, stream);
    }
    CountPending();
    Play();
    for (Lane& lane : lanes_) {
      if (!lane.listed)
        context_.host_orders[lane.host].streams.push_back({lane.stream, 0, std::move(lane.order)});
    }
  }

 private:
  // What runs as one: an item of an order, or an atomic node.
  struct Unit {
    uint32_t lane = 0;
    uint32_t first = 0, count = 0;  // into items_
    uint32_t pending = 0;           // nodes outside that it waits for and that are not done
    bool started = false;
    Picoseconds cost = 1;
    std::tuple<int32_t, bool, uint32_t> rank;  // on a stream without an order: microbatch, backward, position
  };
  struct Lane {
    size_t host = 0;
    NameId stream = 0;
    bool listed = false, busy = false;
    uint32_t cursor = 0, end = 0;                                               // listed: the units to come
    std::set<std::tuple<std::tuple<int32_t, bool, uint32_t>, uint32_t>> ready;  // otherwise: (rank, unit)
    std::vector<OrderItem> order;                                               // likewise: what was found
  };

  void AddLane(size_t h, NameId stream) {
    Lane lane;
    lane.host = h;
    lane.stream = stream;
    lane.cursor = static_cast<uint32_t>(units_.size());
    for (const ListedStream& listed : context_.host_orders[h].streams) {
      if (listed.stream != stream) continue;
      lane.listed = true;
      for (size_t i = 0; i < listed.items.size();) {
        size_t end = i + 1;
        while (listed.items[i].atomic != kNone && end < listed.items.size() &&
               listed.items[end].atomic == listed.items[i].atomic)
          ++end;
        const auto begin = listed.items.begin();
        AddUnit(
            std::vector<OrderItem>(begin + static_cast<ptrdiff_t>(i), begin + static_cast<ptrdiff_t>(end)),
            {});
        i = end;
      }
    }
    if (!lane.listed && !AddFree(context_.hosts[h], stream)) return;
    lane.end = static_cast<uint32_t>(units_.size());
    lanes_.push_back(std::move(lane));
  }

  // The nodes of a stream without an order, a region's BI and BW as one.
  bool AddFree(GroupId host, NameId stream) {
    std::vector<TemplateId> templates;
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const NodeTemplate& node = dag_.templates[t];
      if (node.group == host && node.stream == stream && IsPass(node)) templates.push_back(t);
    }
    // F were made in model order, backward nodes last region first with BI before BW.
    std::vector<OrderItem> items;
    for (size_t i = 0; i < templates.size(); ++i) {
      const NodeTemplate& node = dag_.templates[templates[i]];
      const bool pairs = node.pass == Pass::kBI && i + 1 < templates.size() &&
                         dag_.templates[templates[i + 1]].pass == Pass::kBW &&
                         dag_.templates[templates[i + 1]].region == node.region &&
                         dag_.templates[templates[i + 1]].copy == node.copy;
      for (int32_t mb = node.mb_begin; mb < node.mb_end; ++mb) {
        const uint32_t atomic = pairs ? marker_.Next() : kNone;
        items.assign(1, {dag_.Node(templates[i], mb), 0, atomic});
        if (pairs) items.push_back({dag_.Node(templates[i + 1], mb), 0, atomic});
        AddUnit(items, {mb, node.pass != Pass::kF, templates[i]});
      }
      i += pairs;
    }
    return !templates.empty();
  }

  void AddUnit(const std::vector<OrderItem>& items, std::tuple<int32_t, bool, uint32_t> rank) {
    Unit unit;
    unit.lane = static_cast<uint32_t>(lanes_.size());
    unit.first = static_cast<uint32_t>(items_.size());
    unit.count = static_cast<uint32_t>(items.size());
    unit.rank = rank;
    const auto u = static_cast<uint32_t>(units_.size());
    for (const OrderItem& item : items) {
      // A collective stands in the orders of several hosts: it runs where it is found first, the others go on
      // after it.
      if (unit_of_[item.node] == kNone) {
        unit_of_[item.node] = u;
      } else {
        ++unit.pending;
        followers_.push_back({item.node, u});
      }
      unit.cost = SaturatingAdd(unit.cost, CostOf(template_of_[item.node]));
      items_.push_back(item);
    }
    const uint32_t atomic = items.front().atomic;
    if (atomic < dag_.atomic_costs.size() && dag_.atomic_costs[atomic] >= 0)
      unit.cost = SaturatingAdd(1, dag_.atomic_costs[atomic]);
    units_.push_back(unit);
  }

  Picoseconds CostOf(TemplateId t) const {
    const NodeTemplate& node = dag_.templates[t];
    if (node.kind != NodeKind::kCompute) return 0;
    if (node.cost >= 0) return node.cost;
    const DeviceKind& kind = context_.program.topology.Kind(dag_.groups[node.group].devices.front());
    return BodyCost(kind, BodyOf(context_.regions, node));
  }

  // A replay without a place is made right before the first node that reads it, whenever that is.
  bool Follows(NodeId node) const {
    return unit_of_[node] == kNone && dag_.templates[template_of_[node]].pass == Pass::kR;
  }

  // Every edge of this step that leaves a node, but those within a unit.
  template <typename F>
  void ForEachSuccessor(NodeId node, F visit) const {
    const TemplateId t = template_of_[node];
    const NodeTemplate& from = dag_.templates[t];
    const int32_t mb = from.mb_begin + static_cast<int32_t>(node - dag_.first_node[t]);
    const auto emit = [&](NodeId to) {
      if (Follows(to) || (unit_of_[to] != kNone && unit_of_[to] == unit_of_[node])) return;
      visit(to);
    };
    auto edge = std::lower_bound(dag_.edges.begin(), dag_.edges.end(), t,
                                 [](const TemplateEdge& e, TemplateId id) { return e.from < id; });
    for (; edge != dag_.edges.end() && edge->from == t; ++edge) {
      const NodeTemplate& to = dag_.templates[edge->to];
      if (to.carried && !from.carried) continue;
      if (from.step_level() || to.step_level()) {
        for (NodeId n = dag_.first_node[edge->to]; n < dag_.first_node[edge->to + 1]; ++n) emit(n);
      } else if (mb >= to.mb_begin && mb < to.mb_end) {
        emit(dag_.first_node[edge->to] + static_cast<NodeId>(mb - to.mb_begin));
      }
    }
    auto temporal = std::lower_bound(temporal_.begin(), temporal_.end(), std::pair<NodeId, NodeId>(node, 0));
    for (; temporal != temporal_.end() && temporal->first == node; ++temporal) emit(temporal->second);
  }

  void CountPending() {
    for (const TemporalEdge& edge : dag_.temporal) {
      if (edge.distance == 0) temporal_.emplace_back(edge.from, edge.to);
    }
    for (size_t h = 0; h < context_.hosts.size(); ++h) AddFused(h);
    std::sort(temporal_.begin(), temporal_.end());
    AddFusedMessages();
    std::sort(followers_.begin(), followers_.end());
    pending_.assign(dag_.node_count(), 0);
    for (NodeId node = 0; node < dag_.node_count(); ++node) {
      if (Follows(node)) continue;
      ForEachSuccessor(
          node, [&](NodeId to) { ++(unit_of_[to] == kNone ? pending_[to] : units_[unit_of_[to]].pending); });
    }
  }

  // What keeps the parts of fused steps on several streams together.
  void AddFused(size_t h) {
    const auto here = [&](const FusedNode& node) { return node.host == h; };
    if (std::none_of(context_.fused_nodes.begin(), context_.fused_nodes.end(), here)) return;
    std::vector<std::span<const OrderItem>> orders;
    for (const ListedStream& listed : context_.host_orders[h].streams) {
      if (context_.Computes(listed.stream)) orders.push_back(listed.items);
    }
    const FusedEdges edges(dag_, orders);
    for (const FusedNode& node : context_.fused_nodes) {
      if (!here(node)) continue;
      const std::vector<std::pair<NodeId, NodeId>> added = edges.Of(node);
      temporal_.insert(temporal_.end(), added.begin(), added.end());
    }
  }

  // Messages have no place yet: what brings a part something is there before any part starts, and what takes
  // something away leaves after all of them.
  void AddFusedMessages() {
    struct Span {
      std::vector<NodeId> firsts, lasts;  // a lane
    };
    std::vector<Span> spans;
    std::map<uint32_t, uint32_t> span_of;  // by unit
    std::set<NodeId> inside;               // messages that are parts
    for (const FusedNode& fused : context_.fused_nodes) {
      std::map<uint32_t, std::pair<uint32_t, uint32_t>> lanes;  // the first and the last unit on each
      for (NodeId member : fused.members) {
        const uint32_t u = unit_of_[member];
        if (u == kNone) {
          inside.insert(member);
          continue;
        }
        span_of[u] = static_cast<uint32_t>(spans.size());
        auto& [first, last] = lanes.try_emplace(units_[u].lane, u, u).first->second;
        first = std::min(first, u);
        last = std::max(last, u);
      }
      Span& span = spans.emplace_back();
      for (const auto& [lane, ends] : lanes) {
        span.firsts.push_back(items_[units_[ends.first].first].node);
        span.lasts.push_back(items_[units_[ends.second].first].node);
      }
    }
    if (spans.empty()) return;
    std::vector<std::pair<NodeId, NodeId>> added;
    const auto span = [&](NodeId node) -> const Span* {
      const auto found = unit_of_[node] == kNone ? span_of.end() : span_of.find(unit_of_[node]);
      return found == span_of.end() ? nullptr : &spans[found->second];
    };
    const auto apart = [&](NodeId node) { return unit_of_[node] == kNone && inside.count(node) == 0; };
    for (NodeId node = 0; node < dag_.node_count(); ++node) {
      if (Follows(node)) continue;
      const Span* from = span(node);
      ForEachSuccessor(node, [&](NodeId to) {
        if (from != nullptr && apart(to)) {
          for (NodeId last : from->lasts) added.emplace_back(last, to);
        }
        const Span* begins = apart(node) ? span(to) : nullptr;
        if (begins != nullptr) {
          for (NodeId first : begins->firsts) added.emplace_back(node, first);
        }
      });
    }
    temporal_.insert(temporal_.end(), added.begin(), added.end());
    std::sort(temporal_.begin(), temporal_.end());
    temporal_.erase(std::unique(temporal_.begin(), temporal_.end()), temporal_.end());
  }

  void Play() {
    touched_.assign(lanes_.size(), 1);
    for (NodeId node = 0; node < dag_.node_count(); ++node) {
      if (unit_of_[node] == kNone && !Follows(node) && pending_[node] == 0) done_.push_back(node);
    }
    for (uint32_t u = 0; u < units_.size(); ++u) {
      Lane& lane = lanes_[units_[u].lane];
      if (!lane.listed && units_[u].pending == 0) lane.ready.insert({units_[u].rank, u});
    }
    size_t started = 0;
    for (;;) {
      Finish();
      for (uint32_t l = 0; l < lanes_.size(); ++l) {
        if (std::exchange(touched_[l], 0) != 0) started += Advance(lanes_[l]);
      }
      if (running_.empty()) {
        if (started == units_.size()) return;
        Force();
        ++started;
      }
      now_ = std::get<0>(*running_.begin());
      while (!running_.empty() && std::get<0>(*running_.begin()) == now_) {
        const Unit& unit = units_[std::get<1>(*running_.begin())];
        running_.erase(running_.begin());
        lanes_[unit.lane].busy = false;
        touched_[unit.lane] = 1;
        for (uint32_t i = unit.first; i < unit.first + unit.count; ++i) {
          if (unit_of_[items_[i].node] == static_cast<uint32_t>(&unit - units_.data()))
            done_.push_back(items_[i].node);
        }
      }
    }
  }

  // What nodes that are done set free. Nodes without a lane take no time.
  void Finish() {
    while (!done_.empty()) {
      const NodeId node = done_.back();
      done_.pop_back();
      ForEachSuccessor(node, [&](NodeId to) {
        if (unit_of_[to] != kNone) {
          Release(unit_of_[to]);
        } else if (--pending_[to] == 0) {
          done_.push_back(to);
        }
      });
      auto follower =
          std::lower_bound(followers_.begin(), followers_.end(), std::pair<NodeId, uint32_t>(node, 0));
      for (; follower != followers_.end() && follower->first == node; ++follower) Release(follower->second);
    }
  }

  void Release(uint32_t u) {
    Unit& unit = units_[u];
    if (unit.started || --unit.pending != 0) return;
    touched_[unit.lane] = 1;
    Lane& lane = lanes_[unit.lane];
    if (!lane.listed) lane.ready.insert({unit.rank, u});
  }

  bool Advance(Lane& lane) {
    if (lane.busy) return false;
    if (lane.listed) {
      if (lane.cursor == lane.end || units_[lane.cursor].pending != 0) return false;
      Start(lane.cursor++);
      return true;
    }
    if (lane.ready.empty()) return false;
    const uint32_t u = std::get<1>(*lane.ready.begin());
    lane.ready.erase(lane.ready.begin());
    Start(u);
    return true;
  }

  // Nothing can start: the orders contradict each other or the data. Any node will do.
  void Force() {
    for (Lane& lane : lanes_) {
      if (!lane.listed || lane.cursor == lane.end) continue;
      Start(lane.cursor++);
      return;
    }
    uint32_t least = kNone;
    for (uint32_t u = 0; u < units_.size(); ++u) {
      if (!units_[u].started && (least == kNone || units_[u].rank < units_[least].rank)) least = u;
    }
    Start(least);
  }

  void Start(uint32_t u) {
    Unit& unit = units_[u];
    Lane& lane = lanes_[unit.lane];
    unit.started = lane.busy = true;
    const auto begin = items_.begin() + unit.first, end = begin + unit.count;
    std::vector<OrderItem>& timeline = context_.timelines[lane.host];
    timeline.insert(timeline.end(), begin, end);
    if (!lane.listed) lane.order.insert(lane.order.end(), begin, end);
    running_.insert({SaturatingAdd(now_, unit.cost), u});
  }

  BuildContext& context_;
  Dag& dag_;
  AtomicMarker& marker_;
  std::vector<Lane> lanes_;
  std::vector<Unit> units_;
  std::vector<OrderItem> items_;
  std::vector<uint32_t> unit_of_;                        // per node; kNone: it takes no time here
  std::vector<TemplateId> template_of_;                  // per node
  std::vector<uint32_t> pending_;                        // per node without a unit
  std::vector<std::pair<NodeId, NodeId>> temporal_;      // of this step, sorted
  std::vector<std::pair<NodeId, uint32_t>> followers_;   // (node, unit that lists it, too), sorted
  std::vector<uint8_t> touched_;                         // per lane: it may go on
  std::vector<NodeId> done_;                             // what it sets free is still to be found
  std::set<std::tuple<Picoseconds, uint32_t>> running_;  // (end, unit)
  Picoseconds now_ = 0;
};

}  // namespace

void MergeComputeStreams(BuildContext& context, AtomicMarker& marker) {
  if (context.compute_streams.size() > 1) Timeline(context, marker).Run();
}

}  // namespace piper::ir
