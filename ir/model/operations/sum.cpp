// sum(x, dims = []): the sum over the named dimensions, or over all.
#include "ir/model/operations/reduction.h"

namespace piper::ir {
namespace {

class SumRule final : public Rule {
 public:
  SumRule() : Rule("sum", {{"x"}}, ReductionAttributes()) {}
  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    std::optional<TensorType> type = ReducedType(graph, op, diag);
    if (!type) return std::nullopt;
    return std::vector<TensorType>{*type};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    builder.Contribute(op, 0,
                       builder.EmitOne(op, "repeat", {*builder.Cotangent(op)}, builder.Type(op.operands[0]),
                                       {{"factor", 1.0}}));
  }
  void Lower(BodyBuilder& body, const Operation& op) const override { EmitReduction(body, op, 1.0); }
  bool Mixes(const Graph& graph, const Operation& op, std::string_view dim) const override {
    return Reduces(graph, op, dim);
  }
};

}  // namespace

void AddSumRules(RuleList& rules) {
  static const SumRule rule;
  rules.push_back(&rule);
}

}  // namespace piper::ir
