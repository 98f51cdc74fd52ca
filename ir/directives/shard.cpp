#include "ir/directives/shard.h"

#include <algorithm>

#include <fmt/format.h>

namespace piper::ir {

void ApplyShard(BuildContext& context) {
  DiagnosticEngine& diag = context.diag;
  std::string batch = context.graph.SampleDim();
  const Mesh& mesh = context.meshes.front();
  std::vector<std::string> axes;
  context.ForEach<ShardDirective>([&](const Directive& directive, const ShardDirective& shard) {
    if (shard.dims.size() != 1 || shard.dims[0] != batch || shard.where || !shard.via.empty()) {
      std::string what =
          shard.where          ? "`where`"
          : !shard.via.empty() ? fmt::format("`via {}`", shard.via)
          : shard.dims.empty()
              ? "this"
              : fmt::format("dimension '{}'",
                            shard.dims[0] == batch && shard.dims.size() > 1 ? shard.dims[1] : shard.dims[0]);
      if (!shard.dims.empty() && !shard.where && shard.via.empty() &&
          context.graph.DimSize(shard.dims[0]) == 0) {
        std::vector<std::string> names;
        for (const Value& value : context.graph.values) {
          for (const Dim& dim : value.type.dims) names.push_back(dim.name);
        }
        std::sort(names.begin(), names.end());
        names.erase(std::unique(names.begin(), names.end()), names.end());
        auto error = diag.Error(directive.range, DiagKind::kUnknownDim,
                                fmt::format("no tensor has a dimension '{}'", shard.dims[0]));
        if (std::string near = NearestName(shard.dims[0], names); !near.empty())
          error.Hint(fmt::format("did you mean '{}'?", near));
        return;
      }
      diag.Error(directive.range, DiagKind::kUnsupported,
                 fmt::format("sharding {} is not supported yet", what))
          .Hint(fmt::format("`shard {} over axis` (data parallelism) is", batch));
      return;
    }
    if (!axes.empty()) {
      diag.Error(directive.range, DiagKind::kConflict, fmt::format("'{}' is sharded twice", batch))
          .Note(context.sharded_by, "the first time here")
          .Hint(fmt::format("name a product: `shard {} over a * b`", batch));
      return;
    }
    for (const std::string& axis : shard.axes) {
      size_t index = mesh.FindAxis(axis);
      if (index == mesh.axes.size()) {
        std::vector<std::string> names;
        for (const MeshAxis& a : mesh.axes) names.push_back(a.name);
        auto error = diag.Error(directive.range, DiagKind::kUnknownAxis,
                                fmt::format("the mesh has no axis '{}'", axis));
        if (std::string near = NearestName(axis, names); !near.empty()) {
          error.Hint(fmt::format("did you mean '{}'?", near));
        } else if (!names.empty()) {
          error.Hint(fmt::format("its axes are {}", fmt::join(names, ", ")));
        } else {
          error.Hint("there is no `mesh` directive");
        }
        return;
      }
      if (std::find(axes.begin(), axes.end(), axis) != axes.end()) {
        diag.Error(directive.range, DiagKind::kBadShard, fmt::format("axis '{}' is named twice", axis));
        return;
      }
      axes.push_back(axis);
    }
    context.sharded_by = directive.range;
  });
  // Replicas are numbered in mesh order, whatever the order of the product.
  context.dag.replicas = 1;
  for (const MeshAxis& axis : mesh.axes) {
    if (std::find(axes.begin(), axes.end(), axis.name) == axes.end()) continue;
    context.batch_axes.push_back(axis.name);
    context.dag.replicas *= axis.size;
  }
}

}  // namespace piper::ir
