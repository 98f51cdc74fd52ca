// order on group { steps }                order on group { compute: ..; a2a: .. }
//
// before:  F stage0.layer0 mb 0..8, BI .., BW ..                     no order among them
// after:   order pp[0] compute: F mb 0, F mb 1, BI mb 0, BW mb 0, ..  a total order a (host, stream)
//
// A step lists the group's nodes that its selector matches: by microbatch, then F in model order, B in
// reverse model order with BI then BW a region. One step that holds a region's BI and BW is a whole B: one
// atomic node, per microbatch and run of neighbouring regions, as is `fused(f, b)`. `lanes` lists steps per
// stream; `barrier` makes what a group listed before it precede what it lists after, across its streams.
// Every F, BI, BW of an ordered compute stream is listed exactly once; what else runs there attaches to its
// neighbours (stream_order.h). A group of several hosts gives each its own part. Nodes of other groups cannot
// be listed.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// Leaves host_orders (per host) and the temporal edges of barriers.
void ApplyOrder(BuildContext& context);

// A node that an expansion yields; `key` orders a selection: class (F, B, other), microbatch, position in the
// step.
struct ExpandedNode {
  NodeId node = 0;
  TemplateId node_template = 0;
  int32_t microbatch = 0;
};

// Appends nodes, marking whole Bs as atomic: consecutive backward nodes of one microbatch and copy whose
// regions are neighbours on one host. Used for steps and for the default order.
class AtomicMarker {
 public:
  explicit AtomicMarker(const BuildContext& context);
  // `atomic` other than kNone applies to all of them (a fused step); `whole_backward`: the step holds BI and
  // BW.
  void Append(const std::vector<ExpandedNode>& nodes, OriginId origin, uint32_t atomic, bool whole_backward,
              std::vector<OrderItem>* items);
  uint32_t Next() { return next_++; }

 private:
  const BuildContext& context_;
  std::vector<std::vector<uint32_t>> run_;  // [region][copy]: equal for neighbours on one host
  uint32_t next_ = 0;
};

}  // namespace piper::ir
