// rope(x, theta = 10000): rotary position embedding (Su et al., arXiv:2104.09864) of x [batch, seq, heads,
// head_dim], dimensions by position; element i of a head turns together with element i + head_dim / 2, as
// Llama's checkpoints have it. The position is the index along the second dimension.
#include <fmt/format.h>

#include "ir/model/operations/rule.h"
#include "kernels/rope.h"

namespace piper::ir {
namespace {

class RopeRule final : public Rule {
 public:
  RopeRule() : Rule("rope", {{"x"}}, {{AttributeInfo::Kind::kNumber, "theta", 10000.0}}) {}

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag)) return std::nullopt;
    const TensorType& x = graph.Type(op.operands[0]);
    if (x.dims.size() != 4) {
      diag.Error(op.range, DiagKind::kShapeMismatch,
                 fmt::format("rope of {}: x must have four dimensions", x.ToString()))
          .Hint("they are, by position, [batch, seq, heads, head_dim]");
      return std::nullopt;
    }
    int64_t head_dim = x.dims[3].size;
    if (head_dim % 2 != 0 || head_dim > 2 * kernels::kRopeMaxPairs) {
      diag.Error(op.range, DiagKind::kOutOfRange,
                 fmt::format("rope of {}: it turns pairs along {}", x.ToString(), DimText(x.dims[3])))
          .Hint(fmt::format("its size must be even and at most {}", 2 * kernels::kRopeMaxPairs));
      return std::nullopt;
    }
    if (!(op.Number("theta") > 0)) {
      diag.Error(op.range, DiagKind::kOutOfRange, fmt::format("rope's theta is {}", op.Number("theta")))
          .Hint("theta is positive; 10000 is usual");
      return std::nullopt;
    }
    return std::vector<TensorType>{x};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    ValueId dy = *builder.Cotangent(op);
    builder.Contribute(op, 0, builder.EmitOne(op, "rope_backward", {dy}, builder.Type(dy), op.attributes));
  }
  void Lower(BodyBuilder& body, const Operation& op) const override { LowerTurn(body, op, "rope_forward"); }
  bool Mixes(const Graph& graph, const Operation& op, std::string_view dim) const override {
    // A slice of the sequence would need to know where it begins.
    const TensorType& x = graph.Type(op.operands[0]);
    return x.dims[1].name == dim || x.dims[3].name == dim;
  }

  static void LowerTurn(BodyBuilder& body, const Operation& op, const char* kernel) {
    const TensorType& x = body.Type(op.results[0]);
    body.Call(kernel, {body.At(op.operands[0]), body.At(op.results[0])},
              {x.dims[0].size, x.dims[1].size, x.dims[2].size, x.dims[3].size, 0}, {op.Number("theta")});
  }
};

}  // namespace

void AddRopeRules(RuleList& rules) {
  static const RopeRule forward;
  static const InternalRule backward("rope_backward", [](BodyBuilder& body, const Operation& op) {
    RopeRule::LowerTurn(body, op, "rope_backward");
  });
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
