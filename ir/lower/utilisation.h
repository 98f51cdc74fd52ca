// The two figures that model FLOPs utilisation (MFU) divides, for `assert mfu` and for the metrics of a run:
// a step's useful FLOPs, and what the devices of the topology declare.
#pragma once

#include "ir/dag/dag.h"
#include "ir/program/program.h"

namespace piper::ir {

// FLOPs of all F, BI and BW of a step, over replicas and microbatches. Recomputation is no use and does not
// count.
double ModelFlops(const Dag& dag);

// FLOP/s of all devices, in f32, in which the models compute; a device that declares none adds nothing.
double PeakFlops(const Topology& topology, uint32_t device_count);

}  // namespace piper::ir
