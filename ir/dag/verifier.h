// Structural invariants of a Dag: what every pass and every parsed text must keep, and what lowering and the
// proofs take for granted. (That it is *right*, acyclic and complete in its gradients, is proved by
// ir/check/.)
//   * ids and ranges are in bounds, names and groups unique, edges sorted and unique;
//   * compute is placed on groups that are equal or disjoint; an edge joins templates that share a device, or
//   a send
//     and its receive, which match each other;
//   * every device orders each of its nodes exactly once, on the node's own stream; atomic items are
//   consecutive.
#pragma once

#include <string>
#include <vector>

#include "ir/dag/dag.h"

namespace piper::ir {

struct DagProblem {
  TemplateId at = kNone;  // the template concerned, or kNone
  std::string message;
};

// The first few problems, in order; empty: well-formed.
std::vector<DagProblem> VerifyDag(const Dag& dag);

}  // namespace piper::ir
