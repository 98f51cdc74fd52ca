#include "ir/cost/resource_model.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "ir/support/result.h"

namespace piper::ir {
namespace {

// Picoseconds of `amount` at `rate` a second; a rate of 0 is not modelled.
double PicosecondsAt(double amount, double rate) {
  return rate > 0 && amount > 0 ? amount / rate * static_cast<double>(kPsPerS) : 0.0;
}

Picoseconds Round(double picoseconds) {
  constexpr double kLimit = 9e18;
  return std::llround(std::min(picoseconds, kLimit));
}

}  // namespace

Picoseconds ComputeCost(const DeviceKind& kind, DType dtype, double flops, double bytes) {
  auto rate = kind.compute.find(std::string(DTypeName(dtype)));
  const double compute = rate == kind.compute.end() ? 0.0 : PicosecondsAt(flops, rate->second);
  return Round(std::max(compute, PicosecondsAt(bytes, kind.memory_bandwidth)));
}

Picoseconds BodyCost(const DeviceKind& kind, const Body& body) {
  DType dtype = DType::kF32;
  for (const Formal& formal : body.formals) {
    if (formal.type.dtype == DType::kI32) continue;
    dtype = formal.type.dtype;
    break;
  }
  return ComputeCost(kind, dtype, body.flops, body.bytes_moved);
}

Picoseconds AccumulateCost(const DeviceKind& kind, int64_t bytes) {
  return ComputeCost(kind, DType::kF32, 0, 3.0 * static_cast<double>(bytes));
}

TransferCost MessageCost(const Link& link, int64_t bytes) {
  return {Round(PicosecondsAt(static_cast<double>(bytes), link.bandwidth)), link.latency};
}

Picoseconds HostCopyCost(const DeviceKind& kind, int64_t bytes) {
  return Round(PicosecondsAt(static_cast<double>(bytes), kind.host_bandwidth));
}

Picoseconds CollectiveCost(runtime::CollectiveKind kind, const Link& slowest, int64_t bytes,
                           int64_t members) {
  if (members <= 1) return 0;
  const double p = static_cast<double>(members);
  const double whole = PicosecondsAt(static_cast<double>(bytes), slowest.bandwidth);
  const double hop = static_cast<double>(slowest.latency) * (p - 1);
  switch (kind) {
    case runtime::CollectiveKind::kAllReduce:
      return Round(2 * (p - 1) / p * whole + 2 * hop);
    case runtime::CollectiveKind::kReduceScatter:
    case runtime::CollectiveKind::kAllGather:
    case runtime::CollectiveKind::kAllToAll:
      return Round((p - 1) / p * whole + hop);
    case runtime::CollectiveKind::kBroadcast:
      return Round(whole + hop);
  }
  PIPER_CHECK(false, "unknown collective");
  return 0;
}

Link SlowestLink(const Topology& topology, std::span<const uint32_t> devices) {
  Link slowest;
  for (size_t i = 0; i < devices.size(); ++i) {
    const Link link = topology.Between(devices[i], devices[(i + 1) % devices.size()]);
    if (link.bandwidth > 0 && (slowest.bandwidth == 0 || link.bandwidth < slowest.bandwidth)) {
      slowest.bandwidth = link.bandwidth;
    }
    slowest.latency = std::max(slowest.latency, link.latency);
  }
  return slowest;
}

}  // namespace piper::ir
