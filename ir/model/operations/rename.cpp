// rename(x, from, to): the same tensor with one dimension called otherwise; nothing is moved.
#include "ir/model/operations/alias.h"

namespace piper::ir {
namespace {

class RenameRule final : public AliasRule {
 public:
  RenameRule()
      : AliasRule("rename", {{"x"}},
                  {{AttributeInfo::Kind::kDim, "from", std::nullopt},
                   {AttributeInfo::Kind::kDim, "to", std::nullopt}}) {}
  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    int index = RequireDim(graph, op, 0, op.Text("from"), diag);
    if (index < 0) return std::nullopt;
    TensorType type = graph.Type(op.operands[0]);
    type.dims[static_cast<size_t>(index)].name = op.Text("to");
    return std::vector<TensorType>{type};
  }
};

}  // namespace

void AddRenameRules(RuleList& rules) {
  static const RenameRule rule;
  rules.push_back(&rule);
}

}  // namespace piper::ir
