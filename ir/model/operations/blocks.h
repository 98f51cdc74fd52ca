// Blocks along one dimension: what split, unstack, slice, concat and stack copy, and the operation that puts
// blocks together, which serves as the derivative of those that take them apart.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/model/operations/rule.h"

namespace piper::ir {

// split and unstack give at most so many results.
inline constexpr int64_t kMaxParts = 1024;

// y = positions [begin, begin + count) of x along dimension `dim`; y is dense.
void EmitTakeBlock(BodyBuilder& body, OperandRef x, const TensorType& x_type, size_t dim, int64_t begin,
                   int64_t count, OperandRef y);
// The reverse: positions [begin, begin + count) of y, of type `y_type`, become x.
void EmitPutBlock(BodyBuilder& body, OperandRef x, OperandRef y, const TensorType& y_type, size_t dim,
                  int64_t begin, int64_t count);

// Contributes to operand 0 of split or unstack, whose results follow one another along attribute `dim`: their
// cotangents side by side, zeros for those without.
void ContributeParts(GradientBuilder& builder, const Operation& op);

}  // namespace piper::ir
