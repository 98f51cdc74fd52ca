// What sum, mean and max share: they drop the named dimensions, or all of them.
#pragma once

#include <optional>
#include <vector>

#include "ir/model/operations/rule.h"

namespace piper::ir {

// The attribute `dims = []`.
std::vector<AttributeInfo> ReductionAttributes();
// The operand's type without the dimensions that attribute `dims` names, without all of them if it names
// none; nothing after an error was reported.
std::optional<TensorType> ReducedType(const Graph& graph, const Operation& op, DiagnosticEngine& diag);
// The result = factor * the sum over what the operand has and the result lacks.
void EmitReduction(BodyBuilder& body, const Operation& op, double factor);
// Whether the operation reduces that dimension.
bool Reduces(const Graph& graph, const Operation& op, std::string_view dim);

}  // namespace piper::ir
