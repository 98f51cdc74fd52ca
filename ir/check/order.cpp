#include "ir/check/order.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include <fmt/format.h>

namespace piper::ir {

namespace {

constexpr uint64_t kMaxSearch = 40'000'000;  // edges that the search for the smallest cycle may visit
constexpr size_t kMaxNotes = 16;

enum class Why : uint8_t { kData, kOrder, kTemporal };

struct Hop {
  NodeId from = 0, to = 0;
  Why why = Why::kData;
  OriginId origin = 0;
};

class OrderCheck {
 public:
  OrderCheck(const Dag& dag, DiagnosticEngine& diag) : dag_(dag), diag_(diag) {}

  bool Run() {
    Index();
    std::vector<uint32_t> indegree(dag_.node_count(), 0);
    for (NodeId rep = 0; rep < dag_.node_count(); ++rep) {
      if (Rep(rep) != rep) continue;
      ForEachHop(rep, [&](const Hop& hop) { ++indegree[Rep(hop.to)]; });
    }
    std::vector<NodeId> ready;
    NodeId total = 0, done = 0;
    for (NodeId node = 0; node < dag_.node_count(); ++node) {
      if (Rep(node) != node) continue;
      ++total;
      if (indegree[node] == 0) ready.push_back(node);
    }
    while (!ready.empty()) {
      NodeId node = ready.back();
      ready.pop_back();
      ++done;
      ForEachHop(node, [&](const Hop& hop) {
        if (--indegree[Rep(hop.to)] == 0) ready.push_back(Rep(hop.to));
      });
    }
    if (done != total) {
      Report(indegree);
      return false;
    }
    return CheckInside();
  }

 private:
  NodeId Rep(NodeId node) const { return rep_.empty() ? node : rep_[node]; }

  void Index() {
    edge_begin_.assign(dag_.templates.size() + 1, 0);
    for (const TemplateEdge& edge : dag_.edges) ++edge_begin_[edge.from + 1];
    for (size_t t = 0; t < dag_.templates.size(); ++t) edge_begin_[t + 1] += edge_begin_[t];
    template_of_.resize(dag_.node_count());
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      for (NodeId node = dag_.first_node[t]; node < dag_.first_node[t + 1]; ++node) template_of_[node] = t;
    }
    // The next item of the order that lists a node; nodes of several hosts stand in several orders.
    next_.assign(dag_.node_count(), kNone);
    for (const StreamOrder& order : dag_.orders) {
      for (size_t i = 0; i + 1 < order.items.size(); ++i) {
        NodeId from = order.items[i].node;
        if (next_[from] == kNone) {
          next_[from] = order.items[i + 1].node;
        } else {
          more_.push_back({from, order.items[i + 1].node});
        }
      }
      for (size_t i = 0; i < order.items.size();) {
        size_t end = i + 1;
        while (order.items[i].atomic != kNone && end < order.items.size() &&
               order.items[end].atomic == order.items[i].atomic)
          ++end;
        if (end > i + 1) {
          if (rep_.empty()) {
            rep_.resize(dag_.node_count());
            for (NodeId node = 0; node < dag_.node_count(); ++node) rep_[node] = node;
            member_.assign(dag_.node_count(), kNone);
          }
          for (size_t k = i; k < end; ++k) {
            rep_[order.items[k].node] = order.items[i].node;
            member_[order.items[k].node] = k + 1 < end ? order.items[k + 1].node : kNone;
          }
        }
        i = end;
      }
    }
    std::sort(more_.begin(), more_.end());
    temporal_ = dag_.temporal;
    std::erase_if(temporal_, [](const TemporalEdge& edge) { return edge.distance != 0; });
    std::stable_sort(temporal_.begin(), temporal_.end(),
                     [](const TemporalEdge& a, const TemporalEdge& b) { return a.from < b.from; });
  }

  // Every edge that leaves an atomic node (or a plain one), given its representative.
  template <typename F>
  void ForEachHop(NodeId rep, F visit) const {
    for (NodeId node = rep; node != kNone; node = member_.empty() ? kNone : member_[node]) {
      ForEachEdge(node, [&](const Hop& hop) {
        if (Rep(hop.to) != rep) visit(hop);
      });
    }
  }

  // Every edge that leaves a node.
  template <typename F>
  void ForEachEdge(NodeId node, F visit) const {
    {
      TemplateId t = template_of_[node];
      const NodeTemplate& from = dag_.templates[t];
      int32_t mb = from.step_level() ? -1 : from.mb_begin + static_cast<int32_t>(node - dag_.first_node[t]);
      auto emit = [&](NodeId to, Why why, OriginId origin) { visit(Hop{node, to, why, origin}); };
      for (uint32_t e = edge_begin_[t]; e < edge_begin_[t + 1]; ++e) {
        const TemplateEdge& edge = dag_.edges[e];
        const NodeTemplate& to = dag_.templates[edge.to];
        Why why = edge.data ? Why::kData : Why::kTemporal;
        if (to.step_level()) {
          emit(dag_.first_node[edge.to], why, edge.origin);
        } else if (mb < 0) {
          for (NodeId n = dag_.first_node[edge.to]; n < dag_.first_node[edge.to + 1]; ++n)
            emit(n, why, edge.origin);
        } else if (mb >= to.mb_begin && mb < to.mb_end) {
          emit(dag_.first_node[edge.to] + static_cast<NodeId>(mb - to.mb_begin), why, edge.origin);
        }
      }
      if (next_[node] != kNone) emit(next_[node], Why::kOrder, 0);
      if (!more_.empty()) {
        for (auto it = std::lower_bound(more_.begin(), more_.end(), std::pair<NodeId, NodeId>(node, 0));
             it != more_.end() && it->first == node; ++it)
          emit(it->second, Why::kOrder, 0);
      }
      if (!temporal_.empty()) {
        auto it = std::lower_bound(temporal_.begin(), temporal_.end(), node,
                                   [](const TemporalEdge& edge, NodeId n) { return edge.from < n; });
        for (; it != temporal_.end() && it->from == node; ++it) emit(it->to, Why::kTemporal, it->origin);
      }
    }
  }

  // Whether a part of an atomic node stands before another one.
  bool Before(NodeId first, NodeId second) const {
    for (NodeId node = member_[first]; node != kNone; node = member_[node]) {
      if (node == second) return true;
    }
    return false;
  }

  // The parts of an atomic node run one after another: what one of them needs stands before it. Whole Bs do
  // by construction.
  bool CheckInside() {
    if (rep_.empty()) return true;
    for (const TemporalEdge& edge : temporal_) {
      if (Rep(edge.from) == Rep(edge.to) && Before(edge.to, edge.from))
        return ReportInside({edge.from, edge.to, Why::kTemporal, edge.origin});
    }
    for (const StreamOrder& order : dag_.orders) {
      for (size_t i = 0; i < order.items.size(); ++i) {
        const NodeId first = order.items[i].node;
        if (Rep(first) != first || member_[first] == kNone) continue;
        const NodeTemplate& input = dag_.templates[template_of_[first]];
        const NodeTemplate& weight = dag_.templates[template_of_[member_[first]]];
        size_t computes = 0;
        for (NodeId node = first; node != kNone && computes < 3; node = member_[node])
          computes += dag_.templates[template_of_[node]].kind == NodeKind::kCompute;
        if (computes < 3 && input.pass == Pass::kBI && weight.pass == Pass::kBW) continue;
        std::optional<Hop> wrong;
        for (NodeId node = first; node != kNone && !wrong; node = member_[node]) {
          ForEachEdge(node, [&](const Hop& hop) {
            if (!wrong && Rep(hop.to) == first && Before(hop.to, hop.from)) wrong = hop;
          });
        }
        if (wrong) return ReportInside(*wrong);
      }
    }
    return true;
  }

  bool ReportInside(const Hop& hop) {
    auto error = diag_.Error(OriginOf(hop.to), DiagKind::kCycle,
                             fmt::format("{} stands before {} in one fused node, and waits for it",
                                         dag_.NodeName(hop.to), dag_.NodeName(hop.from)));
    if (hop.why == Why::kTemporal) {
      error.Note(dag_.origins[hop.origin], fmt::format("{} is made to wait for {} here",
                                                       dag_.NodeName(hop.to), dag_.NodeName(hop.from)));
    }
    error.Hint("the parts of a fused node run as they are listed: list first what the others need");
    return false;
  }

  // The shortest cycle among the nodes that could not be ordered, by breadth-first search from each of them,
  // within a bound on the work.
  void Report(const std::vector<uint32_t>& indegree) {
    std::vector<NodeId> stuck;
    for (NodeId node = 0; node < dag_.node_count(); ++node) {
      if (Rep(node) == node && indegree[node] > 0) stuck.push_back(node);
    }
    std::vector<Hop> best;
    std::vector<uint32_t> seen(dag_.node_count(), 0);
    std::vector<Hop> parent(dag_.node_count());
    uint64_t work = 0;
    uint32_t round = 0;
    std::vector<NodeId> frontier, next;
    for (NodeId start : stuck) {
      if (work > kMaxSearch && !best.empty()) break;
      ++round;
      frontier = {start};
      bool closed = false;
      for (size_t depth = 1; !frontier.empty() && !closed && (best.empty() || depth < best.size()); ++depth) {
        next.clear();
        for (NodeId node : frontier) {
          ForEachHop(node, [&](const Hop& hop) {
            ++work;
            NodeId to = Rep(hop.to);
            if (closed || indegree[to] == 0 || (seen[to] == round && to != start)) return;
            if (to == start) {
              std::vector<Hop> cycle = {hop};
              for (NodeId at = node; at != start; at = Rep(parent[at].from)) cycle.push_back(parent[at]);
              std::reverse(cycle.begin(), cycle.end());
              best = std::move(cycle);
              closed = true;
              return;
            }
            seen[to] = round;
            parent[to] = hop;
            next.push_back(to);
          });
        }
        std::swap(frontier, next);
      }
      if (best.size() == 2) break;  // none is smaller
    }
    if (best.empty()) {
      diag_.Error({}, DiagKind::kCycle, "the order and the data dependencies contradict each other");
      return;
    }
    // Start at a node that an order lists, if there is one.
    size_t first = 0;
    while (first < best.size() && !OriginOf(best[first].from).valid()) ++first;
    if (first < best.size())
      std::rotate(best.begin(), best.begin() + static_cast<ptrdiff_t>(first), best.end());
    auto error = diag_.Error(OriginOf(best[0].from), DiagKind::kCycle,
                             fmt::format("{} waits for itself: {} nodes wait for each other in a cycle",
                                         dag_.NodeName(best[0].from), best.size()));
    // What one step of an order runs in a row is one thing to a reader.
    std::vector<size_t> shown;
    for (size_t i = 0; i < best.size(); ++i) {
      SourceRange from = OriginOf(best[i].from);
      bool within = best[i].why == Why::kData && from.valid() && from == OriginOf(best[i].to);
      if (!within) shown.push_back(i);
    }
    if (shown.size() < 2) {
      shown.resize(best.size());
      std::iota(shown.begin(), shown.end(), size_t{0});
    }
    for (size_t note = 0; note < shown.size() && note < kMaxNotes; ++note) {
      size_t i = shown[note];
      const Hop& hop = best[i];
      std::string to = dag_.NodeName(hop.to);
      // The next hop leaves another part of the same atomic node.
      const Hop& following = best[(i + 1) % best.size()];
      if (following.from != hop.to) to += fmt::format(", one node with {},", dag_.NodeName(following.from));
      switch (hop.why) {
        case Why::kData:
          error.Note(OriginOf(hop.to), fmt::format("{} needs {}", to, dag_.NodeName(hop.from)));
          break;
        case Why::kOrder:
          error.Note(OriginOf(hop.to),
                     fmt::format("{} stands after {} in the order on {}", to, dag_.NodeName(hop.from),
                                 dag_.groups[dag_.templates[template_of_[hop.to]].group].text));
          break;
        case Why::kTemporal:
          error.Note(dag_.origins[hop.origin],
                     fmt::format("{} is made to wait for {} here", to, dag_.NodeName(hop.from)));
          break;
      }
    }
    if (shown.size() > kMaxNotes) error.Note({}, fmt::format("and {} more", shown.size() - kMaxNotes));
  }

  // The step that lists a node; else what made its template.
  SourceRange OriginOf(NodeId node) {
    for (const StreamOrder& order : dag_.orders) {
      for (const OrderItem& item : order.items) {
        if (item.node == node && item.origin != 0) return dag_.origins[item.origin];
      }
    }
    return dag_.origins[dag_.templates[template_of_[node]].origin];
  }

  const Dag& dag_;
  DiagnosticEngine& diag_;
  std::vector<uint32_t> edge_begin_;
  std::vector<TemplateId> template_of_;
  std::vector<NodeId> next_;
  std::vector<std::pair<NodeId, NodeId>> more_;
  std::vector<NodeId> rep_, member_;  // empty without atomic nodes; member_: the next one of the atomic node
  std::vector<TemporalEdge> temporal_;
};

}  // namespace

bool CheckOrder(const Dag& dag, DiagnosticEngine& diag) { return OrderCheck(dag, diag).Run(); }

}  // namespace piper::ir
