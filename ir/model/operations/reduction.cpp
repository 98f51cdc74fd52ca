#include "ir/model/operations/reduction.h"

#include <algorithm>

namespace piper::ir {

std::vector<AttributeInfo> ReductionAttributes() {
  return {{AttributeInfo::Kind::kDims, "dims", std::vector<std::string>{}}};
}

std::optional<TensorType> ReducedType(const Graph& graph, const Operation& op, DiagnosticEngine& diag) {
  if (!RequireFloat(graph, op, 0, diag)) return std::nullopt;
  const auto& dims = std::get<std::vector<std::string>>(*op.Find("dims"));
  TensorType type = graph.Type(op.operands[0]);
  if (dims.empty()) return TensorType{type.dtype, {}};
  for (const std::string& dim : dims) {
    if (RequireDim(graph, op, 0, dim, diag) < 0) return std::nullopt;
  }
  std::erase_if(type.dims,
                [&](const Dim& d) { return std::find(dims.begin(), dims.end(), d.name) != dims.end(); });
  return type;
}

void EmitReduction(BodyBuilder& body, const Operation& op, double factor) {
  const TensorType& x = body.Type(op.operands[0]);
  const TensorType& y = body.Type(op.results[0]);
  OperandRef result = body.At(op.results[0]);
  if (factor == 1) {
    EmitSumTo(body, body.At(op.operands[0]), x, result, y);
    return;
  }
  OperandRef total = body.Temporary(y, "total");
  EmitSumTo(body, body.At(op.operands[0]), x, total, y);
  body.Call("scale", {total, result}, {y.elements()}, {factor});
}

bool Reduces(const Graph& graph, const Operation& op, std::string_view dim) {
  const auto& dims = std::get<std::vector<std::string>>(*op.Find("dims"));
  if (dims.empty()) return FindDim(graph.Type(op.operands[0]), dim) >= 0;
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

void AddReductionRules(RuleList& rules) {
  // repeat(x; factor): factor * x, repeated along the result's further dimensions.
  static const InternalRule repeat("repeat", [](BodyBuilder& body, const Operation& op) {
    const TensorType& from = body.Type(op.operands[0]);
    const TensorType& to = body.Type(op.results[0]);
    OperandRef x = body.At(op.operands[0]);
    if (double factor = op.Number("factor"); factor != 1) {
      OperandRef scaled = body.Temporary(from, "scaled");
      body.Call("scale", {x, scaled}, {from.elements()}, {factor});
      x = scaled;
    }
    EmitBroadcast(body, x, from, body.At(op.results[0]), to);
  });
  rules.push_back(&repeat);
}

}  // namespace piper::ir
