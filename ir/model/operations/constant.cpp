// constant(value, dims = []): a tensor that holds one number everywhere; a scalar without dims. `constant(1,
// [batch, seq])`: a dimension that the model has keeps its size, a new one states it. Also "fill" and "copy",
// which derivatives emit.
#include <fmt/format.h>

#include "ir/model/operations/rule.h"

namespace piper::ir {
namespace {

class ConstantRule final : public Rule {
 public:
  ConstantRule()
      : Rule("constant", {},
             {{AttributeInfo::Kind::kNumber, "value", std::nullopt},
              {AttributeInfo::Kind::kShape, "dims", std::vector<std::string>{}}}) {}

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    TensorType type;
    for (const std::string& entry : std::get<std::vector<std::string>>(*op.Find("dims"))) {
      std::optional<Dim> dim = ParseShapeEntry(entry);
      if (dim && dim->size == 0) dim->size = graph.DimSize(dim->name);
      if (!dim || dim->size <= 0) {
        diag.Error(op.range, DiagKind::kUnknownDim,
                   fmt::format("constant: the size of '{}' is not known", entry))
            .Hint("name a dimension of an input or a parameter, or state the size: name = 64");
        return std::nullopt;
      }
      if (type.elements() > (int64_t{1} << 40) / dim->size) {
        diag.Error(op.range, DiagKind::kOutOfRange,
                   fmt::format("constant: [.., {}] has too many elements", entry))
            .Hint("at most 2^40");
        return std::nullopt;
      }
      type.dims.push_back(*dim);
    }
    return std::vector<TensorType>{type};
  }
  bool Differentiable() const override { return false; }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    body.Call("fill", {body.At(op.results[0])}, {body.Type(op.results[0]).elements()}, {op.Number("value")});
  }
};

}  // namespace

void AddConstantRules(RuleList& rules) {
  static const ConstantRule constant;
  static const InternalRule fill("fill", [](BodyBuilder& body, const Operation& op) {
    body.Call("fill", {body.At(op.results[0])}, {body.Type(op.results[0]).elements()}, {op.Number("value")});
  });
  static const InternalRule copy("copy", [](BodyBuilder& body, const Operation& op) {
    int64_t n = body.Type(op.results[0]).elements();
    body.Call("copy_2d", {body.At(op.operands[0]), body.At(op.results[0])}, {1, n, 0, n, 0, n});
  });
  rules.push_back(&constant);
  rules.push_back(&fill);
  rules.push_back(&copy);
}

}  // namespace piper::ir
