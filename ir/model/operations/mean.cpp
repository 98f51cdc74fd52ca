// mean(x, dims = []): the mean over the named dimensions, or over all. Over the batch it would be a slice's
// mean: a loss that averages over the global batch is mean_loss(x).
#include "ir/model/operations/reduction.h"

namespace piper::ir {
namespace {

double Factor(const TensorType& x, const TensorType& y) {
  return static_cast<double>(y.elements()) / static_cast<double>(x.elements());
}

class MeanRule final : public Rule {
 public:
  MeanRule() : Rule("mean", {{"x"}}, ReductionAttributes()) {}
  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    std::optional<TensorType> type = ReducedType(graph, op, diag);
    if (!type) return std::nullopt;
    return std::vector<TensorType>{*type};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    double factor = Factor(builder.Type(op.operands[0]), builder.Type(op.results[0]));
    builder.Contribute(op, 0,
                       builder.EmitOne(op, "repeat", {*builder.Cotangent(op)}, builder.Type(op.operands[0]),
                                       {{"factor", factor}}));
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    EmitReduction(body, op, Factor(body.Type(op.operands[0]), body.Type(op.results[0])));
  }
  bool Mixes(const Graph& graph, const Operation& op, std::string_view dim) const override {
    return Reduces(graph, op, dim);
  }
};

}  // namespace

void AddMeanRules(RuleList& rules) {
  static const MeanRule rule;
  rules.push_back(&rule);
}

}  // namespace piper::ir
