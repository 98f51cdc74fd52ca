// Operations that move no bytes: the result is the operand under another type. Nothing is lowered; cotangents
// pass likewise.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ir/model/operations/rule.h"

namespace piper::ir {

class AliasRule : public Rule {
 public:
  using Rule::Rule;
  std::optional<uint32_t> AliasOf(const Operation&) const override { return 0; }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override;
  void Lower(BodyBuilder& body, const Operation& op) const override;
};

// A value seen as another type of as many elements; the value itself if it has that type already.
ValueId EmitView(GradientBuilder& builder, const Operation& op, ValueId value, const TensorType& type);

}  // namespace piper::ir
