// The resource model: what one task takes on the declared hardware, in integer picoseconds. Every figure is
// rounded to the nearest picosecond (halves away from zero) once, at the end of its formula. A figure that
// the topology does not declare (a rate of 0, a dtype without FLOP/s) costs nothing. `cost` directives
// override these.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/model/body.h"
#include "ir/program/program.h"
#include "ir/support/units.h"
#include "runtime/program.h"

namespace piper::ir {

// The roofline: max(flops / FLOP/s of the dtype, bytes / memory bandwidth).
Picoseconds ComputeCost(const DeviceKind& kind, DType dtype, double flops, double bytes);

// A body's, on its first floating-point type.
Picoseconds BodyCost(const DeviceKind& kind, const Body& body);
// Adding a gradient of so many bytes to its sum: two read, one written.
Picoseconds AccumulateCost(const DeviceKind& kind, int64_t bytes);

// One message: it occupies the link for bytes / bandwidth and arrives one latency later.
struct TransferCost {
  Picoseconds occupancy = 0;
  Picoseconds latency = 0;
  Picoseconds total() const { return occupancy + latency; }
};
TransferCost MessageCost(const Link& link, int64_t bytes);

// What `offload` moves between a device and its host, one way: bytes / host bandwidth.
Picoseconds HostCopyCost(const DeviceKind& kind, int64_t bytes);

// Ring formulas over the slowest link of the ring, P members, S bytes of the whole tensor, bandwidth b,
// latency a:
//   all_reduce                    2 (P-1)/P S/b + 2 (P-1) a
//   reduce_scatter, all_gather,
//   all_to_all                      (P-1)/P S/b +   (P-1) a
//   broadcast                                S/b +  (P-1) a
// One member: 0.
Picoseconds CollectiveCost(runtime::CollectiveKind kind, const Link& slowest, int64_t bytes, int64_t members);

// The least bandwidth and the greatest latency between neighbours of the ring of devices (in the given order,
// closed).
Link SlowestLink(const Topology& topology, std::span<const uint32_t> devices);

}  // namespace piper::ir
