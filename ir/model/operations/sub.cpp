// sub(a, b): a - b. One operand's dimensions may be among the other's: it is repeated along the rest.
#include "ir/model/operations/binary.h"

namespace piper::ir {
namespace {

class SubRule final : public BinaryRule {
 public:
  SubRule() : BinaryRule("sub") {}
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    ValueId dy = *builder.Cotangent(op);
    if (builder.Needs(op, 0)) ContributeSummed(builder, op, 0, dy);
    if (builder.Needs(op, 1)) {
      ContributeSummed(builder, op, 1, builder.EmitOne(op, "neg", {dy}, builder.Type(dy)));
    }
  }
};

}  // namespace

void AddSubRules(RuleList& rules) {
  static const SubRule rule;
  rules.push_back(&rule);
}

}  // namespace piper::ir
