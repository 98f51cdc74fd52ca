// Elementwise operations of two operands, of which one may lack dimensions that the other has: it is repeated
// along them. Dimensions match by name, whatever their order; the result has the wider operand's.
#pragma once

#include <string>
#include <vector>

#include "ir/model/operations/rule.h"

namespace piper::ir {

class BinaryRule : public Rule {
 public:
  explicit BinaryRule(const std::string& name) : Rule(name, {{"a"}, {"b"}}) {}
  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override;
  // The kernel of the rule's name on equal shapes; operands are repeated into scratch first where they
  // differ.
  void Lower(BodyBuilder& body, const Operation& op) const override;
};

// Contributes a cotangent that has the result's dimensions to an operand that may lack some: sums over those.
void ContributeSummed(GradientBuilder& builder, const Operation& op, size_t operand, ValueId cotangent);

}  // namespace piper::ir
