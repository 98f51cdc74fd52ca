#include "ir/directives/context.h"

#include <algorithm>

#include <fmt/format.h>

#include "ir/support/result.h"

namespace piper::ir {

size_t Mesh::FindAxis(std::string_view axis) const {
  size_t i = 0;
  while (i < axes.size() && axes[i].name != axis) ++i;
  return i;
}

std::string BuildContext::UniqueName(std::string name) {
  uint32_t count = ++names_[name];
  if (count == 1) return name;
  std::string candidate = fmt::format("{} #{}", name, count);
  while (names_.count(candidate)) candidate = fmt::format("{} #{}", name, ++names_[name]);
  names_[candidate] = 1;
  return candidate;
}

TemplateId BuildContext::AddTemplate(NodeTemplate node) {
  node.name = UniqueName(std::move(node.name));
  dag.templates.push_back(std::move(node));
  return static_cast<TemplateId>(dag.templates.size() - 1);
}

void BuildContext::AddEdge(TemplateId from, TemplateId to) {
  PIPER_CHECK(from != kNone && to != kNone);
  dag.edges.push_back({from, to, true, 0});
}

void BuildContext::IndexTemplates() {
  auto key = [](const TemplateEdge& e) { return std::tuple(e.from, e.to, !e.data, e.origin); };
  std::sort(dag.edges.begin(), dag.edges.end(),
            [&](const TemplateEdge& a, const TemplateEdge& b) { return key(a) < key(b); });
  dag.edges.erase(std::unique(dag.edges.begin(), dag.edges.end()), dag.edges.end());
  dag.Renumber();
  template_tags.clear();
  template_tags.reserve(dag.templates.size());
  for (const NodeTemplate& node : dag.templates) {
    template_tags.push_back(MakeTagSet(node.tags, node.names));
    for (NameId name : node.names) vocabulary.AddInserted(name);
  }
}

const StreamOrder& BuildContext::ComputeOrder(size_t host) const {
  const auto found = std::find_if(dag.orders.begin(), dag.orders.end(), [&](const StreamOrder& order) {
    return order.group == hosts[host] && order.stream == compute_streams[0];
  });
  PIPER_CHECK(found != dag.orders.end(), dag.groups[hosts[host]].text);
  return *found;
}

std::optional<Group> BuildContext::ResolveGroup(const GroupExpr& expr, SourceRange fallback, DiagKind kind) {
  SourceRange range = expr.range.valid() ? expr.range : fallback;
  const Mesh* mesh = nullptr;
  if (expr.mesh.empty()) {
    // The default mesh, or else the first one that has all the axes.
    for (const Mesh& candidate : meshes) {
      bool has_all =
          std::all_of(expr.slices.begin(), expr.slices.end(), [&](const GroupExpr::AxisSlice& slice) {
            return candidate.FindAxis(slice.axis) < candidate.axes.size();
          });
      if (has_all) {
        mesh = &candidate;
        break;
      }
    }
    if (mesh == nullptr) mesh = &meshes.front();
  } else {
    for (const Mesh& candidate : meshes) {
      if (candidate.name == expr.mesh) mesh = &candidate;
    }
    if (mesh == nullptr) {
      std::vector<std::string> names;
      for (const Mesh& candidate : meshes) names.push_back(candidate.name);
      auto error =
          diag.Error(range, DiagKind::kUnknownAxis, fmt::format("no mesh is called '{}'", expr.mesh));
      if (std::string near = NearestName(expr.mesh, names); !near.empty())
        error.Hint(fmt::format("did you mean '{}'?", near));
      return std::nullopt;
    }
  }
  std::vector<std::pair<int64_t, int64_t>> bounds;
  for (const MeshAxis& axis : mesh->axes) bounds.emplace_back(0, axis.size);
  std::vector<bool> sliced(mesh->axes.size());
  for (const GroupExpr::AxisSlice& slice : expr.slices) {
    SourceRange at = slice.range.valid() ? slice.range : range;
    size_t axis = mesh->FindAxis(slice.axis);
    if (axis == mesh->axes.size()) {
      std::vector<std::string> names;
      for (const MeshAxis& a : mesh->axes) names.push_back(a.name);
      auto error =
          diag.Error(at, DiagKind::kUnknownAxis, fmt::format("the mesh has no axis '{}'", slice.axis));
      if (std::string near = NearestName(slice.axis, names); !near.empty()) {
        error.Hint(fmt::format("did you mean '{}'?", near));
      } else {
        error.Hint(names.empty() ? "there is no `mesh` directive"
                                 : fmt::format("its axes are {}", fmt::join(names, ", ")));
      }
      return std::nullopt;
    }
    int64_t size = mesh->axes[axis].size;
    if (slice.begin < 0 || slice.end > size || slice.begin >= slice.end) {
      std::string text = slice.end == slice.begin + 1
                             ? fmt::format("{}[{}]", slice.axis, slice.begin)
                             : fmt::format("{}[{}..{}]", slice.axis, slice.begin, slice.end);
      diag.Error(at, kind, fmt::format("{} is out of range", text))
          .Note(mesh->range,
                fmt::format("axis '{}' has {} position{}", slice.axis, size, size == 1 ? "" : "s"))
          .Hint(fmt::format("the last one is {}[{}]", slice.axis, size - 1));
      return std::nullopt;
    }
    if (sliced[axis]) {
      diag.Error(at, kind, fmt::format("axis '{}' is sliced twice in one group", slice.axis));
      return std::nullopt;
    }
    sliced[axis] = true;
    bounds[axis] = {slice.begin, slice.end};
  }
  Group group;
  for (size_t axis = 0; axis < bounds.size(); ++axis) {
    auto [begin, end] = bounds[axis];
    if (begin == 0 && end == mesh->axes[axis].size && (!sliced[axis] || mesh->axes[axis].size > 1)) continue;
    if (!group.text.empty()) group.text += " * ";
    group.text += end == begin + 1 ? fmt::format("{}[{}]", mesh->axes[axis].name, begin)
                                   : fmt::format("{}[{}..{}]", mesh->axes[axis].name, begin, end);
  }
  if (group.text.empty()) group.text = "all";
  if (mesh != &meshes.front() && !mesh->name.empty()) group.text = mesh->name + ":" + group.text;
  for (size_t linear = 0; linear < mesh->devices.size(); ++linear) {
    size_t rest = linear;
    bool inside = true;
    for (size_t axis = mesh->axes.size(); axis-- > 0;) {
      auto size = static_cast<size_t>(mesh->axes[axis].size);
      auto coordinate = static_cast<int64_t>(rest % size);
      rest /= size;
      if (coordinate < bounds[axis].first || coordinate >= bounds[axis].second) inside = false;
    }
    if (inside) group.devices.push_back(mesh->devices[linear]);
  }
  return group;
}

std::vector<GroupId> BuildContext::HostsWithin(const Group& group, SourceRange range, DiagKind kind) {
  std::vector<bool> inside(dag.device_count);
  for (uint32_t device : group.devices) inside[device] = true;
  std::vector<GroupId> within;
  for (GroupId host : hosts) {
    const Group& candidate = dag.groups[host];
    auto covered = std::count_if(candidate.devices.begin(), candidate.devices.end(),
                                 [&](uint32_t d) { return inside[d]; });
    if (covered == static_cast<int64_t>(candidate.devices.size())) {
      within.push_back(host);
    } else if (covered > 0) {
      diag.Error(range, kind,
                 fmt::format("{} covers only a part of {}, whose devices run one program", group.text,
                             candidate.text))
          .Hint(fmt::format("name {}", candidate.text));
      return {};
    }
  }
  if (within.empty()) {
    auto error = diag.Error(range, kind, fmt::format("nothing is placed on {}", group.text));
    if (!hosts.empty()) {
      std::string texts;
      for (size_t i = 0; i < hosts.size() && i < 4; ++i) texts += (i ? ", " : "") + dag.groups[hosts[i]].text;
      error.Hint(fmt::format("the model is placed on {}{}", texts, hosts.size() > 4 ? ", .." : ""));
    }
  }
  return within;
}

bool BuildContext::TemplateMatches(const SelectorClause& clause, TemplateId t) const {
  const NodeTemplate& node = dag.templates[t];
  if (clause.passes != 0 && !(clause.passes & PassBit(node.pass))) return false;
  // Unless inserted nodes are named, a clause is about F and B, and about R and U where it says so.
  bool plain = node.kind == NodeKind::kCompute || node.kind == NodeKind::kUpdate;
  if (clause.passes == 0 && (node.kind == NodeKind::kUpdate || node.pass == Pass::kR)) plain = false;
  if (!plain && !vocabulary.NamesInserted(clause)) return false;
  return TagsMatch(clause, template_tags[t], split);
}

std::vector<TemplateId> BuildContext::MatchTemplates(const SelectorClause& clause) const {
  std::vector<TemplateId> matched;
  for (TemplateId t = 0; t < dag.templates.size(); ++t) {
    if (TemplateMatches(clause, t)) matched.push_back(t);
  }
  return matched;
}

std::vector<Instance> BuildContext::SelectInstances(const Selector& selector) const {
  std::vector<Instance> found;
  std::vector<int32_t> microbatches;
  for (const SelectorClause& clause : selector.any_of) {
    for (TemplateId t : MatchTemplates(clause)) {
      const NodeTemplate& node = dag.templates[t];
      microbatches.assign(1, -1);
      if (!node.step_level()) {
        microbatches.clear();
        split.Collect(clause, node.mb_begin, node.mb_end, &microbatches);
      }
      for (int32_t mb : microbatches) found.push_back({t, mb});
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

bool BuildContext::ReportIfEmpty(const Selector& selector, SourceRange fallback) {
  if (selector.optional) return false;
  if (vocabulary.ReportUnknownNames(selector, fallback, diag)) return true;
  std::vector<int32_t> microbatches;
  for (const SelectorClause& clause : selector.any_of) {
    SelectorClause any_pass = clause;
    any_pass.passes = 0;
    if (vocabulary.NamesInserted(clause)) return false;
    for (TemplateId t : MatchTemplates(any_pass)) {
      microbatches.clear();
      split.Collect(clause, dag.templates[t].mb_begin, dag.templates[t].mb_end, &microbatches);
      if (!microbatches.empty() || dag.templates[t].step_level()) return false;
    }
  }
  vocabulary.ExplainEmpty(selector, fallback, diag);
  return true;
}

TagPath InstanceOf(const BuildContext& context, const SelectorClause& clause, const TagPath& tags) {
  size_t depth = 0;
  for (size_t i = 0; i < tags.size(); ++i) {
    NameId name = InternName(tags[i].name);
    for (const SelectorTerm& term : clause.terms) {
      if (!term.negated && term.name == name && context.vocabulary.IsTag(name)) depth = i + 1;
    }
  }
  return {tags.begin(), tags.begin() + static_cast<ptrdiff_t>(depth)};
}

bool RegionMatches(const BuildContext& context, const Selector& selector, RegionId region) {
  return std::any_of(selector.any_of.begin(), selector.any_of.end(), [&](const SelectorClause& clause) {
    return TagsMatch(clause, context.region_tags[region], context.split);
  });
}

}  // namespace piper::ir
