// cross_entropy(logits, targets): the sum over positions of log(sum(exp(logits))) - logits[target], times
// 1/N: a scalar loss. logits has the dimensions of targets, then the classes; a negative target does not
// count. N is the step's count of targets >= 0 over the global batch (FindLossScale), so losses of slices add
// up to the mean.
#include <fmt/format.h>

#include "ir/model/operations/rule.h"

namespace piper::ir {
namespace {

class CrossEntropyRule final : public Rule {
 public:
  CrossEntropyRule() : Rule("cross_entropy", {{"logits"}, {"targets"}}) {}
  std::vector<std::string_view> hidden_results() const override { return {"lse"}; }

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag) || !RequireInteger(graph, op, 1, diag)) return std::nullopt;
    const TensorType& logits = graph.Type(op.operands[0]);
    const TensorType& targets = graph.Type(op.operands[1]);
    if (logits.dims.empty() || std::vector<Dim>(logits.dims.begin(), logits.dims.end() - 1) != targets.dims) {
      diag.Error(
              op.range, DiagKind::kShapeMismatch,
              fmt::format(
                  "cross_entropy of logits {} and targets {}: the logits must have the targets' dimensions, "
                  "then the classes",
                  logits.ToString(), targets.ToString()))
          .Hint(logits.dims.empty() ? "logits needs at least one dimension"
                                    : fmt::format("the classes are {}, the last dimension of the logits",
                                                  DimText(logits.dims.back())));
      return std::nullopt;
    }
    return std::vector<TensorType>{{logits.dtype, {}}, {logits.dtype, targets.dims}};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    builder.Contribute(
        op, 0,
        builder.EmitOne(op, "cross_entropy_backward",
                        {op.operands[0], op.operands[1], op.results[1], *builder.Cotangent(op)},
                        builder.Type(op.operands[0])));
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    const TensorType& logits = body.Type(op.operands[0]);
    body.Call("cross_entropy_forward",
              {body.At(op.operands[0]), body.At(op.operands[1]), body.Scale(), body.At(op.results[0]),
               body.At(op.results[1])},
              {Product(logits, 0, logits.dims.size() - 1), logits.dims.back().size});
  }
  bool ReadsScale() const override { return true; }
  bool Mixes(const Graph& graph, const Operation& op, std::string_view dim) const override {
    return graph.Type(op.operands[0]).dims.back().name == dim;
  }
};

class CrossEntropyBackwardRule final : public Rule {
 public:
  CrossEntropyBackwardRule() : Rule("cross_entropy_backward", {}) {}
  bool user_visible() const override { return false; }
  bool ReadsScale() const override { return true; }
  std::optional<std::vector<TensorType>> Infer(const Graph&, const Operation&,
                                               DiagnosticEngine&) const override {
    return std::nullopt;
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    const TensorType& logits = body.Type(op.operands[0]);
    body.Call("cross_entropy_backward",
              {body.At(op.operands[0]), body.At(op.operands[1]), body.At(op.operands[2]), body.Scale(),
               body.At(op.operands[3]), body.At(op.results[0])},
              {Product(logits, 0, logits.dims.size() - 1), logits.dims.back().size});
  }
};

}  // namespace

void AddCrossEntropyRules(RuleList& rules) {
  static const CrossEntropyRule forward;
  static const CrossEntropyBackwardRule backward;
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
