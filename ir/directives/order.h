// order on group { steps }                order on group { compute: ..; a2a: .. }
//
// before:  F stage0.layer0 mb 0..8, BI .., BW ..                     no order among them
// after:   order pp[0] compute: F mb 0, F mb 1, BI mb 0, BW mb 0, ..  a total order a (host, stream)
//
// A step lists the group's nodes that its selector matches: by microbatch, then F in model order, B in
// reverse model order with BI then BW a region. Where one step holds both, a region's BI and BW are a whole
// B: one atomic node, whose results leave at its end. `fused(f, b)` makes one atomic node of all of its
// parts, on one stream (OrderItem::atomic) or on several (fused.h). `lanes` lists steps per stream; `barrier`
// makes what a group listed before it precede what it lists after, across its streams. Every F, BI, BW of an
// ordered stream is listed exactly once; what else runs there attaches to its neighbours (stream_order.h). A
// group of several hosts gives each its own part. A step that selects nothing here but nodes of other groups
// claims where they stand (foreign_steps.h).
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

class AtomicMarker;

// Leaves host_orders (per host; empty where a greedy order is still to be found), greedy_orders, and the
// temporal edges of barriers.
void ApplyOrder(BuildContext& context, AtomicMarker& marker);

// A node that an expansion yields; `key` orders a selection: class (F, B, other), microbatch, position in the
// step.
struct ExpandedNode {
  NodeId node = 0;
  TemplateId node_template = 0;
  int32_t microbatch = 0;
};

bool Selects(const BuildContext& context, const Selector& selector, const ExpandedNode& node);

// Appends nodes, marking whole Bs as atomic. Used for steps and for the default order.
class AtomicMarker {
 public:
  explicit AtomicMarker(const std::vector<NodeTemplate>& templates) : templates_(templates) {}
  // `atomic` other than kNone applies to all of them (a fused step); `whole_backward`: the step holds BI and
  // BW.
  void Append(const std::vector<ExpandedNode>& nodes, OriginId origin, uint32_t atomic, bool whole_backward,
              std::vector<OrderItem>* items);
  uint32_t Next() { return next_++; }

 private:
  const std::vector<NodeTemplate>& templates_;
  uint32_t next_ = 0;
};

}  // namespace piper::ir
