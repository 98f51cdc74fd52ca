// embedding(table, ids): rows of a table [vocab, ..] picked by integers. The result has the dimensions of
// ids, then those of the table behind its first.
#include <fmt/format.h>

#include "ir/model/operations/rule.h"

namespace piper::ir {
namespace {

class EmbeddingRule final : public Rule {
 public:
  EmbeddingRule() : Rule("embedding", {{"table"}, {"ids"}}) {}

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag) || !RequireInteger(graph, op, 1, diag)) return std::nullopt;
    const TensorType& table = graph.Type(op.operands[0]);
    if (table.dims.size() < 2) {
      diag.Error(op.range, DiagKind::kShapeMismatch,
                 fmt::format("the table {} of embedding needs at least two dimensions", table.ToString()))
          .Hint("a table is [vocab, embed]: ids pick along the first dimension");
      return std::nullopt;
    }
    TensorType result{table.dtype, graph.Type(op.operands[1]).dims};
    result.dims.insert(result.dims.end(), table.dims.begin() + 1, table.dims.end());
    return std::vector<TensorType>{result};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    builder.Contribute(op, 0,
                       builder.EmitOne(op, "embedding_backward", {op.operands[1], *builder.Cotangent(op)},
                                       builder.Type(op.operands[0])));
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    const TensorType& table = body.Type(op.operands[0]);
    body.Call(
        "embedding_forward", {body.At(op.operands[1]), body.At(op.operands[0]), body.At(op.results[0])},
        {body.Type(op.operands[1]).elements(), table.dims[0].size, Product(table, 1, table.dims.size())});
  }
};

void LowerBackward(BodyBuilder& body, const Operation& op) {
  const TensorType& table = body.Type(op.results[0]);
  body.Call("embedding_backward", {body.At(op.operands[0]), body.At(op.operands[1]), body.At(op.results[0])},
            {body.Type(op.operands[0]).elements(), table.dims[0].size, Product(table, 1, table.dims.size())});
}

}  // namespace

void AddEmbeddingRules(RuleList& rules) {
  static const EmbeddingRule forward;
  static const InternalRule backward("embedding_backward", LowerBackward);
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
