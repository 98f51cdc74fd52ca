#include "ir/directives/differentiate.h"

#include <algorithm>

#include <fmt/format.h>

#include "ir/directives/recompute.h"

namespace piper::ir {

namespace {

const TagPath& TagsOf(const BuildContext& context, RegionId region) {
  return context.regions.graph.tag_paths[context.regions.regions[region].tags];
}

}  // namespace

std::string CopySuffix(const BuildContext& context, RegionId region, uint32_t copy) {
  return context.copies[region].size() == 1 || copy == 0 ? "" : fmt::format(" copy {}", copy);
}

GroupId AllHosts(BuildContext& context) {
  Group group;
  for (GroupId host : context.hosts) {
    const Group& g = context.dag.groups[host];
    group.devices.insert(group.devices.end(), g.devices.begin(), g.devices.end());
  }
  std::sort(group.devices.begin(), group.devices.end());
  group.text = context.hosts.size() == 1 ? context.dag.groups[context.hosts[0]].text : "every host";
  return context.dag.InternGroup(std::move(group));
}

TagPath UnionTags(const BuildContext& context, const std::vector<RegionId>& regions) {
  TagPath tags;
  for (RegionId region : regions) {
    for (const TagInstance& tag : TagsOf(context, region)) {
      if (std::find(tags.begin(), tags.end(), tag) == tags.end()) tags.push_back(tag);
    }
  }
  return tags;
}

void AddComputeNodes(BuildContext& context) {
  const std::vector<Region>& regions = context.regions.regions;
  NameId stream = InternName("compute");
  context.compute.resize(regions.size());
  for (RegionId r = 0; r < regions.size(); ++r) {
    context.compute[r].assign(context.copies[r].size(), {kNone, kNone, kNone, kNone});
  }
  auto add = [&](RegionId r, uint32_t copy, Pass pass, const Body& body) {
    const RegionCopy& placed = context.copies[r][copy];
    NodeTemplate node;
    node.kind = NodeKind::kCompute;
    node.pass = pass;
    node.region = r;
    node.copy = copy;
    node.name = fmt::format("{} {}{}", PassName(pass), regions[r].name, CopySuffix(context, r, copy));
    node.tags = TagsOf(context, r);
    node.group = placed.host;
    node.stream = stream;
    node.mb_begin = placed.begin;
    node.mb_end = placed.end;
    node.origin =
        context.dag.AddOrigin(pass == Pass::kR ? context.recompute.owner[r]->range : placed.placed_by);
    node.flops = body.flops;
    return context.compute[r][copy][static_cast<size_t>(pass)] = context.AddTemplate(std::move(node));
  };
  for (RegionId r = 0; r < regions.size(); ++r) {
    for (uint32_t copy = 0; copy < context.copies[r].size(); ++copy)
      add(r, copy, Pass::kF, regions[r].forward);
  }
  if (context.forward_only) return;
  for (RegionId r = 0; r < regions.size(); ++r) {
    if (regions[r].recompute.empty()) continue;
    for (uint32_t copy = 0; copy < context.copies[r].size(); ++copy) {
      TemplateId replay = add(r, copy, Pass::kR, regions[r].recompute);
      // It reads nothing that F left, yet is no replay of what has not been played.
      context.dag.edges.push_back(
          {context.compute[r][copy][0], replay, false, context.dag.templates[replay].origin});
    }
  }
  for (RegionId r = static_cast<RegionId>(regions.size()); r-- > 0;) {
    for (uint32_t copy = 0; copy < context.copies[r].size(); ++copy) {
      TemplateId forward = context.compute[r][copy][0];
      TemplateId replay = context.compute[r][copy][static_cast<size_t>(Pass::kR)];
      TemplateId input = kNone;
      if (!regions[r].backward_input.empty()) {
        input = add(r, copy, Pass::kBI, regions[r].backward_input);
        context.AddEdge(forward, input);
        if (replay != kNone && ReadsOwnForward(regions[r].backward_input)) context.AddEdge(replay, input);
      }
      if (regions[r].backward_weight.empty()) continue;
      TemplateId weight = add(r, copy, Pass::kBW, regions[r].backward_weight);
      context.AddEdge(forward, weight);
      if (replay != kNone && ReadsOwnForward(regions[r].backward_weight)) context.AddEdge(replay, weight);
      // BW may read what BI left for it.
      if (input != kNone) context.AddEdge(input, weight);
    }
  }
}

void AddLossNodes(BuildContext& context) {
  const Graph& graph = context.regions.graph;
  NameId compute = InternName("compute");
  std::vector<TemplateId> folds;
  std::vector<RegionId> loss_regions;
  for (const Loss& loss : graph.losses) {
    RegionId r = context.regions.value_region[loss.value];
    if (r == kNone) continue;
    loss_regions.push_back(r);
    for (uint32_t copy = 0; copy < context.copies[r].size(); ++copy) {
      NodeTemplate node;
      node.kind = NodeKind::kLossFold;
      node.region = r;
      node.copy = copy;
      node.value = loss.value;
      node.name = fmt::format("loss.fold {}{}", loss.name, CopySuffix(context, r, copy));
      node.tags = TagsOf(context, r);
      node.names = {InternName("loss.fold")};
      node.group = context.copies[r][copy].host;
      node.stream = compute;
      node.mb_begin = -1;
      node.mb_end = 0;
      node.bytes = graph.Type(loss.value).bytes();
      node.origin = context.dag.AddOrigin(loss.range);
      folds.push_back(context.AddTemplate(std::move(node)));
      context.AddEdge(context.compute[r][copy][0], folds.back());
    }
  }
  GroupId all = AllHosts(context);
  if (folds.empty() || (folds.size() == 1 && context.dag.groups[all].devices.size() == 1)) return;
  NodeTemplate node;
  node.kind = NodeKind::kAllReduce;
  node.name = "loss.reduce";
  node.names = {InternName("loss.reduce")};
  node.tags = UnionTags(context, loss_regions);
  node.group = all;
  node.stream = InternName("reduce");
  node.mb_begin = -1;
  node.mb_end = 0;
  node.bytes = graph.Type(graph.losses[0].value).bytes();
  node.origin = context.dag.AddOrigin(graph.losses[0].range);
  TemplateId reduce = context.AddTemplate(std::move(node));
  for (TemplateId fold : folds) context.AddEdge(fold, reduce);
}

}  // namespace piper::ir
