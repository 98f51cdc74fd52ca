// concat(a, b, .., dim): tensors one behind the other along a dimension that all have; the others agree.
// stack(a, b, .., dim, axis = 0): equal tensors along a new dimension at position `axis`.
#include <fmt/format.h>

#include "ir/model/operations/alias.h"
#include "ir/model/operations/blocks.h"

namespace piper::ir {
namespace {

// Contributes block by block of the cotangent; `dim` is the position in the result.
void ContributeBlocks(GradientBuilder& builder, const Operation& op, size_t dim) {
  ValueId dy = *builder.Cotangent(op);
  const TensorType type = builder.Type(dy);
  int64_t begin = 0;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const TensorType part = builder.Type(op.operands[i]);
    int64_t rows = Product(type, 0, dim), inner = Product(type, dim + 1, type.dims.size());
    int64_t count = part.elements() / (rows * inner);
    if (builder.Needs(op, i)) {
      builder.Contribute(
          op, i,
          builder.EmitOne(op, "take_block", {dy}, part,
                          {{"dim", static_cast<int64_t>(dim)}, {"begin", begin}, {"count", count}}));
    }
    begin += count;
  }
}

void LowerBlocks(BodyBuilder& body, const Operation& op, size_t dim) {
  const TensorType& type = body.Type(op.results[0]);
  int64_t rows = Product(type, 0, dim), inner = Product(type, dim + 1, type.dims.size());
  int64_t begin = 0;
  for (ValueId operand : op.operands) {
    int64_t count = body.Type(operand).elements() / (rows * inner);
    EmitPutBlock(body, body.At(operand), body.At(op.results[0]), type, dim, begin, count);
    begin += count;
  }
}

class ConcatRule final : public Rule {
 public:
  ConcatRule() : Rule("concat", {{"a"}, {"b"}}, {{AttributeInfo::Kind::kDim, "dim", std::nullopt}}) {}
  bool variadic() const override { return true; }

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    TensorType type = graph.Type(op.operands[0]);
    int64_t total = 0;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (!RequireFloat(graph, op, i, diag)) return std::nullopt;
      int dim = RequireDim(graph, op, i, op.Text("dim"), diag);
      if (dim < 0) return std::nullopt;
      TensorType other = graph.Type(op.operands[i]);
      total += other.dims[static_cast<size_t>(dim)].size;
      other.dims[static_cast<size_t>(dim)].size = 0;
      if (i == 0) type = other;
      if (other.dims == type.dims) continue;
      diag.Error(op.range, DiagKind::kShapeMismatch,
                 fmt::format("concat of {} and {} along '{}': all other dimensions must agree",
                             graph.Type(op.operands[0]).ToString(), graph.Type(op.operands[i]).ToString(),
                             op.Text("dim")))
          .Hint("their names, sizes and order must be the same: permute or rename one");
      return std::nullopt;
    }
    type.dims[static_cast<size_t>(FindDim(type, op.Text("dim")))].size = total;
    return std::vector<TensorType>{type};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    ContributeBlocks(builder, op, static_cast<size_t>(FindDim(builder.Type(op.results[0]), op.Text("dim"))));
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    LowerBlocks(body, op, static_cast<size_t>(FindDim(body.Type(op.results[0]), op.Text("dim"))));
  }
  bool Mixes(const Graph&, const Operation& op, std::string_view dim) const override {
    return op.Text("dim") == dim;
  }
};

class StackRule final : public Rule {
 public:
  StackRule()
      : Rule("stack", {{"a"}},
             {{AttributeInfo::Kind::kDim, "dim", std::nullopt},
              {AttributeInfo::Kind::kInt, "axis", int64_t{0}}}) {}
  bool variadic() const override { return true; }

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    TensorType type = graph.Type(op.operands[0]);
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (!RequireFloat(graph, op, i, diag) || !RequireSameDims(graph, op, 0, i, diag)) return std::nullopt;
    }
    int64_t axis = op.Int("axis");
    if (axis < 0 || axis > static_cast<int64_t>(type.dims.size())) {
      diag.Error(op.range, DiagKind::kOutOfRange,
                 fmt::format("stack of {}: there is no position {}", type.ToString(), axis))
          .Hint(fmt::format("axis is 0 to {}", type.dims.size()));
      return std::nullopt;
    }
    type.dims.insert(type.dims.begin() + axis, {op.Text("dim"), static_cast<int64_t>(op.operands.size())});
    return std::vector<TensorType>{type};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    ContributeBlocks(builder, op, static_cast<size_t>(op.Int("axis")));
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    LowerBlocks(body, op, static_cast<size_t>(op.Int("axis")));
  }
};

}  // namespace

void AddConcatRules(RuleList& rules) {
  static const ConcatRule concat;
  static const StackRule stack;
  static const InternalRule take("take_block", [](BodyBuilder& body, const Operation& op) {
    EmitTakeBlock(body, body.At(op.operands[0]), body.Type(op.operands[0]),
                  static_cast<size_t>(op.Int("dim")), op.Int("begin"), op.Int("count"),
                  body.At(op.results[0]));
  });
  rules.push_back(&concat);
  rules.push_back(&stack);
  rules.push_back(&take);
}

}  // namespace piper::ir
