// rms_norm(x, gamma, eps = 1e-5): x / sqrt(mean(x^2) + eps) * gamma over the last dimension (Zhang and
// Sennrich, arXiv:1910.07467), as Llama has it. Keeps 1 / sqrt(mean(x^2) + eps) of each row.
#include "ir/model/operations/norm.h"

namespace piper::ir {
namespace {

class RmsNormRule final : public Rule {
 public:
  RmsNormRule() : Rule("rms_norm", {{"x"}, {"gamma"}}, {{AttributeInfo::Kind::kNumber, "eps", 1e-5}}) {}
  std::vector<std::string_view> hidden_results() const override { return {"rstd"}; }

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!CheckNorm(graph, op, diag)) return std::nullopt;
    const TensorType& x = graph.Type(op.operands[0]);
    return std::vector<TensorType>{x, RowType(x)};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    ValueId x = op.operands[0], gamma = op.operands[1], rstd = op.results[1], dy = *builder.Cotangent(op);
    if (builder.Needs(op, 0)) {
      builder.Contribute(
          op, 0, builder.EmitOne(op, "rms_norm_backward_input", {x, gamma, rstd, dy}, builder.Type(x)));
    }
    if (builder.Needs(op, 1)) {
      builder.Contribute(op, 1,
                         builder.EmitOne(op, "rms_norm_backward_weight", {x, rstd, dy}, builder.Type(gamma)));
    }
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    body.Call(
        "rms_norm_forward",
        {body.At(op.operands[0]), body.At(op.operands[1]), body.At(op.results[0]), body.At(op.results[1])},
        RowsAndCols(body.Type(op.operands[0])), {op.Number("eps")});
  }
  bool Mixes(const Graph& graph, const Operation& op, std::string_view dim) const override {
    return graph.Type(op.operands[0]).dims.back().name == dim;
  }
};

void LowerBackward(BodyBuilder& body, const Operation& op) {
  std::vector<OperandRef> operands;
  for (ValueId value : op.operands) operands.push_back(body.At(value));
  operands.push_back(body.At(op.results[0]));
  body.Call(op.kind, operands, RowsAndCols(body.Type(op.operands[0])));
}

}  // namespace

void AddRmsNormRules(RuleList& rules) {
  static const RmsNormRule forward;
  static const InternalRule input("rms_norm_backward_input", LowerBackward);
  static const InternalRule weight("rms_norm_backward_weight", LowerBackward);
  rules.push_back(&forward);
  rules.push_back(&input);
  rules.push_back(&weight);
}

}  // namespace piper::ir
