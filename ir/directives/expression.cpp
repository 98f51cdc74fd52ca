#include "ir/directives/expression.h"

#include <algorithm>

#include <fmt/format.h>

namespace piper::ir {
namespace {

// The line to which a host owes its order of the BW `weight`: its own `order`, else the `stream` line that
// moved the BW or something beside it (a stream without an order follows what it waits for), else the order
// that another host was given.
OriginId Cause(const Dag& dag, const StreamOrder& order, TemplateId weight) {
  if (order.origin != 0) return order.origin;
  if (dag.templates[weight].origin != 0) return dag.templates[weight].origin;
  for (const NodeTemplate& node : dag.templates) {
    if (node.kind == NodeKind::kCompute && node.group == order.group && node.origin != 0) return node.origin;
  }
  for (const StreamOrder& other : dag.orders) {
    if (other.origin != 0) return other.origin;
  }
  return 0;
}

}  // namespace

void RecordExpression(BuildContext& context) {
  Dag& dag = context.dag;
  dag.expression.replicas = dag.replicas;
  dag.expression.microbatches = dag.microbatches;
  bool copied = std::any_of(context.copies.begin(), context.copies.end(),
                            [](const auto& copies) { return copies.size() > 1; });
  if (copied) {
    for (const std::vector<RegionCopy>& copies : context.copies) {
      dag.expression.copy_ranges.emplace_back();
      for (const RegionCopy& copy : copies)
        dag.expression.copy_ranges.back().emplace_back(copy.begin, copy.end);
    }
  }
  if (context.forward_only) return;
  // Of each BW template: the microbatch that its order lists last, and whether that ever went back.
  std::vector<bool> back(dag.templates.size());
  std::vector<NodeId> last(dag.templates.size(), kNone);
  bool warned = false;
  for (const StreamOrder& order : dag.orders) {
    if (!context.Computes(order.stream)) continue;
    TemplateId t = kNone;
    OriginId where = 0;
    TemplateId changed = kNone;
    std::vector<TemplateId> weights;
    for (TemplateId candidate = 0; candidate < dag.templates.size(); ++candidate) {
      const NodeTemplate& node = dag.templates[candidate];
      if (node.kind == NodeKind::kCompute && node.pass == Pass::kBW && node.group == order.group &&
          node.stream == order.stream)
        weights.push_back(candidate);
    }
    if (weights.empty()) continue;
    // Their node ids ascend with the template: a binary search finds the template of an item, if it is a BW.
    auto find = [&](NodeId node) {
      auto after = std::upper_bound(weights.begin(), weights.end(), node,
                                    [&](NodeId n, TemplateId w) { return n < dag.first_node[w]; });
      if (after == weights.begin()) return kNone;
      TemplateId w = *std::prev(after);
      return node < dag.first_node[w + 1] ? w : kNone;
    };
    for (const OrderItem& item : order.items) {
      t = find(item.node);
      if (t == kNone) continue;
      if (last[t] != kNone && item.node < last[t]) {
        if (!back[t] && changed == kNone) {
          changed = t;
          where = item.origin;
        }
        back[t] = true;
      }
      last[t] = item.node;
    }
    if (changed == kNone) continue;
    std::map<TemplateId, std::vector<int32_t>> folds;
    for (const OrderItem& item : order.items) {
      t = find(item.node);
      if (t != kNone && back[t])
        folds[t].push_back(dag.templates[t].mb_begin + static_cast<int32_t>(item.node - dag.first_node[t]));
    }
    for (auto& [weight, microbatches] : folds) {
      dag.expression.permuted.push_back(
          {dag.templates[weight].region, dag.templates[weight].copy, std::move(microbatches)});
    }
    if (warned) continue;
    warned = true;
    context.diag
        .Warning(dag.origins[where != 0 ? where : Cause(dag, order, changed)], DiagKind::kExpressionChanged,
                 fmt::format("the gradients of {} fold their microbatches in another order than ascending",
                             dag.templates[changed].name.substr(3)))
        .Hint(
            "the result differs in its last bits from that of ascending orders; the reference follows this "
            "one");
  }
  std::sort(dag.expression.permuted.begin(), dag.expression.permuted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.region, a.copy) < std::pair(b.region, b.copy);
  });
}

}  // namespace piper::ir
