// What layer_norm and rms_norm share: they normalise rows, along the last dimension of x.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/model/operations/rule.h"

namespace piper::ir {

// x is real and has a last dimension; every further operand is a vector over exactly that dimension; eps > 0.
bool CheckNorm(const Graph& graph, const Operation& op, DiagnosticEngine& diag);
// x without its last dimension: one statistic a row.
TensorType RowType(const TensorType& x);
std::vector<int64_t> RowsAndCols(const TensorType& x);

}  // namespace piper::ir
