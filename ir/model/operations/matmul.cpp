// a @ b, or matmul(a, b): contracts the longest run of dimensions that trails the left operand and leads the
// right one; the result has what is left of both. A product with a transposed right operand, a @ b.T, reads b
// as it lies.
#include <fmt/format.h>

#include <algorithm>

#include "ir/model/operations/rule.h"

namespace piper::ir {
namespace {

// The right operand's dimensions as the product sees them.
TensorType RightType(const Graph& graph, const Operation& op) {
  TensorType type = graph.Type(op.operands[1]);
  if (op.Flag("transpose_b")) std::reverse(type.dims.begin(), type.dims.end());
  return type;
}

size_t ContractedRun(const TensorType& left, const TensorType& right) {
  for (size_t run = std::min(left.dims.size(), right.dims.size()); run > 0; --run) {
    if (std::equal(right.dims.begin(), right.dims.begin() + static_cast<ptrdiff_t>(run),
                   left.dims.end() - static_cast<ptrdiff_t>(run))) {
      return run;
    }
  }
  return 0;
}

// m, n, k of the product.
struct Sizes {
  int64_t m, n, k, transpose_b;
};
Sizes ProductSizes(const Graph& graph, const Operation& op) {
  const TensorType& left = graph.Type(op.operands[0]);
  TensorType right = RightType(graph, op);
  size_t run = ContractedRun(left, right);
  int64_t k = Product(right, 0, run);
  return {Product(left, 0, left.dims.size() - run), Product(right, run, right.dims.size()), k,
          op.Flag("transpose_b") ? 1 : 0};
}

void ReportMismatch(const Operation& op, const TensorType& left, const TensorType& right,
                    DiagnosticEngine& diag) {
  if (left.dims.empty() || right.dims.empty()) {
    diag.Error(op.range, DiagKind::kShapeMismatch,
               fmt::format("@ contracts dimensions, but multiplies {} by {}: a scalar has none",
                           left.ToString(), right.ToString()))
        .Hint("use * to scale by a scalar");
    return;
  }
  const Dim& trailing = left.dims.back();
  const Dim& leading = right.dims.front();
  auto builder = diag.Error(
      op.range, DiagKind::kShapeMismatch,
      fmt::format(
          "the left operand {} of @ ends in {}, the right one {} begins with {}: @ contracts the dimensions "
          "that trail the left and lead the right",
          left.ToString(), DimText(trailing), right.ToString(), DimText(leading)));
  int elsewhere = FindDim(right, trailing.name);
  if (trailing.name == leading.name) {
    builder.Hint(
        fmt::format("'{}' has two sizes here: {} and {}", trailing.name, trailing.size, leading.size));
  } else if (elsewhere > 0 && right.dims.size() == 2) {
    builder.Hint("transpose the right operand: a @ b.T");
  } else if (elsewhere > 0) {
    builder.Hint(fmt::format("bring '{}' to the front of the right operand: permute(b, [{}, ..])",
                             trailing.name, trailing.name));
  } else if (trailing.size == leading.size) {
    builder.Hint(
        fmt::format("if they are the same, name them alike: rename(b, {}, {})", leading.name, trailing.name));
  } else {
    builder.Hint(fmt::format("the right operand must begin with '{}'", trailing.name));
  }
}

class MatmulRule final : public Rule {
 public:
  MatmulRule() : Rule("matmul", {{"a"}, {"b"}}, {{AttributeInfo::Kind::kFlag, "transpose_b", false}}) {}

  void Canonicalise(const Graph& graph, Operation* op) const override {
    const Value& right = graph.values[op->operands[1]];
    if (right.source != Value::Source::kOperation) return;
    const Operation& producer = graph.operations[right.index];
    if (producer.kind != "transpose") return;
    op->operands[1] = producer.operands[0];
    bool was = op->Flag("transpose_b");
    for (Attribute& attribute : op->attributes) {
      if (attribute.name == "transpose_b") attribute.value = !was;
    }
  }
  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag) || !RequireFloat(graph, op, 1, diag)) return std::nullopt;
    const TensorType& left = graph.Type(op.operands[0]);
    TensorType right = RightType(graph, op);
    if (op.Flag("transpose_b") && right.dims.size() != 2) {
      diag.Error(op.range, DiagKind::kShapeMismatch,
                 fmt::format("only a matrix has a transpose, not {}", graph.Type(op.operands[1]).ToString()))
          .Hint("reorder its dimensions by name: permute(b, [..])");
      return std::nullopt;
    }
    size_t run = ContractedRun(left, right);
    if (run == 0) {
      ReportMismatch(op, left, right, diag);
      return std::nullopt;
    }
    TensorType result{left.dtype, {left.dims.begin(), left.dims.end() - static_cast<ptrdiff_t>(run)}};
    result.dims.insert(result.dims.end(), right.dims.begin() + static_cast<ptrdiff_t>(run), right.dims.end());
    return std::vector<TensorType>{result};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    Sizes s = ProductSizes(builder.graph(), op);
    std::vector<Attribute> sizes = {{"sizes", std::vector<int64_t>{s.m, s.n, s.k, s.transpose_b}}};
    ValueId cotangent = *builder.Cotangent(op);
    if (builder.Needs(op, 0)) {
      builder.Contribute(op, 0,
                         builder.EmitOne(op, "matmul_backward_left", {cotangent, op.operands[1]},
                                         builder.Type(op.operands[0]), sizes));
    }
    if (builder.Needs(op, 1)) {
      builder.Contribute(op, 1,
                         builder.EmitOne(op, "matmul_backward_right", {op.operands[0], cotangent},
                                         builder.Type(op.operands[1]), sizes));
    }
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    Sizes s = ProductSizes(body.graph(), op);
    body.Call("gemm", {body.At(op.operands[0]), body.At(op.operands[1]), body.At(op.results[0])},
              {s.m, s.n, s.k, 0, s.transpose_b});
  }
  bool Mixes(const Graph& graph, const Operation& op, std::string_view dim) const override {
    // A contraction over the dimension sums over it; and what only the right operand has, is not a batch.
    const TensorType& left = graph.Type(op.operands[0]);
    TensorType right = RightType(graph, op);
    size_t run = ContractedRun(left, right);
    int position = FindDim(left, dim);
    return position >= 0 && static_cast<size_t>(position) >= left.dims.size() - run;
  }
};

Sizes BackwardSizes(const Operation& op) {
  const auto& sizes = std::get<std::vector<int64_t>>(*op.Find("sizes"));
  return {sizes[0], sizes[1], sizes[2], sizes[3]};
}

// da [m, k] = dc [m, n] op(b)^T.
void LowerBackwardLeft(BodyBuilder& body, const Operation& op) {
  Sizes s = BackwardSizes(op);
  body.Call("gemm", {body.At(op.operands[0]), body.At(op.operands[1]), body.At(op.results[0])},
            {s.m, s.k, s.n, 0, 1 - s.transpose_b});
}

// db [k, n] = a^T dc, or, where b is stored [n, k], dc^T a.
void LowerBackwardRight(BodyBuilder& body, const Operation& op) {
  Sizes s = BackwardSizes(op);
  OperandRef a = body.At(op.operands[0]), dc = body.At(op.operands[1]), db = body.At(op.results[0]);
  if (s.transpose_b == 0) {
    body.Call("gemm", {a, dc, db}, {s.k, s.n, s.m, 1, 0});
  } else {
    body.Call("gemm", {dc, a, db}, {s.n, s.k, s.m, 1, 0});
  }
}

}  // namespace

void AddMatmulRules(RuleList& rules) {
  static const MatmulRule forward;
  static const InternalRule left("matmul_backward_left", LowerBackwardLeft);
  static const InternalRule right("matmul_backward_right", LowerBackwardRight);
  rules.push_back(&forward);
  rules.push_back(&left);
  rules.push_back(&right);
}

}  // namespace piper::ir
