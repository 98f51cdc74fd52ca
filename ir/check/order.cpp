#include "ir/check/order.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

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

// Whether every node can run: streams advance over their orders, a node runs once it is the head of its
// streams and all that it needs has run. The quick half of the check; it names no cycle.
class Advance {
 public:
  explicit Advance(const Dag& dag) : dag_(dag) {}

  // False: no, or the Dag is of a form that the long way decides.
  bool RunsAll() {
    if (!IndexOrders()) return false;
    IndexEdges();
    for (uint32_t o = 0; o < dag_.orders.size(); ++o) ready_.push_back(o);
    while (!ready_.empty()) {
      const uint32_t order = ready_.back();
      ready_.pop_back();
      AdvanceStream(order);
    }
    return done_ == dag_.node_count();
  }

 private:
  static constexpr uint32_t kNoOrder = UINT32_MAX, kSeveral = UINT32_MAX - 1;
  // Where an edge leads from a node of microbatch mb: to node base + mb if begin <= mb < end; where an end is
  // step-level, to nodes [base, base + count).
  struct Target {
    TemplateId to = 0;
    NodeId base = 0;
    int32_t begin = 0, end = 0;
    uint32_t count = 0;  // 0: by microbatch
  };
  struct Source {
    NodeId first = 0;  // node of microbatch 0, were there one
    uint32_t first_target = 0, target_count = 0;
    uint32_t order = kNoOrder;  // that lists its nodes
  };
  // Edges into each part of an atomic node from the parts before it.
  struct Inner {
    static constexpr size_t kMost = 8;  // parts
    size_t count = 0;
    TemplateId templates[kMost] = {};
    uint32_t edges[kMost] = {};
  };
  static constexpr size_t kMostInner = 8;  // that are remembered
  struct Stream {
    uint32_t cursor = 0;
    NodeId blocked_on = kNone;  // the node whose predecessors the head waits for
    bool entered = false;       // the head has been looked at
  };

  // Which order lists the nodes of each template.
  bool IndexOrders() {
    template_of_.resize(dag_.node_count());
    sources_.resize(dag_.templates.size());
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      std::fill(template_of_.begin() + dag_.first_node[t], template_of_.begin() + dag_.first_node[t + 1], t);
      sources_[t].first = dag_.first_node[t] - static_cast<NodeId>(dag_.templates[t].mb_begin);
    }
    pending_.assign(dag_.node_count(), 0);
    streams_.resize(dag_.orders.size());
    inner_.resize(dag_.orders.size());
    for (uint32_t o = 0; o < dag_.orders.size(); ++o) {
      for (const OrderItem& item : dag_.orders[o].items) {
        ++pending_[item.node];
        uint32_t& order = sources_[template_of_[item.node]].order;
        if (order == o) continue;
        if (order != kNoOrder) {
          // Only collectives, one node each, stand in the orders of several hosts.
          if (dag_.templates[template_of_[item.node]].node_count() != 1 || item.atomic != kNone) return false;
          if (order != kSeveral) several_.emplace_back(item.node, order);
          several_.emplace_back(item.node, o);
        }
        order = order == kNoOrder ? o : kSeveral;
      }
    }
    // Listed once, or once a stream that has to come to it.
    std::sort(several_.begin(), several_.end());
    std::vector<uint32_t> once(sources_.size(), 1);
    for (const auto& [node, order] : several_) once[template_of_[node]] = 0;
    for (const auto& [node, order] : several_) ++once[template_of_[node]];
    for (NodeId node = 0; node < dag_.node_count(); ++node) {
      if (pending_[node] != once[template_of_[node]]) return false;
      if (pending_[node] == 1) pending_[node] = 0;
    }
    return true;
  }

  void IndexEdges() {
    // Edges into what is carried over from the step before have distance one.
    const auto within = [&](const TemplateEdge& edge) {
      return !dag_.templates[edge.to].carried || dag_.templates[edge.from].carried;
    };
    for (const TemplateEdge& edge : dag_.edges) sources_[edge.from].target_count += within(edge);
    uint32_t next = 0;
    for (Source& source : sources_) {
      source.first_target = next;
      next += std::exchange(source.target_count, 0);
    }
    targets_.resize(dag_.edges.size());
    for (const TemplateEdge& edge : dag_.edges) {
      if (!within(edge)) continue;
      const NodeTemplate& from = dag_.templates[edge.from];
      const NodeTemplate& to = dag_.templates[edge.to];
      Source& source = sources_[edge.from];
      Target& target = targets_[source.first_target + source.target_count++];
      target.to = edge.to;
      if (from.step_level() || to.step_level()) {
        target.base = dag_.first_node[edge.to];
        target.count = static_cast<uint32_t>(to.node_count());
        for (uint32_t i = 0; i < target.count; ++i)
          pending_[target.base + i] += static_cast<uint32_t>(from.node_count());
        continue;
      }
      target.base = sources_[edge.to].first;
      target.begin = std::max(from.mb_begin, to.mb_begin);
      target.end = std::min(from.mb_end, to.mb_end);
      for (int32_t mb = target.begin; mb < target.end; ++mb)
        ++pending_[target.base + static_cast<NodeId>(mb)];
    }
    for (const TemporalEdge& edge : dag_.temporal) {
      if (edge.distance != 0) continue;
      temporal_.emplace_back(edge.from, edge.to);
      ++pending_[edge.to];
    }
    std::sort(temporal_.begin(), temporal_.end());
  }

  template <typename F>  // visit(node, its template)
  void ForEachSuccessor(NodeId node, F visit) const {
    const Source& source = sources_[template_of_[node]];
    const auto mb = static_cast<int32_t>(node - source.first);
    const Target* target = targets_.data() + source.first_target;
    for (const Target* end = target + source.target_count; target != end; ++target) {
      if (target->count == 0) {
        if (mb >= target->begin && mb < target->end)
          visit(target->base + static_cast<NodeId>(mb), target->to);
      } else {
        for (uint32_t i = 0; i < target->count; ++i) visit(target->base + i, target->to);
      }
    }
    if (temporal_.empty()) return;
    for (auto it = std::lower_bound(temporal_.begin(), temporal_.end(), std::pair<NodeId, NodeId>(node, 0));
         it != temporal_.end() && it->first == node; ++it)
      visit(it->second, template_of_[it->second]);
  }

  // One thing less to wait for. What an atomic node has run already counts below zero, which is never zero
  // again.
  void Release(NodeId node, TemplateId t) {
    if (--pending_[node] != 0) return;
    uint32_t order = sources_[t].order;
    if (order == kSeveral)
      order =
          std::lower_bound(several_.begin(), several_.end(), std::pair<NodeId, uint32_t>(node, 0))->second;
    if (streams_[order].blocked_on != node) return;
    streams_[order].blocked_on = kNone;
    ready_.push_back(order);
  }

  // Edges within an atomic node hold nothing up, if they lead on in the order of its parts.
  void IgnoreInner(std::span<const OrderItem> members, uint32_t order) {
    constexpr size_t kFew = Inner::kMost;
    if (members.size() <= kFew && temporal_.empty() && IgnoreAsBefore(members, &inner_[order])) return;
    const bool many = members.size() > kFew;
    if (many) {
      place_.resize(dag_.node_count(), 0);
      for (uint32_t i = 0; i < members.size(); ++i) place_[members[i].node] = i + 1;
    }
    for (size_t i = 0; i < members.size(); ++i) {
      ForEachSuccessor(members[i].node, [&](NodeId to, TemplateId) {
        if (many) {
          pending_[to] -= place_[to] > i;
          return;
        }
        for (size_t k = i; k < members.size(); ++k) pending_[to] -= members[k].node == to;
      });
    }
    if (!many) return;
    for (const OrderItem& member : members) place_[member.node] = 0;
  }

  // Atomic nodes of the same templates, all of one microbatch, have the same edges inside: mostly a whole B
  // follows another one of its region.
  bool IgnoreAsBefore(std::span<const OrderItem> members, std::vector<Inner>* known) {
    TemplateId templates[Inner::kMost];
    NodeId mb = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      templates[i] = template_of_[members[i].node];
      const NodeId own = members[i].node - sources_[templates[i]].first;
      if (dag_.templates[templates[i]].step_level() || (i > 0 && own != mb)) return false;
      mb = own;
    }
    const auto fits = [&](const Inner& inner) {
      return inner.count == members.size() &&
             std::equal(templates, templates + members.size(), inner.templates);
    };
    auto inner = std::find_if(known->begin(), known->end(), fits);
    if (inner == known->end()) {
      if (known->size() == kMostInner) known->clear();
      Inner fresh;
      fresh.count = members.size();
      std::copy(templates, templates + members.size(), fresh.templates);
      for (size_t i = 0; i < members.size(); ++i) {
        ForEachSuccessor(members[i].node, [&](NodeId to, TemplateId) {
          for (size_t k = i; k < members.size(); ++k) fresh.edges[k] += members[k].node == to;
        });
      }
      known->push_back(fresh);
      inner = std::prev(known->end());
    }
    for (size_t i = 0; i < members.size(); ++i) pending_[members[i].node] -= inner->edges[i];
    return true;
  }

  void AdvanceStream(uint32_t order) {
    Stream& stream = streams_[order];
    const std::vector<OrderItem>& items = dag_.orders[order].items;
    while (stream.cursor < items.size()) {
      const OrderItem& head = items[stream.cursor];
      uint32_t end = stream.cursor + 1;
      if (head.atomic != kNone) {
        while (end < items.size() && items[end].atomic == head.atomic) ++end;
      }
      const bool several = sources_[template_of_[head.node]].order == kSeveral;
      if (!stream.entered) {
        stream.entered = true;
        if (several) --pending_[head.node];
        if (end > stream.cursor + 1) IgnoreInner({&head, end - stream.cursor}, order);
      }
      for (uint32_t i = stream.cursor; i < end; ++i) {
        if (pending_[items[i].node] == 0) continue;
        stream.blocked_on = items[i].node;
        return;
      }
      const uint32_t begin = stream.cursor;
      stream.cursor = end;
      stream.entered = false;
      // Streams take turns; what this one needs next time would be far by then.
      __builtin_prefetch(items.data() + end + 8);
      for (uint32_t i = begin; i < end; ++i) {
        __builtin_prefetch(template_of_.data() + items[i].node + 16);
        __builtin_prefetch(pending_.data() + items[i].node + 16, 1);
      }
      if (several) {
        for (auto it = std::lower_bound(several_.begin(), several_.end(),
                                        std::pair<NodeId, uint32_t>(head.node, 0));
             it != several_.end() && it->first == head.node; ++it) {
          if (it->second == order) continue;
          Stream& other = streams_[it->second];
          ++other.cursor;
          other.entered = false;
          other.blocked_on = kNone;
          ready_.push_back(it->second);
        }
      }
      done_ += end - begin;
      for (uint32_t i = begin; i < end; ++i)
        ForEachSuccessor(items[i].node, [&](NodeId to, TemplateId t) { Release(to, t); });
    }
  }

  const Dag& dag_;
  std::vector<TemplateId> template_of_;  // per node
  std::vector<uint32_t> pending_;        // per node: what has to run, or come to it, before
  std::vector<Source> sources_;          // per template
  std::vector<Target> targets_;
  std::vector<std::pair<NodeId, uint32_t>> several_;  // (node, order) of what several orders list, sorted
  std::vector<std::pair<NodeId, NodeId>> temporal_;   // of this step, sorted
  std::vector<Stream> streams_;                       // per order
  std::vector<uint32_t> ready_;
  std::vector<std::vector<Inner>> inner_;  // per order
  std::vector<uint32_t> place_;  // per node, used for atomic nodes of many parts: position in it, plus 1
  NodeId done_ = 0;
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
