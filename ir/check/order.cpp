#include "ir/check/order.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "ir/dag/template_index.h"

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

// Whether every node can run: streams advance over their orders, a node runs once it is the head of its
// streams and all that it needs has run. A head that cannot asks for the first node that it lacks, and is
// looked at again when that one has run. The quick half of the check; it names no cycle.
class Advance {
 public:
  explicit Advance(const Dag& dag) : dag_(dag), template_of_(dag) {}

  // False: no, or the Dag is of a form that the long way decides.
  bool RunsAll() {
    if (!IndexOrders()) return false;
    IndexEdges();
    state_.assign(dag_.node_count(), kNew);
    waiters_ = std::make_unique_for_overwrite<uint32_t[]>(dag_.node_count());
    for (uint32_t o = 0; o < dag_.orders.size(); ++o) ready_.push_back(o);
    while (!ready_.empty() && !twice_) {
      const uint32_t order = ready_.back();
      ready_.pop_back();
      AdvanceStream(order);
    }
    return !twice_ && done_ == dag_.node_count();
  }

 private:
  static constexpr uint32_t kNoOrder = UINT32_MAX, kSeveral = UINT32_MAX - 1;
  // Of a node, bits: it has run; it is a part of an atomic node that stands before the one that its stream
  // looks at; streams wait for it. (An enumeration, since bytes may alias everything else.)
  enum State : uint8_t { kNew = 0, kRun = 1, kInside = 2, kAwaited = 4 };
  static State With(State state, State bit) { return static_cast<State>(state | bit); }
  // What a node of microbatch mb waits for: node base + mb if begin <= mb < end; where an end is step-level,
  // nodes [base, base + count).
  struct Need {
    NodeId base = 0;
    int32_t begin = 0, end = 0;
    uint32_t count = 0;         // 0: by microbatch
    uint32_t order = kNoOrder;  // that lists them
  };
  struct Source {
    NodeId first = 0;  // node of microbatch 0, were there one
    uint32_t first_need = 0, need_count = 0;
    uint32_t order = kNoOrder;  // that lists its nodes
    uint32_t to_come = 0;       // kSeveral: streams that have not come to its one node yet
  };
  struct Stream {
    uint32_t begin = 0;                     // of the atomic node that is looked at
    uint32_t cursor = 0;                    // its part
    uint32_t need = 0;                      // of that part: what was found met
    uint32_t scanned = 0;                   // likewise, of the nodes of one need
    uint32_t next_waiter = 0;               // list through Advance::waiters_: next stream + 1, 0: none
    bool arrived = false;                   // the head is one that several streams come to
    const TemplateId* templates = nullptr;  // of its items
  };

  // Which order lists the nodes of each template.
  bool IndexOrders() {
    sources_.resize(dag_.templates.size());
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      sources_[t].first = dag_.first_node[t] - static_cast<NodeId>(dag_.templates[t].mb_begin);
    }
    streams_.resize(dag_.orders.size());
    size_t items = 0;
    for (const StreamOrder& order : dag_.orders) items += order.items.size();
    templates_ = std::make_unique_for_overwrite<TemplateId[]>(items);
    TemplateId* next = templates_.get();
    for (uint32_t o = 0; o < dag_.orders.size(); ++o) {
      streams_[o].templates = next;
      for (const OrderItem& item : dag_.orders[o].items) {
        const TemplateId t = template_of_[item.node];
        *next++ = t;
        uint32_t& order = sources_[t].order;
        if (order == o) continue;
        if (order != kNoOrder) {
          // Only collectives, one node each, stand in the orders of several hosts.
          if (dag_.templates[t].node_count() != 1 || item.atomic != kNone) return false;
          if (order != kSeveral) several_.emplace_back(item.node, order);
          several_.emplace_back(item.node, o);
        }
        order = order == kNoOrder ? o : kSeveral;
      }
    }
    // Once a stream that has to come to it.
    std::sort(several_.begin(), several_.end());
    for (const auto& [node, order] : several_) ++sources_[template_of_[node]].to_come;
    return std::adjacent_find(several_.begin(), several_.end()) == several_.end();
  }

  void IndexEdges() {
    // Edges into what is carried over from the step before have distance one.
    const auto within = [&](const TemplateEdge& edge) {
      return !dag_.templates[edge.to].carried || dag_.templates[edge.from].carried;
    };
    for (const TemplateEdge& edge : dag_.edges) sources_[edge.to].need_count += within(edge);
    uint32_t next = 0;
    for (Source& source : sources_) {
      source.first_need = next;
      next += std::exchange(source.need_count, 0);
    }
    needs_.resize(next);
    for (const TemplateEdge& edge : dag_.edges) {
      if (!within(edge)) continue;
      const NodeTemplate& from = dag_.templates[edge.from];
      const NodeTemplate& to = dag_.templates[edge.to];
      Source& source = sources_[edge.to];
      Need& need = needs_[source.first_need + source.need_count++];
      need.order = sources_[edge.from].order;
      if (from.step_level() || to.step_level()) {
        need.base = dag_.first_node[edge.from];
        need.count = static_cast<uint32_t>(from.node_count());
        continue;
      }
      need.base = sources_[edge.from].first;
      need.begin = std::max(from.mb_begin, to.mb_begin);
      need.end = std::min(from.mb_end, to.mb_end);
    }
    for (const TemporalEdge& edge : dag_.temporal) {
      if (edge.distance == 0) temporal_.emplace_back(edge.to, edge.from);
    }
    std::sort(temporal_.begin(), temporal_.end());
  }

  // Whether a node that an order looks at need not wait for `needed`. Edges within an atomic node hold
  // nothing up, if they lead on in the order of its parts.
  bool Has(NodeId needed, uint32_t its_order, uint32_t order) const {
    const State state = state_[needed];
    return (state & kRun) != 0 || ((state & kInside) != 0 && its_order == order);
  }

  bool Wait(uint32_t order, NodeId needed) {
    streams_[order].next_waiter = (state_[needed] & kAwaited) != 0 ? waiters_[needed] : 0;
    waiters_[needed] = order + 1;
    state_[needed] = With(state_[needed], kAwaited);
    return false;
  }

  // Whether all that a node needs has run; else its stream waits.
  bool Met(uint32_t order, NodeId node, const Source& source) {
    Stream& stream = streams_[order];
    const auto mb = static_cast<int32_t>(node - source.first);
    for (; stream.need < source.need_count; ++stream.need) {
      const Need& need = needs_[source.first_need + stream.need];
      if (need.count == 0) [[likely]] {
        if (mb < need.begin || mb >= need.end) continue;
        const NodeId needed = need.base + static_cast<NodeId>(mb);
        if (!Has(needed, need.order, order)) return Wait(order, needed);
        continue;
      }
      for (; stream.scanned < need.count; ++stream.scanned) {
        const NodeId needed = need.base + stream.scanned;
        if (!Has(needed, need.order, order)) return Wait(order, needed);
      }
      stream.scanned = 0;
    }
    if (!temporal_.empty()) {
      for (auto it = std::lower_bound(temporal_.begin(), temporal_.end(), std::pair<NodeId, NodeId>(node, 0));
           it != temporal_.end() && it->first == node; ++it) {
        if (!Has(it->second, sources_[template_of_[it->second]].order, order)) return Wait(order, it->second);
      }
    }
    stream.need = 0;
    return true;
  }

  void Ran(NodeId node) {
    ++done_;
    const State before = state_[node];
    state_[node] = kRun;
    if ((before & kAwaited) == 0) return;
    for (uint32_t waiter = waiters_[node]; waiter != 0; waiter = streams_[waiter - 1].next_waiter)
      ready_.push_back(waiter - 1);
  }

  void AdvanceStream(uint32_t order) {
    Stream& stream = streams_[order];
    const std::vector<OrderItem>& items = dag_.orders[order].items;
    while (stream.cursor < items.size()) {
      const OrderItem& item = items[stream.cursor];
      Source& source = sources_[stream.templates[stream.cursor]];
      if (source.order == kSeveral) {
        if (!std::exchange(stream.arrived, true)) --source.to_come;
        if (source.to_come > 0) return;  // the last one goes on for all
      }
      if (!Met(order, item.node, source)) return;
      if ((state_[item.node] & (kRun | kInside)) != 0) {
        twice_ = true;
        return;
      }
      if (source.order == kSeveral) {
        LeaveTogether(item.node);
        return;
      }
      const uint32_t next = stream.cursor + 1;
      if (item.atomic != kNone && next < items.size() && items[next].atomic == item.atomic) {
        state_[item.node] = With(state_[item.node], kInside);
        stream.cursor = next;
        continue;
      }
      for (uint32_t i = stream.begin; i < next; ++i) Ran(items[i].node);
      stream.begin = stream.cursor = next;
      // Streams take turns; what this one needs next time would be far by then.
      __builtin_prefetch(items.data() + next + 8);
    }
  }

  void LeaveTogether(NodeId node) {
    Ran(node);
    for (auto it = std::lower_bound(several_.begin(), several_.end(), std::pair<NodeId, uint32_t>(node, 0));
         it != several_.end() && it->first == node; ++it) {
      Stream& stream = streams_[it->second];
      stream.begin = ++stream.cursor;
      stream.arrived = false;
      ready_.push_back(it->second);
    }
  }

  const Dag& dag_;
  const TemplateIndex template_of_;
  std::vector<State> state_;                 // per node
  std::unique_ptr<uint32_t[]> waiters_;      // per node that is kAwaited: first stream + 1, 0: none
  std::unique_ptr<TemplateId[]> templates_;  // of all orders' items: found in one go, which is quicker
  std::vector<Source> sources_;              // per template
  std::vector<Need> needs_;
  std::vector<std::pair<NodeId, uint32_t>> several_;  // (node, order) of what several orders list, sorted
  std::vector<std::pair<NodeId, NodeId>> temporal_;   // of this step, (to, from), sorted
  std::vector<Stream> streams_;                       // per order
  std::vector<uint32_t> ready_;
  NodeId done_ = 0;
  bool twice_ = false;  // a node is listed twice
};

class OrderCheck {
 public:
  OrderCheck(const Dag& dag, DiagnosticEngine& diag) : dag_(dag), diag_(diag) {}

  bool Run() {
    if (Advance(dag_).RunsAll()) return true;
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
        if (to.carried && !from.carried) continue;  // of distance one
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
        if (item.node != node) continue;
        if (item.origin != 0) return dag_.origins[item.origin];
        // What is attached within an atomic node stands where that is listed.
        for (const OrderItem& other : order.items) {
          if (item.atomic != kNone && other.atomic == item.atomic && other.origin != 0)
            return dag_.origins[other.origin];
        }
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
