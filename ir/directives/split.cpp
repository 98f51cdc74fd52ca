#include "ir/directives/split.h"

#include <fmt/format.h>

#include "ir/model/operations.h"
#include "ir/support/divisors.h"

namespace piper::ir {

namespace {

// A node count that no machine holds is refused before anything is built.
constexpr int64_t kMaxMicrobatches = 1 << 20;

}  // namespace

void ApplySplit(BuildContext& context) {
  DiagnosticEngine& diag = context.diag;
  Dag& dag = context.dag;
  const Graph& model = context.graph;
  std::string batch = model.SampleDim();
  const Directive* directive = context.Single<SplitDirective>("`split`");
  SourceRange range = directive != nullptr ? directive->range
                      : dag.replicas > 1   ? context.sharded_by
                                           : context.program.train.range;
  dag.split_dims.clear();
  dag.microbatches = 1;
  if (directive != nullptr) {
    const auto& split = std::get<SplitDirective>(directive->body);
    if (split.region || split.dim != batch) {
      if (!split.region && model.DimSize(split.dim) == 0) {
        diag.Error(range, DiagKind::kUnknownDim, fmt::format("no tensor has a dimension '{}'", split.dim))
            .Hint(fmt::format("the samples' dimension is '{}'", batch));
        return;
      }
      diag.Error(range, DiagKind::kUnsupported,
                 split.region ? "splitting inside a region is not supported yet"
                              : fmt::format("splitting dimension '{}' is not supported yet", split.dim))
          .Hint(fmt::format("`split {} into m as mb` is", batch));
      return;
    }
    for (const SplitDirective::Part& part : split.parts) {
      if (part.count < 1) {
        diag.Error(range, DiagKind::kBadSplit,
                   fmt::format("'{}' has {} parts; there must be at least 1", part.as, part.count));
        return;
      }
      for (const auto& [name, size] : dag.split_dims) {
        if (name != part.as) continue;
        diag.Error(range, DiagKind::kBadSplit, fmt::format("two split indices are called '{}'", name));
        return;
      }
      for (const TagPath& path : model.tag_paths) {
        for (const TagInstance& tag : path) {
          if (tag.name != part.as) continue;
          diag.Error(
                  range, DiagKind::kBadSplit,
                  fmt::format("'{}' is a tag of the model; the split index needs a name of its own", part.as))
              .Hint("the usual name is mb");
          return;
        }
      }
      if (part.count > kMaxMicrobatches / dag.microbatches) {
        diag.Error(range, DiagKind::kBadSplit, fmt::format("more than {} microbatches", kMaxMicrobatches));
        return;
      }
      dag.split_dims.emplace_back(part.as, part.count);
      dag.microbatches *= part.count;
    }
  }
  if (dag.split_dims.empty()) dag.split_dims.emplace_back("mb", 1);
  context.split = SplitIndex(dag.split_dims);
  for (const auto& [name, size] : dag.split_dims) context.vocabulary.AddSplit(InternName(name), size);

  int64_t global = batch.empty() ? 1 : model.DimSize(batch);
  int64_t slices = dag.replicas * dag.microbatches;
  if (global % slices != 0) {
    int64_t below = global / slices * slices;
    // Microbatch counts that divide what a replica gets.
    std::string counts;
    if (global % dag.replicas == 0) counts = DescribeNearestDivisors(global / dag.replicas, dag.microbatches);
    std::string hint = below > 0 ? fmt::format("a global batch of {} or {} divides", below, below + slices)
                                 : fmt::format("a global batch of {} divides", slices);
    if (!counts.empty()) hint += fmt::format("; so does a split into {}", counts);
    diag.Error(range, DiagKind::kBatchDivide,
               dag.replicas > 1
                   ? fmt::format("a global batch of {} does not divide into {} replicas of {} microbatch{}",
                                 global, dag.replicas, dag.microbatches, dag.microbatches == 1 ? "" : "es")
                   : fmt::format("a global batch of {} does not divide into {} microbatches", global,
                                 dag.microbatches))
        .Hint(hint);
    return;
  }
  dag.samples_per_microbatch = global / slices;
  if (OpId mixing = slices > 1 && !batch.empty() ? FirstMixing(model, batch) : kNone; mixing != kNone) {
    const Operation& op = model.operations[mixing];
    diag.Error(
            op.range, DiagKind::kBadSplit,
            fmt::format("{} mixes the samples of a batch, so a batch in {} slices would learn something else",
                        op.kind, slices))
        .Note(range, "the batch is sliced here")
        .Hint("leave the batch whole, or compute over another dimension");
    return;
  }
  if (!batch.empty() && dag.samples_per_microbatch != global) {
    // A model whose shapes fix the batch size cannot be sliced: reported where it does.
    std::optional<Graph> slice = context.graph.TryWithDim(batch, dag.samples_per_microbatch, diag);
    if (slice) context.graph = *std::move(slice);
  }
}

}  // namespace piper::ir
