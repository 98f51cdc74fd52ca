#include "ir/lower/optimizer_groups.h"

#include <algorithm>
#include <set>
#include <string>

#include <fmt/format.h>

#include "ir/lower/select.h"
#include "ir/support/nearest.h"

namespace piper::ir {
namespace {

// Wildcard match without backtracking over more than one star at a time.
bool Matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool Covers(const Selector& selector, const TagPath& tags) {
  for (const SelectorClause& clause : selector.any_of) {
    if (MatchesTags(clause, tags, {}, {})) return true;
  }
  return false;
}

// What names a part of the model names one: a misspelt part would silently train like the rest.
void CheckParts(const OptimizerSpec& spec, const RegionGraph& regions, DiagnosticEngine& diag) {
  const Graph& graph = regions.graph;
  for (const std::string& pattern : spec.parameter_names) {
    const bool any = std::any_of(graph.parameters.begin(), graph.parameters.end(),
                                 [&](const Parameter& p) { return Matches(pattern, p.name); });
    if (any) continue;
    std::vector<std::string> names;
    for (const Parameter& parameter : graph.parameters) names.push_back(parameter.name);
    const std::string near = NearestName(pattern, names);
    diag.Error(spec.range, DiagKind::kBadOptimizer, fmt::format("no parameter is called \"{}\"", pattern))
        .Hint(near.empty() ? fmt::format("parameters are called like {}", names.front())
                           : fmt::format("did you mean \"{}\"?", near));
    return;
  }
  if (!spec.select) return;
  const SourceRange range = spec.select->range.valid() ? spec.select->range : spec.range;
  std::set<std::string> tags;
  for (const TagPath& path : graph.tag_paths) {
    for (const TagInstance& tag : path) tags.insert(tag.name);
  }
  for (const SelectorClause& clause : spec.select->any_of) {
    if (clause.optional) continue;
    for (const SelectorTerm& term : clause.terms) {
      const std::string& name = NameText(term.name);
      if (tags.count(name)) continue;
      const std::string near = NearestName(name, {tags.begin(), tags.end()});
      diag.Error(range, DiagKind::kNoSuchTag, fmt::format("nothing of the model is called '{}'", name))
          .Hint(near.empty() ? fmt::format("the tags are {}", fmt::join(tags, ", "))
                             : fmt::format("did you mean '{}'?", near));
      return;
    }
    const bool any = std::any_of(regions.regions.begin(), regions.regions.end(), [&](const Region& region) {
      return !region.parameters.empty() && MatchesTags(clause, graph.tag_paths[region.tags], {}, {});
    });
    if (any) continue;
    Selector alone;
    alone.any_of = {clause};
    diag.Error(range, DiagKind::kEmptySelector, fmt::format("{} selects no parameters", alone.ToString()))
        .Hint("write `?` after a selector that may be empty");
    return;
  }
}

}  // namespace

std::vector<OptimizerChoice> ChooseOptimizers(const TrainSpec& train, const RegionGraph& regions,
                                              DiagnosticEngine& diag) {
  const Graph& graph = regions.graph;
  for (const OptimizerSpec& spec : train.optimizers) CheckParts(spec, regions, diag);
  std::vector<std::vector<TagPathId>> used_in(graph.parameters.size());
  for (const Region& region : regions.regions) {
    for (ParameterId parameter : region.parameters) used_in[parameter].push_back(region.tags);
  }
  std::vector<OptimizerChoice> choices(graph.parameters.size());
  for (ParameterId p = 0; p < graph.parameters.size(); ++p) {
    const Parameter& parameter = graph.parameters[p];
    if (parameter.frozen || used_in[p].empty()) continue;
    for (uint32_t s = 0; s < train.optimizers.size(); ++s) {
      const OptimizerSpec& spec = train.optimizers[s];
      bool covers = !spec.select && spec.parameter_names.empty();
      for (const std::string& pattern : spec.parameter_names)
        covers = covers || Matches(pattern, parameter.name);
      if (spec.select) {
        for (TagPathId tags : used_in[p]) covers = covers || Covers(*spec.select, graph.tag_paths[tags]);
      }
      if (!covers) continue;
      choices[p].spec = s;
      choices[p].weight_decay =
          spec.matrices_only && parameter.type.dims.size() < 2 ? 0.0 : spec.weight_decay;
    }
    if (choices[p].spec == kNone) {
      diag.Error(train.range, DiagKind::kBadOptimizer,
                 "no optimizer covers parameter '" + parameter.name + "'")
          .Note(parameter.range, "the parameter is declared here")
          .Hint("add an optimizer without a selector first: it covers all the rest; or freeze the parameter");
    }
  }
  return choices;
}

runtime::Optimizer LowerOptimizer(const OptimizerSpec& spec) {
  runtime::Optimizer optimizer{};
  optimizer.kind = spec.kind == OptimizerSpec::Kind::kAdamW ? 1 : 0;
  optimizer.nesterov = spec.nesterov ? 1 : 0;
  optimizer.momentum = spec.momentum;
  optimizer.beta1 = spec.beta1;
  optimizer.beta2 = spec.beta2;
  optimizer.eps = spec.eps;
  optimizer.schedule = static_cast<uint8_t>(spec.lr.kind);
  optimizer.peak = spec.lr.peak;
  optimizer.floor = spec.lr.floor;
  optimizer.warmup = spec.lr.warmup;
  optimizer.total = spec.lr.total;
  return optimizer;
}

}  // namespace piper::ir
