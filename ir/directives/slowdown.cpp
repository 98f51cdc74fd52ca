#include "ir/directives/slowdown.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "ir/directives/freeze.h"

namespace piper::ir {

void ApplySlowdown(BuildContext& context) {
  DiagnosticEngine& diag = context.diag;
  Dag& dag = context.dag;
  std::vector<std::string> streams;
  std::map<std::pair<std::string, std::string>, const Directive*> owner;
  context.ForEach<SlowdownDirective>([&](const Directive& directive, const SlowdownDirective& slowdown) {
    if (streams.empty()) {
      for (const NodeTemplate& node : dag.templates) streams.push_back(NameText(node.stream));
      std::sort(streams.begin(), streams.end());
      streams.erase(std::unique(streams.begin(), streams.end()), streams.end());
    }
    for (const std::string& name : {slowdown.stream, slowdown.with}) {
      if (std::find(streams.begin(), streams.end(), name) != streams.end()) continue;
      // A plan on one device sends nothing, and evaluation has no backward pass that a stream could have.
      if (name == "send" || name == "recv" || name == "reduce" || !Trains(context)) return;
      auto error =
          diag.Error(directive.range, DiagKind::kBadSlowdown, fmt::format("no stream is called '{}'", name));
      if (std::string near = NearestName(name, streams); !near.empty()) {
        error.Hint(fmt::format("did you mean '{}'?", near));
      } else {
        error.Hint(fmt::format("the streams are {}", fmt::join(streams, ", ")));
      }
      return;
    }
    if (slowdown.stream == slowdown.with && slowdown.stream != "send" && slowdown.stream != "recv") {
      diag.Error(directive.range, DiagKind::kBadSlowdown,
                 fmt::format("'{}' is one stream a device: it does not run beside itself", slowdown.stream))
          .Hint("name two streams");
      return;
    }
    if (!(slowdown.factor <= 2)) {
      diag.Error(directive.range, DiagKind::kBadSlowdown,
                 fmt::format("a slowdown of {}: two streams that take more than twice as long together are "
                             "faster one after the other",
                             slowdown.factor))
          .Hint("the most is 2; or put both on one stream");
      return;
    }
    const auto [first, second] = std::minmax(slowdown.stream, slowdown.with);
    auto [known, fresh] = owner.try_emplace({first, second}, &directive);
    if (!fresh) {
      diag.Error(directive.range, DiagKind::kConflict,
                 fmt::format("{} and {} have a second slowdown", slowdown.stream, slowdown.with))
          .Note(known->second->range, "the first one is here");
      return;
    }
    const auto thousandths = static_cast<uint32_t>(std::lround(slowdown.factor * 1000));
    // Two streams that compute share the compute units unless something else is said of them.
    const bool compute =
        context.Computes(InternName(slowdown.stream)) && context.Computes(InternName(slowdown.with));
    if (thousandths > 1000 || compute)
      dag.slowdowns.push_back({InternName(slowdown.stream), InternName(slowdown.with), thousandths});
  });
}

}  // namespace piper::ir
