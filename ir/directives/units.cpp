#include "ir/directives/units.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace piper::ir {

namespace {

// True after an error.
bool ReportForm(BuildContext& context, const Directive& directive, const Selector& select, DiagKind kind,
                std::string_view verb) {
  SourceRange range = select.range.valid() ? select.range : directive.range;
  if (context.vocabulary.ReportUnknownNames(select, directive.range, context.diag)) return true;
  for (const SelectorClause& clause : select.any_of) {
    if (clause.passes != 0 || context.split.Constrains(clause)) {
      context.diag.Error(
          range, kind,
          fmt::format("{} names a pass or a microbatch; `{}` is about regions, in all of their "
                      "microbatches",
                      select.ToString(), verb));
      return true;
    }
    if (context.vocabulary.NamesInserted(clause)) {
      context.diag.Error(range, kind,
                         fmt::format("{} names an inserted node; `{}` is about regions of the model",
                                     select.ToString(), verb));
      return true;
    }
  }
  return false;
}

}  // namespace

void ClaimUnits(BuildContext& context, const Directive& directive, const Selector& select,
                const Selector* keep, DiagKind kind, std::string_view verb, std::string_view done,
                Units* units) {
  if (ReportForm(context, directive, select, kind, verb)) return;
  if (keep != nullptr && context.vocabulary.ReportUnknownNames(*keep, directive.range, context.diag)) return;
  bool any = false;
  std::map<TagPath, uint32_t> instances;
  for (RegionId r = 0; r < context.regions.regions.size(); ++r) {
    const TagPath& tags = context.regions.graph.tag_paths[context.regions.regions[r].tags];
    for (const SelectorClause& clause : select.any_of) {
      if (!TagsMatch(clause, context.region_tags[r], context.split)) continue;
      any = true;
      if (keep != nullptr && RegionMatches(context, *keep, r)) break;
      if (units->owner[r] != nullptr) {
        context.diag
            .Error(directive.range, DiagKind::kConflict,
                   fmt::format("{} is {} twice", context.regions.regions[r].name, done))
            .Note(units->owner[r]->range, "the first time here");
        return;
      }
      units->owner[r] = &directive;
      TagPath instance = InstanceOf(context, clause, tags);
      if (instance.empty()) {
        units->unit[r] = units->count++;
      } else {
        auto [it, fresh] = instances.try_emplace(std::move(instance), units->count);
        units->count += fresh;
        units->unit[r] = it->second;
      }
      break;
    }
  }
  if (!any && !select.optional) context.vocabulary.ExplainEmpty(select, directive.range, context.diag);
}

bool SamePlace(const BuildContext& context, RegionId a, RegionId b) {
  const std::vector<RegionCopy>&x = context.copies[a], &y = context.copies[b];
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const RegionCopy& p, const RegionCopy& q) {
    return p.begin == q.begin && p.end == q.end && p.host == q.host;
  });
}

}  // namespace piper::ir
