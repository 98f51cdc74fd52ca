// silu(x): x * sigmoid(x), also known as swish.
#include "ir/model/operations/unary.h"

namespace piper::ir {

void AddSiluRules(RuleList& rules) {
  static const UnaryRule forward("silu", UnaryRule::Keeps::kX);
  static const InternalRule backward = UnaryBackward("silu");
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
