#include "ir/directives/mesh.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace piper::ir {

namespace {

// Resolves `all`; 0 after an error.
int64_t ResolveSizes(BuildContext& context, const Directive& directive, const MeshDirective& mesh,
                     int64_t available, std::vector<MeshAxis>* axes) {
  DiagnosticEngine& diag = context.diag;
  int64_t product = 1;
  const MeshDirective::Axis* open = nullptr;
  std::set<std::string> names;
  for (const MeshDirective::Axis& axis : mesh.axes) {
    SourceRange range = axis.range.valid() ? axis.range : directive.range;
    if (!names.insert(axis.name).second) {
      diag.Error(range, DiagKind::kBadMesh, fmt::format("axis '{}' is named twice", axis.name));
      return 0;
    }
    if (axis.size == -1) {
      if (open != nullptr) {
        diag.Error(range, DiagKind::kBadMesh, "only one axis can take `all` remaining devices")
            .Note(open->range, "the first one is here");
        return 0;
      }
      open = &axis;
      continue;
    }
    if (axis.size < 1) {
      diag.Error(range, DiagKind::kBadMesh,
                 fmt::format("axis '{}' has size {}; it must be at least 1", axis.name, axis.size));
      return 0;
    }
    if (axis.size > available / product) {
      int64_t others = 1;
      for (const MeshDirective::Axis& other : mesh.axes) {
        if (&other != &axis && other.size > 0 && others <= available) others *= other.size;
      }
      auto error =
          diag.Error(range, DiagKind::kBadMesh,
                     fmt::format("the mesh needs more devices than the {} that there are", available));
      if (others <= available) error.Hint(fmt::format("{} = {} fits", axis.name, available / others));
      return 0;
    }
    product *= axis.size;
  }
  int64_t rest = available / product;
  if (open != nullptr && product * rest != available) {
    diag.Error(open->range.valid() ? open->range : directive.range, DiagKind::kBadMesh,
               fmt::format("{} devices do not divide by the {} of the other axes", available, product))
        .Hint(fmt::format("{} = {} uses {} of them", open->name, rest, product * rest));
    return 0;
  }
  for (const MeshDirective::Axis& axis : mesh.axes)
    axes->push_back({axis.name, axis.size == -1 ? rest : axis.size});
  return open != nullptr ? product * rest : product;
}

// Devices that differ only along `axis` lie in one group of the level.
bool CheckWithin(BuildContext& context, const MeshDirective::Axis& axis, const Mesh& mesh,
                 SourceRange fallback) {
  SourceRange range = axis.range.valid() ? axis.range : fallback;
  const Level* level = nullptr;
  std::vector<std::string> names;
  for (const Level& candidate : context.program.topology.levels) {
    names.push_back(candidate.name);
    if (candidate.name == axis.within) level = &candidate;
  }
  if (level == nullptr) {
    auto error = context.diag.Error(range, DiagKind::kBadMesh,
                                    fmt::format("the topology has no level '{}'", axis.within));
    if (!names.empty()) error.Hint(fmt::format("its levels are {}", fmt::join(names, ", ")));
    return false;
  }
  auto group_of = [&](uint32_t device) {
    size_t i = 0;
    while (i < level->groups.size() && device >= level->groups[i].first + level->groups[i].count) ++i;
    return i;
  };
  size_t index = mesh.FindAxis(axis.name);
  size_t stride = 1;
  for (size_t i = index + 1; i < mesh.axes.size(); ++i) stride *= static_cast<size_t>(mesh.axes[i].size);
  auto size = static_cast<size_t>(mesh.axes[index].size);
  for (size_t linear = 0; linear < mesh.devices.size(); ++linear) {
    size_t coordinate = linear / stride % size;
    uint32_t first = mesh.devices[linear - coordinate * stride];
    if (group_of(first) == group_of(mesh.devices[linear])) continue;
    context.diag
        .Error(range, DiagKind::kBadMesh,
               fmt::format("axis '{}' does not stay within a {}: devices {} and {} lie in different ones",
                           axis.name, axis.within, first, mesh.devices[linear]))
        .Hint(fmt::format("put '{}' last, so that its devices are neighbours, with a size that divides {}",
                          axis.name, level->groups.front().count));
    return false;
  }
  return true;
}

// The same devices; devices agree on the coordinates of shared axes.
bool CheckFolds(BuildContext& context, const Directive& directive, const MeshDirective& spec,
                const Mesh& mesh) {
  const Mesh* other = nullptr;
  for (const Mesh& candidate : context.meshes) {
    if (candidate.name == spec.folds) other = &candidate;
  }
  if (other == nullptr) {
    context.diag.Error(directive.range, DiagKind::kBadMesh,
                       fmt::format("no earlier mesh is called '{}'", spec.folds));
    return false;
  }
  if (mesh.devices != other->devices) {
    context.diag
        .Error(directive.range, DiagKind::kBadMesh,
               fmt::format("the mesh has {} devices, '{}' has {}: a folded mesh is over the same ones",
                           mesh.devices.size(), spec.folds, other->devices.size()))
        .Note(other->range, fmt::format("'{}' is here", spec.folds));
    return false;
  }
  auto coordinates = [](const Mesh& m, size_t axis, size_t linear) {
    size_t stride = 1;
    for (size_t i = axis + 1; i < m.axes.size(); ++i) stride *= static_cast<size_t>(m.axes[i].size);
    return linear / stride % static_cast<size_t>(m.axes[axis].size);
  };
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    size_t shared = other->FindAxis(mesh.axes[axis].name);
    if (shared == other->axes.size()) continue;
    bool agrees = other->axes[shared].size == mesh.axes[axis].size;
    for (size_t linear = 0; agrees && linear < mesh.devices.size(); ++linear) {
      agrees = coordinates(mesh, axis, linear) == coordinates(*other, shared, linear);
    }
    if (agrees) continue;
    context.diag
        .Error(directive.range, DiagKind::kBadMesh,
               fmt::format("axis '{}' is shared with '{}' but names other devices there",
                           mesh.axes[axis].name, spec.folds))
        .Note(other->range, fmt::format("'{}' is here", spec.folds))
        .Hint("shared axes need the same size and the same place from the left");
    return false;
  }
  return true;
}

}  // namespace

void ApplyMesh(BuildContext& context) {
  int64_t devices = context.program.topology.devices();
  std::vector<bool> used(static_cast<size_t>(std::max<int64_t>(devices, 1)));
  context.ForEach<MeshDirective>([&](const Directive& directive, const MeshDirective& spec) {
    Mesh mesh;
    mesh.name = spec.name;
    mesh.range = directive.range;
    for (const Mesh& known : context.meshes) {
      if (known.name != spec.name) continue;
      context.diag
          .Error(directive.range, DiagKind::kConflict,
                 spec.name.empty() ? "a second mesh without a name"
                                   : fmt::format("a second mesh called '{}'", spec.name))
          .Note(known.range, "the first one is here")
          .Hint("give it a name of its own, and `folds` if it is over the same devices");
      return;
    }
    int64_t available = spec.devices.empty() ? devices : static_cast<int64_t>(spec.devices.size());
    int64_t count = ResolveSizes(context, directive, spec, available, &mesh.axes);
    if (count == 0) return;
    if (!spec.devices.empty() && count != available) {
      context.diag.Error(directive.range, DiagKind::kBadMesh,
                         fmt::format("{} devices are listed for a mesh of {}", available, count));
      return;
    }
    std::vector<bool> listed(used.size());
    for (int64_t i = 0; i < count; ++i) {
      int64_t device = spec.devices.empty() ? i : spec.devices[static_cast<size_t>(i)];
      if (device < 0 || device >= devices || listed[static_cast<size_t>(device)]) {
        context.diag.Error(directive.range, DiagKind::kBadMesh,
                           device < 0 || device >= devices
                               ? fmt::format("device {} does not exist; the topology has {}", device, devices)
                               : fmt::format("device {} is listed twice", device));
        return;
      }
      listed[static_cast<size_t>(device)] = used[static_cast<size_t>(device)] = true;
      mesh.devices.push_back(static_cast<uint32_t>(device));
    }
    for (const MeshDirective::Axis& axis : spec.axes) {
      if (!axis.within.empty() && !CheckWithin(context, axis, mesh, directive.range)) return;
    }
    if (!spec.folds.empty() && !CheckFolds(context, directive, spec, mesh)) return;
    context.meshes.push_back(std::move(mesh));
  });
  if (context.meshes.empty()) {
    context.meshes.push_back({"", {}, {}, {0}});
    used[0] = true;
  }
  // The nameless mesh is the default one.
  auto unnamed = std::find_if(context.meshes.begin(), context.meshes.end(),
                              [](const Mesh& m) { return m.name.empty(); });
  if (unnamed != context.meshes.end()) std::rotate(context.meshes.begin(), unnamed, unnamed + 1);
  context.dag.device_count = static_cast<uint32_t>(std::max<int64_t>(devices, 1));
  auto idle = std::count(used.begin(), used.end(), false);
  if (idle > 0 && !context.forward_only && !context.Failed()) {
    context.diag
        .Warning(
            context.meshes.front().range.valid() ? context.meshes.front().range : context.program.train.range,
            DiagKind::kBadMesh,
            fmt::format("{} of {} devices belong to no mesh and stay idle", idle, used.size()))
        .Hint(fmt::format("`mesh (dp = all)` with `shard batch over dp` uses all {}", used.size()));
  }
}

}  // namespace piper::ir
