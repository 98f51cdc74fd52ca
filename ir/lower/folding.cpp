#include "ir/lower/folding.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "ir/cost/resource_model.h"
#include "ir/support/result.h"

namespace piper::ir {
namespace {

// Signatures are compared exactly; a bandwidth goes in by its bits' worth of information, in bytes a second.
int64_t Key(double value) { return std::llround(value); }

class Refiner {
 public:
  Refiner(const Dag& dag, const Topology& topology, const std::vector<Role>& roles)
      : dag_(dag), topology_(topology), class_of_(dag.device_count, 0) {
    for (uint32_t r = 0; r < roles.size(); ++r) {
      for (uint32_t device : roles[r].devices) class_of_[device] = r;
    }
    classes_ = roles.size();
    // Who shares a port with whom.
    beside_.resize(dag.device_count);
    for (size_t level = 1; level < topology.levels.size(); ++level) {
      std::map<Topology::Port, std::vector<uint32_t>> users;
      for (uint32_t device = 0; device < dag.device_count; ++device)
        users[topology.PortOf(device, level)].push_back(device);
      for (const auto& [port, devices] : users) {
        if (devices.size() < 2) continue;
        for (uint32_t device : devices) beside_[device].push_back(devices);
      }
    }
  }

  std::vector<uint32_t> Refine(const std::vector<Role>& roles) {
    for (;;) {
      std::map<std::vector<int64_t>, uint32_t> known;
      std::vector<uint32_t> next(class_of_.size());
      communicators_.clear();
      communicator_classes_.clear();
      for (const Role& role : roles) {
        for (uint32_t device : role.devices) {
          next[device] =
              known.emplace(Signature(role, device), static_cast<uint32_t>(known.size())).first->second;
        }
      }
      class_of_ = std::move(next);
      if (known.size() == classes_) return class_of_;
      classes_ = known.size();
    }
  }

 private:
  std::vector<int64_t> Signature(const Role& role, uint32_t device) {
    std::vector<int64_t> signature = {class_of_[device], topology_.device_kind[device]};
    for (const std::vector<uint32_t>& others : beside_[device]) {
      const size_t first = signature.size();
      for (uint32_t other : others) signature.push_back(class_of_[other]);
      std::sort(signature.begin() + static_cast<ptrdiff_t>(first), signature.end());
      signature.push_back(static_cast<int64_t>(others.size()));
    }
    std::vector<std::pair<GroupId, GroupId>> seen;  // (group, peer group), or a communicator
    for (TemplateId t : role.templates) {
      const NodeTemplate& node = dag_.templates[t];
      const bool message = node.kind == NodeKind::kSend || node.kind == NodeKind::kRecv;
      if (!message && !IsCollective(node.kind)) continue;
      const std::pair<GroupId, GroupId> what = {node.group,
                                                message ? node.peer_group : kNone - node.per_replica};
      if (std::find(seen.begin(), seen.end(), what) != seen.end()) continue;
      seen.push_back(what);
      if (message) {
        const uint32_t peer = PeerOf(dag_, node, device);
        const Link link = topology_.Between(device, peer);
        signature.insert(signature.end(), {class_of_[peer], Key(link.bandwidth), link.latency});
        if (!beside_[device].empty()) signature.push_back(topology_.LevelBetween(device, peer));
        continue;
      }
      signature.push_back(CommunicatorClass(node, device));
      if (beside_[device].empty()) continue;
      // The ports towards its neighbours on the ring.
      const std::vector<uint32_t> members = CommunicatorOf(dag_, node, device);
      const auto self = std::find(members.begin(), members.end(), device);
      const uint32_t next = self + 1 == members.end() ? members.front() : *(self + 1);
      const uint32_t previous = self == members.begin() ? members.back() : *(self - 1);
      signature.insert(signature.end(), {topology_.LevelBetween(device, next), next == device,
                                         topology_.LevelBetween(device, previous)});
    }
    return signature;
  }

  // A number for (the slowest link, the classes of the members): equal for all members.
  int64_t CommunicatorClass(const NodeTemplate& node, uint32_t device) {
    const uint32_t replica = !node.per_replica             ? kNone
                             : dag_.device_replica.empty() ? 0
                                                           : dag_.device_replica[device];
    auto [it, fresh] = communicators_.emplace(std::make_pair(node.group, replica), 0);
    if (!fresh) return it->second;
    const std::vector<uint32_t> members = CommunicatorOf(dag_, node, device);
    const Link link = SlowestLink(topology_, members);
    std::vector<int64_t> signature;
    for (uint32_t member : members) signature.push_back(class_of_[member]);
    std::sort(signature.begin(), signature.end());
    signature.insert(signature.end(), {Key(link.bandwidth), link.latency});
    const int64_t next = static_cast<int64_t>(communicator_classes_.size());
    return it->second = communicator_classes_.emplace(std::move(signature), next).first->second;
  }

  const Dag& dag_;
  const Topology& topology_;
  std::vector<uint32_t> class_of_;
  // Per device and level on which it shares a port: the devices that do, itself included.
  std::vector<std::vector<std::vector<uint32_t>>> beside_;
  size_t classes_ = 0;
  // Of this round: (group, replica of a communicator a replica).
  std::map<std::pair<GroupId, uint32_t>, int64_t> communicators_;
  std::map<std::vector<int64_t>, int64_t> communicator_classes_;
};

}  // namespace

bool IsCollective(NodeKind kind) {
  return kind == NodeKind::kReduce || kind == NodeKind::kAllReduce || kind == NodeKind::kAllGather ||
         kind == NodeKind::kReduceScatter || kind == NodeKind::kAllToAll || kind == NodeKind::kBroadcast;
}

size_t PositionIn(const Group& group, uint32_t device) {
  auto found = std::find(group.devices.begin(), group.devices.end(), device);
  PIPER_CHECK(found != group.devices.end(), group.text);
  return static_cast<size_t>(found - group.devices.begin());
}

uint32_t PeerOf(const Dag& dag, const NodeTemplate& message, uint32_t device) {
  const Group& peers = dag.groups[message.peer_group];
  const size_t position = PositionIn(dag.groups[message.group], device);
  PIPER_CHECK(position < peers.devices.size(), message.name);
  return peers.devices[position];
}

std::vector<uint32_t> CommunicatorOf(const Dag& dag, const NodeTemplate& collective, uint32_t device) {
  const std::vector<uint32_t>& devices = dag.groups[collective.group].devices;
  if (!collective.per_replica) return devices;
  const auto replica = [&](uint32_t d) { return dag.device_replica.empty() ? 0 : dag.device_replica[d]; };
  std::vector<uint32_t> members;
  for (uint32_t other : devices) {
    if (replica(other) == replica(device)) members.push_back(other);
  }
  return members;
}

std::vector<Fold> FoldDevices(const Dag& dag, const Topology& topology) {
  const std::vector<Role> roles = BuildRoles(dag);
  std::vector<Fold> folds;
  if (roles.size() == dag.device_count) {  // nothing to fold
    for (uint32_t r = 0; r < roles.size(); ++r) folds.push_back({roles[r].devices, r});
    return folds;
  }
  const std::vector<uint32_t> class_of = Refiner(dag, topology, roles).Refine(roles);
  for (uint32_t r = 0; r < roles.size(); ++r) {
    std::map<uint32_t, size_t> fold_of;
    for (uint32_t device : roles[r].devices) {
      auto [it, fresh] = fold_of.emplace(class_of[device], folds.size());
      if (fresh) folds.push_back({{}, r});
      folds[it->second].devices.push_back(device);
    }
  }
  return folds;
}

}  // namespace piper::ir
