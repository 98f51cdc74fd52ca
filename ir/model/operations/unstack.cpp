// unstack(x, dim): the slices of x along a dimension, one result each, without it. `let (q, k, v) =
// unstack(x, qkv)`.
#include <fmt/format.h>

#include "ir/model/operations/blocks.h"

namespace piper::ir {
namespace {

class UnstackRule final : public Rule {
 public:
  UnstackRule() : Rule("unstack", {{"x"}}, {{AttributeInfo::Kind::kDim, "dim", std::nullopt}}) {}

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag)) return std::nullopt;
    int dim = RequireDim(graph, op, 0, op.Text("dim"), diag);
    if (dim < 0) return std::nullopt;
    TensorType part = graph.Type(op.operands[0]);
    int64_t count = part.dims[static_cast<size_t>(dim)].size;
    if (count > kMaxParts) {
      diag.Error(op.range, DiagKind::kOutOfRange,
                 fmt::format("unstack of {} along '{}' would give {} tensors", part.ToString(),
                             op.Text("dim"), count))
          .Hint(fmt::format("at most {}", kMaxParts));
      return std::nullopt;
    }
    part.dims.erase(part.dims.begin() + dim);
    return std::vector<TensorType>(static_cast<size_t>(count), part);
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    ContributeParts(builder, op);
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    const TensorType& x = body.Type(op.operands[0]);
    size_t dim = static_cast<size_t>(FindDim(x, op.Text("dim")));
    for (size_t i = 0; i < op.results.size(); ++i) {
      if (!body.Wanted(op.results[i])) continue;
      EmitTakeBlock(body, body.At(op.operands[0]), x, dim, static_cast<int64_t>(i), 1,
                    body.At(op.results[i]));
    }
  }
  bool Mixes(const Graph&, const Operation& op, std::string_view dim) const override {
    return op.Text("dim") == dim;
  }
};

}  // namespace

void AddUnstackRules(RuleList& rules) {
  static const UnstackRule rule;
  rules.push_back(&rule);
}

}  // namespace piper::ir
