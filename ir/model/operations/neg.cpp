// neg(x), also written -x.
#include "ir/model/operations/unary.h"

namespace piper::ir {

void AddNegRules(RuleList& rules) {
  static const UnaryRule forward("neg", UnaryRule::Keeps::kNothing);
  rules.push_back(&forward);
}

}  // namespace piper::ir
