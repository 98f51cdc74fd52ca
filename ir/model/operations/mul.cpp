// mul(a, b): a * b. One operand's dimensions may be among the other's: it is repeated along the rest.
#include "ir/model/operations/binary.h"

namespace piper::ir {
namespace {

class MulRule final : public BinaryRule {
 public:
  MulRule() : BinaryRule("mul") {}
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    ValueId dy = *builder.Cotangent(op);
    const TensorType type = builder.Type(dy);
    for (size_t i : {0, 1}) {
      if (!builder.Needs(op, i)) continue;
      ContributeSummed(builder, op, i, builder.EmitOne(op, "mul", {dy, op.operands[1 - i]}, type));
    }
  }
};

}  // namespace

void AddMulRules(RuleList& rules) {
  static const MulRule rule;
  rules.push_back(&rule);
}

}  // namespace piper::ir
