// gelu(x, approximate = "tanh"): the Gaussian error linear unit, x Phi(x) (Hendrycks and Gimpel,
// arXiv:1606.08415), in its tanh form as GPT-2 has it, or exactly with approximate = "none".
#include <fmt/format.h>

#include "ir/model/operations/rule.h"

namespace piper::ir {
namespace {

std::string Kernel(const Operation& op, const char* pass) {
  return fmt::format("gelu{}_{}", op.Text("approximate") == "none" ? "_erf" : "", pass);
}

class GeluRule final : public Rule {
 public:
  GeluRule() : Rule("gelu", {{"x"}}, {{AttributeInfo::Kind::kText, "approximate", std::string("tanh")}}) {}

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    const std::string& form = op.Text("approximate");
    if (form != "tanh" && form != "none") {
      diag.Error(op.range, DiagKind::kBadArguments, fmt::format("gelu has no approximation '{}'", form))
          .Hint("approximate is \"tanh\" or \"none\"");
      return std::nullopt;
    }
    if (!RequireFloat(graph, op, 0, diag)) return std::nullopt;
    return std::vector<TensorType>{graph.Type(op.operands[0])};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    builder.Contribute(op, 0,
                       builder.EmitOne(op, "gelu_backward", {op.operands[0], *builder.Cotangent(op)},
                                       builder.Type(op.operands[0]), op.attributes));
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    body.Call(Kernel(op, "forward"), {body.At(op.operands[0]), body.At(op.results[0])},
              {body.Type(op.results[0]).elements()});
  }
};

void LowerBackward(BodyBuilder& body, const Operation& op) {
  body.Call(Kernel(op, "backward"),
            {body.At(op.operands[0]), body.At(op.operands[1]), body.At(op.results[0])},
            {body.Type(op.results[0]).elements()});
}

}  // namespace

void AddGeluRules(RuleList& rules) {
  static const GeluRule forward;
  static const InternalRule backward("gelu_backward", LowerBackward);
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
