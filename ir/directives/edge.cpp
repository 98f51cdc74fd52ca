#include "ir/directives/edge.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

namespace piper::ir {

namespace {

constexpr size_t kMaxEdges = 1 << 20;

// Between nodes that are not numbered yet.
struct PendingEdge {
  Instance from, to;
  OriginId origin = 0;
};

class Edges {
 public:
  explicit Edges(BuildContext& context) : context_(context), dag_(context.dag), diag_(context.diag) {}

  void Run() {
    context_.ForEach<EdgeDirective>(
        [&](const Directive& directive, const EdgeDirective& edge) { Add(directive, edge); });
    if (context_.Failed() || pending_.empty()) return;
    context_.IndexTemplates();
    for (const PendingEdge& edge : pending_)
      dag_.temporal.push_back({NodeOf(edge.from), NodeOf(edge.to), 0, edge.origin});
  }

 private:
  // What of one directive goes from one host to another.
  struct Crossing {
    std::vector<Instance> from, to;
  };

  void Add(const Directive& directive, const EdgeDirective& edge) {
    if (edge.distance != 0) return;  // next_step.h
    const std::vector<Instance> from = context_.SelectInstances(edge.from);
    const std::vector<Instance> to = context_.SelectInstances(edge.to);
    if (from.empty() && context_.ReportIfEmpty(edge.from, directive.range)) return;
    if (to.empty() && context_.ReportIfEmpty(edge.to, directive.range)) return;
    const bool pairwise = !Constrained(edge.from) && !Constrained(edge.to);
    directive_ = &directive;
    origin_ = dag_.AddOrigin(directive.range);
    const size_t before = pending_.size();
    std::map<std::pair<GroupId, GroupId>, Crossing> crossings;  // by hosts
    for (const Instance& a : from) {
      for (const Instance& b : to) {
        if (pairwise && a.microbatch >= 0 && b.microbatch >= 0 && a.microbatch != b.microbatch) continue;
        if (a == b) {
          diag_
              .Error(directive.range, DiagKind::kBadEdge,
                     fmt::format("{} would wait for itself", dag_.templates[a.node_template].name))
              .Hint("name two different nodes");
          return;
        }
        const GroupId source = dag_.templates[a.node_template].group;
        const GroupId destination = dag_.templates[b.node_template].group;
        if (!Shares(source, destination)) {
          Crossing& crossing = crossings[{HostOf(source), HostOf(destination)}];
          if (crossing.from.empty() || crossing.from.back() != a) crossing.from.push_back(a);
          if (a == crossing.from.front() || pairwise) crossing.to.push_back(b);
          continue;
        }
        if (pending_.size() - before >= kMaxEdges) {
          diag_.Error(directive.range, DiagKind::kBadEdge, fmt::format("more than {} edges", kMaxEdges))
              .Hint("name fewer microbatches");
          return;
        }
        pending_.push_back({a, b, origin_});
      }
    }
    for (auto& [hosts, crossing] : crossings) {
      std::sort(crossing.to.begin(), crossing.to.end());
      crossing.to.erase(std::unique(crossing.to.begin(), crossing.to.end()), crossing.to.end());
      Cross(hosts.first, hosts.second, crossing, pairwise);
      if (context_.Failed()) return;
    }
    if (pending_.size() == before && !from.empty() && !to.empty()) {
      diag_.Error(directive.range, DiagKind::kBadEdge, "the two ends have no microbatch in common")
          .Hint("name the microbatches on both sides: every selected first node then precedes every second");
    }
  }

  // The messages of one directive between two hosts.
  void Cross(GroupId source, GroupId destination, const Crossing& crossing, bool pairwise) {
    const Group& first = dag_.groups[source];
    const Group& second = dag_.groups[destination];
    if (first.devices.size() != second.devices.size()) {
      diag_
          .Error(directive_->range, DiagKind::kBadEdge,
                 fmt::format(
                     "{} has {} devices, {} has {}: the message that carries the edge pairs ranks one to one",
                     first.text, first.devices.size(), second.text, second.devices.size()))
          .Hint("join nodes of hosts of one shape");
      return;
    }
    if (!pairwise) {
      AddMessage(source, destination, -1, 0, crossing.from, crossing.to);
      return;
    }
    // A node of the step meets every microbatch of the other side; what has microbatches meets its own.
    std::vector<Instance> from[2], to[2];  // by: has microbatches
    for (const Instance& a : crossing.from) from[a.microbatch >= 0].push_back(a);
    for (const Instance& b : crossing.to) to[b.microbatch >= 0].push_back(b);
    if (!from[0].empty()) AddMessage(source, destination, -1, 0, from[0], crossing.to);
    if (!from[1].empty() && !to[0].empty()) AddMessage(source, destination, -1, 0, from[1], to[0]);
    std::vector<uint8_t> sends(static_cast<size_t>(dag_.microbatches)), receives(sends);
    for (const Instance& a : from[1]) sends[static_cast<size_t>(a.microbatch)] = 1;
    for (const Instance& b : to[1]) receives[static_cast<size_t>(b.microbatch)] = 1;
    for (int32_t begin = 0; begin < static_cast<int32_t>(dag_.microbatches);) {
      int32_t end = begin;
      auto both = [&](int32_t mb) {
        return mb < static_cast<int32_t>(dag_.microbatches) && sends[static_cast<size_t>(mb)] != 0 &&
               receives[static_cast<size_t>(mb)] != 0;
      };
      while (both(end)) ++end;
      if (end > begin) {
        std::vector<Instance> range_from, range_to;
        auto inside = [&](const Instance& i) { return i.microbatch >= begin && i.microbatch < end; };
        std::copy_if(from[1].begin(), from[1].end(), std::back_inserter(range_from), inside);
        std::copy_if(to[1].begin(), to[1].end(), std::back_inserter(range_to), inside);
        AddMessage(source, destination, begin, end, range_from, range_to);
      }
      begin = std::max(end, begin + 1);
    }
  }

  // A pair of nodes a microbatch of [begin, end), [-1, 0) for one of the step, behind `from` and before `to`.
  void AddMessage(GroupId source, GroupId destination, int32_t begin, int32_t end,
                  const std::vector<Instance>& from, const std::vector<Instance>& to) {
    const NodeTemplate& producer = dag_.templates[from.front().node_template];
    const NodeTemplate& consumer = dag_.templates[to.front().node_template];
    NodeTemplate send;
    send.kind = NodeKind::kSend;
    send.pass = producer.pass;
    send.copy = producer.copy;
    const std::string ends = fmt::format("{} -> {}", producer.name, consumer.name);
    send.name = "edge.send " + ends;
    send.tags = producer.tags;
    send.names = {InternName("edge.send")};
    send.group = source;
    send.stream = InternName("send");
    send.mb_begin = begin;
    send.mb_end = end;
    send.origin = origin_;
    send.peer_group = destination;
    NodeTemplate recv = send;
    recv.kind = NodeKind::kRecv;
    recv.pass = consumer.pass;
    recv.copy = consumer.copy;
    recv.name = "edge.recv " + ends;
    recv.tags = consumer.tags;
    recv.names = {InternName("edge.recv")};
    recv.group = destination;
    recv.stream = InternName("recv");
    recv.peer_group = source;
    const TemplateId send_id = Insert(std::move(send)), recv_id = Insert(std::move(recv));
    dag_.templates[send_id].match = recv_id;
    dag_.templates[recv_id].match = send_id;
    dag_.edges.push_back({send_id, recv_id, false, origin_});
    for (const Instance& a : from) pending_.push_back({a, {send_id, begin < 0 ? -1 : a.microbatch}, origin_});
    for (const Instance& b : to) pending_.push_back({{recv_id, begin < 0 ? -1 : b.microbatch}, b, origin_});
  }

  // Later directives may select it.
  TemplateId Insert(NodeTemplate node) {
    context_.template_tags.push_back(MakeTagSet(node.tags, node.names));
    return context_.AddTemplate(std::move(node));
  }

  bool Constrained(const Selector& selector) const {
    return std::any_of(selector.any_of.begin(), selector.any_of.end(),
                       [&](const SelectorClause& c) { return context_.split.Constrains(c); });
  }

  bool Shares(GroupId a, GroupId b) {
    if (a == b) return true;
    auto [known, fresh] = shares_.try_emplace({a, b}, false);
    if (!fresh) return known->second;
    const auto& first = dag_.groups[a].devices;
    const auto& second = dag_.groups[b].devices;
    known->second = std::any_of(first.begin(), first.end(), [&](uint32_t d) {
      return std::find(second.begin(), second.end(), d) != second.end();
    });
    return known->second;
  }

  // The first host within a group.
  GroupId HostOf(GroupId group) const {
    for (GroupId host : context_.hosts) {
      const uint32_t device = dag_.groups[host].devices.front();
      const auto& devices = dag_.groups[group].devices;
      if (host == group || std::find(devices.begin(), devices.end(), device) != devices.end()) return host;
    }
    return group;
  }

  NodeId NodeOf(const Instance& instance) const {
    const int32_t begin = dag_.templates[instance.node_template].mb_begin;
    return dag_.first_node[instance.node_template] + static_cast<NodeId>(instance.microbatch - begin);
  }

  BuildContext& context_;
  Dag& dag_;
  DiagnosticEngine& diag_;
  const Directive* directive_ = nullptr;
  OriginId origin_ = 0;
  std::vector<PendingEdge> pending_;
  std::map<std::pair<GroupId, GroupId>, bool> shares_;
};

}  // namespace

void ApplyEdge(BuildContext& context) { Edges(context).Run(); }

}  // namespace piper::ir
