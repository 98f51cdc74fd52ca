// div(a, b): a / b. One operand's dimensions may be among the other's: it is repeated along the rest.
#include "ir/model/operations/binary.h"

namespace piper::ir {
namespace {

class DivRule final : public BinaryRule {
 public:
  DivRule() : BinaryRule("div") {}
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    // da = dy / b; db = -(dy / b) * y.
    ValueId dy = *builder.Cotangent(op);
    const TensorType type = builder.Type(dy);
    ValueId quotient = builder.EmitOne(op, "div", {dy, op.operands[1]}, type);
    if (builder.Needs(op, 0)) ContributeSummed(builder, op, 0, quotient);
    if (builder.Needs(op, 1)) {
      ValueId product = builder.EmitOne(op, "mul", {quotient, op.results[0]}, type);
      ContributeSummed(builder, op, 1, builder.EmitOne(op, "neg", {product}, type));
    }
  }
};

}  // namespace

void AddDivRules(RuleList& rules) {
  static const DivRule rule;
  rules.push_back(&rule);
}

}  // namespace piper::ir
