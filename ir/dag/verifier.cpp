#include "ir/dag/verifier.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_set>

#include <fmt/format.h>

namespace piper::ir {

namespace {

constexpr size_t kMaxProblems = 8;

class Verifier {
 public:
  explicit Verifier(const Dag& dag) : dag_(dag) {}

  std::vector<DagProblem> Run() {
    CheckGroups();
    // Later checks index by what earlier ones establish.
    if (problems_.empty()) CheckTemplates();
    if (problems_.empty()) CheckMatches();
    if (problems_.empty()) CheckEdges();
    if (problems_.empty()) CheckTemporal();
    if (problems_.empty()) CheckOrders();
    if (problems_.empty()) CheckExpression();
    return std::move(problems_);
  }

 private:
  void Problem(TemplateId at, std::string message) {
    if (problems_.size() < kMaxProblems) problems_.push_back({at, std::move(message)});
  }

  void CheckGroups() {
    if (dag_.device_count == 0) Problem(kNone, "there are no devices");
    if (dag_.microbatches < 1 || dag_.replicas < 1)
      Problem(kNone, "microbatches and replicas are at least 1");
    int64_t product = 1;
    for (const auto& [name, size] : dag_.split_dims) {
      product = size >= 1 && product <= dag_.microbatches ? product * size : -1;
    }
    if (!dag_.split_dims.empty() && product != dag_.microbatches)
      Problem(kNone, "the split dimensions do not multiply to the number of microbatches");
    if (!dag_.device_replica.empty() && dag_.device_replica.size() != dag_.device_count)
      Problem(kNone, "there is one replica index a device");
    std::set<std::string_view> texts;
    for (const Group& group : dag_.groups) {
      if (!texts.insert(group.text).second)
        Problem(kNone, fmt::format("two groups are called '{}'", group.text));
      if (group.devices.empty()) Problem(kNone, fmt::format("group '{}' has no devices", group.text));
      std::vector<uint32_t> sorted = group.devices;
      std::sort(sorted.begin(), sorted.end());
      if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
        Problem(kNone, fmt::format("group '{}' lists a device twice", group.text));
      if (!sorted.empty() && sorted.back() >= dag_.device_count)
        Problem(kNone, fmt::format("group '{}' lists device {} of {}", group.text, sorted.back(),
                                   dag_.device_count));
    }
  }

  void CheckTemplates() {
    std::unordered_set<std::string_view> names;
    std::vector<uint32_t> host(dag_.device_count, kNone);
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const NodeTemplate& node = dag_.templates[t];
      if (node.name.empty() || !names.insert(node.name).second)
        Problem(t, fmt::format("the name '{}' is empty or not unique", node.name));
      if (node.group >= dag_.groups.size()) {
        Problem(t, fmt::format("'{}' is on no group", node.name));
        continue;
      }
      bool step = node.mb_begin == -1 && node.mb_end == 0;
      bool ranged = node.mb_begin >= 0 && node.mb_begin < node.mb_end && node.mb_end <= dag_.microbatches;
      if (!step && !ranged)
        Problem(t, fmt::format("'{}' has the microbatches {}..{} of {}", node.name, node.mb_begin,
                               node.mb_end, dag_.microbatches));
      if (node.stream == 0) Problem(t, fmt::format("'{}' has no stream", node.name));
      if (node.origin >= dag_.origins.size()) Problem(t, fmt::format("'{}' has no such origin", node.name));
      if (node.kind == NodeKind::kCompute && (node.region == kNone ||
                                              (node.pass != Pass::kF && node.pass != Pass::kBI &&
                                               node.pass != Pass::kBW && node.pass != Pass::kR) ||
                                              step)) {
        Problem(t, fmt::format("'{}' computes no pass of a region for a microbatch", node.name));
      }
      if (node.kind == NodeKind::kUpdate && node.parameter == kNone)
        Problem(t, fmt::format("'{}' updates no parameter", node.name));
      if (node.carried && node.kind != NodeKind::kValidate && node.kind != NodeKind::kAllReduce)
        Problem(t, fmt::format("'{}' cannot be carried into the next step", node.name));
      if (node.kind == NodeKind::kAccumulate && node.gradients.empty())
        Problem(t, fmt::format("'{}' accumulates no gradient", node.name));
      if (node.kind != NodeKind::kCompute) continue;
      for (uint32_t device : dag_.groups[node.group].devices) {
        if (host[device] == kNone) host[device] = node.group;
        if (host[device] != node.group) {
          Problem(t, fmt::format("'{}' is on {}, which shares device {} with {}", node.name,
                                 dag_.groups[node.group].text, device, dag_.groups[host[device]].text));
          break;
        }
      }
    }
    if (dag_.first_node.size() != dag_.templates.size() + 1) Problem(kNone, "the nodes are not numbered");
  }

  void CheckMatches() {
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const NodeTemplate& node = dag_.templates[t];
      bool message = node.kind == NodeKind::kSend || node.kind == NodeKind::kRecv;
      if (!message) {
        if (node.match != kNone) Problem(t, fmt::format("'{}' is no message but has another end", node.name));
        continue;
      }
      if (node.match >= dag_.templates.size()) {
        Problem(t, fmt::format("'{}' has no other end", node.name));
        continue;
      }
      const NodeTemplate& other = dag_.templates[node.match];
      bool kinds =
          node.kind != other.kind && (other.kind == NodeKind::kSend || other.kind == NodeKind::kRecv);
      bool same = other.match == t && other.value == node.value && other.cotangent == node.cotangent &&
                  other.consumer == node.consumer && other.bytes == node.bytes &&
                  other.cost_bytes == node.cost_bytes && other.cost == node.cost &&
                  other.mb_begin == node.mb_begin && other.mb_end == node.mb_end;
      bool placed = other.peer_group == node.group && node.peer_group == other.group &&
                    node.group != other.group &&
                    dag_.groups[node.group].devices.size() == dag_.groups[other.group].devices.size();
      if (!kinds || !same || !placed)
        Problem(t, fmt::format("'{}' and '{}' are not the two ends of one message", node.name, other.name));
    }
  }

  bool Share(GroupId a, GroupId b) {
    if (a == b) return true;
    const auto& first = dag_.groups[a].devices;
    const auto& second = dag_.groups[b].devices;
    return std::any_of(first.begin(), first.end(), [&](uint32_t d) {
      return std::find(second.begin(), second.end(), d) != second.end();
    });
  }

  void CheckEdges() {
    auto key = [](const TemplateEdge& e) { return std::tuple(e.from, e.to, !e.data, e.origin); };
    for (size_t i = 0; i < dag_.edges.size(); ++i) {
      const TemplateEdge& edge = dag_.edges[i];
      if (edge.from >= dag_.templates.size() || edge.to >= dag_.templates.size() || edge.from == edge.to ||
          edge.origin >= dag_.origins.size()) {
        Problem(kNone, "an edge has no ends");
        continue;
      }
      if (i > 0 && key(dag_.edges[i - 1]) >= key(edge))
        Problem(edge.from, fmt::format("the edge from '{}' to '{}' is out of order or repeated",
                                       dag_.templates[edge.from].name, dag_.templates[edge.to].name));
      const NodeTemplate& from = dag_.templates[edge.from];
      bool message = from.kind == NodeKind::kSend && from.match == edge.to;
      if (!message && !Share(from.group, dag_.templates[edge.to].group))
        Problem(edge.from, fmt::format("no message carries the edge from '{}' to '{}'", from.name,
                                       dag_.templates[edge.to].name));
    }
  }

  void CheckTemporal() {
    for (const TemporalEdge& edge : dag_.temporal) {
      if (edge.from >= dag_.node_count() || edge.to >= dag_.node_count() || edge.distance < 0 ||
          edge.distance > 1 || edge.origin >= dag_.origins.size())
        Problem(kNone, "a temporal edge has no ends");
    }
  }

  void CheckOrders() {
    // Times that some order lists a template's nodes, a device. Hosts' devices share their orders.
    std::vector<int64_t> covered(dag_.templates.size());
    std::vector<bool> seen(dag_.node_count());
    std::unordered_set<uint32_t> atomics;
    std::set<std::tuple<GroupId, NameId, NameId>> streams;
    for (const StreamOrder& order : dag_.orders) {
      if (order.group >= dag_.groups.size() || order.origin >= dag_.origins.size()) {
        Problem(kNone, "an order has no group");
        return;
      }
      const Group& group = dag_.groups[order.group];
      std::string name = fmt::format("the order of {} on {}", NameText(order.stream), group.text);
      if (!streams.insert({order.group, order.stream, order.peer}).second)
        Problem(kNone, name + " stands twice");
      uint32_t atomic = kNone;
      TemplateId t = kNone;
      for (const OrderItem& item : order.items) {
        if (item.node >= dag_.node_count() || item.origin >= dag_.origins.size()) {
          Problem(kNone, name + " lists no node");
          return;
        }
        if (t == kNone || item.node < dag_.first_node[t] || item.node >= dag_.first_node[t + 1])
          t = dag_.TemplateOf(item.node);
        const NodeTemplate& node = dag_.templates[t];
        if (node.stream != order.stream)
          Problem(t, fmt::format("{} lists '{}' of stream {}", name, node.name, NameText(node.stream)));
        if (order.peer != 0 && NameText(order.peer) != dag_.groups[node.peer_group].text)
          Problem(t, fmt::format("{} lists '{}', a message of another pair", name, node.name));
        if (seen[item.node]) Problem(t, fmt::format("{} lists '{}' twice", name, dag_.NodeName(item.node)));
        seen[item.node] = true;
        covered[t] += static_cast<int64_t>(group.devices.size());
        if (item.atomic != kNone && item.atomic != atomic && !atomics.insert(item.atomic).second)
          Problem(t, fmt::format("the atomic node of '{}' is not consecutive", dag_.NodeName(item.node)));
        atomic = item.atomic;
        const std::vector<uint32_t>& devices = dag_.groups[node.group].devices;
        if (node.group != order.group &&
            std::find(devices.begin(), devices.end(), group.devices.front()) == devices.end())
          Problem(
              t, fmt::format("{} lists '{}', which is on {}", name, node.name, dag_.groups[node.group].text));
        if (problems_.size() >= kMaxProblems) return;
      }
      for (const OrderItem& item : order.items) seen[item.node] = false;
    }
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      int64_t wanted = dag_.templates[t].node_count() *
                       static_cast<int64_t>(dag_.groups[dag_.templates[t].group].devices.size());
      if (covered[t] != wanted)
        Problem(t, fmt::format("the orders list '{}' {} times on its devices, not {}", dag_.templates[t].name,
                               covered[t], wanted));
    }
  }

  void CheckExpression() {
    if (dag_.expression.replicas != dag_.replicas || dag_.expression.microbatches != dag_.microbatches)
      Problem(kNone, "the gradient expression is about other replicas or microbatches");
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const NodeTemplate& node = dag_.templates[t];
      if (node.pairwise != (SumsReplicas(node) && dag_.expression.pairwise))
        Problem(t, fmt::format("'{}' does not fold as the gradient expression says", node.name));
    }
  }

  const Dag& dag_;
  std::vector<DagProblem> problems_;
};

}  // namespace

std::vector<DagProblem> VerifyDag(const Dag& dag) { return Verifier(dag).Run(); }

}  // namespace piper::ir
