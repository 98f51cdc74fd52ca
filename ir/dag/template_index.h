// Which template a node is an instance of, in a few instructions: the table is small enough to stay near the
// processor while millions of nodes are looked up.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/dag/dag.h"

namespace piper::ir {

// A view of Dag::first_node, valid until the Dag is renumbered or moved.
class TemplateIndex {
 public:
  TemplateIndex() = default;
  explicit TemplateIndex(const Dag& dag) : first_node_(dag.first_node.data()) {
    of_block_.reserve(dag.node_count() / kBlock + 1);
    TemplateId t = 0;
    for (NodeId node = 0; node < dag.node_count(); node += kBlock) {
      while (first_node_[t + 1] <= node) ++t;
      of_block_.push_back(t);
    }
  }

  TemplateId operator[](NodeId node) const {
    TemplateId t = of_block_[node / kBlock];
    while (first_node_[t + 1] <= node) ++t;
    return t;
  }

 private:
  static constexpr NodeId kBlock = 64;
  const NodeId* first_node_ = nullptr;
  std::vector<TemplateId> of_block_;  // of the first node of each block of kBlock
};

}  // namespace piper::ir
