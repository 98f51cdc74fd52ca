#include "ir/directives/recompute.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "ir/directives/freeze.h"
#include "ir/directives/units.h"
#include "ir/model/recompute.h"

namespace piper::ir {

bool ReadsOwnForward(const Body& backward) {
  return std::any_of(backward.formals.begin(), backward.formals.end(), [](const Formal& formal) {
    if (formal.written) return false;
    return formal.kind == FormalKind::kOutput || (formal.kind == FormalKind::kSaved && formal.value != kNone);
  });
}

bool ReadsReplay(const BuildContext& context, RegionId reader, RegionId producer) {
  const std::vector<uint32_t>& unit = context.recompute.unit;
  return unit[reader] != kNone && unit[reader] == unit[producer] && SamePlace(context, reader, producer);
}

void ApplyRecompute(BuildContext& context) {
  std::vector<Region>& regions = context.regions.regions;
  context.recompute.unit.assign(regions.size(), kNone);
  context.recompute.owner.assign(regions.size(), nullptr);
  if (context.forward_only) return;
  context.ForEach<RecomputeDirective>([&](const Directive& directive, const RecomputeDirective& recompute) {
    ClaimUnits(context, directive, recompute.select, recompute.keep ? &*recompute.keep : nullptr,
               DiagKind::kBadRecompute, "recompute", "recomputed", &context.recompute);
  });
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
    if (context.recompute.owner[r] == nullptr) continue;
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
    useful.insert(context.recompute.owner[r]);
  }
  context.ForEach<RecomputeDirective>([&](const Directive& directive, const RecomputeDirective& recompute) {
    if (useful.count(&directive) != 0 || recompute.select.optional || !Trains(context)) return;
    context.diag.Warning(directive.range, DiagKind::kNothingGivenBack,
                         fmt::format("nothing that {} keeps is read again: there is nothing to recompute",
                                     recompute.select.ToString()));
  });
}

}  // namespace piper::ir
