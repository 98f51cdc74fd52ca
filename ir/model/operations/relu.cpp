// relu(x): max(x, 0); its derivative at 0 is 0.
#include "ir/model/operations/unary.h"

namespace piper::ir {

void AddReluRules(RuleList& rules) {
  static const UnaryRule forward("relu", UnaryRule::Keeps::kX);
  static const InternalRule backward = UnaryBackward("relu");
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
