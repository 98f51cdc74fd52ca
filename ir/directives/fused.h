// fused(F[mb = 1], B[mb = 0, attn], F[send, mb = 0])
//
// before:  compute: .., F mb 1, ..   side: .., B attn mb 0, ..   send>pp[1]: .., send mb 0, ..
// after:   the same orders; temporal edges from all that any of the three waits for, and from what stands
//          before them on their streams, to each of them; and from each of them to all that waits for any,
//          and to what stands behind them on their streams
//
// So a fused step whose parts stand on several streams is one node of its device: it begins when every stream
// has come to it and all inputs of all parts are there, its streams run their parts at once, each in its
// order, and until all of them have ended nothing of the device sees a result and no stream goes on. What the
// parts give each other holds nothing up but the part that needs it. What runs right after a part, such as an
// accumulate, belongs to the node. A message meets its other end within the node: a receive that is a part is
// posted when the node begins, and what a send takes away is there when it has been moved.
//
// All proofs, the clock, the executor and emitted code see edges, and need nothing else. A node that waits
// for something that waits for the node is a cycle (proof 1); one that waits for a message which another
// device sends only after it is a deadlock (proof 2).
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "ir/directives/context.h"

namespace piper::ir {

// The edges of one fused node, sorted, given orders of its host.
class FusedEdges {
 public:
  FusedEdges(const Dag& dag, const std::vector<std::span<const OrderItem>>& orders);
  std::vector<std::pair<NodeId, NodeId>> Of(const FusedNode& node) const;
  // Of every node of `node`: the first one that its stream runs of it.
  void CollectBegins(const FusedNode& node, std::map<NodeId, NodeId>* begins) const;

 private:
  struct Place {
    uint32_t order = 0, position = 0;
  };
  // What a stream does of the node: the items [first, last] of an order.
  struct Part {
    uint32_t order = 0, first = 0, last = 0;
  };
  std::vector<Part> PartsOf(const FusedNode& node) const;
  static bool Within(const std::vector<Part>& parts, const Place& place);
  // Of this step; those that no order of the host lists are left out.
  template <typename F>
  void ForEachNeighbour(NodeId node, bool before, F visit) const;

  const Dag& dag_;
  const std::vector<std::span<const OrderItem>>& orders_;
  std::vector<std::pair<NodeId, Place>> places_;              // sorted
  std::vector<std::vector<TemplateId>> incoming_, outgoing_;  // per template
  std::vector<std::pair<NodeId, NodeId>> earlier_, later_;    // temporal edges, by either end, sorted
};

// After the streams' orders are complete. Leaves the temporal edges and `part_begins`.
void ApplyFused(BuildContext& context);

}  // namespace piper::ir
