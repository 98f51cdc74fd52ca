// The directive passes: from a Program to a training DAG in which communication is explicit. One directive is
// one file pair in this directory; this header runs them in phase order (language.md): mesh, cut + place,
// shard, freeze, differentiate, split, zero, cost, order / edge / limit / stream, run / numerics, then
// communication once.
#pragma once

#include <functional>
#include <optional>

#include "ir/dag/dag.h"
#include "ir/program/program.h"
#include "ir/support/diagnostics.h"

namespace piper::ir {

struct BuiltDag {
  RegionGraph regions;  // at the slice's shapes
  Dag dag;              // communication materialised, every stream ordered
};

// Nothing after an error was reported. forward_only: the evaluation step (F only, same placement; no
// warnings). The proofs follow: CheckOrder and CheckGradients of ir/check/.
std::optional<BuiltDag> BuildDag(const Program& program, bool forward_only, DiagnosticEngine& diag);

// The same with another way from a staged graph to regions than BuildRegions.
std::optional<BuiltDag> BuildDagWith(const Program& program, bool forward_only, DiagnosticEngine& diag,
                                     const std::function<RegionGraph(const Graph&)>& build_regions);

}  // namespace piper::ir
