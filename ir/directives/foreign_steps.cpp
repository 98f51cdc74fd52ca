#include "ir/directives/foreign_steps.h"

#include <algorithm>

#include <fmt/format.h>

namespace piper::ir {

namespace {

constexpr uint64_t kMaxSearch = 100'000'000;  // edges that all searches together may visit
constexpr size_t kMaxReports = 5;
constexpr size_t kMaxNotes = 12;

enum class Why : uint8_t { kData, kOrder, kTemporal };

struct Hop {
  NodeId from = kNone, to = kNone;
  Why why = Why::kData;
  OriginId origin = 0;
};

class ForeignSteps {
 public:
  explicit ForeignSteps(BuildContext& context) : context_(context), dag_(context.dag) {}

  void Run() {
    Index();
    if (!Rank()) return;  // a cycle: proof 1 reports it
    size_t reports = 0;
    for (const OrderClaim& claim : context_.claims) {
      const NodeId first = Rep(claim.first), second = Rep(claim.second);
      if (first == second) continue;  // parts of one atomic node
      if (rank_[first] < rank_[second] && Reaches(first, second)) continue;
      const bool opposite = rank_[second] < rank_[first] && Reaches(second, first);
      if (work_ > kMaxSearch) {
        context_.diag
            .Error(dag_.origins[claim.origin], DiagKind::kOrderForeign,
                   "too many steps of other devices: finding out whether the data implies their places takes "
                   "too long")
            .Hint("leave out those that follow anyway");
        return;
      }
      if (opposite) {
        ReportOpposite(claim, second, first);
      } else {
        ReportOpen(claim);
      }
      if (++reports == kMaxReports) return;
    }
  }

 private:
  NodeId Rep(NodeId node) const { return rep_[node]; }

  void Index() {
    edge_begin_.assign(dag_.templates.size() + 1, 0);
    for (const TemplateEdge& edge : dag_.edges) ++edge_begin_[edge.from + 1];
    for (size_t t = 0; t < dag_.templates.size(); ++t) edge_begin_[t + 1] += edge_begin_[t];
    const size_t nodes = dag_.node_count();
    template_of_.resize(nodes);
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      for (NodeId node = dag_.first_node[t]; node < dag_.first_node[t + 1]; ++node) template_of_[node] = t;
    }
    rep_.resize(nodes);
    for (NodeId node = 0; node < nodes; ++node) rep_[node] = node;
    member_.assign(nodes, kNone);
    listed_by_.assign(nodes, 0);
    for (const StreamOrder& order : dag_.orders) {
      for (size_t i = 0; i < order.items.size(); ++i) {
        const OrderItem& item = order.items[i];
        if (item.origin != 0) listed_by_[item.node] = item.origin;
        if (i + 1 == order.items.size()) continue;
        const OrderItem& next = order.items[i + 1];
        if (item.atomic != kNone && next.atomic == item.atomic) {
          rep_[next.node] = rep_[item.node];
          member_[item.node] = next.node;
        } else {
          next_.push_back({item.node, next.node});
        }
      }
    }
    std::sort(next_.begin(), next_.end());
    temporal_ = dag_.temporal;
    std::erase_if(temporal_, [](const TemporalEdge& edge) { return edge.distance != 0; });
    std::stable_sort(temporal_.begin(), temporal_.end(),
                     [](const TemporalEdge& a, const TemporalEdge& b) { return a.from < b.from; });
  }

  // Every edge that leaves an atomic node (or a plain one), given its representative.
  template <typename F>
  void ForEachHop(NodeId rep, F visit) const {
    for (NodeId node = rep; node != kNone; node = member_[node]) {
      const TemplateId t = template_of_[node];
      const NodeTemplate& from = dag_.templates[t];
      const int32_t mb =
          from.step_level() ? -1 : from.mb_begin + static_cast<int32_t>(node - dag_.first_node[t]);
      auto emit = [&](NodeId to, Why why, OriginId origin) {
        if (Rep(to) != rep) visit(Hop{node, to, why, origin});
      };
      for (uint32_t e = edge_begin_[t]; e < edge_begin_[t + 1]; ++e) {
        const TemplateEdge& edge = dag_.edges[e];
        const NodeTemplate& to = dag_.templates[edge.to];
        const Why why = edge.data ? Why::kData : Why::kTemporal;
        if (to.step_level()) {
          emit(dag_.first_node[edge.to], why, edge.origin);
        } else if (mb < 0) {
          for (NodeId n = dag_.first_node[edge.to]; n < dag_.first_node[edge.to + 1]; ++n)
            emit(n, why, edge.origin);
        } else if (mb >= to.mb_begin && mb < to.mb_end) {
          emit(dag_.first_node[edge.to] + static_cast<NodeId>(mb - to.mb_begin), why, edge.origin);
        }
      }
      for (auto it = std::lower_bound(next_.begin(), next_.end(), std::pair<NodeId, NodeId>(node, 0));
           it != next_.end() && it->first == node; ++it)
        emit(it->second, Why::kOrder, 0);
      auto it = std::lower_bound(temporal_.begin(), temporal_.end(), node,
                                 [](const TemporalEdge& edge, NodeId n) { return edge.from < n; });
      for (; it != temporal_.end() && it->from == node; ++it) emit(it->to, Why::kTemporal, it->origin);
    }
  }

  // Longest distances from the sources, so that a search can stop at its target's. False: there is a cycle.
  bool Rank() {
    const size_t nodes = dag_.node_count();
    std::vector<uint32_t> indegree(nodes, 0);
    rank_.assign(nodes, 0);
    NodeId total = 0, done = 0;
    for (NodeId node = 0; node < nodes; ++node) {
      if (Rep(node) != node) continue;
      ++total;
      ForEachHop(node, [&](const Hop& hop) { ++indegree[Rep(hop.to)]; });
    }
    std::vector<NodeId> ready;
    for (NodeId node = 0; node < nodes; ++node) {
      if (Rep(node) == node && indegree[node] == 0) ready.push_back(node);
    }
    while (!ready.empty()) {
      const NodeId node = ready.back();
      ready.pop_back();
      ++done;
      ForEachHop(node, [&](const Hop& hop) {
        const NodeId to = Rep(hop.to);
        rank_[to] = std::max(rank_[to], rank_[node] + 1);
        if (--indegree[to] == 0) ready.push_back(to);
      });
    }
    seen_.assign(nodes, 0);
    parent_.resize(nodes);
    return done == total;
  }

  // Breadth first; parent_ then leads from `to` back to `from` on a shortest path.
  bool Reaches(NodeId from, NodeId to) {
    ++round_;
    std::vector<NodeId> queue = {from};
    seen_[from] = round_;
    for (size_t front = 0; front < queue.size(); ++front) {
      bool found = false;
      ForEachHop(queue[front], [&](const Hop& hop) {
        ++work_;
        const NodeId next = Rep(hop.to);
        if (found || seen_[next] == round_ || rank_[next] > rank_[to]) return;
        seen_[next] = round_;
        parent_[next] = hop;
        found = next == to;
        queue.push_back(next);
      });
      if (found) return true;
      if (work_ > kMaxSearch) return false;
    }
    return false;
  }

  std::string Where(NodeId node) const { return dag_.groups[dag_.templates[template_of_[node]].group].text; }

  SourceRange OriginOf(NodeId node) const {
    const OriginId listed = listed_by_[node];
    return dag_.origins[listed != 0 ? listed : dag_.templates[template_of_[node]].origin];
  }

  void ReportOpposite(const OrderClaim& claim, NodeId from, NodeId to) {
    auto error = context_.diag.Error(
        dag_.origins[claim.origin], DiagKind::kOrderForeign,
        fmt::format("{} (on {}) is listed before {} (on {}), but comes after it", dag_.NodeName(claim.first),
                    Where(claim.first), dag_.NodeName(claim.second), Where(claim.second)));
    std::vector<Hop> path;
    for (NodeId at = to; at != from; at = Rep(parent_[at].from)) path.push_back(parent_[at]);
    std::reverse(path.begin(), path.end());
    for (size_t i = 0; i < path.size() && i < kMaxNotes; ++i) {
      const Hop& hop = path[i];
      const std::string first = dag_.NodeName(hop.from), second = dag_.NodeName(hop.to);
      if (hop.why == Why::kTemporal) {
        error.Note(dag_.origins[hop.origin], fmt::format("{} is made to wait for {} here", second, first));
      } else if (hop.why == Why::kData) {
        error.Note(OriginOf(hop.to), fmt::format("{} needs {}", second, first));
      } else {
        error.Note(OriginOf(hop.to),
                   fmt::format("{} stands after {} in the order on {}", second, first, Where(hop.to)));
      }
    }
    if (path.size() > kMaxNotes) error.Note({}, fmt::format("and {} more", path.size() - kMaxNotes));
    error.Hint("list the step where these put it, or leave it out");
  }

  void ReportOpen(const OrderClaim& claim) {
    context_.diag
        .Error(dag_.origins[claim.origin], DiagKind::kOrderForeign,
               fmt::format("nothing implies that {} (on {}) comes before {} (on {}): an order lists steps of "
                           "other devices only where they already stand",
                           dag_.NodeName(claim.first), Where(claim.first), dag_.NodeName(claim.second),
                           Where(claim.second)))
        .Hint(fmt::format("leave it out, or make it so: `edge {} -> {}`", SelectorOf(claim.first),
                          SelectorOf(claim.second)));
  }

  // "F[stage = 1, layer = 3, mb = 0]"
  std::string SelectorOf(NodeId node) const {
    const TemplateId t = template_of_[node];
    const NodeTemplate& what = dag_.templates[t];
    std::string terms;
    auto add = [&](const std::string& term) { terms += (terms.empty() ? "" : ", ") + term; };
    for (NameId name : what.names) add(NameText(name));
    for (const TagInstance& tag : what.tags) add(fmt::format("{} = {}", tag.name, tag.index));
    if (!what.step_level()) {
      int64_t mb = what.mb_begin + static_cast<int64_t>(node - dag_.first_node[t]);
      int64_t stride = dag_.microbatches;
      for (const auto& [name, size] : dag_.split_dims) {
        stride /= size;
        add(fmt::format("{} = {}", name, mb / stride));
        mb %= stride;
      }
    }
    const bool passes = what.kind == NodeKind::kCompute || what.kind == NodeKind::kUpdate;
    return fmt::format("{}[{}]", passes ? PassName(what.pass) : "", terms);
  }

  BuildContext& context_;
  Dag& dag_;
  std::vector<uint32_t> edge_begin_;
  std::vector<TemplateId> template_of_;
  std::vector<NodeId> rep_, member_;  // member_: the next part of the atomic node
  std::vector<OriginId> listed_by_;
  std::vector<std::pair<NodeId, NodeId>> next_;  // in some order, sorted
  std::vector<TemporalEdge> temporal_;
  std::vector<uint32_t> rank_, seen_;
  std::vector<Hop> parent_;
  uint32_t round_ = 0;
  uint64_t work_ = 0;
};

}  // namespace

void CheckForeignSteps(BuildContext& context) {
  if (context.claims.empty() || context.forward_only) return;
  ForeignSteps(context).Run();
}

}  // namespace piper::ir
