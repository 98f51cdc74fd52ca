#include "ir/directives/assertion.h"

#include <algorithm>

#include <fmt/format.h>

namespace piper::ir {

void CheckAssertions(BuildContext& context) {
  struct Metric {
    std::string_view name;
    UnitKind unit;
  };
  static constexpr Metric kMetrics[] = {
      {"step_time", UnitKind::kTime},  {"peak_memory", UnitKind::kBytes}, {"bubble", UnitKind::kPercent},
      {"exposed", UnitKind::kPercent}, {"bytes", UnitKind::kBytes},       {"mfu", UnitKind::kPercent},
  };
  DiagnosticEngine& diag = context.diag;
  context.ForEach<AssertDirective>([&](const Directive& directive, const AssertDirective& assertion) {
    auto metric = std::find_if(std::begin(kMetrics), std::end(kMetrics),
                               [&](const Metric& m) { return m.name == assertion.metric; });
    if (metric == std::end(kMetrics)) {
      std::vector<std::string> names;
      for (const Metric& m : kMetrics) names.emplace_back(m.name);
      std::string near = NearestName(assertion.metric, names);
      diag.Error(directive.range, DiagKind::kUnknownName,
                 fmt::format("there is no metric '{}' to assert about", assertion.metric))
          .Hint(near.empty() ? fmt::format("the metrics are {}", fmt::join(names, ", "))
                             : fmt::format("did you mean '{}'?", near));
      return;
    }
    bool plain_share = metric->unit == UnitKind::kPercent && assertion.bound.kind == UnitKind::kNone;
    if (assertion.bound.kind != metric->unit && !plain_share) {
      diag.Error(directive.range, DiagKind::kUnitMismatch,
                 fmt::format("{} is {}, the bound is {}", assertion.metric, UnitKindName(metric->unit),
                             UnitKindName(assertion.bound.kind)));
      return;
    }
    if (assertion.select) context.ReportIfEmpty(*assertion.select, directive.range);
    if (!assertion.axis.empty()) {
      std::vector<std::string> names;
      for (const Mesh& mesh : context.meshes) {
        for (const MeshAxis& axis : mesh.axes) names.push_back(axis.name);
      }
      if (std::find(names.begin(), names.end(), assertion.axis) == names.end()) {
        std::string near = NearestName(assertion.axis, names);
        auto error = diag.Error(directive.range, DiagKind::kUnknownAxis,
                                fmt::format("the mesh has no axis '{}'", assertion.axis));
        if (!near.empty()) error.Hint(fmt::format("did you mean '{}'?", near));
      }
    }
  });
}

}  // namespace piper::ir
