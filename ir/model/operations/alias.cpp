#include "ir/model/operations/alias.h"

#include "ir/support/result.h"

namespace piper::ir {

ValueId EmitView(GradientBuilder& builder, const Operation& op, ValueId value, const TensorType& type) {
  if (builder.Type(value) == type) return value;
  return builder.EmitOne(op, "view", {value}, type);
}

void AliasRule::Differentiate(GradientBuilder& builder, const Operation& op) const {
  builder.Contribute(op, 0, EmitView(builder, op, *builder.Cotangent(op), builder.Type(op.operands[0])));
}

void AliasRule::Lower(BodyBuilder&, const Operation& op) const {
  PIPER_CHECK(false, op.kind + " moves no bytes");
}

namespace {

class ViewRule final : public AliasRule {
 public:
  ViewRule() : AliasRule("view", {}) {}
  bool user_visible() const override { return false; }
  std::optional<std::vector<TensorType>> Infer(const Graph&, const Operation&,
                                               DiagnosticEngine&) const override {
    return std::nullopt;
  }
};

}  // namespace

void AddAliasRules(RuleList& rules) {
  static const ViewRule view;
  rules.push_back(&view);
}

}  // namespace piper::ir
