#include "ir/directives/cost.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "ir/directives/freeze.h"

namespace piper::ir {

namespace {

// Shares `total` among the templates in proportion to their FLOPs; the parts add up exactly.
void Share(Dag& dag, const std::vector<TemplateId>& templates, Picoseconds total) {
  std::vector<__int128> weights;
  __int128 sum = 0;
  for (TemplateId t : templates) {
    weights.push_back(static_cast<__int128>(std::llround(std::min(dag.templates[t].flops, 1e17))));
    sum += weights.back();
  }
  if (sum == 0) {
    std::fill(weights.begin(), weights.end(), 1);
    sum = static_cast<__int128>(weights.size());
  }
  __int128 seen = 0;
  Picoseconds given = 0;
  for (size_t i = 0; i < templates.size(); ++i) {
    seen += weights[i];
    auto until = static_cast<Picoseconds>(static_cast<__int128>(total) * seen / sum);
    dag.templates[templates[i]].cost = until - given;
    given = until;
  }
}

// What is replayed costs what its F costs, instance by instance, unless a `cost R[..]` gave it a figure.
void CostReplays(BuildContext& context, const SelectorClause& forward, Picoseconds figure,
                 const std::vector<const Directive*>& timed) {
  SelectorClause clause = forward;
  clause.passes = PassBit(Pass::kR);
  Dag& dag = context.dag;
  std::map<std::pair<TagPath, uint32_t>, std::vector<TemplateId>> instances;
  for (TemplateId t : context.MatchTemplates(clause)) {
    if (timed[t] != nullptr) continue;
    const NodeTemplate& node = dag.templates[t];
    TagPath carrier = InstanceOf(context, clause, node.tags);
    if (carrier.empty()) {
      dag.templates[t].cost = figure;
    } else {
      instances[{std::move(carrier), node.copy}].push_back(t);
    }
  }
  for (const auto& instance : instances) Share(dag, instance.second, figure);
}

}  // namespace

void ApplyCost(BuildContext& context) {
  DiagnosticEngine& diag = context.diag;
  Dag& dag = context.dag;
  std::vector<const Directive*> timed(dag.templates.size()), sized(dag.templates.size());
  std::vector<std::pair<const SelectorClause*, Picoseconds>> replayed;  // figures of F
  context.ForEach<CostDirective>([&](const Directive& directive, const CostDirective& cost) {
    bool time = cost.figure.kind == UnitKind::kTime;
    if (!time && cost.figure.kind != UnitKind::kBytes) {
      diag.Error(directive.range, DiagKind::kBadCost,
                 fmt::format("a cost is a time or bytes, not {}", UnitKindName(cost.figure.kind)));
      return;
    }
    if (!(cost.figure.value >= 0) || cost.figure.value > 9e18) {
      diag.Error(directive.range, DiagKind::kBadCost, "a cost lies between 0 and 2^63");
      return;
    }
    auto figure = static_cast<int64_t>(std::llround(cost.figure.value));
    if (!cost.fused.empty()) {
      if (!time) {
        diag.Error(directive.range, DiagKind::kBadCost, "a fused step costs time, not bytes");
        return;
      }
      for (const Selector& part : cost.fused) {
        if (context.ReportIfEmpty(part, directive.range)) return;
      }
      context.fused_costs.push_back({&directive, &cost, false});
      return;
    }
    SourceRange range = cost.select.range.valid() ? cost.select.range : directive.range;
    bool any = false;
    for (const SelectorClause& clause : cost.select.any_of) {
      if (context.split.Constrains(clause)) {
        diag.Error(
            range, DiagKind::kBadCost,
            fmt::format("{} names a microbatch; all microbatches cost the same", cost.select.ToString()));
        return;
      }
      bool inserted = context.vocabulary.NamesInserted(clause);
      if (clause.passes == 0 && !inserted) {
        diag.Error(range, DiagKind::kBadCost,
                   fmt::format("{} names neither a pass nor an inserted node", cost.select.ToString()))
            .Hint("say which pass it is: `cost F[..] = ..`, `cost B[..] = ..`");
        return;
      }
      // Instances of the carrying tag, in order of their first template.
      std::vector<std::pair<std::pair<TagPath, uint32_t>, std::vector<TemplateId>>> instances;
      for (TemplateId t : context.MatchTemplates(clause)) {
        NodeTemplate& node = dag.templates[t];
        any = true;
        std::vector<const Directive*>& owner = time ? timed : sized;
        if (owner[t] != nullptr && owner[t] != &directive) {
          diag.Error(directive.range, DiagKind::kConflict, fmt::format("{} has a second cost", node.name))
              .Note(owner[t]->range, "the first one is here");
          return;
        }
        if (owner[t] == &directive) continue;
        owner[t] = &directive;
        bool message = node.kind == NodeKind::kSend || node.kind == NodeKind::kRecv;
        if (message) owner[node.match] = &directive;
        if (!time) {
          bool moves = message || node.bytes > 0;
          if (!moves || node.kind == NodeKind::kCompute || node.kind == NodeKind::kUpdate) {
            diag.Error(range, DiagKind::kBadCost, fmt::format("{} moves no bytes", node.name))
                .Hint("messages and collectives do: [send], [dp.reduce]");
            return;
          }
          node.cost_bytes = figure;
          if (message) dag.templates[node.match].cost_bytes = figure;
          continue;
        }
        TagPath carrier = inserted ? TagPath{} : InstanceOf(context, clause, node.tags);
        if (carrier.empty()) {
          node.cost = figure;
          if (message) dag.templates[node.match].cost = figure;
          continue;
        }
        std::pair<TagPath, uint32_t> key{std::move(carrier), node.copy};
        auto it = std::find_if(instances.begin(), instances.end(),
                               [&](const auto& entry) { return entry.first == key; });
        if (it == instances.end())
          it = instances.emplace(instances.end(), std::move(key), std::vector<TemplateId>());
        it->second.push_back(t);
      }
      for (const auto& instance : instances) Share(dag, instance.second, figure);
      if (time && (clause.passes & PassBit(Pass::kF)) != 0) replayed.push_back({&clause, figure});
    }
    if (!any) context.ReportIfEmpty(cost.select, directive.range);
  });
  for (const auto& [clause, figure] : replayed) CostReplays(context, *clause, figure, timed);
}

void CheckFusedCosts(BuildContext& context) {
  if (!Trains(context)) return;
  for (const FusedCost& fused : context.fused_costs) {
    if (fused.used) continue;
    context.diag.Error(fused.directive->range, DiagKind::kBadCost, "no order has a fused step of these parts")
        .Hint(
            "`fused(f, b)` in an order makes one; its parts, in order, must lie within the selectors of the "
            "cost");
  }
}

}  // namespace piper::ir
