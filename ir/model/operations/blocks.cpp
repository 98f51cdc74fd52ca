#include "ir/model/operations/blocks.h"

#include "ir/support/result.h"

namespace piper::ir {

void EmitTakeBlock(BodyBuilder& body, OperandRef x, const TensorType& x_type, size_t dim, int64_t begin,
                   int64_t count, OperandRef y) {
  int64_t rows = Product(x_type, 0, dim), inner = Product(x_type, dim + 1, x_type.dims.size());
  body.Call("copy_2d", {x, y},
            {rows, count * inner, begin * inner, x_type.dims[dim].size * inner, 0, count * inner});
}

void EmitPutBlock(BodyBuilder& body, OperandRef x, OperandRef y, const TensorType& y_type, size_t dim,
                  int64_t begin, int64_t count) {
  int64_t rows = Product(y_type, 0, dim), inner = Product(y_type, dim + 1, y_type.dims.size());
  body.Call("copy_2d", {x, y},
            {rows, count * inner, 0, count * inner, begin * inner, y_type.dims[dim].size * inner});
}

void ContributeParts(GradientBuilder& builder, const Operation& op) {
  const TensorType type = builder.Type(op.operands[0]);
  int64_t dim = FindDim(type, op.Text("dim"));
  int64_t outer = Product(type, 0, static_cast<size_t>(dim));
  std::vector<ValueId> parts;
  std::vector<int64_t> begins, counts;
  int64_t begin = 0;
  bool all = true;
  for (size_t i = 0; i < op.results.size(); ++i) {
    int64_t inner = Product(type, static_cast<size_t>(dim) + 1, type.dims.size());
    int64_t count = builder.Type(op.results[i]).elements() / (outer * inner);
    if (std::optional<ValueId> cotangent = builder.Cotangent(op, i)) {
      parts.push_back(*cotangent);
      begins.push_back(begin);
      counts.push_back(count);
    } else {
      all = false;
    }
    begin += count;
  }
  builder.Contribute(op, 0,
                     builder.EmitOne(op, "put_blocks", parts, type,
                                     {{"dim", dim}, {"begins", begins}, {"counts", counts}, {"fill", !all}}));
}

void AddBlocksRules(RuleList& rules) {
  // put_blocks(parts..; dim, begins, counts, fill): parts at their places along dimension `dim`, zeros
  // elsewhere.
  static const InternalRule put("put_blocks", [](BodyBuilder& body, const Operation& op) {
    const TensorType& type = body.Type(op.results[0]);
    OperandRef y = body.At(op.results[0]);
    const auto& begins = std::get<std::vector<int64_t>>(*op.Find("begins"));
    const auto& counts = std::get<std::vector<int64_t>>(*op.Find("counts"));
    if (op.Flag("fill")) body.Call("fill", {y}, {type.elements()}, {0.0});
    for (size_t i = 0; i < op.operands.size(); ++i) {
      EmitPutBlock(body, body.At(op.operands[i]), y, type, static_cast<size_t>(op.Int("dim")), begins[i],
                   counts[i]);
    }
  });
  rules.push_back(&put);
}

}  // namespace piper::ir
