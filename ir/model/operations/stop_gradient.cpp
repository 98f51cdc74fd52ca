// stop_gradient(x): x, through which no cotangent flows back.
#include "ir/model/operations/alias.h"

namespace piper::ir {
namespace {

class StopGradientRule final : public AliasRule {
 public:
  StopGradientRule() : AliasRule("stop_gradient", {{"x"}}) {}
  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine&) const override {
    return std::vector<TensorType>{graph.Type(op.operands[0])};
  }
  bool Differentiable() const override { return false; }
};

}  // namespace

void AddStopGradientRules(RuleList& rules) {
  static const StopGradientRule rule;
  rules.push_back(&rule);
}

}  // namespace piper::ir
