#include "ir/model/operations/norm.h"

#include <fmt/format.h>

namespace piper::ir {

bool CheckNorm(const Graph& graph, const Operation& op, DiagnosticEngine& diag) {
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (!RequireFloat(graph, op, i, diag)) return false;
  }
  const TensorType& x = graph.Type(op.operands[0]);
  if (x.dims.empty()) {
    diag.Error(op.range, DiagKind::kShapeMismatch,
               fmt::format("{} normalises rows, but x is a scalar", op.kind))
        .Hint("x needs at least one dimension");
    return false;
  }
  for (size_t i = 1; i < op.operands.size(); ++i) {
    const TensorType& vector = graph.Type(op.operands[i]);
    if (vector.dims.size() == 1 && vector.dims[0] == x.dims.back()) continue;
    diag.Error(op.range, DiagKind::kShapeMismatch,
               fmt::format("{} is {}, but {} normalises {} along its last dimension {}", OperandText(op, i),
                           vector.ToString(), op.kind, x.ToString(), DimText(x.dims.back())))
        .Hint(fmt::format("it must be [{}]", x.dims.back().name));
    return false;
  }
  if (!(op.Number("eps") > 0)) {
    diag.Error(op.range, DiagKind::kOutOfRange,
               fmt::format("eps of {} is {}, but must be positive", op.kind, op.Number("eps")))
        .Hint("1e-5 is usual");
    return false;
  }
  return true;
}

TensorType RowType(const TensorType& x) { return {x.dtype, {x.dims.begin(), x.dims.end() - 1}}; }

std::vector<int64_t> RowsAndCols(const TensorType& x) {
  int64_t cols = x.dims.back().size;
  return {Product(x, 0, x.dims.size() - 1), cols};
}

}  // namespace piper::ir
