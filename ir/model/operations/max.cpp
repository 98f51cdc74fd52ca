// max(x, dims = []): the largest value over the named dimensions, which must be neighbours, or over all. Its
// cotangent is divided equally among the elements that attain it.
#include <fmt/format.h>

#include "ir/model/operations/reduction.h"

namespace piper::ir {
namespace {

// outer, reduced, inner of the one run of dimensions that y lacks.
std::vector<int64_t> Sizes(const TensorType& x, const TensorType& y) {
  size_t begin = 0, end = x.dims.size();
  while (begin < end && FindDim(y, x.dims[begin].name) >= 0) ++begin;
  while (end > begin && FindDim(y, x.dims[end - 1].name) >= 0) --end;
  return {Product(x, 0, begin), Product(x, begin, end), Product(x, end, x.dims.size())};
}

class MaxRule final : public Rule {
 public:
  MaxRule() : Rule("max", {{"x"}}, ReductionAttributes()) {}
  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    std::optional<TensorType> type = ReducedType(graph, op, diag);
    if (!type) return std::nullopt;
    const TensorType& x = graph.Type(op.operands[0]);
    std::vector<int64_t> sizes = Sizes(x, *type);
    if (sizes[0] * sizes[2] != type->elements()) {
      diag.Error(op.range, DiagKind::kShapeMismatch,
                 fmt::format("max of {} over [{}]: the dimensions are no neighbours", x.ToString(),
                             fmt::join(std::get<std::vector<std::string>>(*op.Find("dims")), ", ")))
          .Hint("take the maximum over one after the other");
      return std::nullopt;
    }
    return std::vector<TensorType>{*type};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    builder.Contribute(
        op, 0,
        builder.EmitOne(op, "max_backward", {op.operands[0], op.results[0], *builder.Cotangent(op)},
                        builder.Type(op.operands[0])));
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    body.Call("reduce_max", {body.At(op.operands[0]), body.At(op.results[0])},
              Sizes(body.Type(op.operands[0]), body.Type(op.results[0])));
  }
  bool Mixes(const Graph& graph, const Operation& op, std::string_view dim) const override {
    return Reduces(graph, op, dim);
  }
};

}  // namespace

void AddMaxRules(RuleList& rules) {
  static const MaxRule forward;
  static const InternalRule backward("max_backward", [](BodyBuilder& body, const Operation& op) {
    body.Call(
        "reduce_max_backward",
        {body.At(op.operands[0]), body.At(op.operands[1]), body.At(op.operands[2]), body.At(op.results[0])},
        Sizes(body.Type(op.operands[0]), body.Type(op.operands[1])));
  });
  rules.push_back(&forward);
  rules.push_back(&backward);
}

}  // namespace piper::ir
