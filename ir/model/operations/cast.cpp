// cast(x, dtype): x as another element type. Everything is f32 so far, so this only states it.
#include <fmt/format.h>

#include "ir/model/operations/alias.h"

namespace piper::ir {
namespace {

class CastRule final : public AliasRule {
 public:
  CastRule() : AliasRule("cast", {{"x"}}, {{AttributeInfo::Kind::kText, "dtype", std::nullopt}}) {}
  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    const TensorType& type = graph.Type(op.operands[0]);
    if (op.Text("dtype") != DTypeName(type.dtype)) {
      diag.Error(op.range, DiagKind::kUnsupported,
                 fmt::format("cast of {} to {}: no element type can be changed yet", type.ToString(),
                             op.Text("dtype")))
          .Hint("computation is in f32");
      return std::nullopt;
    }
    return std::vector<TensorType>{type};
  }
};

}  // namespace

void AddCastRules(RuleList& rules) {
  static const CastRule rule;
  rules.push_back(&rule);
}

}  // namespace piper::ir
