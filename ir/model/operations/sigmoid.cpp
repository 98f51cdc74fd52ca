// sigmoid(x): 1 / (1 + exp(-x)).
#include "ir/model/operations/unary.h"

namespace piper::ir {

void AddSigmoidRules(RuleList& rules) {
  static const UnaryRule forward("sigmoid", UnaryRule::Keeps::kY);
  static const InternalRule backward = UnaryBackward("sigmoid");
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
