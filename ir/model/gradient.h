// What a rule's derivative is written with: it asks for the cotangents of the results and contributes
// cotangents of the operands, by emitting further operations. Contributions to one value are collected and
// added in the order of the uses (program order, then operand order), which is the canonical expression of
// language.md, "Numerics".
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/model/graph.h"

namespace piper::ir {

// Works on a graph that grows: the forward operations stay, those of the backward pass are appended. One
// instance serves a whole graph; BuildRegions steps it through the regions, last one first.
class GradientBuilder {
 public:
  // `requires_gradient` says for each forward value whether a trainable parameter contributes to it.
  GradientBuilder(Graph* graph, std::vector<bool> requires_gradient);

  // ---- for rules
  // ------------------------------------------------------------------------------------------------
  const Graph& graph() const { return *graph_; }
  const TensorType& Type(ValueId value) const { return graph_->Type(value); }
  // The cotangent of a result, if any contribution reached it.
  std::optional<ValueId> Cotangent(const Operation& op, size_t result = 0) const;
  // Whether the operand wants a cotangent; contributing to one that does not is a bug.
  bool Needs(const Operation& op, size_t operand) const;
  void Contribute(const Operation& op, size_t operand, ValueId cotangent);
  // Appends an operation that belongs to forward operation `op` (its path, tags and range).
  std::vector<ValueId> Emit(const Operation& op, std::string kind, std::vector<ValueId> operands,
                            const std::vector<TensorType>& results, std::vector<Attribute> attributes = {});
  // The single result of it.
  ValueId EmitOne(const Operation& op, std::string kind, std::vector<ValueId> operands,
                  const TensorType& result, std::vector<Attribute> attributes = {});
  ValueId EmitFill(const Operation& op, const TensorType& type, double value);

  // ---- for BuildRegions
  // ----------------------------------------------------------------------------------------- Calls the
  // operation's rule if a cotangent reached it and an operand wants one.
  void DifferentiateOperation(OpId op);
  // A contribution from outside the region: another region's partial (a source value, see AddSource), a
  // loss's seed. They follow those of uses, in the order of calls.
  void ContributeFromOutside(ValueId value, ValueId cotangent);
  // A value that no operation computes: a partial cotangent of a forward value.
  ValueId AddSource(ValueId forward);
  // The constant 1 that a loss is seeded with.
  ValueId AddSeed(ValueId loss);
  // Adds up what was contributed to a value, in order, and forgets the contributions; nothing if none was.
  std::optional<ValueId> TakeSum(ValueId value);
  bool requires_gradient(ValueId value) const { return requires_gradient_[value]; }
  // The forward value that a backward one was first contributed to, or kNone: for names.
  ValueId forward_of(ValueId value) const;
  // The forward operation on whose behalf an operation was emitted; itself for forward operations.
  OpId origin(OpId op) const { return op < forward_operations_ ? op : origins_[op - forward_operations_]; }

 private:
  struct Contribution {
    std::pair<uint64_t, uint64_t> order;  // (operation, operand); outside ones after all
    ValueId cotangent;
  };
  Graph* graph_;
  std::vector<bool> requires_gradient_;
  std::map<ValueId, std::vector<Contribution>> contributions_;
  std::map<ValueId, ValueId> cotangents_;  // of results whose operation is being, or was, differentiated
  std::map<ValueId, ValueId> forward_of_;
  size_t forward_operations_;
  std::vector<OpId> origins_;
  OpId current_ = kNone;  // the forward operation at work
  uint64_t outside_count_ = 0;
};

}  // namespace piper::ir
