// mse(pred, target): the mean squared difference over the global batch: a scalar loss. mean_loss(x): the mean
// of x over the global batch, for losses that a model computes itself. Both sum over their slice's elements,
// divide by the elements of one sample, and times the step's scale 1/N, N the samples of the global batch: so
// losses of slices add up to the mean.
#include "ir/model/operations/rule.h"

namespace piper::ir {
namespace {

// 1 / (elements that one sample has).
double PerSample(const Graph& graph, const TensorType& x) {
  return static_cast<double>(graph.Samples()) / static_cast<double>(x.elements());
}

// loss = scale * factor * the sum of x.
void EmitScaledSum(BodyBuilder& body, OperandRef x, const TensorType& type, double factor, OperandRef loss) {
  TensorType scalar{type.dtype, {}};
  OperandRef total = body.Temporary(scalar, "total");
  body.Call("reduce_sum", {x, total}, {1, type.elements(), 1});
  OperandRef mean = body.Temporary(scalar, "per_sample");
  body.Call("scale", {total, mean}, {1}, {factor});
  body.Call("scale_by", {mean, body.Scale(), loss}, {1});
}

// The cotangent of one element: factor * scale * dloss.
OperandRef EmitElementFactor(BodyBuilder& body, OperandRef dloss, DType dtype, double factor) {
  TensorType scalar{dtype, {}};
  OperandRef scaled = body.Temporary(scalar, "scaled");
  body.Call("scale_by", {dloss, body.Scale(), scaled}, {1});
  OperandRef result = body.Temporary(scalar, "element");
  body.Call("scale", {scaled, result}, {1}, {factor});
  return result;
}

class ScaledRule : public Rule {
 public:
  using Rule::Rule;
  bool ReadsScale() const override { return true; }
};

class MseRule final : public ScaledRule {
 public:
  MseRule() : ScaledRule("mse", {{"pred"}, {"target"}}) {}
  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag) || !RequireFloat(graph, op, 1, diag)) return std::nullopt;
    if (!RequireSameDims(graph, op, 0, 1, diag)) return std::nullopt;
    return std::vector<TensorType>{{graph.Type(op.operands[0]).dtype, {}}};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    const TensorType type = builder.Type(op.operands[0]);
    ValueId d =
        builder.EmitOne(op, "mse_backward", {op.operands[0], op.operands[1], *builder.Cotangent(op)}, type);
    if (builder.Needs(op, 0)) builder.Contribute(op, 0, d);
    if (builder.Needs(op, 1)) builder.Contribute(op, 1, builder.EmitOne(op, "neg", {d}, type));
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    const TensorType& type = body.Type(op.operands[0]);
    OperandRef difference = body.Temporary(type, "difference"), squares = body.Temporary(type, "squares");
    body.Call("sub", {body.At(op.operands[0]), body.At(op.operands[1]), difference}, {type.elements()});
    body.Call("square_forward", {difference, squares}, {type.elements()});
    EmitScaledSum(body, squares, type, PerSample(body.graph(), type), body.At(op.results[0]));
  }
};

class MseBackwardRule final : public ScaledRule {
 public:
  MseBackwardRule() : ScaledRule("mse_backward", {}) {}
  bool user_visible() const override { return false; }
  std::optional<std::vector<TensorType>> Infer(const Graph&, const Operation&,
                                               DiagnosticEngine&) const override {
    return std::nullopt;
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    const TensorType& type = body.Type(op.operands[0]);
    OperandRef difference = body.Temporary(type, "difference");
    body.Call("sub", {body.At(op.operands[0]), body.At(op.operands[1]), difference}, {type.elements()});
    OperandRef factor =
        EmitElementFactor(body, body.At(op.operands[2]), type.dtype, 2 * PerSample(body.graph(), type));
    body.Call("scale_by", {difference, factor, body.At(op.results[0])}, {type.elements()});
  }
};

class MeanLossRule final : public ScaledRule {
 public:
  MeanLossRule() : ScaledRule("mean_loss", {{"x"}}) {}
  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag)) return std::nullopt;
    return std::vector<TensorType>{{graph.Type(op.operands[0]).dtype, {}}};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    builder.Contribute(
        op, 0,
        builder.EmitOne(op, "mean_loss_backward", {*builder.Cotangent(op)}, builder.Type(op.operands[0])));
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    const TensorType& type = body.Type(op.operands[0]);
    EmitScaledSum(body, body.At(op.operands[0]), type, PerSample(body.graph(), type), body.At(op.results[0]));
  }
};

class MeanLossBackwardRule final : public ScaledRule {
 public:
  MeanLossBackwardRule() : ScaledRule("mean_loss_backward", {}) {}
  bool user_visible() const override { return false; }
  std::optional<std::vector<TensorType>> Infer(const Graph&, const Operation&,
                                               DiagnosticEngine&) const override {
    return std::nullopt;
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    const TensorType& type = body.Type(op.results[0]);
    OperandRef factor =
        EmitElementFactor(body, body.At(op.operands[0]), type.dtype, PerSample(body.graph(), type));
    EmitBroadcast(body, factor, {type.dtype, {}}, body.At(op.results[0]), type);
  }
};

}  // namespace

void AddMseRules(RuleList& rules) {
  static const MseRule mse;
  static const MseBackwardRule mse_backward;
  static const MeanLossRule mean_loss;
  static const MeanLossBackwardRule mean_loss_backward;
  rules.push_back(&mse);
  rules.push_back(&mse_backward);
  rules.push_back(&mean_loss);
  rules.push_back(&mean_loss_backward);
}

}  // namespace piper::ir
