#include "ir/directives/recompute.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "ir/model/recompute.h"

namespace piper::ir {

namespace {

// Both are computed by the same hosts, microbatch by microbatch.
bool SamePlace(const std::vector<RegionCopy>& a, const std::vector<RegionCopy>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const RegionCopy& x, const RegionCopy& y) {
    return x.begin == y.begin && x.end == y.end && x.host == y.host;
  });
}

// True after an error.
bool ReportForm(BuildContext& context, const Directive& directive, const RecomputeDirective& recompute) {
  const Selector& select = recompute.select;
  SourceRange range = select.range.valid() ? select.range : directive.range;
  if (context.vocabulary.ReportUnknownNames(select, directive.range, context.diag)) return true;
  for (const SelectorClause& clause : select.any_of) {
    if (clause.passes != 0 || context.split.Constrains(clause)) {
      context.diag.Error(range, DiagKind::kBadRecompute,
                         fmt::format("{} names a pass or a microbatch; `recompute` is about regions, whose "
                                     "microbatches are all replayed",
                                     select.ToString()));
      return true;
    }
    if (context.vocabulary.NamesInserted(clause)) {
      context.diag.Error(range, DiagKind::kBadRecompute,
                         fmt::format("{} names an inserted node; `recompute` is about regions of the model",
                                     select.ToString()));
      return true;
    }
  }
  return recompute.keep &&
         context.vocabulary.ReportUnknownNames(*recompute.keep, directive.range, context.diag);
}

// Units and owners.
void FindUnits(BuildContext& context) {
  uint32_t units = 0;
  context.ForEach<RecomputeDirective>([&](const Directive& directive, const RecomputeDirective& recompute) {
    if (ReportForm(context, directive, recompute)) return;
    bool any = false;
    std::map<TagPath, uint32_t> instances;
    for (RegionId r = 0; r < context.regions.regions.size(); ++r) {
      const TagPath& tags = context.regions.graph.tag_paths[context.regions.regions[r].tags];
      for (const SelectorClause& clause : recompute.select.any_of) {
        if (!TagsMatch(clause, context.region_tags[r], context.split)) continue;
        any = true;
        if (recompute.keep && RegionMatches(context, *recompute.keep, r)) break;
        if (context.recomputed_by[r] != nullptr) {
          context.diag
              .Error(directive.range, DiagKind::kConflict,
                     fmt::format("{} is recomputed twice", context.regions.regions[r].name))
              .Note(context.recomputed_by[r]->range, "the first time here");
          return;
        }
        context.recomputed_by[r] = &directive;
        TagPath instance = InstanceOf(context, clause, tags);
        if (instance.empty()) {
          context.recompute_unit[r] = units++;
        } else {
          auto [it, fresh] = instances.try_emplace(std::move(instance), units);
          units += fresh;
          context.recompute_unit[r] = it->second;
        }
        break;
      }
    }
    if (!any && !recompute.select.optional)
      context.vocabulary.ExplainEmpty(recompute.select, directive.range, context.diag);
  });
}

}  // namespace

bool ReadsOwnForward(const Body& backward) {
  return std::any_of(backward.formals.begin(), backward.formals.end(), [](const Formal& formal) {
    if (formal.written) return false;
    return formal.kind == FormalKind::kOutput || (formal.kind == FormalKind::kSaved && formal.value != kNone);
  });
}

bool ReadsReplay(const BuildContext& context, RegionId reader, RegionId producer) {
  return context.recompute_unit[reader] != kNone &&
         context.recompute_unit[reader] == context.recompute_unit[producer] &&
         SamePlace(context.copies[reader], context.copies[producer]);
}

void ApplyRecompute(BuildContext& context) {
  std::vector<Region>& regions = context.regions.regions;
  context.recompute_unit.assign(regions.size(), kNone);
  context.recomputed_by.assign(regions.size(), nullptr);
  if (context.forward_only) return;
  FindUnits(context);
  if (context.Failed()) return;
  // Readers of a value come after the region that makes it, so each region knows what is wanted of it when
  // its turn comes.
  std::vector<std::set<ValueId>> wanted(regions.size());
  auto want = [&](RegionId reader, const Body& body) {
    for (const Formal& formal : body.formals) {
      if (formal.written || formal.kind != FormalKind::kValue || formal.value == kNone) continue;
      RegionId producer = context.regions.value_region[formal.value];
      if (producer != kNone && producer != reader && ReadsReplay(context, reader, producer))
        wanted[producer].insert(formal.value);
    }
  };
  std::set<const Directive*> useful;
  for (RegionId r = static_cast<RegionId>(regions.size()); r-- > 0;) {
    if (context.recomputed_by[r] == nullptr) continue;
    Region& region = regions[r];
    std::set<uint32_t> saved;
    for (const Body* body : {&region.backward_input, &region.backward_weight}) {
      want(r, *body);
      for (const Formal& formal : body->formals) {
        if (formal.written) continue;
        if (formal.kind == FormalKind::kOutput) wanted[r].insert(formal.value);
        if (formal.kind == FormalKind::kSaved && formal.value != kNone) saved.insert(formal.saved);
      }
    }
    if (wanted[r].empty() && saved.empty()) continue;
    region.recompute = RecomputeBody(region.forward, wanted[r], saved);
    want(r, region.recompute);
    useful.insert(context.recomputed_by[r]);
  }
  context.ForEach<RecomputeDirective>([&](const Directive& directive, const RecomputeDirective& recompute) {
    if (useful.count(&directive) != 0 || recompute.select.optional) return;
    context.diag.Warning(directive.range, DiagKind::kNothingGivenBack,
                         fmt::format("nothing that {} keeps is read again: there is nothing to recompute",
                                     recompute.select.ToString()));
  });
}

}  // namespace piper::ir
