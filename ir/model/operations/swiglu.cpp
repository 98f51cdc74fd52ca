// swiglu(gate, up): silu(gate) * up (Shazeer, arXiv:2002.05202), as Llama's feed-forward block has it.
#include "ir/model/operations/rule.h"

namespace piper::ir {
namespace {

class SwigluRule final : public Rule {
 public:
  SwigluRule() : Rule("swiglu", {{"gate"}, {"up"}}) {}

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag) || !RequireFloat(graph, op, 1, diag)) return std::nullopt;
    if (!RequireSameDims(graph, op, 0, 1, diag)) return std::nullopt;
    return std::vector<TensorType>{graph.Type(op.operands[0])};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    const TensorType type = builder.Type(op.operands[0]);
    std::vector<ValueId> d = builder.Emit(
        op, "swiglu_backward", {op.operands[0], op.operands[1], *builder.Cotangent(op)}, {type, type});
    for (size_t i : {0, 1}) {
      if (builder.Needs(op, i)) builder.Contribute(op, i, d[i]);
    }
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    body.Call("swiglu_forward", {body.At(op.operands[0]), body.At(op.operands[1]), body.At(op.results[0])},
              {body.Type(op.results[0]).elements()});
  }
};

}  // namespace

void AddSwigluRules(RuleList& rules) {
  static const SwigluRule forward;
  static const InternalRule backward("swiglu_backward", [](BodyBuilder& body, const Operation& op) {
    body.Call("swiglu_backward",
              {body.At(op.operands[0]), body.At(op.operands[1]), body.At(op.operands[2]),
               body.At(op.results[0]), body.At(op.results[1])},
              {body.Type(op.results[0]).elements()});
  });
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
