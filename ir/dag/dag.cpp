#include "ir/dag/dag.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "ir/support/result.h"

namespace piper::ir {

std::string_view NodeKindName(NodeKind kind) {
  switch (kind) {
    case NodeKind::kCompute:
      return "compute";
    case NodeKind::kSend:
      return "send";
    case NodeKind::kRecv:
      return "recv";
    case NodeKind::kPermute:
      return "permute";
    case NodeKind::kReduce:
      return "reduce";
    case NodeKind::kAllReduce:
      return "all_reduce";
    case NodeKind::kAllGather:
      return "all_gather";
    case NodeKind::kReduceScatter:
      return "reduce_scatter";
    case NodeKind::kAllToAll:
      return "all_to_all";
    case NodeKind::kBroadcast:
      return "broadcast";
    case NodeKind::kAccumulate:
      return "accumulate";
    case NodeKind::kUpdate:
      return "update";
    case NodeKind::kFree:
      return "free";
    case NodeKind::kOffload:
      return "offload";
    case NodeKind::kPrefetch:
      return "prefetch";
    case NodeKind::kNorm:
      return "norm";
    case NodeKind::kClip:
      return "clip";
    case NodeKind::kLossFold:
      return "loss_fold";
    case NodeKind::kSave:
      return "save";
    case NodeKind::kValidate:
      return "validate";
    case NodeKind::kPartial:
      return "partial";
  }
  return "?";
}

bool SumsReplicas(const NodeTemplate& node) {
  return node.kind == NodeKind::kAllReduce && !node.gradients.empty() && !node.per_replica;
}

NodeId Dag::Node(TemplateId t, int32_t microbatch) const {
  const NodeTemplate& node = templates[t];
  PIPER_CHECK(microbatch >= node.mb_begin && microbatch < node.mb_end, node.name);
  return first_node[t] + static_cast<NodeId>(microbatch - node.mb_begin);
}

TemplateId Dag::TemplateOf(NodeId node) const {
  PIPER_CHECK(node < node_count());
  auto after = std::upper_bound(first_node.begin(), first_node.end(), node);
  return static_cast<TemplateId>(after - first_node.begin()) - 1;
}

int32_t Dag::MicrobatchOf(NodeId node) const {
  TemplateId t = TemplateOf(node);
  return templates[t].mb_begin + static_cast<int32_t>(node - first_node[t]);
}

void Dag::Renumber() {
  first_node.clear();
  first_node.reserve(templates.size() + 1);
  int64_t next = 0;
  for (const NodeTemplate& node : templates) {
    PIPER_CHECK(node.mb_end > node.mb_begin, node.name);
    first_node.push_back(static_cast<NodeId>(next));
    next += node.node_count();
    PIPER_CHECK(next < UINT32_MAX, "too many nodes");
  }
  first_node.push_back(static_cast<NodeId>(next));
}

GroupId Dag::InternGroup(Group group) {
  for (GroupId id = 0; id < groups.size(); ++id) {
    if (groups[id].devices == group.devices) return id;
  }
  groups.push_back(std::move(group));
  return static_cast<GroupId>(groups.size() - 1);
}

OriginId Dag::AddOrigin(SourceRange range) {
  if (!range.valid()) return 0;
  // Steps of one loop share their range and come close together; a rare duplicate entry does no harm.
  constexpr size_t kWindow = 16;
  size_t first = origins.size() > kWindow ? origins.size() - kWindow : 1;
  for (size_t i = origins.size(); i-- > first;) {
    if (origins[i] == range) return static_cast<OriginId>(i);
  }
  origins.push_back(range);
  return static_cast<OriginId>(origins.size() - 1);
}

std::string Dag::NodeName(NodeId node) const {
  TemplateId t = TemplateOf(node);
  if (templates[t].step_level()) return templates[t].name;
  return fmt::format("{} mb {}", templates[t].name, MicrobatchOf(node));
}

std::vector<Role> BuildRoles(const Dag& dag) {
  // Devices hold the same templates iff they are in the same groups, of those that templates are on.
  std::vector<std::vector<TemplateId>> on(dag.groups.size());
  for (TemplateId t = 0; t < dag.templates.size(); ++t) on[dag.templates[t].group].push_back(t);
  std::vector<std::vector<GroupId>> groups_of(dag.device_count);
  for (GroupId group = 0; group < dag.groups.size(); ++group) {
    if (on[group].empty()) continue;
    for (uint32_t device : dag.groups[group].devices) groups_of[device].push_back(group);
  }
  std::vector<Role> roles;
  std::map<std::vector<GroupId>, size_t> known;
  for (uint32_t device = 0; device < dag.device_count; ++device) {
    auto [it, fresh] = known.emplace(groups_of[device], roles.size());
    if (fresh) {
      Role role;
      for (GroupId group : groups_of[device])
        role.templates.insert(role.templates.end(), on[group].begin(), on[group].end());
      std::sort(role.templates.begin(), role.templates.end());
      for (uint32_t o = 0; o < dag.orders.size(); ++o) {
        const std::vector<uint32_t>& devices = dag.groups[dag.orders[o].group].devices;
        if (std::find(devices.begin(), devices.end(), device) != devices.end()) role.orders.push_back(o);
      }
      roles.push_back(std::move(role));
    }
    roles[it->second].devices.push_back(device);
  }
  return roles;
}

}  // namespace piper::ir
