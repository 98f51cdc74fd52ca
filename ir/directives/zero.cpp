#include "ir/directives/zero.h"

#include <fmt/format.h>

namespace piper::ir {

std::vector<ReducePolicy> ApplyZero(BuildContext& context) {
  DiagnosticEngine& diag = context.diag;
  std::vector<ReducePolicy> policies(context.regions.regions.size());
  context.ForEach<ZeroDirective>([&](const Directive& directive, const ZeroDirective& zero) {
    if (zero.level < 0 || zero.level > 3) {
      diag.Error(directive.range, DiagKind::kBadZero,
                 fmt::format("there is no `zero {}`: the levels are 0 to 3", zero.level));
      return;
    }
    if (zero.level > 0 || !zero.per_tag.empty() || zero.keep || zero.reduce_per_microbatch) {
      std::string what = zero.level > 0          ? fmt::format("`zero {}`", zero.level)
                         : !zero.per_tag.empty() ? "`per tag` at level 0"
                         : zero.keep             ? "`keep` at level 0"
                                                 : "`reduce per mb`";
      diag.Error(directive.range, DiagKind::kUnsupported, fmt::format("{} is not supported yet", what))
          .Hint(
              "`zero 0 [*] as dp { bucket 25 MiB }` is: every rank holds its parameters, gradients are "
              "all-reduced");
      return;
    }
    if (zero.bucket_bytes < 0) {
      diag.Error(directive.range, DiagKind::kBadZero, "a bucket cannot have a negative size");
      return;
    }
    for (const SelectorClause& clause : zero.select.any_of) {
      if (clause.passes == 0 && !context.split.Constrains(clause)) continue;
      diag.Error(
          zero.select.range.valid() ? zero.select.range : directive.range, DiagKind::kBadZero,
          fmt::format("{} names a pass or a microbatch; `zero` is about regions", zero.select.ToString()));
      return;
    }
    if (context.vocabulary.ReportUnknownNames(zero.select, directive.range, diag)) return;
    bool any = false;
    for (RegionId r = 0; r < policies.size(); ++r) {
      if (!RegionMatches(context, zero.select, r)) continue;
      any = true;
      if (policies[r].directive != nullptr) {
        diag.Error(directive.range, DiagKind::kConflict,
                   fmt::format("the gradients of {} have a second `zero`", context.regions.regions[r].name))
            .Note(policies[r].range, "the first one is here");
        return;
      }
      policies[r] = {zero.bucket_bytes, zero.as.empty() ? "dp" : zero.as, directive.range, &directive};
    }
    if (!any && !zero.select.optional) context.vocabulary.ExplainEmpty(zero.select, directive.range, diag);
  });
  for (const ReducePolicy& policy : policies)
    context.vocabulary.AddInserted(InternName(policy.name + ".reduce"));
  return policies;
}

}  // namespace piper::ir
