// Graphviz pictures: the model graph, and the training DAG.
//
// Graphs that nobody could read are folded, and say so in their title. Model: an operation a node while there
// are at most 300, then a region a node, then an instance of the outermost tag (`layer 3`). DAG: a template a
// node (it stands for all of its microbatches) while there are at most 300, then a node a rank, stage and
// pass or kind.
#pragma once

#include <optional>
#include <string>

#include "ir/dag/dag.h"
#include "ir/model/body.h"
#include "ir/program/program.h"

namespace piper::tools {

constexpr size_t kDotNodes = 300;       // above this, the next coarser form
constexpr size_t kMaxDotNodes = 3'000;  // no form with at most this many: no picture

// Clusters are the outermost tags and the regions in them; edges say what they carry; dashed lines join the
// regions that share a parameter. nullopt: too large.
std::optional<std::string> ModelDot(const ir::RegionGraph& regions);

// Clusters are ranks (hosts, with the ranks that do the same) and their stages; an edge between ranks says
// how many bytes a microbatch moves, an edge into a step-level node how many instances it gathers; temporal
// edges are dashed. Orders are left to the timeline. nullopt: too large.
std::optional<std::string> DagDot(const ir::Dag& dag, const ir::Program& program);

}  // namespace piper::tools
