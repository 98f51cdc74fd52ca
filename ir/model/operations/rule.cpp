#include "ir/model/operations/rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ir/support/result.h"

namespace piper::ir {

int FindDim(const TensorType& type, std::string_view name) {
  for (size_t i = 0; i < type.dims.size(); ++i) {
    if (type.dims[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

int64_t Product(const TensorType& type, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) product *= type.dims[i].size;
  return product;
}

std::string DimText(const Dim& dim) { return fmt::format("'{}={}'", dim.name, dim.size); }

std::string OperandText(const Operation& op, size_t operand) {
  const OperationRule* rule = FindOperation(op.kind);
  const std::vector<OperandInfo>& infos = rule->operands();
  if (operand < infos.size()) return fmt::format("'{}' of {}", infos[operand].name, op.kind);
  return fmt::format("operand {} of {}", operand + 1, op.kind);
}

bool RequireFloat(const Graph& graph, const Operation& op, size_t operand, DiagnosticEngine& diag) {
  const TensorType& type = graph.Type(op.operands[operand]);
  if (type.dtype == DType::kF32 || type.dtype == DType::kF64) return true;
  diag.Error(op.range, DiagKind::kDTypeMismatch,
             fmt::format("{} is {}, but must hold real numbers (f32)", OperandText(op, operand),
                         type.ToString()))
      .Hint(type.dtype == DType::kI32 ? "integers index a table: embedding(table, ids)"
                                      : "only f32 is computed with so far");
  return false;
}

bool RequireInteger(const Graph& graph, const Operation& op, size_t operand, DiagnosticEngine& diag) {
  const TensorType& type = graph.Type(op.operands[operand]);
  if (type.dtype == DType::kI32) return true;
  diag.Error(op.range, DiagKind::kDTypeMismatch,
             fmt::format("{} is {}, but must hold integers (i32)", OperandText(op, operand), type.ToString()))
      .Hint(fmt::format("the form is {}", Signature(*FindOperation(op.kind))));
  return false;
}

bool RequireSameDims(const Graph& graph, const Operation& op, size_t a, size_t b, DiagnosticEngine& diag) {
  const TensorType& left = graph.Type(op.operands[a]);
  const TensorType& right = graph.Type(op.operands[b]);
  if (left.dims == right.dims) return true;
  diag.Error(op.range, DiagKind::kShapeMismatch,
             fmt::format("{} is {}, {} is {}: they must have the same dimensions", OperandText(op, a),
                         left.ToString(), OperandText(op, b), right.ToString()))
      .Hint(fmt::format("the form is {}", Signature(*FindOperation(op.kind))));
  return false;
}

int RequireDim(const Graph& graph, const Operation& op, size_t operand, const std::string& dim,
               DiagnosticEngine& diag) {
  const TensorType& type = graph.Type(op.operands[operand]);
  int index = FindDim(type, dim);
  if (index >= 0) return index;
  std::string names;
  for (const Dim& d : type.dims) names += fmt::format("{}{}", names.empty() ? "" : ", ", d.name);
  diag.Error(op.range, DiagKind::kUnknownDim,
             fmt::format("{} is {}, which has no dimension '{}'", OperandText(op, operand), type.ToString(),
                         dim))
      .Hint(names.empty() ? "it is a scalar" : fmt::format("its dimensions are {}", names));
  return -1;
}

namespace {

// Iteration over a result: sizes, and the operand's stride for each; neighbours that step as one are merged.
struct Walk {
  std::vector<int64_t> sizes, strides;
  void Append(int64_t size, int64_t stride) {
    if (size == 1) return;
    if (!sizes.empty() && strides.back() == stride * size) {
      sizes.back() *= size;
      strides.back() = stride;
      return;
    }
    sizes.push_back(size);
    strides.push_back(stride);
  }
};

void EmitWalk(BodyBuilder& body, const char* kernel, OperandRef x, OperandRef y, const Walk& walk) {
  PIPER_CHECK(walk.sizes.size() <= kMaxRank);
  std::vector<int64_t> ints(2 * kMaxRank, 0);
  size_t pad = kMaxRank - walk.sizes.size();
  for (size_t i = 0; i < pad; ++i) ints[i] = 1;
  std::copy(walk.sizes.begin(), walk.sizes.end(), ints.begin() + static_cast<ptrdiff_t>(pad));
  std::copy(walk.strides.begin(), walk.strides.end(), ints.begin() + static_cast<ptrdiff_t>(kMaxRank + pad));
  body.Call(kernel, {x, y}, ints);
}

std::vector<int64_t> Strides(const TensorType& type) {
  std::vector<int64_t> strides(type.dims.size());
  int64_t stride = 1;
  for (size_t i = type.dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= type.dims[i].size;
  }
  return strides;
}

}  // namespace

void EmitPermute(BodyBuilder& body, OperandRef x, OperandRef y, const TensorType& x_type,
                 const std::vector<size_t>& order) {
  std::vector<int64_t> strides = Strides(x_type);
  Walk walk;
  for (size_t i : order) walk.Append(x_type.dims[i].size, strides[i]);
  EmitWalk(body, "permute_copy", x, y, walk);
}

void EmitBroadcast(BodyBuilder& body, OperandRef x, const TensorType& from, OperandRef y,
                   const TensorType& to) {
  std::vector<int64_t> strides = Strides(from);
  Walk walk;
  for (const Dim& dim : to.dims) {
    int index = FindDim(from, dim.name);
    walk.Append(dim.size, index < 0 ? 0 : strides[static_cast<size_t>(index)]);
  }
  EmitWalk(body, "broadcast_copy", x, y, walk);
}

void EmitSumTo(BodyBuilder& body, OperandRef x, const TensorType& from, OperandRef y, const TensorType& to) {
  // The frequent case: a bias, or a positional table. Trailing dimensions are kept.
  if (to.dims.size() < from.dims.size() && !to.dims.empty() &&
      std::equal(to.dims.rbegin(), to.dims.rend(), from.dims.rbegin())) {
    body.Call("sum_rows", {x, y}, {from.elements() / to.elements(), to.elements()});
    return;
  }
  // Runs of dropped dimensions, innermost first; then the order of what is kept.
  TensorType type = from;
  std::vector<std::pair<size_t, size_t>> runs;
  for (size_t i = 0; i < type.dims.size();) {
    if (FindDim(to, type.dims[i].name) >= 0) {
      ++i;
      continue;
    }
    size_t begin = i;
    while (i < type.dims.size() && FindDim(to, type.dims[i].name) < 0) ++i;
    runs.emplace_back(begin, i);
  }
  TensorType kept{from.dtype, {}};
  for (const Dim& dim : from.dims) {
    if (FindDim(to, dim.name) >= 0) kept.dims.push_back(dim);
  }
  bool reorder = kept.dims != to.dims;
  if (runs.empty() && !reorder) {
    // Nothing to drop but dimensions of size 1, or nothing at all.
    int64_t n = to.elements();
    body.Call("copy_2d", {x, y}, {1, n, 0, n, 0, n});
    return;
  }
  while (!runs.empty()) {
    auto [begin, end] = runs.back();
    runs.pop_back();
    int64_t outer = Product(type, 0, begin), reduced = Product(type, begin, end);
    int64_t inner = Product(type, end, type.dims.size());
    type.dims.erase(type.dims.begin() + static_cast<ptrdiff_t>(begin),
                    type.dims.begin() + static_cast<ptrdiff_t>(end));
    OperandRef target = runs.empty() && !reorder ? y : body.Temporary(type, "partial_sum");
    body.Call("reduce_sum", {x, target}, {outer, reduced, inner});
    x = target;
  }
  if (!reorder) return;
  std::vector<size_t> order;
  for (const Dim& dim : to.dims) order.push_back(static_cast<size_t>(FindDim(type, dim.name)));
  EmitPermute(body, x, y, type, order);
}

}  // namespace piper::ir
