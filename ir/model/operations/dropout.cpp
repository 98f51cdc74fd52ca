// dropout(x, p): zeroes each element with probability p and scales the others by 1 / (1 - p) (Srivastava et
// al., 2014). The mask is keyed by seed, the operation's path, step, global sample and element within the
// sample, so it depends on nothing that a strategy chooses; the backward pass draws it again. x therefore
// leads with the sample dimension.
#include <fmt/format.h>

#include "ir/model/operations/rule.h"

namespace piper::ir {
namespace {

std::vector<int64_t> Sizes(const TensorType& x) { return {x.elements(), Product(x, 1, x.dims.size())}; }

class DropoutRule final : public Rule {
 public:
  DropoutRule() : Rule("dropout", {{"x"}}, {{AttributeInfo::Kind::kNumber, "p", std::nullopt}}) {}

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag)) return std::nullopt;
    double p = op.Number("p");
    if (!(p >= 0 && p < 1)) {
      diag.Error(op.range, DiagKind::kOutOfRange, fmt::format("dropout's p is {}, a probability below 1", p))
          .Hint("0.1 is usual; 0 drops nothing");
      return std::nullopt;
    }
    const TensorType& x = graph.Type(op.operands[0]);
    std::string sample = graph.SampleDim();
    if (sample.empty() || x.dims.empty() || x.dims[0].name != sample) {
      diag.Error(
              op.range, DiagKind::kShapeMismatch,
              fmt::format(
                  "dropout of {}: the first dimension must be the inputs' first, '{}', for a mask belongs to "
                  "a sample",
                  x.ToString(), sample))
          .Hint("apply it before dimensions are merged or permuted");
      return std::nullopt;
    }
    return std::vector<TensorType>{x};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    ValueId dy = *builder.Cotangent(op);
    if (op.Number("p") == 0) {
      builder.Contribute(op, 0, dy);
      return;
    }
    builder.Contribute(op, 0, builder.EmitOne(op, "dropout_backward", {dy}, builder.Type(dy), op.attributes));
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    body.Call("dropout_forward", {body.At(op.operands[0]), body.At(op.results[0])},
              Sizes(body.Type(op.results[0])), {op.Number("p")});
  }
  bool Mixes(const Graph& graph, const Operation& op, std::string_view dim) const override {
    // A slice of a sample would have to know which elements of the mask are its own.
    int position = FindDim(graph.Type(op.operands[0]), dim);
    return op.Number("p") > 0 && position > 0;
  }
  std::optional<uint32_t> AliasOf(const Operation& op) const override {
    if (op.Number("p") == 0) return 0;
    return std::nullopt;
  }
};

void LowerBackward(BodyBuilder& body, const Operation& op) {
  body.Call("dropout_backward", {body.At(op.operands[0]), body.At(op.results[0])},
            Sizes(body.Type(op.results[0])), {op.Number("p")});
}

}  // namespace

void AddDropoutRules(RuleList& rules) {
  static const DropoutRule forward;
  static const InternalRule backward("dropout_backward", LowerBackward);
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
