// exp(x): e to the power of each element.
#include "ir/model/operations/unary.h"

namespace piper::ir {

void AddExpRules(RuleList& rules) {
  static const UnaryRule forward("exp", UnaryRule::Keeps::kY);
  static const InternalRule backward = UnaryBackward("exp");
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
