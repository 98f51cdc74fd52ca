// attention(q, k, v, causal = true, scale = 0): softmax(q k^T scale) v per head (Vaswani et al.,
// arXiv:1706.03762), with q [batch, seq, heads, head_dim] and k, v [batch, seq, kv_heads, head_dim],
// dimensions by position. heads is a multiple of kv_heads: consecutive query heads share a key head
// (grouped-query attention). scale 0 stands for 1 / sqrt(head_dim). Keeps the log-sum-exp of each row of
// scores, [batch, heads, seq].
#include <fmt/format.h>

#include <cmath>

#include "ir/model/operations/rule.h"
#include "kernels/attention.h"

namespace piper::ir {
namespace {

std::vector<int64_t> Sizes(const TensorType& q, const TensorType& k, const Operation& op) {
  return {q.dims[0].size, q.dims[1].size, q.dims[2].size,
          k.dims[2].size, q.dims[3].size, op.Flag("causal") ? 1 : 0};
}

double Scale(const TensorType& q, const Operation& op) {
  double scale = op.Number("scale");
  return scale == 0 ? 1.0 / std::sqrt(static_cast<double>(q.dims[3].size)) : scale;
}

class AttentionRule final : public Rule {
 public:
  AttentionRule()
      : Rule("attention", {{"q"}, {"k"}, {"v"}},
             {{AttributeInfo::Kind::kFlag, "causal", true}, {AttributeInfo::Kind::kNumber, "scale", 0.0}}) {}
  std::vector<std::string_view> hidden_results() const override { return {"lse"}; }

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    for (size_t i = 0; i < 3; ++i) {
      if (!RequireFloat(graph, op, i, diag)) return std::nullopt;
      if (graph.Type(op.operands[i]).dims.size() == 4) continue;
      diag.Error(op.range, DiagKind::kShapeMismatch,
                 fmt::format("{} is {}, but must have four dimensions", OperandText(op, i),
                             graph.Type(op.operands[i]).ToString()))
          .Hint("they are, by position, [batch, seq, heads, head_dim]");
      return std::nullopt;
    }
    if (!RequireSameDims(graph, op, 1, 2, diag)) return std::nullopt;
    const TensorType& q = graph.Type(op.operands[0]);
    const TensorType& k = graph.Type(op.operands[1]);
    for (size_t i : {size_t{0}, size_t{1}, size_t{3}}) {
      if (q.dims[i].size == k.dims[i].size) continue;
      diag.Error(op.range, DiagKind::kShapeMismatch,
                 fmt::format("q is {}, k is {}: dimension {} is {} in one and {} in the other", q.ToString(),
                             k.ToString(), i + 1, DimText(q.dims[i]), DimText(k.dims[i])))
          .Hint("only the number of heads may differ");
      return std::nullopt;
    }
    if (k.dims[2].size == 0 || q.dims[2].size % k.dims[2].size != 0) {
      diag.Error(
              op.range, DiagKind::kShapeMismatch,
              fmt::format("q has {} heads and k has {}: the query heads must be a multiple of the key heads",
                          q.dims[2].size, k.dims[2].size))
          .Hint(fmt::format("q is {}, k is {}", q.ToString(), k.ToString()));
      return std::nullopt;
    }
    if (q.dims[3].size > kernels::kAttentionMaxHeadDim) {
      diag.Error(op.range, DiagKind::kOutOfRange,
                 fmt::format("attention over {} is too wide for a head", DimText(q.dims[3])))
          .Hint(fmt::format("a head has at most {} elements", kernels::kAttentionMaxHeadDim));
      return std::nullopt;
    }
    return std::vector<TensorType>{q, {q.dtype, {q.dims[0], q.dims[2], q.dims[1]}}};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    std::vector<TensorType> types;
    for (ValueId operand : op.operands) types.push_back(builder.Type(operand));
    std::vector<ValueId> d = builder.Emit(op, "attention_backward",
                                          {op.operands[0], op.operands[1], op.operands[2], op.results[0],
                                           op.results[1], *builder.Cotangent(op)},
                                          types, op.attributes);
    for (size_t i = 0; i < 3; ++i) {
      if (builder.Needs(op, i)) builder.Contribute(op, i, d[i]);
    }
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    const TensorType& q = body.Type(op.operands[0]);
    std::vector<OperandRef> operands;
    for (ValueId value : op.operands) operands.push_back(body.At(value));
    for (ValueId value : op.results) operands.push_back(body.At(value));
    body.Call("attention_forward", operands, Sizes(q, body.Type(op.operands[1]), op), {Scale(q, op)});
  }
  bool Mixes(const Graph& graph, const Operation& op, std::string_view dim) const override {
    const TensorType& q = graph.Type(op.operands[0]);
    const TensorType& k = graph.Type(op.operands[1]);
    return q.dims[1].name == dim || k.dims[1].name == dim || q.dims[3].name == dim || k.dims[3].name == dim;
  }
};

void LowerBackward(BodyBuilder& body, const Operation& op) {
  const TensorType& q = body.Type(op.operands[0]);
  std::vector<OperandRef> operands;
  for (ValueId value : op.operands) operands.push_back(body.At(value));
  for (ValueId value : op.results) operands.push_back(body.At(value));
  body.Call("attention_backward", operands, Sizes(q, body.Type(op.operands[1]), op), {Scale(q, op)});
}

}  // namespace

void AddAttentionRules(RuleList& rules) {
  static const AttentionRule forward;
  static const InternalRule backward("attention_backward", LowerBackward);
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
