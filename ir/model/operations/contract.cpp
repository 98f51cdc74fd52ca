// contract(a, b, over): the sum of products over the named dimensions, which both have: an Einstein sum.
// Dimensions that both have and that are not summed are a batch: the result has the batch, in a's order, then
// what is left of a, then of b. Operands are permuted where they do not lie as the batched product needs
// them.
#include <fmt/format.h>

#include <algorithm>

#include "ir/model/operations/rule.h"

namespace piper::ir {
namespace {

struct Parts {
  std::vector<Dim> batch, left, right, over;
};

std::vector<Dim> Join(std::initializer_list<const std::vector<Dim>*> lists) {
  std::vector<Dim> all;
  for (const std::vector<Dim>* list : lists) all.insert(all.end(), list->begin(), list->end());
  return all;
}

Parts Classify(const TensorType& a, const TensorType& b, const std::vector<std::string>& over) {
  Parts parts;
  auto summed = [&](const Dim& dim) { return std::find(over.begin(), over.end(), dim.name) != over.end(); };
  for (const Dim& dim : a.dims) {
    if (summed(dim)) {
      parts.over.push_back(dim);
    } else {
      (FindDim(b, dim.name) >= 0 ? parts.batch : parts.left).push_back(dim);
    }
  }
  for (const Dim& dim : b.dims) {
    if (FindDim(a, dim.name) < 0) parts.right.push_back(dim);
  }
  return parts;
}

int64_t Elements(const std::vector<Dim>& dims) { return TensorType{DType::kF32, dims}.elements(); }

// The operand, permuted into scratch unless it lies in that order already.
OperandRef InOrder(BodyBuilder& body, ValueId value, const std::vector<Dim>& dims) {
  const TensorType& type = body.Type(value);
  if (type.dims == dims) return body.At(value);
  OperandRef permuted = body.Temporary({type.dtype, dims}, "permuted");
  std::vector<size_t> order;
  for (const Dim& dim : dims) order.push_back(static_cast<size_t>(FindDim(type, dim.name)));
  EmitPermute(body, body.At(value), permuted, type, order);
  return permuted;
}

class ContractRule final : public Rule {
 public:
  ContractRule() : Rule("contract", {{"a"}, {"b"}}, {{AttributeInfo::Kind::kDims, "over", std::nullopt}}) {}

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag) || !RequireFloat(graph, op, 1, diag)) return std::nullopt;
    const TensorType& a = graph.Type(op.operands[0]);
    const TensorType& b = graph.Type(op.operands[1]);
    const auto& over = std::get<std::vector<std::string>>(*op.Find("over"));
    for (const std::string& dim : over) {
      if (RequireDim(graph, op, 0, dim, diag) < 0 || RequireDim(graph, op, 1, dim, diag) < 0)
        return std::nullopt;
    }
    for (const Dim& dim : a.dims) {
      int other = FindDim(b, dim.name);
      if (other < 0 || b.dims[static_cast<size_t>(other)] == dim) continue;
      diag.Error(op.range, DiagKind::kShapeMismatch,
                 fmt::format("contract of {} and {}: '{}' is {} in one and {} in the other", a.ToString(),
                             b.ToString(), dim.name, dim.size, b.dims[static_cast<size_t>(other)].size))
          .Hint("dimensions are the same only if names and sizes agree");
      return std::nullopt;
    }
    Parts parts = Classify(a, b, over);
    return std::vector<TensorType>{{a.dtype, Join({&parts.batch, &parts.left, &parts.right})}};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    const TensorType a = builder.Type(op.operands[0]), b = builder.Type(op.operands[1]);
    Parts parts = Classify(a, b, std::get<std::vector<std::string>>(*op.Find("over")));
    ValueId dy = *builder.Cotangent(op);
    auto contribute = [&](size_t operand, ValueId left, ValueId right, const std::vector<Dim>& over,
                          const std::vector<Dim>& result, const TensorType& type) {
      std::vector<std::string> names;
      for (const Dim& dim : over) names.push_back(dim.name);
      ValueId d = builder.EmitOne(op, "contract", {left, right}, {type.dtype, result}, {{"over", names}});
      if (result != type.dims) d = builder.EmitOne(op, "reorder", {d}, type);
      builder.Contribute(op, operand, d);
    };
    // What is left over keeps the order that it has in the operand that brings it.
    if (builder.Needs(op, 0)) {
      std::vector<Dim> over_in_b;
      for (const Dim& dim : b.dims) {
        if (std::find(parts.over.begin(), parts.over.end(), dim) != parts.over.end())
          over_in_b.push_back(dim);
      }
      contribute(0, dy, op.operands[1], parts.right, Join({&parts.batch, &parts.left, &over_in_b}), a);
    }
    if (builder.Needs(op, 1)) {
      contribute(1, op.operands[0], dy, parts.left, Join({&parts.batch, &parts.over, &parts.right}), b);
    }
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    Parts parts = Classify(body.Type(op.operands[0]), body.Type(op.operands[1]),
                           std::get<std::vector<std::string>>(*op.Find("over")));
    OperandRef a = InOrder(body, op.operands[0], Join({&parts.batch, &parts.left, &parts.over}));
    // The right operand may lie transposed.
    bool transposed = body.Type(op.operands[1]).dims == Join({&parts.batch, &parts.right, &parts.over});
    OperandRef b = transposed
                       ? body.At(op.operands[1])
                       : InOrder(body, op.operands[1], Join({&parts.batch, &parts.over, &parts.right}));
    body.Call("gemm_batched", {a, b, body.At(op.results[0])},
              {Elements(parts.batch), Elements(parts.left), Elements(parts.right), Elements(parts.over), 0,
               transposed ? 1 : 0});
  }
  bool Mixes(const Graph&, const Operation& op, std::string_view dim) const override {
    const auto& over = std::get<std::vector<std::string>>(*op.Find("over"));
    return std::find(over.begin(), over.end(), dim) != over.end();
  }
};

}  // namespace

void AddContractRules(RuleList& rules) {
  static const ContractRule rule;
  rules.push_back(&rule);
}

}  // namespace piper::ir
