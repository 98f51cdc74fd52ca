#include "ir/model/gradient.h"

#include <algorithm>

#include "ir/model/operations.h"
#include "ir/support/result.h"

namespace piper::ir {

GradientBuilder::GradientBuilder(Graph* graph, std::vector<bool> requires_gradient)
    : graph_(graph),
      requires_gradient_(std::move(requires_gradient)),
      forward_operations_(graph->operations.size()) {}

std::optional<ValueId> GradientBuilder::Cotangent(const Operation& op, size_t result) const {
  auto found = cotangents_.find(op.results[result]);
  if (found == cotangents_.end()) return std::nullopt;
  return found->second;
}

bool GradientBuilder::Needs(const Operation& op, size_t operand) const {
  return requires_gradient_[op.operands[operand]];
}

void GradientBuilder::Contribute(const Operation& op, size_t operand, ValueId cotangent) {
  ValueId value = op.operands[operand];
  PIPER_CHECK(requires_gradient_[value], op.kind);
  PIPER_CHECK(graph_->Type(value) == graph_->Type(cotangent),
              op.kind + ": " + graph_->Type(value).ToString() + " and " + graph_->Type(cotangent).ToString());
  contributions_[value].push_back({{current_, operand}, cotangent});
  forward_of_.emplace(cotangent, value);
}

void GradientBuilder::ContributeFromOutside(ValueId value, ValueId cotangent) {
  PIPER_CHECK(graph_->Type(value) == graph_->Type(cotangent));
  contributions_[value].push_back({{UINT64_MAX, outside_count_++}, cotangent});
}

std::vector<ValueId> GradientBuilder::Emit(const Operation& op, std::string kind,
                                           std::vector<ValueId> operands,
                                           const std::vector<TensorType>& results,
                                           std::vector<Attribute> attributes) {
  Operation emitted;
  emitted.kind = std::move(kind);
  emitted.operands = std::move(operands);
  emitted.attributes = std::move(attributes);
  emitted.tags = op.tags;
  emitted.path = op.path;
  emitted.range = op.range;
  OpId id = graph_->AddOperation(std::move(emitted), results);
  origins_.push_back(current_);
  requires_gradient_.resize(graph_->values.size(), false);
  return graph_->operations[id].results;
}

ValueId GradientBuilder::EmitOne(const Operation& op, std::string kind, std::vector<ValueId> operands,
                                 const TensorType& result, std::vector<Attribute> attributes) {
  return Emit(op, std::move(kind), std::move(operands), {result}, std::move(attributes))[0];
}

ValueId GradientBuilder::EmitFill(const Operation& op, const TensorType& type, double value) {
  return EmitOne(op, "fill", {}, type, {{"value", value}});
}

void GradientBuilder::DifferentiateOperation(OpId id) {
  current_ = id;
  // A copy: emitting appends to the vector that holds it.
  Operation op = graph_->operations[id];
  bool reached = false;
  for (ValueId result : op.results) {
    if (!requires_gradient_[result]) continue;
    if (std::optional<ValueId> sum = TakeSum(result)) {
      cotangents_[result] = *sum;
      reached = true;
    }
  }
  bool wanted = std::any_of(op.operands.begin(), op.operands.end(),
                            [this](ValueId operand) { return requires_gradient_[operand]; });
  if (!reached || !wanted) return;
  FindOperation(op.kind)->Differentiate(*this, op);
}

ValueId GradientBuilder::AddSource(ValueId forward) {
  ValueId value = static_cast<ValueId>(graph_->values.size());
  TensorType type = graph_->Type(forward);
  graph_->values.push_back({Value::Source::kInput, kNone, 0, std::move(type)});
  requires_gradient_.resize(graph_->values.size(), false);
  forward_of_.emplace(value, forward);
  return value;
}

ValueId GradientBuilder::AddSeed(ValueId loss) {
  current_ = graph_->values[loss].index;
  Operation owner = graph_->operations[current_];
  ValueId seed = EmitFill(owner, graph_->Type(loss), 1.0);
  forward_of_.emplace(seed, loss);
  return seed;
}

ValueId GradientBuilder::forward_of(ValueId value) const {
  auto found = forward_of_.find(value);
  return found == forward_of_.end() ? kNone : found->second;
}

std::optional<ValueId> GradientBuilder::TakeSum(ValueId value) {
  auto found = contributions_.find(value);
  if (found == contributions_.end()) return std::nullopt;
  std::vector<Contribution> terms = std::move(found->second);
  contributions_.erase(found);
  std::stable_sort(terms.begin(), terms.end(),
                   [](const Contribution& a, const Contribution& b) { return a.order < b.order; });
  // The sum belongs to the producer, or, for inputs and parameters, to the first user.
  OpId saved = current_;
  const Value& v = graph_->values[value];
  if (v.source == Value::Source::kOperation && v.index < forward_operations_) {
    current_ = v.index;
  } else if (terms[0].order.first != UINT64_MAX) {
    current_ = static_cast<OpId>(terms[0].order.first);
  }
  Operation owner = graph_->operations[current_];
  ValueId sum = terms[0].cotangent;
  for (size_t i = 1; i < terms.size(); ++i) {
    sum = EmitOne(owner, "add", {sum, terms[i].cotangent}, graph_->Type(value));
    forward_of_.emplace(sum, value);
  }
  current_ = saved;
  return sum;
}

}  // namespace piper::ir
