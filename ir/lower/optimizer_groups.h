// Which optimizer updates which parameter: of the specs that cover it the last one written wins.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/model/body.h"
#include "ir/program/program.h"
#include "ir/support/diagnostics.h"
#include "runtime/program.h"

namespace piper::ir {

struct OptimizerChoice {
  uint32_t spec = kNone;    // index into TrainSpec::optimizers; kNone: frozen
  double weight_decay = 0;  // 0 for vectors and scalars where the spec says matrices only
};

// Per parameter. A spec covers a parameter if its name matches one of the patterns (`*` matches any run of
// characters), or a region that uses it matches the selector; a spec with neither covers all. An error where
// nothing covers one.
std::vector<OptimizerChoice> ChooseOptimizers(const TrainSpec& train, const RegionGraph& regions,
                                              DiagnosticEngine& diag);

runtime::Optimizer LowerOptimizer(const OptimizerSpec& spec);

}  // namespace piper::ir
