// split(x, dim, sizes): x cut along a dimension into pieces of the given sizes, one result each; the
// dimension keeps its name. slice(x, dim, begin, end): the positions [begin, end) alone.
#include <fmt/format.h>

#include <numeric>

#include "ir/model/operations/blocks.h"

namespace piper::ir {
namespace {

class SplitRule final : public Rule {
 public:
  SplitRule()
      : Rule("split", {{"x"}},
             {{AttributeInfo::Kind::kDim, "dim", std::nullopt},
              {AttributeInfo::Kind::kInts, "sizes", std::nullopt}}) {}

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag)) return std::nullopt;
    int dim = RequireDim(graph, op, 0, op.Text("dim"), diag);
    if (dim < 0) return std::nullopt;
    const TensorType& x = graph.Type(op.operands[0]);
    int64_t whole = x.dims[static_cast<size_t>(dim)].size, total = 0;
    const auto& sizes = std::get<std::vector<int64_t>>(*op.Find("sizes"));
    std::vector<TensorType> types;
    bool ok = static_cast<int64_t>(sizes.size()) <= kMaxParts;
    for (int64_t size : sizes) {
      ok = ok && size > 0 && size <= whole - total;
      if (!ok) break;
      total += size;
      types.push_back(x);
      types.back().dims[static_cast<size_t>(dim)].size = size;
    }
    if (!ok || total != whole) {
      diag.Error(op.range, DiagKind::kShapeMismatch,
                 fmt::format("split of {} along {} into [{}]: the sizes must be positive and add up to {}",
                             x.ToString(), DimText(x.dims[static_cast<size_t>(dim)]), fmt::join(sizes, ", "),
                             whole))
          .Hint("slice(x, dim, begin, end) takes a part");
      return std::nullopt;
    }
    return types;
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    ContributeParts(builder, op);
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    const TensorType& x = body.Type(op.operands[0]);
    size_t dim = static_cast<size_t>(FindDim(x, op.Text("dim")));
    int64_t begin = 0;
    for (ValueId result : op.results) {
      int64_t size = body.Type(result).dims[dim].size;
      if (body.Wanted(result)) {
        EmitTakeBlock(body, body.At(op.operands[0]), x, dim, begin, size, body.At(result));
      }
      begin += size;
    }
  }
  bool Mixes(const Graph&, const Operation& op, std::string_view dim) const override {
    return op.Text("dim") == dim;
  }
};

class SliceRule final : public Rule {
 public:
  SliceRule()
      : Rule("slice", {{"x"}},
             {{AttributeInfo::Kind::kDim, "dim", std::nullopt},
              {AttributeInfo::Kind::kInt, "begin", std::nullopt},
              {AttributeInfo::Kind::kInt, "end", std::nullopt}}) {}

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    if (!RequireFloat(graph, op, 0, diag)) return std::nullopt;
    int dim = RequireDim(graph, op, 0, op.Text("dim"), diag);
    if (dim < 0) return std::nullopt;
    TensorType type = graph.Type(op.operands[0]);
    Dim& d = type.dims[static_cast<size_t>(dim)];
    int64_t begin = op.Int("begin"), end = op.Int("end");
    if (begin < 0 || end <= begin || end > d.size) {
      diag.Error(op.range, DiagKind::kOutOfRange,
                 fmt::format("slice of {} along {} from {} to {}", type.ToString(), DimText(d), begin, end))
          .Hint(fmt::format("0 <= begin < end <= {}", d.size));
      return std::nullopt;
    }
    d.size = end - begin;
    return std::vector<TensorType>{type};
  }
  void Differentiate(GradientBuilder& builder, const Operation& op) const override {
    const TensorType type = builder.Type(op.operands[0]);
    int64_t dim = FindDim(type, op.Text("dim"));
    std::vector<int64_t> begins = {op.Int("begin")}, counts = {op.Int("end") - op.Int("begin")};
    bool fill = counts[0] != type.dims[static_cast<size_t>(dim)].size;
    builder.Contribute(
        op, 0,
        builder.EmitOne(op, "put_blocks", {*builder.Cotangent(op)}, type,
                        {{"dim", dim}, {"begins", begins}, {"counts", counts}, {"fill", fill}}));
  }
  void Lower(BodyBuilder& body, const Operation& op) const override {
    const TensorType& x = body.Type(op.operands[0]);
    EmitTakeBlock(body, body.At(op.operands[0]), x, static_cast<size_t>(FindDim(x, op.Text("dim"))),
                  op.Int("begin"), op.Int("end") - op.Int("begin"), body.At(op.results[0]));
  }
  bool Mixes(const Graph&, const Operation& op, std::string_view dim) const override {
    return op.Text("dim") == dim;
  }
};

}  // namespace

void AddSplitRules(RuleList& rules) {
  static const SplitRule split;
  static const SliceRule slice;
  rules.push_back(&split);
  rules.push_back(&slice);
}

}  // namespace piper::ir
