// What the files of ir/model/operations/ share: a base that holds the signature, checks with uniform
// messages, and the internal operations that only derivatives use. Each file registers its rules through one
// function that operations.def lists.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/model/body_builder.h"
#include "ir/model/gradient.h"
#include "ir/model/operations.h"

namespace piper::ir {

// Activations and parameters have at most this many dimensions: what the copying kernels take.
inline constexpr size_t kMaxRank = 6;

using RuleList = std::vector<const OperationRule*>;

class Rule : public OperationRule {
 public:
  Rule(std::string name, std::vector<OperandInfo> operands, std::vector<AttributeInfo> attributes = {})
      : name_(std::move(name)), operands_(std::move(operands)), attributes_(std::move(attributes)) {}
  std::string_view name() const override { return name_; }
  const std::vector<OperandInfo>& operands() const override { return operands_; }
  const std::vector<AttributeInfo>& attributes() const override { return attributes_; }

 private:
  std::string name_;
  std::vector<OperandInfo> operands_;
  std::vector<AttributeInfo> attributes_;
};

// An operation that derivatives emit with known result types; it is never differentiated itself.
class InternalRule final : public Rule {
 public:
  using LowerFunction = std::function<void(BodyBuilder&, const Operation&)>;
  InternalRule(std::string name, LowerFunction lower) : Rule(std::move(name), {}), lower_(std::move(lower)) {}
  bool user_visible() const override { return false; }
  std::optional<std::vector<TensorType>> Infer(const Graph&, const Operation&,
                                               DiagnosticEngine&) const override {
    return std::nullopt;
  }
  void Lower(BodyBuilder& body, const Operation& op) const override { lower_(body, op); }

 private:
  LowerFunction lower_;
};

// Position of a dimension by name, or -1.
int FindDim(const TensorType& type, std::string_view name);
// The product of the sizes of dims [begin, end).
int64_t Product(const TensorType& type, size_t begin, size_t end);
// "inner=512" or "inner" (size 0), as kShape attributes hold it; nothing if it is neither.
std::optional<Dim> ParseShapeEntry(std::string_view entry);
// "'embed=128'".
std::string DimText(const Dim& dim);

// Checks; each reports at op.range and returns false (or -1).
bool RequireFloat(const Graph& graph, const Operation& op, size_t operand, DiagnosticEngine& diag);
bool RequireInteger(const Graph& graph, const Operation& op, size_t operand, DiagnosticEngine& diag);
bool RequireSameDims(const Graph& graph, const Operation& op, size_t a, size_t b, DiagnosticEngine& diag);
int RequireDim(const Graph& graph, const Operation& op, size_t operand, const std::string& dim,
               DiagnosticEngine& diag);
// "operand 2 of layer_norm (gamma)".
std::string OperandText(const Operation& op, size_t operand);

// Copies a tensor with its dimensions reordered: result dimension i is operand dimension order[i].
void EmitPermute(BodyBuilder& body, OperandRef x, OperandRef y, const TensorType& x_type,
                 const std::vector<size_t>& order);
// y, of type `to`, repeats x, of type `from`, along the dimensions that x lacks; matching is by name.
void EmitBroadcast(BodyBuilder& body, OperandRef x, const TensorType& from, OperandRef y,
                   const TensorType& to);
// y, of type `to`, sums x, of type `from`, over the dimensions that y lacks; matching is by name.
void EmitSumTo(BodyBuilder& body, OperandRef x, const TensorType& from, OperandRef y, const TensorType& to);

}  // namespace piper::ir
