// log(x): The natural logarithm.
#include "ir/model/operations/unary.h"

namespace piper::ir {

void AddLogRules(RuleList& rules) {
  static const UnaryRule forward("log", UnaryRule::Keeps::kX);
  static const InternalRule backward = UnaryBackward("log");
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
