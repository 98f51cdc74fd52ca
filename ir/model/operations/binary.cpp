#include "ir/model/operations/binary.h"

#include <fmt/format.h>

#include <algorithm>

namespace piper::ir {
namespace {

// Whether every dimension of `narrow` is one of `wide`, with its size.
bool Covers(const TensorType& wide, const TensorType& narrow) {
  return std::all_of(narrow.dims.begin(), narrow.dims.end(), [&](const Dim& dim) {
    return std::find(wide.dims.begin(), wide.dims.end(), dim) != wide.dims.end();
  });
}

void ReportMismatch(const Operation& op, const TensorType& left, const TensorType& right,
                    DiagnosticEngine& diag) {
  std::string head = fmt::format("{} of {} and {}", op.kind, left.ToString(), right.ToString());
  for (const Dim& dim : left.dims) {
    int other = FindDim(right, dim.name);
    if (other < 0 || right.dims[static_cast<size_t>(other)].size == dim.size) continue;
    diag.Error(op.range, DiagKind::kShapeMismatch,
               fmt::format("{}: the dimension '{}' is {} on the left and {} on the right", head, dim.name,
                           dim.size, right.dims[static_cast<size_t>(other)].size))
        .Hint("dimensions are the same only if names and sizes agree");
    return;
  }
  auto missing = [](const TensorType& in, const TensorType& from) {
    for (const Dim& dim : from.dims) {
      if (FindDim(in, dim.name) < 0) return dim;
    }
    return Dim{};
  };
  Dim only_left = missing(right, left), only_right = missing(left, right);
  diag.Error(
          op.range, DiagKind::kShapeMismatch,
          fmt::format(
              "{}: only the left has {}, only the right has {}; one operand's dimensions must be among the "
              "other's",
              head, DimText(only_left), DimText(only_right)))
      .Hint(only_left.size == only_right.size
                ? fmt::format("if they are the same, name them alike: rename(b, {}, {})", only_right.name,
                              only_left.name)
                : "sum over one of them, or repeat the other operand along it first");
}

}  // namespace

std::optional<std::vector<TensorType>> BinaryRule::Infer(const Graph& graph, const Operation& op,
                                                         DiagnosticEngine& diag) const {
  if (!RequireFloat(graph, op, 0, diag) || !RequireFloat(graph, op, 1, diag)) return std::nullopt;
  const TensorType& left = graph.Type(op.operands[0]);
  const TensorType& right = graph.Type(op.operands[1]);
  if (Covers(left, right)) return std::vector<TensorType>{left};
  if (Covers(right, left)) return std::vector<TensorType>{right};
  ReportMismatch(op, left, right, diag);
  return std::nullopt;
}

void BinaryRule::Lower(BodyBuilder& body, const Operation& op) const {
  const TensorType& type = body.Type(op.results[0]);
  const TensorType& left = body.Type(op.operands[0]);
  const TensorType& right = body.Type(op.operands[1]);
  OperandRef y = body.At(op.results[0]);
  // Rows: a bias or a gain over trailing dimensions, on either side of a commutative operation.
  bool commutes = name() == "add" || name() == "mul";
  if (commutes && left.dims != right.dims) {
    bool right_is_narrow = right.dims.size() < left.dims.size();
    const TensorType& narrow = right_is_narrow ? right : left;
    if (std::equal(narrow.dims.rbegin(), narrow.dims.rend(), type.dims.rbegin(),
                   type.dims.rbegin() + static_cast<ptrdiff_t>(narrow.dims.size())) &&
        narrow.dims.size() < type.dims.size()) {
      OperandRef wide_at = body.At(op.operands[right_is_narrow ? 0 : 1]);
      OperandRef narrow_at = body.At(op.operands[right_is_narrow ? 1 : 0]);
      if (narrow.elements() == 1 && name() == "mul") {
        body.Call("scale_by", {wide_at, narrow_at, y}, {type.elements()});
      } else {
        body.Call(name() == "add" ? "add_bias" : "mul_rows", {wide_at, narrow_at, y},
                  {type.elements() / narrow.elements(), narrow.elements()});
      }
      return;
    }
  }
  auto widen = [&](size_t operand) {
    const TensorType& from = body.Type(op.operands[operand]);
    OperandRef at = body.At(op.operands[operand]);
    if (from.dims == type.dims) return at;
    OperandRef wide = body.Temporary(type, "repeated");
    EmitBroadcast(body, at, from, wide, type);
    return wide;
  };
  OperandRef a = widen(0), b = widen(1);
  body.Call(std::string(name()), {a, b, y}, {type.elements()});
}

void ContributeSummed(GradientBuilder& builder, const Operation& op, size_t operand, ValueId cotangent) {
  const TensorType& type = builder.Type(op.operands[operand]);
  if (builder.Type(cotangent).dims != type.dims) cotangent = builder.EmitOne(op, "sum_to", {cotangent}, type);
  builder.Contribute(op, operand, cotangent);
}

void AddBinaryRules(RuleList& rules) {
  static const InternalRule sum_to("sum_to", [](BodyBuilder& body, const Operation& op) {
    EmitSumTo(body, body.At(op.operands[0]), body.Type(op.operands[0]), body.At(op.results[0]),
              body.Type(op.results[0]));
  });
  rules.push_back(&sum_to);
}

}  // namespace piper::ir
