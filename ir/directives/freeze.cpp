#include "ir/directives/freeze.h"

#include <algorithm>

#include <fmt/format.h>

namespace piper::ir {

bool Trains(const BuildContext& context) {
  const std::vector<Parameter>& parameters = context.program.model.parameters;
  return !context.forward_only &&
         std::any_of(parameters.begin(), parameters.end(), [](const Parameter& p) { return !p.frozen; });
}

void ApplyFreeze(BuildContext& context) {
  DiagnosticEngine& diag = context.diag;
  Graph& graph = context.graph;
  for (const TagPath& path : graph.tag_paths) {
    for (const TagInstance& tag : path) context.vocabulary.AddTag(InternName(tag.name), tag.index);
  }
  std::vector<TagSet> path_tags;
  context.ForEach<FreezeDirective>([&](const Directive& directive, const FreezeDirective& freeze) {
    if (path_tags.empty()) {
      for (const TagPath& path : graph.tag_paths) path_tags.push_back(MakeTagSet(path));
    }
    SourceRange range = freeze.select.range.valid() ? freeze.select.range : directive.range;
    if (context.vocabulary.ReportUnknownNames(freeze.select, directive.range, diag)) return;
    for (const SelectorClause& clause : freeze.select.any_of) {
      if (clause.passes == 0 && !context.split.Constrains(clause)) continue;
      diag.Error(range, DiagKind::kBadFreeze,
                 fmt::format("{} names a pass or a microbatch; `freeze` is about regions",
                             freeze.select.ToString()));
      return;
    }
    auto selected = [&](OpId op) {
      for (const SelectorClause& clause : freeze.select.any_of) {
        if (TagsMatch(clause, path_tags[graph.operations[op].tags], context.split)) return true;
      }
      return false;
    };
    bool any = false;
    std::vector<OpId> used_inside(graph.parameters.size(), kNone),
        used_outside(graph.parameters.size(), kNone);
    for (OpId op = 0; op < graph.operations.size(); ++op) {
      bool inside = selected(op);
      any |= inside;
      for (ValueId value : graph.operations[op].operands) {
        if (graph.values[value].source != Value::Source::kParameter) continue;
        (inside ? used_inside : used_outside)[graph.values[value].index] = op;
      }
    }
    if (!any) {
      if (!freeze.select.optional) context.vocabulary.ExplainEmpty(freeze.select, directive.range, diag);
      return;
    }
    bool froze = false;
    for (ParameterId p = 0; p < graph.parameters.size(); ++p) {
      if (used_inside[p] == kNone) continue;
      if (used_outside[p] != kNone) {
        diag.Error(range, DiagKind::kBadFreeze,
                   fmt::format("'{}' is also used outside of {}", graph.parameters[p].name,
                               freeze.select.ToString()))
            .Note(graph.operations[used_outside[p]].range, "here")
            .Hint("a tied parameter is frozen with all its uses: widen the selector");
        return;
      }
      graph.parameters[p].frozen = true;
      froze = true;
    }
    if (any && !froze && !freeze.select.optional) {
      diag.Error(range, DiagKind::kBadFreeze, fmt::format("{} has no parameters", freeze.select.ToString()));
    }
  });
  bool trainable = false;
  for (const Parameter& parameter : graph.parameters) trainable |= !parameter.frozen;
  if (!trainable && Trains(context) && !context.Failed()) {
    context.ForEach<FreezeDirective>([&](const Directive& directive, const FreezeDirective&) {
      if (trainable) return;
      diag.Error(directive.range, DiagKind::kBadFreeze, "nothing is left to train")
          .Hint("evaluate with an `eval` block instead");
      trainable = true;
    });
  }
}

}  // namespace piper::ir
