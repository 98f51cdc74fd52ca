// Which devices share a RankProgram: those with the same templates, the same kind of device, equal links to
// peers that are alike in turn, and ports shared with devices that are alike. Also where a device finds its
// peers and its communicators.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/dag/dag.h"
#include "ir/program/program.h"

namespace piper::ir {

struct Fold {
  std::vector<uint32_t> devices;  // ascending
  uint32_t host = 0;              // index of the role by templates alone (BuildRoles)
};

// An exact cover of the devices, ordered by first device within a host, hosts in order of BuildRoles.
std::vector<Fold> FoldDevices(const Dag& dag, const Topology& topology);

// Position of a device in a group. PIPER_CHECKs membership.
size_t PositionIn(const Group& group, uint32_t device);

// The device at the other end of a send or receive template, as `device` sees it: same position.
uint32_t PeerOf(const Dag& dag, const NodeTemplate& message, uint32_t device);

// The members of a collective's communicator that holds `device`: the group, or its devices of the same
// replica.
std::vector<uint32_t> CommunicatorOf(const Dag& dag, const NodeTemplate& collective, uint32_t device);

bool IsCollective(NodeKind kind);

}  // namespace piper::ir
