#include "ir/directives/stream_order.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "ir/dag/template_index.h"
#include "ir/support/result.h"

namespace piper::ir {

namespace {

bool IsMessage(const NodeTemplate& node) {
  return node.kind == NodeKind::kSend || node.kind == NodeKind::kRecv;
}

// An end of a message that carries an `edge`.
bool CarriesEdge(const NodeTemplate& node) {
  return IsMessage(node) && node.value == kNone && node.bytes == 0;
}

// Where a node stands on a stream by default: relative to the host's compute order.
struct Placed {
  int64_t key = 0;   // 2 * position + 1: after that compute node; 2 * position: before it
  uint32_t tie = 0;  // host-wide sequence
  NodeId node = 0;
};

class StreamOrders {
 public:
  explicit StreamOrders(BuildContext& context)
      : context_(context),
        dag_(context.dag),
        compute_(InternName("compute")),
        send_(InternName("send")),
        recv_(InternName("recv")),
        several_(!context.timelines.empty()) {}

  void Run() {
    IndexEdges();
    begin_.assign(dag_.node_count(), 0);
    end_.assign(dag_.node_count(), 0);
    compute_orders_.resize(context_.hosts.size());
    queues_.resize(context_.hosts.size());
    elsewhere_.resize(context_.hosts.size());
    sent_.resize(context_.hosts.size());
    for (size_t h = 0; h < context_.hosts.size(); ++h) LayCompute(h);
    FindReadiness(false);
    for (size_t h = 0; h < context_.hosts.size(); ++h) LayTail(h);
    FindReadiness(true);
    for (size_t h = 0; h < context_.hosts.size(); ++h) LaySends(h);
    LayReceives();
    for (size_t h = 0; h < context_.hosts.size(); ++h) LayOthers(h);
    Emit();
  }

 private:
  struct Queue {
    NameId stream = 0, peer = 0;
    OriginId origin = 0;
    std::vector<OrderItem> items;
  };

  size_t HostIndex(GroupId group) const { return host_index_[group]; }

  void IndexEdges() {
    incoming_.assign(dag_.templates.size(), {});
    outgoing_.assign(dag_.templates.size(), {});
    attached_.assign(dag_.templates.size(), {});
    for (const TemplateEdge& edge : dag_.edges) {
      incoming_[edge.to].push_back(edge.from);
      outgoing_[edge.from].push_back(edge.to);
      const NodeTemplate& from = dag_.templates[edge.from];
      const NodeTemplate& to = dag_.templates[edge.to];
      const bool accumulates = to.kind == NodeKind::kAccumulate && from.pass == Pass::kBW && !to.step_level();
      if (accumulates || to.kind == NodeKind::kLossFold) attached_[edge.from].push_back(edge.to);
    }
    for (const TemporalEdge& edge : dag_.temporal) {
      const TemplateId from = dag_.TemplateOf(edge.from), to = dag_.TemplateOf(edge.to);
      if (CarriesEdge(dag_.templates[to])) before_edge_[edge.to].push_back(edge.from);
      if (CarriesEdge(dag_.templates[from])) after_edge_[edge.from].push_back(edge.to);
    }
    for (const NodeTemplate& node : dag_.templates) replays_ = replays_ || node.pass == Pass::kR;
    if (replays_) {
      replay_laid_.assign(dag_.node_count(), false);
      atomic_of_.assign(dag_.node_count(), 0);
    }
    template_of_ = TemplateIndex(dag_);
    host_index_.assign(dag_.groups.size(), SIZE_MAX);
    for (size_t h = 0; h < context_.hosts.size(); ++h) host_index_[context_.hosts[h]] = h;
    listed_.assign(dag_.templates.size(), false);
    listed_nodes_.resize(context_.hosts.size());
    for (size_t h = 0; h < context_.hosts.size(); ++h) {
      for (const ListedStream& stream : context_.host_orders[h].streams) {
        if (!context_.Computes(stream.stream)) continue;
        // Compute passes are listed completely; only what else is listed matters here.
        TemplateId last = kNone;
        for (const OrderItem& item : stream.items) {
          if (last == kNone || item.node < dag_.first_node[last] || item.node >= dag_.first_node[last + 1])
            last = FindTemplate(item.node);
          if (dag_.templates[last].kind == NodeKind::kCompute && dag_.templates[last].pass != Pass::kR)
            continue;
          listed_[last] = true;
          listed_nodes_[h].insert(item.node);
        }
      }
    }
  }

  // F, BI, BW with accumulates and loss folds; positions of all of them.
  void LayCompute(size_t h) {
    const std::vector<OrderItem>* given = nullptr;
    for (const ListedStream& listed : context_.host_orders[h].streams) {
      if (listed.stream == compute_) given = &listed.items;
    }
    if (several_) given = &context_.timelines[h];
    PIPER_CHECK(given != nullptr);
    std::vector<OrderItem>& items = compute_orders_[h];
    std::vector<int64_t> remaining(dag_.templates.size());
    int64_t here = 0;
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const NodeTemplate& node = dag_.templates[t];
      remaining[t] = node.node_count();
      if (node.group == context_.hosts[h] && context_.Computes(node.stream)) here += node.node_count();
    }
    items.reserve(static_cast<size_t>(here));
    // A loss fold waits until the atomic node that holds its last F is complete.
    std::vector<OrderItem> folds;
    uint32_t atomic = kNone;
    auto flush = [&] {
      if (folds.empty()) return;
      items.insert(items.end(), folds.begin(), folds.end());
      folds.clear();
    };
    for (size_t i = 0; i < given->size(); ++i) {
      const OrderItem& item = (*given)[i];
      const TemplateId t = FindTemplate(item.node);
      const NodeTemplate& node = dag_.templates[t];
      atomic_stream_ = node.stream;
      if (item.atomic == kNone || item.atomic != atomic) {
        flush();
        if (replays_) {
          size_t end = i + 1;
          while (item.atomic != kNone && end < given->size() && (*given)[end].atomic == item.atomic) ++end;
          LayReplaysOfFused(h, item.node, &items);
          ++atomic_serial_;
          for (size_t k = i; k < end; ++k) atomic_of_[(*given)[k].node] = atomic_serial_;
          for (size_t k = i; k < end; ++k) LayReplays(h, (*given)[k].node, kNone, &items);
        }
      }
      // Within the atomic node stand those that wait for another part of it.
      if (replays_ && item.atomic != kNone) LayReplays(h, item.node, item.atomic, &items);
      atomic = item.atomic;
      if (node.step_level() && node.kind != NodeKind::kAccumulate) LayPredecessors(h, t, &items);
      items.push_back(item);
      --remaining[t];
      if (node.kind != NodeKind::kCompute) continue;
      for (TemplateId next : attached_[t]) {
        if (dag_.templates[next].kind == NodeKind::kAccumulate) {
          NodeId id = dag_.first_node[next] + (item.node - dag_.first_node[t]);
          if (!listed_[next] || !listed_nodes_[h].count(id)) items.push_back({id, 0, item.atomic});
        } else if (remaining[t] == 0 && !listed_[next]) {
          folds.push_back({dag_.first_node[next], 0, kNone});
        }
      }
    }
    flush();
    SetPositions(items, 0);
  }

  // A fused node over several streams begins on all of them at once: what its parts read is made again
  // before.
  void LayReplaysOfFused(size_t h, NodeId node, std::vector<OrderItem>* items) {
    if (fused_of_.empty() && !context_.fused_nodes.empty()) {
      for (const FusedNode& fused : context_.fused_nodes) {
        for (NodeId member : fused.members) fused_of_[member] = &fused;
      }
    }
    const auto found = fused_of_.find(node);
    if (found == fused_of_.end() || !fused_laid_.insert(found->second).second) return;
    ++atomic_serial_;
    for (NodeId member : found->second->members) atomic_of_[member] = atomic_serial_;
    for (NodeId member : found->second->members) LayReplays(h, member, kNone, items);
  }

  // What the node reads and an R that no order lists makes again, each after what it reads itself. With
  // `atomic` kNone all but those that wait for a part of the atomic node that is about to be laid; else
  // those.
  void LayReplays(size_t h, NodeId node, uint32_t atomic, std::vector<OrderItem>* items) {
    TemplateId t = FindTemplate(node);
    int32_t mb = dag_.templates[t].mb_begin + static_cast<int32_t>(node - dag_.first_node[t]);
    for (TemplateId before : incoming_[t]) {
      const NodeTemplate& replay = dag_.templates[before];
      if (replay.pass != Pass::kR || mb < replay.mb_begin || mb >= replay.mb_end) continue;
      NodeId id = dag_.first_node[before] + static_cast<NodeId>(mb - replay.mb_begin);
      if (replay_laid_[id] || (listed_[before] && listed_nodes_[h].count(id))) continue;
      if (atomic == kNone && WaitsForThisAtomic(before, mb)) continue;
      replay_laid_[id] = true;
      LayReplays(h, id, atomic, items);
      // On a stream of its own it is no part of the node.
      items->push_back({id, 0, replay.stream == atomic_stream_ ? atomic : kNone});
    }
  }

  // A part of the atomic node that is about to be laid comes before the replay: its F, mostly.
  bool WaitsForThisAtomic(TemplateId replay, int32_t mb) const {
    for (TemplateId before : incoming_[replay]) {
      const NodeTemplate& node = dag_.templates[before];
      if (mb < node.mb_begin || mb >= node.mb_end) continue;
      NodeId id = dag_.first_node[before] + static_cast<NodeId>(mb - node.mb_begin);
      if (atomic_of_[id] == atomic_serial_) return true;
      if (node.pass == Pass::kR && !replay_laid_[id] && WaitsForThisAtomic(before, mb)) return true;
    }
    return false;
  }

  TemplateId FindTemplate(NodeId node) const { return template_of_[node]; }

  // What a listed step-level node waits for and no order lists.
  void LayPredecessors(size_t h, TemplateId t, std::vector<OrderItem>* items) {
    for (TemplateId before : incoming_[t]) {
      const NodeTemplate& node = dag_.templates[before];
      if (!node.step_level() || listed_[before] || !context_.Computes(node.stream) ||
          node.group != context_.hosts[h])
        continue;
      if (node.kind == NodeKind::kLossFold) continue;
      LayPredecessors(h, before, items);
      if (listed_[before]) continue;
      listed_[before] = true;
      listed_nodes_[h].insert(dag_.first_node[before]);  // collectives on this stream, too, are laid once
      items->push_back({dag_.first_node[before], 0, kNone});
    }
  }

  // First and last position of the atomic node that an item belongs to.
  void SetPositions(const std::vector<OrderItem>& items, size_t from) {
    for (size_t i = from; i < items.size();) {
      size_t end = i + 1;
      while (items[i].atomic != kNone && end < items.size() && items[end].atomic == items[i].atomic) ++end;
      for (size_t k = i; k < end; ++k) {
        begin_[items[k].node] = static_cast<uint32_t>(i);
        end_[items[k].node] = static_cast<uint32_t>(end - 1);
      }
      i = end;
    }
  }

  // Per template: the position after which its last instance is done (for what follows from compute: of the
  // last compute node that it waits for, wherever that is).
  void FindReadiness(bool laid) {
    readiness_.assign(dag_.templates.size(), 0);
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const NodeTemplate& node = dag_.templates[t];
      if (!node.step_level()) {
        if (!context_.Computes(node.stream)) continue;
        for (NodeId id = dag_.first_node[t]; id < dag_.first_node[t + 1]; ++id)
          readiness_[t] = std::max(readiness_[t], end_[id]);
        continue;
      }
      if (context_.Computes(node.stream) && (laid || node.kind == NodeKind::kLossFold))
        readiness_[t] = end_[dag_.first_node[t]];
      // Step-level nodes are made after what they wait for, so ids are a topological order.
      for (TemplateId before : incoming_[t]) {
        if (before < t || !dag_.templates[before].step_level())
          readiness_[t] = std::max(readiness_[t], readiness_[before]);
      }
    }
  }

  void LayTail(size_t h) {
    std::vector<OrderItem>& items = compute_orders_[h];
    std::vector<std::tuple<int, uint32_t, TemplateId>> tail;
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const NodeTemplate& node = dag_.templates[t];
      if (!node.step_level() || !context_.Computes(node.stream) || node.group != context_.hosts[h] ||
          listed_[t])
        continue;
      if (node.kind == NodeKind::kAccumulate) tail.emplace_back(0, readiness_[t], t);
      if (node.kind == NodeKind::kNorm) tail.emplace_back(1, readiness_[t], t);
      if (node.kind == NodeKind::kPartial) tail.emplace_back(2, readiness_[t], t);
      if (node.kind == NodeKind::kClip || node.kind == NodeKind::kSave)
        tail.emplace_back(3, readiness_[t], t);
      if (node.kind == NodeKind::kUpdate) tail.emplace_back(4, readiness_[t], t);
      if (node.kind == NodeKind::kValidate && !node.carried) tail.emplace_back(5, readiness_[t], t);
      if (node.kind == NodeKind::kValidate && node.carried) LayCarried(h, t, &items);
    }
    std::sort(tail.begin(), tail.end());
    const size_t from = items.size();
    for (const auto& entry : tail) items.push_back({dag_.first_node[std::get<2>(entry)], 0, kNone});
    SetPositions(items, from);
  }

  // The check of the step before: before the first node that an edge of distance one names, and before the
  // first BW, from which on gradients are overwritten.
  void LayCarried(size_t h, TemplateId validate, std::vector<OrderItem>* items) {
    size_t at = 0;
    const std::vector<NodeId>& named = context_.checked_before[h];
    for (; at < items->size(); ++at) {
      const NodeId node = (*items)[at].node;
      const NodeTemplate& here = dag_.templates[FindTemplate(node)];
      if (here.pass == Pass::kBW || std::binary_search(named.begin(), named.end(), node)) break;
    }
    // A host without BW: at once.
    at = at == items->size() ? 0 : begin_[(*items)[at].node];
    items->insert(items->begin() + static_cast<ptrdiff_t>(at), {dag_.first_node[validate], 0, kNone});
    SetPositions(*items, 0);
  }

  Queue& QueueOf(size_t h, NameId stream, NameId peer) {
    for (Queue& queue : queues_[h]) {
      if (queue.stream == stream && queue.peer == peer) return queue;
    }
    queues_[h].push_back({stream, peer, 0, {}});
    return queues_[h].back();
  }

  const ListedStream* ListedOn(size_t h, NameId stream) const {
    for (const ListedStream& listed : context_.host_orders[h].streams) {
      if (listed.stream == stream && !listed.items.empty()) return &listed;
    }
    return nullptr;
  }

  // Sends in the order of their producers, each with its place on the compute stream; those on the default
  // streams go into their queues, the others wait for LayOthers.
  void LaySends(size_t h) {
    std::vector<std::vector<TemplateId>> sends(dag_.templates.size());
    for (TemplateId s = 0; s < dag_.templates.size(); ++s) {
      if (dag_.templates[s].kind != NodeKind::kSend || dag_.templates[s].group != context_.hosts[h]) continue;
      for (TemplateId producer : incoming_[s]) sends[producer].push_back(s);
    }
    for (TemplateId s = 0; s < dag_.templates.size(); ++s) {
      const NodeTemplate& send = dag_.templates[s];
      if (send.kind != NodeKind::kSend || send.group != context_.hosts[h]) continue;
      size_t peer = HostIndex(send.peer_group);
      if (std::none_of(sent_[h].begin(), sent_[h].end(),
                       [&](const auto& entry) { return entry.first == peer; }))
        sent_[h].push_back({peer, {}});
      for (auto& [to, nodes] : sent_[h]) {
        if (to == peer) nodes.reserve(nodes.capacity() + static_cast<size_t>(send.node_count()));
      }
    }
    if (sent_[h].empty()) return;
    const std::vector<std::pair<int64_t, NodeId>> edges = EdgeSends(h);
    size_t next_edge = 0;
    auto send_edges = [&](int64_t position) {
      for (; next_edge < edges.size() && edges[next_edge].first < position; ++next_edge) {
        const NodeId node = edges[next_edge].second;
        const NodeTemplate& send = dag_.templates[FindTemplate(node)];
        size_t peer = HostIndex(send.peer_group);
        for (auto& [to, nodes] : sent_[h]) {
          if (to == peer) nodes.push_back(node);
        }
        if (send.stream != send_)
          elsewhere_[h].push_back({send.stream, {2 * edges[next_edge].first + 1, NextTie(), node}});
      }
    };
    int64_t position = 0;
    for (const OrderItem& item : compute_orders_[h]) {
      if (next_edge < edges.size()) send_edges(position);
      ++position;
      const TemplateId t = FindTemplate(item.node);
      if (sends[t].empty()) continue;
      int32_t mb = dag_.templates[t].mb_begin + static_cast<int32_t>(item.node - dag_.first_node[t]);
      for (TemplateId s : sends[t]) {
        const NodeTemplate& send = dag_.templates[s];
        if (mb < send.mb_begin || mb >= send.mb_end) continue;
        NodeId node = dag_.first_node[s] + static_cast<NodeId>(mb - send.mb_begin);
        size_t peer = HostIndex(send.peer_group);
        for (auto& [to, nodes] : sent_[h]) {
          if (to == peer) nodes.push_back(node);
        }
        if (send.stream != send_)
          elsewhere_[h].push_back(
              {send.stream, {2 * static_cast<int64_t>(end_[item.node]) + 1, NextTie(), node}});
      }
    }
    send_edges(INT64_MAX);
    for (auto& [peer, nodes] : sent_[h]) {
      if (!elsewhere_[h].empty()) FollowListed(h, &nodes);
      NameId text = InternName(dag_.groups[context_.hosts[peer]].text);
      std::vector<OrderItem> items;
      items.reserve(nodes.size());
      TemplateId s = kNone;
      for (NodeId node : nodes) {
        if (s == kNone || node < dag_.first_node[s] || node >= dag_.first_node[s + 1]) s = FindTemplate(node);
        if (dag_.templates[s].stream == send_) items.push_back({node, 0, kNone});
      }
      if (items.empty()) continue;
      Queue& queue = QueueOf(h, send_, text);
      queue.items = std::move(items);
      if (const ListedStream* listed = ListedOn(h, send_)) {
        Merge(*listed, &queue);
        // The receiver posts in the order in which they are sent.
        if (queue.items.size() == nodes.size()) {
          for (size_t i = 0; i < nodes.size(); ++i) nodes[i] = queue.items[i].node;
        }
      }
    }
  }

  // The sends to a peer that `stream` moved and an order lists take the listed order, so that the receiver
  // posts in that.
  void FollowListed(size_t h, std::vector<NodeId>* nodes) {
    for (const ListedStream& listed : context_.host_orders[h].streams) {
      if (listed.stream == send_) continue;
      std::vector<size_t> places;
      Queue queue;
      for (size_t i = 0; i < nodes->size(); ++i) {
        if (dag_.templates[FindTemplate((*nodes)[i])].stream != listed.stream) continue;
        places.push_back(i);
        queue.items.push_back({(*nodes)[i], 0, kNone});
      }
      if (places.size() < 2) continue;
      Merge(listed, &queue);
      PIPER_CHECK(queue.items.size() == places.size());
      for (size_t i = 0; i < places.size(); ++i) (*nodes)[places[i]] = queue.items[i].node;
    }
  }

  // The messages of edges that leave a host, each with the position on its compute stream behind which what
  // it waits for has ended, in that order.
  std::vector<std::pair<int64_t, NodeId>> EdgeSends(size_t h) {
    std::vector<std::pair<int64_t, NodeId>> edges;
    for (TemplateId s = 0; !before_edge_.empty() && s < dag_.templates.size(); ++s) {
      const NodeTemplate& send = dag_.templates[s];
      if (send.kind != NodeKind::kSend || !CarriesEdge(send) || send.group != context_.hosts[h]) continue;
      for (NodeId node = dag_.first_node[s]; node < dag_.first_node[s + 1]; ++node)
        edges.emplace_back(EndsBehind(h, node), node);
    }
    std::stable_sort(edges.begin(), edges.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    return edges;
  }

  // The position on the host's compute stream behind which a node has ended, as far as that can be told: of a
  // receive, before its first reader; -1: before all.
  int64_t EndsBehind(size_t h, NodeId node, int depth = 0) {
    const TemplateId t = dag_.TemplateOf(node);
    const NodeTemplate& what = dag_.templates[t];
    const int64_t last = static_cast<int64_t>(compute_orders_[h].size()) - 1;
    const int32_t mb = what.mb_begin + static_cast<int32_t>(node - dag_.first_node[t]);
    if (context_.Computes(what.stream) && what.group == context_.hosts[h] && !IsMessage(what))
      return end_[node];
    if (what.kind == NodeKind::kRecv) {
      const int64_t first = FirstReader(t, node, mb);
      return std::min(first, last + 1) - 1;
    }
    if (what.kind != NodeKind::kSend) return std::min<int64_t>(readiness_[t], last);
    constexpr int kDeepest = 64;  // edges that wait for messages of edges, and so on
    int64_t position = -1;
    auto before = before_edge_.find(node);
    if (before != before_edge_.end() && depth < kDeepest) {
      for (NodeId other : before->second) position = std::max(position, EndsBehind(h, other, depth + 1));
    }
    for (TemplateId producer : incoming_[t]) {
      const NodeTemplate& n = dag_.templates[producer];
      if (n.group != what.group || mb < n.mb_begin || mb >= n.mb_end) continue;
      position =
          std::max<int64_t>(position, end_[dag_.first_node[producer] + static_cast<NodeId>(mb - n.mb_begin)]);
    }
    return position;
  }

  // The first position on the compute stream that waits for a received node; INT64_MAX: none.
  int64_t FirstReader(TemplateId t, NodeId node, int32_t mb) {
    int64_t first = INT64_MAX;
    for (TemplateId reader : outgoing_[t]) {
      const NodeTemplate& n = dag_.templates[reader];
      if (mb < n.mb_begin || mb >= n.mb_end || !context_.Computes(n.stream)) continue;
      first =
          std::min<int64_t>(first, begin_[dag_.first_node[reader] + static_cast<NodeId>(mb - n.mb_begin)]);
    }
    auto after = after_edge_.find(node);
    if (after == after_edge_.end()) return first;
    for (NodeId reader : after->second) {
      const NodeTemplate& n = dag_.templates[dag_.TemplateOf(reader)];
      if (context_.Computes(n.stream) && n.group == dag_.templates[t].group)
        first = std::min<int64_t>(first, begin_[reader]);
    }
    return first;
  }

  uint32_t NextTie() { return tie_++; }

  // Receives in the sender's order; on a merged stream each stands before the first reader of it or of a
  // later one.
  void LayReceives() {
    for (size_t from = 0; from < context_.hosts.size(); ++from) {
      NameId text = InternName(dag_.groups[context_.hosts[from]].text);
      for (const auto& [to, nodes] : sent_[from]) {
        std::vector<OrderItem> items;
        items.reserve(nodes.size());
        std::vector<std::pair<NameId, Placed>> merged;
        TemplateId s = kNone;
        for (NodeId node : nodes) {
          if (s == kNone || node < dag_.first_node[s] || node >= dag_.first_node[s + 1])
            s = FindTemplate(node);
          TemplateId r = dag_.templates[s].match;
          NodeId recv = dag_.first_node[r] + (node - dag_.first_node[s]);
          if (dag_.templates[r].stream == recv_) {
            items.push_back({recv, 0, kNone});
            continue;
          }
          int32_t mb = dag_.templates[s].mb_begin + static_cast<int32_t>(node - dag_.first_node[s]);
          const int64_t first =
              std::min(FirstReader(r, recv, mb), static_cast<int64_t>(compute_orders_[to].size()));
          merged.push_back({dag_.templates[r].stream, {2 * first, 0, recv}});
        }
        for (size_t i = merged.size(); i-- > 1;)
          merged[i - 1].second.key = std::min(merged[i - 1].second.key, merged[i].second.key);
        for (auto& [stream, placed] : merged) {
          placed.tie = NextTie();
          elsewhere_[to].push_back({stream, placed});
        }
        if (items.empty()) continue;
        Queue& queue = QueueOf(to, recv_, text);
        queue.items = std::move(items);
        if (const ListedStream* listed = ListedOn(to, recv_)) Merge(*listed, &queue);
      }
    }
  }

  // Collectives, and messages that `stream` moved.
  void LayOthers(size_t h) {
    const std::vector<uint32_t>& devices = dag_.groups[context_.hosts[h]].devices;
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const NodeTemplate& node = dag_.templates[t];
      if (IsMessage(node)) continue;
      bool collective = node.kind == NodeKind::kAllReduce || node.kind == NodeKind::kReduceScatter ||
                        node.kind == NodeKind::kAllGather || node.kind == NodeKind::kAllToAll ||
                        node.kind == NodeKind::kBroadcast || node.kind == NodeKind::kReduce;
      if (!collective) continue;
      const std::vector<uint32_t>& members = dag_.groups[node.group].devices;
      if (std::find(members.begin(), members.end(), devices.front()) == members.end()) continue;
      // Within the host by readiness; across hosts after all of those, by template: the same order
      // everywhere. On the compute stream a host-wide position must not depend on the host, so those stand at
      // its end.
      bool internal = node.group == context_.hosts[h];
      // What is carried over from the step before comes first.
      int64_t key = node.carried ? -1
                    : internal   ? 2 * static_cast<int64_t>(readiness_[t]) + 1
                                 : INT64_MAX / 2 + t;
      elsewhere_[h].push_back({node.stream, {key, t, dag_.first_node[t]}});
    }
    LayCopies(h);
    std::stable_sort(elsewhere_[h].begin(), elsewhere_[h].end(), [](const auto& a, const auto& b) {
      return std::tuple(a.second.key, a.second.tie) < std::tuple(b.second.key, b.second.tie);
    });
    for (const auto& [stream, placed] : elsewhere_[h]) {
      if (!context_.Computes(stream)) QueueOf(h, stream, 0).items.push_back({placed.node, 0, kNone});
    }
    for (Queue& queue : queues_[h]) {
      if (queue.stream == send_ || queue.stream == recv_) continue;
      if (const ListedStream* listed = ListedOn(h, queue.stream)) Merge(*listed, &queue);
    }
    MergeIntoCompute(h);
  }

  // What leaves for the host does so after the F that made it; it comes back before the first node that reads
  // it.
  void LayCopies(size_t h) {
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const NodeTemplate& node = dag_.templates[t];
      const bool out = node.kind == NodeKind::kOffload;
      if (node.group != context_.hosts[h] || (!out && node.kind != NodeKind::kPrefetch)) continue;
      for (int32_t mb = node.mb_begin; mb < node.mb_end; ++mb) {
        int64_t key = out ? 0 : INT64_MAX / 2 - 1;
        for (TemplateId other : out ? incoming_[t] : outgoing_[t]) {
          const NodeTemplate& compute = dag_.templates[other];
          if (compute.kind != NodeKind::kCompute || mb < compute.mb_begin || mb >= compute.mb_end) continue;
          const NodeId id = dag_.first_node[other] + static_cast<NodeId>(mb - compute.mb_begin);
          key = out ? std::max(key, 2 * static_cast<int64_t>(end_[id]) + 1)
                    : std::min(key, 2 * static_cast<int64_t>(begin_[id]));
        }
        elsewhere_[h].push_back(
            {node.stream, {key, NextTie(), dag_.first_node[t] + static_cast<NodeId>(mb - node.mb_begin)}});
      }
    }
  }

  // Messages and collectives on the compute stream. What spans hosts stands before the first node that waits
  // for it.
  void MergeIntoCompute(size_t h) {
    std::vector<Placed> here;
    for (const auto& [stream, placed] : elsewhere_[h]) {
      if (!context_.Computes(stream) || listed_nodes_[h].count(placed.node)) continue;
      Placed copy = placed;
      if (copy.key >= INT64_MAX / 2) {
        TemplateId t = dag_.TemplateOf(copy.node);
        int64_t first = static_cast<int64_t>(compute_orders_[h].size());
        for (TemplateId reader : outgoing_[t]) {
          if (dag_.templates[reader].group == context_.hosts[h] &&
              context_.Computes(dag_.templates[reader].stream))
            first = std::min<int64_t>(first, begin_[dag_.first_node[reader]]);
        }
        copy.key = 2 * first;
      }
      here.push_back(copy);
    }
    if (here.empty()) return;
    std::stable_sort(here.begin(), here.end(),
                     [](const Placed& a, const Placed& b) { return a.key < b.key; });
    std::vector<OrderItem> merged;
    size_t next = 0;
    const std::vector<OrderItem>& items = compute_orders_[h];
    for (size_t i = 0; i < items.size(); ++i) {
      for (; next < here.size() && here[next].key <= 2 * static_cast<int64_t>(i); ++next)
        merged.push_back({here[next].node, 0, kNone});
      merged.push_back(items[i]);
      for (; next < here.size() && here[next].key <= 2 * static_cast<int64_t>(i) + 1; ++next)
        merged.push_back({here[next].node, 0, kNone});
    }
    for (; next < here.size(); ++next) merged.push_back({here[next].node, 0, kNone});
    compute_orders_[h] = std::move(merged);
  }

  // `queue` holds the default sequence. The listed nodes take the listed order; every other one stays behind
  // all listed ones that precede it by default (a collective of several hosts behind all: its place must not
  // depend on what one of them lists), yet before one that waits for it.
  void Merge(const ListedStream& listed, Queue* queue) {
    queue->origin = listed.origin;
    std::unordered_map<NodeId, size_t> position;  // in the listed order
    position.reserve(listed.items.size());
    for (size_t i = 0; i < listed.items.size(); ++i) position.emplace(listed.items[i].node, i);
    std::vector<bool> here(listed.items.size());       // not another peer's
    std::vector<std::pair<size_t, OrderItem>> others;  // by how many of the listed ones stand before it
    size_t before = 0;
    for (const OrderItem& item : queue->items) {
      if (auto found = position.find(item.node); found != position.end()) {
        here[found->second] = true;
        before = std::max(before, found->second + 1);
      } else {
        const NodeTemplate& node = dag_.templates[FindTemplate(item.node)];
        const bool spans = !IsMessage(node) && host_index_[node.group] == SIZE_MAX && !node.carried;
        const size_t behind = spans ? listed.items.size() : before;
        others.push_back({std::min(behind, FirstThatWaits(item.node, listed)), item});
      }
    }
    std::stable_sort(others.begin(), others.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<OrderItem> merged;
    merged.reserve(queue->items.size());
    size_t next = 0;
    for (size_t i = 0; i <= listed.items.size(); ++i) {
      for (; next < others.size() && others[next].first <= i; ++next) merged.push_back(others[next].second);
      if (i < listed.items.size() && here[i]) merged.push_back(listed.items[i]);
    }
    queue->items = std::move(merged);
  }

  // The first of the listed nodes that waits for a collective, along the nodes of the step; their number if
  // none does. Messages lead through the passes of other hosts, so that theirs is not told.
  size_t FirstThatWaits(NodeId node, const ListedStream& listed) {
    const TemplateId start = FindTemplate(node);
    if (!dag_.templates[start].step_level() || IsMessage(dag_.templates[start])) return listed.items.size();
    std::vector<bool> seen(dag_.templates.size());
    for (std::vector<TemplateId> work = {start}; !work.empty();) {
      const TemplateId at = work.back();
      work.pop_back();
      for (TemplateId after : outgoing_[at]) {
        if (seen[after] || !dag_.templates[after].step_level()) continue;
        seen[after] = true;
        work.push_back(after);
      }
    }
    const auto first = std::find_if(listed.items.begin(), listed.items.end(),
                                    [&](const OrderItem& item) { return seen[FindTemplate(item.node)]; });
    return static_cast<size_t>(first - listed.items.begin());
  }

  void Emit() {
    for (size_t h = 0; h < context_.hosts.size(); ++h) {
      for (NameId stream : context_.compute_streams) {
        OriginId origin = 0;
        for (const ListedStream& listed : context_.host_orders[h].streams) {
          if (listed.stream == stream) origin = listed.origin;
        }
        std::vector<OrderItem> items;
        if (several_) {
          for (const OrderItem& item : compute_orders_[h]) {
            if (dag_.templates[FindTemplate(item.node)].stream == stream) items.push_back(item);
          }
          if (items.empty() && stream != compute_) continue;
        } else {
          items = std::move(compute_orders_[h]);
        }
        dag_.orders.push_back({context_.hosts[h], stream, 0, std::move(items), origin});
      }
      if (several_) context_.timelines[h] = std::move(compute_orders_[h]);
      std::stable_sort(queues_[h].begin(), queues_[h].end(), [&](const Queue& a, const Queue& b) {
        return std::tuple(a.stream != send_, a.stream != recv_) <
               std::tuple(b.stream != send_, b.stream != recv_);
      });
      for (Queue& queue : queues_[h]) {
        if (!queue.items.empty())
          dag_.orders.push_back(
              {context_.hosts[h], queue.stream, queue.peer, std::move(queue.items), queue.origin});
      }
    }
    RenumberAtomics();
  }

  // Dense ids in order of appearance.
  void RenumberAtomics() {
    uint32_t next = 0;
    std::vector<Picoseconds> costs;
    bool priced = !dag_.atomic_costs.empty();
    for (StreamOrder& order : dag_.orders) {
      uint32_t old = kNone;
      for (OrderItem& item : order.items) {
        if (item.atomic == kNone) {
          old = kNone;
          continue;
        }
        if (item.atomic != old) {
          old = item.atomic;
          ++next;
          if (priced) costs.push_back(old < dag_.atomic_costs.size() ? dag_.atomic_costs[old] : -1);
        }
        item.atomic = next - 1;
      }
    }
    dag_.atomic_costs = std::move(costs);
  }

  BuildContext& context_;
  Dag& dag_;
  const NameId compute_, send_, recv_;
  const bool several_;  // streams of a device compute: what is called its compute order is their timeline
  std::vector<std::vector<TemplateId>> incoming_, outgoing_;
  std::vector<std::vector<TemplateId>> attached_;  // of those: a BW's accumulates, loss folds
  std::vector<size_t> host_index_;                 // per group
  std::vector<bool> listed_;  // per template: a compute order lists some of it (F, BI, BW aside)
  std::vector<std::set<NodeId>> listed_nodes_;  // [host]: those nodes
  std::vector<std::vector<OrderItem>> compute_orders_;
  std::vector<uint32_t> begin_, end_;  // per node: its atomic node's positions on its compute stream
  std::vector<uint32_t> readiness_;
  TemplateIndex template_of_;
  std::vector<std::vector<Queue>> queues_;
  std::vector<std::vector<std::pair<NameId, Placed>>> elsewhere_;
  std::vector<std::vector<std::pair<size_t, std::vector<NodeId>>>> sent_;  // [host]: (peer, sends in order)
  uint32_t tie_ = 0;
  // Of messages that carry edges: what a send waits for, what waits for a receive.
  std::map<NodeId, std::vector<NodeId>> before_edge_, after_edge_;
  bool replays_ = false;           // there are R nodes
  std::vector<bool> replay_laid_;  // per node, where there are
  std::vector<uint32_t>
      atomic_of_;               // likewise: serial number of the atomic node or single item that lists it
  uint32_t atomic_serial_ = 0;  // of the one being laid
  std::map<NodeId, const FusedNode*> fused_of_;  // of parts on several streams
  std::set<const FusedNode*> fused_laid_;        // what their parts read is made again
  NameId atomic_stream_ = 0;                     // that it is on
};

}  // namespace

void BuildStreamOrders(BuildContext& context) { StreamOrders(context).Run(); }

}  // namespace piper::ir
