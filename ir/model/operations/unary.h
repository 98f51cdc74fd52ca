// Elementwise operations of one operand: y = f(x), with a derivative kernel that reads x or y, whichever is
// cheaper to keep: dx = kernel(x or y, dy).
#pragma once

#include <string>
#include <vector>

#include "ir/model/operations/rule.h"

namespace piper::ir {

class UnaryRule : public Rule {
 public:
  enum class Keeps : uint8_t { kX, kY, kNothing };
  // Kernels are <name>_forward(x, y, n) and <name>_backward(kept, dy, dx, n); kNothing: forward serves as
  // both.
  UnaryRule(const std::string& name, Keeps keeps) : Rule(name, {{"x"}}), keeps_(keeps) {}

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag)) return std::nullopt;
    return std::vector<TensorType>{graph.Type(op.operands[0])};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    std::vector<ValueId> operands;
    if (keeps_ == Keeps::kX) operands.push_back(op.operands[0]);
    if (keeps_ == Keeps::kY) operands.push_back(op.results[0]);
    operands.push_back(*builder.Cotangent(op));
    std::string kind = keeps_ == Keeps::kNothing ? std::string(name()) : std::string(name()) + "_backward";
    builder.Contribute(op, 0, builder.EmitOne(op, kind, operands, builder.Type(op.operands[0])));
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    body.Call(std::string(name()) + "_forward", {body.At(op.operands[0]), body.At(op.results[0])},
              {body.Type(op.results[0]).elements()});
  }

 private:
  Keeps keeps_;
};

// The derivative's own operation, "<name>_backward"(kept, dy), lowered to the kernel of that name.
inline InternalRule UnaryBackward(const std::string& name) {
  std::string kernel = name + "_backward";
  return InternalRule(kernel, [kernel](BodyBuilder& body, const Operation& op) {
    body.Call(kernel, {body.At(op.operands[0]), body.At(op.operands[1]), body.At(op.results[0])},
              {body.Type(op.results[0]).elements()});
  });
}

}  // namespace piper::ir
