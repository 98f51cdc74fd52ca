// softmax(x, dim): exp(x) normalised to sum 1 along one dimension. Fast along the last; along another x is
// permuted and back.
#include "ir/model/operations/rule.h"

namespace piper::ir {
namespace {

// Calls `kernel` on rows along dimension `dim` of operands that all have type `type`.
void EmitRows(BodyBuilder& body, const char* kernel, std::vector<OperandRef> inputs, OperandRef output,
              const TensorType& type, size_t dim) {
  int64_t cols = type.dims[dim].size;
  std::vector<int64_t> sizes = {type.elements() / cols, cols};
  if (dim + 1 == type.dims.size()) {
    inputs.push_back(output);
    body.Call(kernel, inputs, sizes);
    return;
  }
  std::vector<size_t> order, back(type.dims.size());
  TensorType permuted{type.dtype, {}};
  for (size_t i = 0; i < type.dims.size(); ++i) {
    if (i != dim) order.push_back(i);
  }
  order.push_back(dim);
  for (size_t i = 0; i < order.size(); ++i) {
    permuted.dims.push_back(type.dims[order[i]]);
    back[order[i]] = i;
  }
  for (OperandRef& input : inputs) {
    OperandRef rows = body.Temporary(permuted, "rows");
    EmitPermute(body, input, rows, type, order);
    input = rows;
  }
  OperandRef result = body.Temporary(permuted, "result_rows");
  inputs.push_back(result);
  body.Call(kernel, inputs, sizes);
  EmitPermute(body, result, output, permuted, back);
}

class SoftmaxRule final : public Rule {
 public:
  SoftmaxRule() : Rule("softmax", {{"x"}}, {{AttributeInfo::Kind::kDim, "dim", std::nullopt}}) {}

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag) || RequireDim(graph, op, 0, op.Text("dim"), diag) < 0)
      return std::nullopt;
    return std::vector<TensorType>{graph.Type(op.operands[0])};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    ValueId dy = *builder.Cotangent(op);
    builder.Contribute(
        op, 0, builder.EmitOne(op, "softmax_backward", {op.results[0], dy}, builder.Type(dy), op.attributes));
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    const TensorType& type = body.Type(op.results[0]);
    EmitRows(body, "softmax_forward", {body.At(op.operands[0])}, body.At(op.results[0]), type,
             static_cast<size_t>(FindDim(type, op.Text("dim"))));
  }
  bool Mixes(const Graph&, const Operation& op, std::string_view dim) const override {
    return op.Text("dim") == dim;
  }
};

}  // namespace

void AddSoftmaxRules(RuleList& rules) {
  static const SoftmaxRule forward;
  static const InternalRule backward("softmax_backward", [](BodyBuilder& body, const Operation& op) {
    const TensorType& type = body.Type(op.results[0]);
    EmitRows(body, "softmax_backward", {body.At(op.operands[0]), body.At(op.operands[1])},
             body.At(op.results[0]), type, static_cast<size_t>(FindDim(type, op.Text("dim"))));
  });
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
