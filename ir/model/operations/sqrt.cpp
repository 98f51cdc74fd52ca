// sqrt(x): The square root.
#include "ir/model/operations/unary.h"

namespace piper::ir {

void AddSqrtRules(RuleList& rules) {
  static const UnaryRule forward("sqrt", UnaryRule::Keeps::kY);
  static const InternalRule backward = UnaryBackward("sqrt");
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
