// rsqrt(x): 1 / sqrt(x).
#include "ir/model/operations/unary.h"

namespace piper::ir {

void AddRsqrtRules(RuleList& rules) {
  static const UnaryRule forward("rsqrt", UnaryRule::Keeps::kY);
  static const InternalRule backward = UnaryBackward("rsqrt");
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
