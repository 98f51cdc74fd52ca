// tanh(x): The hyperbolic tangent.
#include "ir/model/operations/unary.h"

namespace piper::ir {

void AddTanhRules(RuleList& rules) {
  static const UnaryRule forward("tanh", UnaryRule::Keeps::kY);
  static const InternalRule backward = UnaryBackward("tanh");
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
