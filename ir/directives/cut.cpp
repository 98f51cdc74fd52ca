#include "ir/directives/cut.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

namespace piper::ir {

namespace {

struct CutUnit {
  std::string tag;
  std::string name;  // "layer3"
  OpId first = 0;
};

std::string PathText(const TagPath& path, size_t length) {
  std::string text;
  for (size_t i = 0; i < length; ++i)
    text += fmt::format("{}{}{}", i ? "." : "", path[i].name, path[i].index);
  return text;
}

// The instances of the listed tags, in model order. An operation belongs to the outermost listed tag on its
// path.
std::vector<CutUnit> FindUnits(const Graph& graph, const CutDirective& cut) {
  std::vector<CutUnit> units;
  std::set<TagPath> seen;
  for (OpId op = 0; op < graph.operations.size(); ++op) {
    const TagPath& path = graph.tag_paths[graph.operations[op].tags];
    for (size_t depth = 0; depth < path.size(); ++depth) {
      bool listed = std::any_of(cut.tags.begin(), cut.tags.end(),
                                [&](const auto& tag) { return tag.first == path[depth].name; });
      if (!listed) continue;
      TagPath key(path.begin(), path.begin() + static_cast<ptrdiff_t>(depth) + 1);
      if (seen.insert(key).second) units.push_back({path[depth].name, PathText(path, depth + 1), op});
      break;
    }
  }
  return units;
}

// FLOP/s of the slowest device of a group, 0 where one declares no rate; nothing if the group does not
// resolve
// (`place` itself reports that).
std::optional<double> GroupRate(BuildContext& context, const GroupExpr& expr) {
  DiagnosticEngine silent(context.diag.sources());
  BuildContext probe(context.program, context.forward_only, silent);
  probe.meshes = context.meshes;
  std::optional<Group> group = probe.ResolveGroup(expr, {}, DiagKind::kBadPlace);
  if (!group) return std::nullopt;
  double slowest = INFINITY;
  for (uint32_t device : group->devices) {
    const auto& compute = context.program.topology.Kind(device).compute;
    auto it = compute.find("f32");
    slowest = std::min(slowest, it == compute.end() ? 0.0 : it->second);
  }
  return slowest;
}

// The rate of the devices that stage `stage` is placed on: `cut` and `place` are read together.
std::optional<double> StageRate(BuildContext& context, const CutDirective& cut, int64_t stage) {
  NameId tag = InternName(cut.as);
  std::optional<double> rate;
  bool any = false;
  context.ForEach<PlaceDirective>([&](const Directive&, const PlaceDirective& place) {
    any = true;
    for (const SelectorClause& clause : place.select.any_of) {
      bool about_stage = std::any_of(clause.terms.begin(), clause.terms.end(), [&](const SelectorTerm& term) {
        return term.name == tag && !term.negated && term.Contains(stage);
      });
      if (!about_stage) continue;
      std::optional<double> here = GroupRate(context, place.group);
      if (here) rate = rate ? std::min(*rate, *here) : *here;
    }
  });
  if (any) return rate;
  // No `place`: stage s is on position s of the one axis that the batch is not sharded over.
  for (const MeshAxis& axis : context.meshes.front().axes) {
    bool batch = std::find(context.batch_axes.begin(), context.batch_axes.end(), axis.name) !=
                 context.batch_axes.end();
    if (batch || stage >= axis.size) continue;
    GroupExpr expr;
    expr.slices.push_back({axis.name, stage, stage + 1, {}});
    return GroupRate(context, expr);
  }
  return std::nullopt;
}

// Stage of each unit, or empty after an error.
std::vector<int64_t> Balanced(BuildContext& context, const Directive& directive, const CutDirective& cut,
                              const std::vector<CutUnit>& units, const RegionBuilder& build_regions) {
  auto parts = static_cast<size_t>(cut.parts);
  std::vector<double> flops(units.size());
  if (parts > 1) {
    RegionGraph regions = build_regions(context.graph);
    for (const Region& region : regions.regions) {
      size_t unit = 0;
      while (unit + 1 < units.size() && units[unit + 1].first <= region.first) ++unit;
      flops[unit] += region.forward.flops + region.backward_input.flops + region.backward_weight.flops;
    }
  }
  // A stage that is placed nowhere is an error of `place`; here all devices then count as equal.
  std::vector<double> rates(parts);
  bool placed = true;
  for (size_t part = 0; part < parts; ++part) {
    std::optional<double> rate = StageRate(context, cut, static_cast<int64_t>(part));
    placed &= rate.has_value();
    rates[part] = rate.value_or(0);
  }
  bool uniform =
      !placed || std::all_of(rates.begin(), rates.end(), [&](double rate) { return rate == rates[0]; });
  bool known = std::all_of(rates.begin(), rates.end(), [](double rate) { return rate > 0; });
  bool costless = std::all_of(flops.begin(), flops.end(), [](double f) { return f == 0; });
  if (!uniform && !known) {
    context.diag
        .Error(directive.range, DiagKind::kBadCut,
               "the stages' devices differ, and one of them declares no f32 compute rate")
        .Hint("declare `compute f32 = ..` for every device kind, or cut by an explicit list");
    return {};
  }
  // Integers, so that equal layers are exactly equal: FLOPs, or picoseconds where devices differ.
  std::vector<std::vector<int64_t>> cost(parts, std::vector<int64_t>(units.size()));
  for (size_t part = 0; part < parts; ++part) {
    for (size_t unit = 0; unit < units.size(); ++unit) {
      double value = costless ? 1.0 : uniform ? flops[unit] : flops[unit] / rates[part] * 1e12;
      cost[part][unit] = static_cast<int64_t>(std::llround(std::min(value, 1e17)));
    }
  }
  std::vector<int64_t> sizes = BalancedPartition(cost);
  std::vector<int64_t> stages;
  for (size_t part = 0; part < parts; ++part)
    stages.insert(stages.end(), static_cast<size_t>(sizes[part]), static_cast<int64_t>(part));
  return stages;
}

std::string ListText(const std::vector<std::vector<CutDirective::Term>>& parts) {
  std::string text = "[";
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i) text += ", ";
    for (size_t j = 0; j < parts[i].size(); ++j) {
      if (j) text += " + ";
      text +=
          parts[i][j].count == 1 ? parts[i][j].tag : fmt::format("{}*{}", parts[i][j].count, parts[i][j].tag);
    }
  }
  return text + "]";
}

// An even explicit list over the same number of parts, for hints.
std::string EvenList(const std::vector<CutUnit>& units, size_t parts) {
  std::vector<std::vector<CutDirective::Term>> list(parts);
  for (size_t part = 0; part < parts; ++part) {
    size_t begin = units.size() * part / parts, end = units.size() * (part + 1) / parts;
    for (size_t unit = begin; unit < end; ++unit) {
      if (list[part].empty() || list[part].back().tag != units[unit].tag)
        list[part].push_back({units[unit].tag, 0});
      ++list[part].back().count;
    }
  }
  return ListText(list);
}

std::vector<int64_t> Explicit(BuildContext& context, const Directive& directive, const CutDirective& cut,
                              const std::vector<CutUnit>& units) {
  std::vector<int64_t> stages;
  size_t parts = cut.explicit_parts.size();
  auto hint = [&] {
    return fmt::format("{} covers them all", EvenList(units, std::min(parts, units.size())));
  };
  for (size_t part = 0; part < parts; ++part) {
    for (const CutDirective::Term& term : cut.explicit_parts[part]) {
      for (int64_t i = 0; i < term.count; ++i) {
        if (stages.size() < units.size() && units[stages.size()].tag == term.tag) {
          stages.push_back(static_cast<int64_t>(part));
          continue;
        }
        auto total = std::count_if(units.begin(), units.end(),
                                   [&](const CutUnit& unit) { return unit.tag == term.tag; });
        std::string next = stages.size() == units.size()
                               ? "the model has no more units"
                               : fmt::format("the next unit in model order is {}", units[stages.size()].name);
        context.diag
            .Error(directive.range, DiagKind::kBadCut,
                   fmt::format("part {} of the list asks for {} more '{}', but {} (there are {} '{}' in all)",
                               part, term.count - i, term.tag, next, total, term.tag))
            .Hint(hint());
        return {};
      }
    }
    if (cut.explicit_parts[part].empty()) {
      context.diag
          .Error(directive.range, DiagKind::kBadCut, fmt::format("part {} of the list is empty", part))
          .Hint(hint());
      return {};
    }
  }
  if (stages.size() < units.size()) {
    context.diag
        .Error(directive.range, DiagKind::kBadCut,
               fmt::format("the list covers {} of {} units; {} is the first that is left over", stages.size(),
                           units.size(), units[stages.size()].name))
        .Hint(hint());
    return {};
  }
  return stages;
}

}  // namespace

std::vector<int64_t> BalancedPartition(const std::vector<std::vector<int64_t>>& cost) {
  size_t parts = cost.size(), units = cost[0].size();
  using Wide = unsigned __int128;
  std::vector<std::vector<int64_t>> prefix(parts, std::vector<int64_t>(units + 1));
  for (size_t p = 0; p < parts; ++p) {
    for (size_t u = 0; u < units; ++u) prefix[p][u + 1] = prefix[p][u] + cost[p][u];
  }
  auto span = [&](size_t part, size_t begin, size_t end) { return prefix[part][end] - prefix[part][begin]; };
  // best[p][i]: the smallest maximum for units [i, units) in parts [p, parts), each with at least one unit.
  std::vector<std::vector<int64_t>> best(parts + 1, std::vector<int64_t>(units + 1, INT64_MAX));
  best[parts][units] = 0;
  for (size_t p = parts; p-- > 0;) {
    for (size_t i = 0; i < units; ++i) {
      for (size_t j = i + 1; j <= units && units - j >= parts - p - 1; ++j) {
        if (best[p + 1][j] == INT64_MAX) continue;
        int64_t first = span(p, i, j);
        best[p][i] = std::min(best[p][i], std::max(first, best[p + 1][j]));
        if (first >= best[p][i]) break;  // spans only grow
      }
    }
  }
  // Within that bound: the smallest sum of squares; ties go to the smallest first part.
  int64_t bound = best[0][0];
  const Wide kNever = ~Wide{0};
  std::vector<std::vector<Wide>> squares(parts + 1, std::vector<Wide>(units + 1, kNever));
  std::vector<std::vector<size_t>> next(parts, std::vector<size_t>(units + 1));
  squares[parts][units] = 0;
  for (size_t p = parts; p-- > 0;) {
    for (size_t i = 0; i < units; ++i) {
      for (size_t j = i + 1; j <= units && units - j >= parts - p - 1 && span(p, i, j) <= bound; ++j) {
        if (squares[p + 1][j] == kNever) continue;
        auto size = static_cast<Wide>(span(p, i, j));
        Wide sum = size * size + squares[p + 1][j];
        if (sum < squares[p][i]) {
          squares[p][i] = sum;
          next[p][i] = j;
        }
      }
    }
  }
  std::vector<int64_t> sizes;
  for (size_t p = 0, i = 0; p < parts; ++p) {
    sizes.push_back(static_cast<int64_t>(next[p][i] - i));
    i = next[p][i];
  }
  return sizes;
}

void ApplyCut(BuildContext& context, const RegionBuilder& build_regions) {
  DiagnosticEngine& diag = context.diag;
  const Directive* directive = context.Single<CutDirective>("`cut`");
  if (directive == nullptr || context.Failed()) return;
  const auto& cut = std::get<CutDirective>(directive->body);
  Graph& graph = context.graph;
  std::set<std::string> tags;
  for (const TagPath& path : graph.tag_paths) {
    for (const TagInstance& tag : path) tags.insert(tag.name);
  }
  for (const auto& [tag, range] : cut.tags) {
    if (tags.count(tag)) continue;
    auto error = diag.Error(range.valid() ? range : directive->range, DiagKind::kNoSuchTag,
                            fmt::format("the model has no tag '{}' to cut at", tag));
    std::string near = NearestName(tag, {tags.begin(), tags.end()});
    error.Hint(near.empty() ? fmt::format("its tags are {}", fmt::join(tags, ", "))
                            : fmt::format("did you mean '{}'?", near));
    return;
  }
  if (tags.count(cut.as) || context.split.IsSplit(InternName(cut.as))) {
    diag.Error(directive->range, DiagKind::kBadCut,
               fmt::format("the stages need a name of their own: '{}' is taken", cut.as))
        .Hint("the usual name is stage");
    return;
  }
  std::vector<CutUnit> units = FindUnits(graph, cut);
  auto parts = cut.explicit_parts.empty() ? cut.parts : static_cast<int64_t>(cut.explicit_parts.size());
  if (parts < 1 || parts > static_cast<int64_t>(units.size())) {
    diag.Error(directive->range, DiagKind::kBadCut,
               fmt::format("{} units cannot be cut into {} stages of at least one unit each", units.size(),
                           parts))
        .Hint(parts < 1 ? "there must be at least one stage" : fmt::format("{} is the most", units.size()));
    return;
  }
  if (!cut.explicit_parts.empty() && cut.parts > 0 && cut.parts != parts) {
    diag.Error(directive->range, DiagKind::kBadCut,
               fmt::format("the list has {} parts for {} stages", parts, cut.parts));
    return;
  }
  std::vector<int64_t> stages = cut.explicit_parts.empty()
                                    ? Balanced(context, *directive, cut, units, build_regions)
                                    : Explicit(context, *directive, cut, units);
  if (stages.empty()) return;

  // Every operation joins the unit that started last; those before the first unit join stage 0.
  std::map<std::pair<int64_t, TagPathId>, TagPathId> retagged;
  size_t unit = 0;
  for (OpId op = 0; op < graph.operations.size(); ++op) {
    while (unit + 1 < units.size() && units[unit + 1].first <= op) ++unit;
    TagPathId old = graph.operations[op].tags;
    auto [it, fresh] = retagged.try_emplace({stages[unit], old}, 0);
    if (fresh) {
      TagPath path = graph.tag_paths[old];
      path.insert(path.begin(), TagInstance{cut.as, stages[unit]});
      it->second = graph.InternTags(path);
    }
    graph.operations[op].tags = it->second;
  }
  context.stage_tag = cut.as;
}

}  // namespace piper::ir
