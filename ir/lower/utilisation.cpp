#include "ir/lower/utilisation.h"

namespace piper::ir {

double ModelFlops(const Dag& dag) {
  double flops = 0;
  for (const NodeTemplate& node : dag.templates) {
    if (node.kind != NodeKind::kCompute || node.pass == Pass::kR) continue;
    flops += node.flops * static_cast<double>(node.node_count()) *
             static_cast<double>(dag.groups[node.group].devices.size());
  }
  return flops;
}

double PeakFlops(const Topology& topology, uint32_t device_count) {
  double available = 0;
  for (uint32_t device = 0; device < device_count; ++device) {
    const DeviceKind& kind = topology.Kind(device);
    if (auto rate = kind.compute.find("f32"); rate != kind.compute.end()) available += rate->second;
  }
  return available;
}

}  // namespace piper::ir
