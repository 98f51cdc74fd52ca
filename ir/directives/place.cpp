#include "ir/directives/place.h"

#include <algorithm>

#include <fmt/format.h>

namespace piper::ir {

namespace {

struct Placing {
  GroupId host = kNone;
  uint32_t serial = 0;  // which directive: those of one loop share their range
  SourceRange range;
};

const Mesh* MeshOf(const BuildContext& context, const GroupExpr& expr) {
  for (const Mesh& mesh : context.meshes) {
    if (!expr.mesh.empty() && mesh.name != expr.mesh) continue;
    bool all = std::all_of(expr.slices.begin(), expr.slices.end(),
                           [&](const auto& slice) { return mesh.FindAxis(slice.axis) < mesh.axes.size(); });
    if (all) return &mesh;
  }
  return &context.meshes.front();
}

// The group of one placement, checked to leave exactly the batch's axes free.
std::optional<Group> HostGroup(BuildContext& context, const GroupExpr& expr, SourceRange range) {
  std::optional<Group> group = context.ResolveGroup(expr, range, DiagKind::kBadPlace);
  if (!group) return std::nullopt;
  DiagnosticEngine& diag = context.diag;
  const Mesh* mesh = MeshOf(context, expr);
  for (const std::string& axis : context.batch_axes) {
    size_t index = mesh->FindAxis(axis);
    bool is_free = index < mesh->axes.size();
    for (const GroupExpr::AxisSlice& slice : expr.slices) {
      if (slice.axis == axis && slice.end - slice.begin != mesh->axes[index].size) is_free = false;
    }
    if (is_free) continue;
    diag.Error(range, DiagKind::kBadPlace,
               fmt::format("{} holds only a part of axis '{}', over which the batch is sharded", group->text,
                           axis))
        .Note(context.sharded_by, "sharded here")
        .Hint(fmt::format("leave '{}' out of the group: all of its positions hold the stage", axis));
    return std::nullopt;
  }
  for (const MeshAxis& axis : mesh->axes) {
    if (axis.size == 1 || std::find(context.batch_axes.begin(), context.batch_axes.end(), axis.name) !=
                              context.batch_axes.end())
      continue;
    int64_t extent = axis.size;
    for (const GroupExpr::AxisSlice& slice : expr.slices) {
      if (slice.axis == axis.name) extent = slice.end - slice.begin;
    }
    if (extent == 1) continue;
    std::string batch = context.regions.graph.SampleDim();
    diag.Error(range, DiagKind::kBadPlace,
               fmt::format("{} has {} positions on axis '{}', but nothing is sharded over it", group->text,
                           extent, axis.name))
        .Hint(
            fmt::format("`shard {} over {}`, or place on one position: {}[0]", batch, axis.name, axis.name));
    return std::nullopt;
  }
  return group;
}

class Placer {
 public:
  explicit Placer(BuildContext& context) : context_(context), placings_(context.regions.regions.size()) {
    for (auto& row : placings_) row.resize(static_cast<size_t>(context.dag.microbatches));
  }

  void Place(const Selector& select, const GroupExpr& expr, SourceRange range, bool overrides) {
    DiagnosticEngine& diag = context_.diag;
    if (context_.vocabulary.ReportUnknownNames(select, range, diag)) return;
    for (const SelectorClause& clause : select.any_of) {
      if (clause.passes == 0) continue;
      diag.Error(select.range.valid() ? select.range : range, DiagKind::kBadPlace,
                 fmt::format("{} names a pass, but all passes of a region run where it is placed",
                             select.ToString()))
          .Hint("leave the pass out");
      return;
    }
    std::optional<Group> group = HostGroup(context_, expr, range);
    if (!group) return;
    GroupId host = context_.dag.InternGroup(*group);
    ++serial_;
    bool any = false, overridden = false;
    std::vector<int32_t> microbatches;
    for (RegionId region = 0; region < placings_.size(); ++region) {
      for (const SelectorClause& clause : select.any_of) {
        if (!TagsMatch(clause, context_.region_tags[region], context_.split)) continue;
        microbatches.clear();
        context_.split.Collect(clause, 0, static_cast<int32_t>(context_.dag.microbatches), &microbatches);
        for (int32_t mb : microbatches) {
          Placing& placing = placings_[region][static_cast<size_t>(mb)];
          any = true;
          if (placing.host != kNone && placing.serial != serial_) {
            overridden = true;
            if (!overrides) {
              ReportDouble(region, mb, placing, host, range);
              return;
            }
          }
          placing = {host, serial_, range};
        }
      }
    }
    if (!any && !select.optional) {
      context_.vocabulary.ExplainEmpty(select, range, diag);
    } else if (overrides && !overridden && any) {
      diag.Error(range, DiagKind::kBadOverride,
                 fmt::format("there is nothing to override: {} has no earlier place", select.ToString()))
          .Hint("leave `override` out");
    }
  }

  // Fills context.copies, hosts; reports what is unplaced.
  void Finish() {
    context_.copies.resize(placings_.size());
    for (RegionId region = 0; region < placings_.size(); ++region) {
      std::vector<RegionCopy>& copies = context_.copies[region];
      for (size_t mb = 0; mb < placings_[region].size(); ++mb) {
        const Placing& placing = placings_[region][mb];
        auto index = static_cast<int32_t>(mb);
        if (placing.host == kNone) {
          ReportUnplaced(region, index);
          return;
        }
        if (!copies.empty() && copies.back().host == placing.host) {
          copies.back().end = index + 1;
          continue;
        }
        bool returns = std::any_of(copies.begin(), copies.end(),
                                   [&](const RegionCopy& copy) { return copy.host == placing.host; });
        if (returns) {
          context_.diag
              .Error(
                  placing.range, DiagKind::kUnsupported,
                  fmt::format("the microbatches of {} on {} are not consecutive",
                              context_.regions.regions[region].name, context_.dag.groups[placing.host].text))
              .Hint(fmt::format("place copies by the first split index, '{}'",
                                context_.dag.split_dims[0].first));
          return;
        }
        copies.push_back({index, index + 1, placing.host, placing.range});
      }
      for (const RegionCopy& copy : copies) {
        if (std::find(context_.hosts.begin(), context_.hosts.end(), copy.host) == context_.hosts.end())
          context_.hosts.push_back(copy.host);
      }
    }
    if (!CheckDisjoint()) return;
    const Dag& dag = context_.dag;
    std::sort(context_.hosts.begin(), context_.hosts.end(), [&](GroupId a, GroupId b) {
      return dag.groups[a].devices.front() < dag.groups[b].devices.front();
    });
    context_.dag.device_replica.assign(dag.device_count, 0);
    for (GroupId host : context_.hosts) {
      for (uint32_t i = 0; i < dag.groups[host].devices.size(); ++i)
        context_.dag.device_replica[dag.groups[host].devices[i]] = i;
    }
  }

 private:
  bool CheckDisjoint() {
    const std::vector<Group>& groups = context_.dag.groups;
    std::vector<const RegionCopy*> holder(context_.dag.device_count);
    for (const auto& copies : context_.copies) {
      for (const RegionCopy& copy : copies) {
        for (uint32_t device : groups[copy.host].devices) {
          const RegionCopy*& first = holder[device];
          if (first == nullptr) first = &copy;
          if (first->host == copy.host) continue;
          context_.diag
              .Error(copy.placed_by, DiagKind::kBadPlace,
                     fmt::format("{} and {} share device {} without being the same group",
                                 groups[copy.host].text, groups[first->host].text, device))
              .Note(first->placed_by, fmt::format("{} is here", groups[first->host].text))
              .Hint("placed groups are equal or disjoint");
          return false;
        }
      }
    }
    return true;
  }

  std::string RegionText(RegionId region, int32_t mb) const {
    std::string text = context_.regions.regions[region].name;
    if (context_.dag.microbatches > 1) text += fmt::format(" mb {}", mb);
    return text;
  }

  void ReportDouble(RegionId region, int32_t mb, const Placing& first, GroupId host, SourceRange range) {
    context_.diag
        .Error(range, DiagKind::kDoublePlace,
               fmt::format("{} is placed a second time, on {}", RegionText(region, mb),
                           context_.dag.groups[host].text))
        .Note(first.range, fmt::format("it is placed on {} here", context_.dag.groups[first.host].text))
        .Hint("`override place` replaces; copies of a stage need distinct split indices");
  }

  void ReportUnplaced(RegionId region, int32_t mb) {
    // Where the neighbours are is the nearest legal choice.
    const Placing* near = nullptr;
    for (RegionId other = 0; other < placings_.size(); ++other) {
      const Placing& candidate = placings_[other][static_cast<size_t>(mb)];
      if (candidate.host != kNone && (near == nullptr || other <= region)) near = &candidate;
    }
    const Region& r = context_.regions.regions[region];
    SourceRange range = r.first < context_.regions.graph.operations.size()
                            ? context_.regions.graph.operations[r.first].range
                            : SourceRange{};
    SourceRange at = near != nullptr ? near->range : range;
    auto error = context_.diag.Error(at, DiagKind::kUnplaced,
                                     fmt::format("{} is placed nowhere", RegionText(region, mb)));
    if (range.valid() && near != nullptr) error.Note(range, "it begins here");
    std::string tag;
    for (const TagInstance& instance : context_.regions.graph.tag_paths[r.tags]) {
      tag = fmt::format("{} = {}", instance.name, instance.index);
      break;
    }
    error.Hint(fmt::format("`place [{}] on {}`", tag.empty() ? "*" : tag,
                           near != nullptr ? context_.dag.groups[near->host].text : "all"));
  }

  BuildContext& context_;
  uint32_t serial_ = 0;
  std::vector<std::vector<Placing>> placings_;  // [region][microbatch]
};

// Without any `place`: stage s on the single remaining axis, or everything on the whole mesh.
void PlaceByDefault(BuildContext& context, Placer* placer) {
  const Mesh& mesh = context.meshes.front();
  const MeshAxis* axis = nullptr;
  bool single = true;
  for (const MeshAxis& candidate : mesh.axes) {
    if (candidate.size == 1 || std::find(context.batch_axes.begin(), context.batch_axes.end(),
                                         candidate.name) != context.batch_axes.end())
      continue;
    single = axis == nullptr;
    axis = &candidate;
  }
  if (axis == nullptr) {
    placer->Place(Selector::All(), {}, mesh.range, false);
    return;
  }
  int64_t stages = 0;
  NameId tag = InternName(context.stage_tag);
  if (!context.stage_tag.empty()) {
    if (auto it = context.vocabulary.tags().find(tag); it != context.vocabulary.tags().end())
      stages = it->second.second;
  }
  if (!single || stages != axis->size) {
    context.diag
        .Error(mesh.range, DiagKind::kUnplaced,
               stages == 0 ? "no `place` says where the model runs"
                           : fmt::format("no `place` says where the {} stages run", stages))
        .Hint(fmt::format("`place [{} = s] on {}[s]`",
                          context.stage_tag.empty() ? "stage" : context.stage_tag, axis->name));
    return;
  }
  for (int64_t s = 0; s < stages; ++s) {
    Selector select;
    select.any_of.emplace_back();
    SelectorTerm term;
    term.name = tag;
    term.has_range = true;
    term.begin = s;
    term.end = s + 1;
    select.any_of[0].terms.push_back(term);
    GroupExpr group;
    group.slices.push_back({axis->name, s, s + 1, {}});
    placer->Place(select, group, mesh.range, false);
  }
}

}  // namespace

void ApplyPlace(BuildContext& context) {
  for (const Region& region : context.regions.regions) {
    context.region_tags.push_back(MakeTagSet(context.regions.graph.tag_paths[region.tags]));
    for (const auto& [name, index] : context.region_tags.back().tags) context.vocabulary.AddTag(name, index);
  }
  Placer placer(context);
  bool any = false;
  context.ForEach<PlaceDirective>([&](const Directive& directive, const PlaceDirective& place) {
    any = true;
    if (!context.Failed()) placer.Place(place.select, place.group, directive.range, directive.overrides);
  });
  if (!any) PlaceByDefault(context, &placer);
  if (context.Failed()) return;
  placer.Finish();
}

}  // namespace piper::ir
