// square(x): x * x.
#include "ir/model/operations/unary.h"

namespace piper::ir {

void AddSquareRules(RuleList& rules) {
  static const UnaryRule forward("square", UnaryRule::Keeps::kX);
  static const InternalRule backward = UnaryBackward("square");
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
