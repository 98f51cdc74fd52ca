// permute(x, dims): the dimensions of x in another order, all of them named. transpose(x), also written x.T,
// swaps the two of a matrix; where it is the right operand of @ it costs nothing.
#include <fmt/format.h>

#include <algorithm>

#include "ir/model/operations/rule.h"

namespace piper::ir {
namespace {

std::vector<size_t> Order(const TensorType& x, const TensorType& y) {
  std::vector<size_t> order;
  for (const Dim& dim : y.dims) order.push_back(static_cast<size_t>(FindDim(x, dim.name)));
  return order;
}

class ReorderRule : public Rule {
 public:
  using Rule::Rule;
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    builder.Contribute(
        op, 0, builder.EmitOne(op, "reorder", {*builder.Cotangent(op)}, builder.Type(op.operands[0])));
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    const TensorType& x = body.Type(op.operands[0]);
    EmitPermute(body, body.At(op.operands[0]), body.At(op.results[0]), x, Order(x, body.Type(op.results[0])));
  }
};

class PermuteRule final : public ReorderRule {
 public:
  PermuteRule() : ReorderRule("permute", {{"x"}}, {{AttributeInfo::Kind::kDims, "dims", std::nullopt}}) {}
  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag)) return std::nullopt;
    const TensorType& x = graph.Type(op.operands[0]);
    const auto& dims = std::get<std::vector<std::string>>(*op.Find("dims"));
    TensorType type{x.dtype, {}};
    for (const std::string& dim : dims) {
      int index = RequireDim(graph, op, 0, dim, diag);
      if (index < 0) return std::nullopt;
      type.dims.push_back(x.dims[static_cast<size_t>(index)]);
    }
    if (dims.size() != x.dims.size() ||
        !std::is_permutation(type.dims.begin(), type.dims.end(), x.dims.begin())) {
      diag.Error(op.range, DiagKind::kShapeMismatch,
                 fmt::format("permute of {} to [{}]: every dimension must be named once", x.ToString(),
                             fmt::join(dims, ", ")))
          .Hint("sum(x, dims) drops dimensions, reshape(x, [..]) merges them");
      return std::nullopt;
    }
    return std::vector<TensorType>{type};
  }
};

class TransposeRule final : public ReorderRule {
 public:
  TransposeRule() : ReorderRule("transpose", {{"x"}}) {}
  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag)) return std::nullopt;
    TensorType type = graph.Type(op.operands[0]);
    if (type.dims.size() != 2) {
      diag.Error(op.range, DiagKind::kShapeMismatch,
                 fmt::format("only a matrix has a transpose, not {}", type.ToString()))
          .Hint("reorder its dimensions by name: permute(x, [..])");
      return std::nullopt;
    }
    std::swap(type.dims[0], type.dims[1]);
    return std::vector<TensorType>{type};
  }
};

}  // namespace

void AddPermuteRules(RuleList& rules) {
  static const PermuteRule permute;
  static const TransposeRule transpose;
  static const InternalRule reorder("reorder", [](BodyBuilder& body, const Operation& op) {
    const TensorType& x = body.Type(op.operands[0]);
    EmitPermute(body, body.At(op.operands[0]), body.At(op.results[0]), x, Order(x, body.Type(op.results[0])));
  });
  rules.push_back(&permute);
  rules.push_back(&transpose);
  rules.push_back(&reorder);
}

}  // namespace piper::ir
