// layer_norm(x, gamma, beta, eps = 1e-5): (x - mean) / sqrt(variance + eps) * gamma + beta over the last
// dimension (Ba et al., arXiv:1607.06450). Keeps the mean and 1 / sqrt(variance + eps) of each row.
#include <fmt/format.h>

#include "ir/model/operations/norm.h"

namespace piper::ir {
namespace {

class LayerNormRule final : public Rule {
 public:
  LayerNormRule()
      : Rule("layer_norm", {{"x"}, {"gamma"}, {"beta"}}, {{AttributeInfo::Kind::kNumber, "eps", 1e-5}}) {}
  std::vector<std::string_view> hidden_results() const override { return {"mean", "rstd"}; }

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!CheckNorm(graph, op, diag)) return std::nullopt;
    const TensorType& x = graph.Type(op.operands[0]);
    return std::vector<TensorType>{x, RowType(x), RowType(x)};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    ValueId x = op.operands[0], gamma = op.operands[1], mean = op.results[1], rstd = op.results[2];
    ValueId dy = *builder.Cotangent(op);
    if (builder.Needs(op, 0)) {
      builder.Contribute(
          op, 0,
          builder.EmitOne(op, "layer_norm_backward_input", {x, gamma, mean, rstd, dy}, builder.Type(x)));
    }
    if (builder.Needs(op, 1) || builder.Needs(op, 2)) {
      std::vector<ValueId> d = builder.Emit(op, "layer_norm_backward_params", {x, mean, rstd, dy},
                                            {builder.Type(gamma), builder.Type(op.operands[2])});
      if (builder.Needs(op, 1)) builder.Contribute(op, 1, d[0]);
      if (builder.Needs(op, 2)) builder.Contribute(op, 2, d[1]);
    }
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    body.Call("layer_norm_forward",
              {body.At(op.operands[0]), body.At(op.operands[1]), body.At(op.operands[2]),
               body.At(op.results[0]), body.At(op.results[1]), body.At(op.results[2])},
              RowsAndCols(body.Type(op.operands[0])), {op.Number("eps")});
  }
  bool Mixes(const Graph& graph, const Operation& op, std::string_view dim) const override {
    return graph.Type(op.operands[0]).dims.back().name == dim;
  }
};

void LowerBackwardInput(BodyBuilder& body, const Operation& op) {
  std::vector<OperandRef> operands;
  for (ValueId value : op.operands) operands.push_back(body.At(value));
  operands.push_back(body.At(op.results[0]));
  body.Call("layer_norm_backward_input", operands, RowsAndCols(body.Type(op.operands[0])));
}

void LowerBackwardParams(BodyBuilder& body, const Operation& op) {
  std::vector<OperandRef> operands;
  for (ValueId value : op.operands) operands.push_back(body.At(value));
  for (ValueId value : op.results) operands.push_back(body.At(value));
  body.Call("layer_norm_backward_params", operands, RowsAndCols(body.Type(op.operands[0])));
}

}  // namespace

void AddLayerNormRules(RuleList& rules) {
  static const LayerNormRule forward;
  static const InternalRule input("layer_norm_backward_input", LowerBackwardInput);
  static const InternalRule params("layer_norm_backward_params", LowerBackwardParams);
  rules.push_back(&forward);
  rules.push_back(&input);
  rules.push_back(&params);
}

}  // namespace piper::ir
