// affine(x, scale = 1, offset = 0): scale * x + offset, what arithmetic with numbers becomes: 2 * x, x - 1, 1
// - x, x / 8.
#include "ir/model/operations/rule.h"

namespace piper::ir {
namespace {

class AffineRule final : public Rule {
 public:
  AffineRule()
      : Rule("affine", {{"x"}},
             {{AttributeInfo::Kind::kNumber, "scale", 1.0}, {AttributeInfo::Kind::kNumber, "offset", 0.0}}) {}

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag)) return std::nullopt;
    return std::vector<TensorType>{graph.Type(op.operands[0])};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    ValueId dy = *builder.Cotangent(op);
    double scale = op.Number("scale");
    if (scale != 1) {
      dy = builder.EmitOne(op, "affine", {dy}, builder.Type(dy), {{"scale", scale}, {"offset", 0.0}});
    }
    builder.Contribute(op, 0, dy);
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    double scale = op.Number("scale"), offset = op.Number("offset");
    int64_t n = body.Type(op.results[0]).elements();
    OperandRef x = body.At(op.operands[0]), y = body.At(op.results[0]);
    if (offset == 0) {
      body.Call("scale", {x, y}, {n}, {scale});
    } else {
      body.Call("affine", {x, y}, {n}, {scale, offset});
    }
  }
};

}  // namespace

void AddAffineRules(RuleList& rules) {
  static const AffineRule rule;
  rules.push_back(&rule);
}

}  // namespace piper::ir
