#include "ir/model/operations.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/model/operations/rule.h"
#include "ir/support/nearest.h"
#include "ir/support/result.h"

namespace piper::ir {

#define PIPER_OPERATION_FILE(name) void Add##name##Rules(RuleList& rules);
#include "ir/model/operations/operations.def"
#undef PIPER_OPERATION_FILE

void OperationRule::Differentiate(GradientBuilder&, const Operation&) const {}

const std::vector<const OperationRule*>& AllOperations() {
  static const RuleList* const rules = [] {
    auto* list = new RuleList;
#define PIPER_OPERATION_FILE(name) Add##name##Rules(*list);
#include "ir/model/operations/operations.def"
#undef PIPER_OPERATION_FILE
    std::sort(list->begin(), list->end(),
              [](const OperationRule* a, const OperationRule* b) { return a->name() < b->name(); });
    for (size_t i = 1; i < list->size(); ++i) {
      PIPER_CHECK((*list)[i - 1]->name() != (*list)[i]->name(), std::string((*list)[i]->name()));
    }
    return list;
  }();
  return *rules;
}

const OperationRule* FindOperation(std::string_view name) {
  const RuleList& rules = AllOperations();
  auto found =
      std::lower_bound(rules.begin(), rules.end(), name,
                       [](const OperationRule* rule, std::string_view n) { return rule->name() < n; });
  return found != rules.end() && (*found)->name() == name ? *found : nullptr;
}

namespace {

std::string DefaultText(const AttributeValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return fmt::format("{}", *number);
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* text = std::get_if<std::string>(&value)) return fmt::format("\"{}\"", *text);
  return "[]";
}

std::string_view KindText(AttributeInfo::Kind kind) {
  switch (kind) {
    case AttributeInfo::Kind::kInt:
      return "an integer";
    case AttributeInfo::Kind::kNumber:
      return "a number";
    case AttributeInfo::Kind::kFlag:
      return "true or false";
    case AttributeInfo::Kind::kText:
      return "a text";
    case AttributeInfo::Kind::kDim:
      return "a dimension";
    case AttributeInfo::Kind::kDims:
      return "a list of dimensions";
    case AttributeInfo::Kind::kInts:
      return "a list of integers";
    case AttributeInfo::Kind::kShape:
      return "a list of dimensions, each with or without a size";
  }
  return "";
}

// Converts in place where that loses nothing; false if the value is of another kind.
bool Conforms(AttributeInfo::Kind kind, AttributeValue* value) {
  switch (kind) {
    case AttributeInfo::Kind::kInt:
      return std::holds_alternative<int64_t>(*value);
    case AttributeInfo::Kind::kNumber:
      if (const auto* integer = std::get_if<int64_t>(value)) *value = static_cast<double>(*integer);
      return std::holds_alternative<double>(*value);
    case AttributeInfo::Kind::kFlag:
      return std::holds_alternative<bool>(*value);
    case AttributeInfo::Kind::kText:
    case AttributeInfo::Kind::kDim:
      return std::holds_alternative<std::string>(*value);
    case AttributeInfo::Kind::kDims:
    case AttributeInfo::Kind::kShape: {
      if (const auto* one = std::get_if<std::string>(value)) *value = std::vector<std::string>{*one};
      const auto* integers = std::get_if<std::vector<int64_t>>(value);
      if (integers != nullptr && integers->empty()) *value = std::vector<std::string>{};
      return std::holds_alternative<std::vector<std::string>>(*value);
    }
    case AttributeInfo::Kind::kInts: {
      const auto* names = std::get_if<std::vector<std::string>>(value);
      if (names != nullptr && names->empty()) *value = std::vector<int64_t>{};
      return std::holds_alternative<std::vector<int64_t>>(*value);
    }
  }
  return false;
}

const OperationRule* NearestOperation(std::string_view name) {
  const OperationRule* best = nullptr;
  size_t best_distance = 0;
  for (const OperationRule* rule : AllOperations()) {
    if (!rule->user_visible()) continue;
    size_t distance = EditDistance(name, rule->name());
    if (best == nullptr || distance < best_distance) {
      best = rule;
      best_distance = distance;
    }
  }
  return best;
}

// Orders the attributes as the signature has them, fills in defaults, checks kinds. False after an error.
bool CompleteAttributes(const OperationRule& rule, std::vector<Attribute>* attributes, SourceRange range,
                        DiagnosticEngine& diag) {
  std::vector<Attribute> complete;
  bool ok = true;
  for (const AttributeInfo& info : rule.attributes()) {
    auto given = std::find_if(attributes->begin(), attributes->end(),
                              [&](const Attribute& a) { return a.name == info.name; });
    if (given == attributes->end()) {
      if (info.default_value) {
        complete.push_back({info.name, *info.default_value});
        continue;
      }
      diag.Error(range, DiagKind::kBadArguments,
                 fmt::format("{} needs '{}', {}", rule.name(), info.name, KindText(info.kind)))
          .Hint(fmt::format("the form is {}", Signature(rule)));
      ok = false;
      continue;
    }
    AttributeValue value = given->value;
    attributes->erase(given);
    if (!Conforms(info.kind, &value)) {
      diag.Error(range, DiagKind::kBadArguments,
                 fmt::format("'{}' of {} must be {}", info.name, rule.name(), KindText(info.kind)))
          .Hint(fmt::format("the form is {}", Signature(rule)));
      ok = false;
      continue;
    }
    complete.push_back({info.name, std::move(value)});
  }
  for (const Attribute& extra : *attributes) {
    diag.Error(range, DiagKind::kBadArguments,
               fmt::format("{} has no argument '{}'", rule.name(), extra.name))
        .Hint(fmt::format("the form is {}", Signature(rule)));
    ok = false;
  }
  *attributes = std::move(complete);
  return ok;
}

}  // namespace

std::string Signature(const OperationRule& rule) {
  std::string text(rule.name());
  text += '(';
  bool first = true;
  auto separate = [&] {
    if (!first) text += ", ";
    first = false;
  };
  for (const OperandInfo& operand : rule.operands()) {
    separate();
    text += operand.name;
    if (operand.optional) text += '?';
  }
  if (rule.variadic()) {
    separate();
    text += "..";
  }
  for (const AttributeInfo& attribute : rule.attributes()) {
    separate();
    text += attribute.name;
    if (attribute.default_value) text += fmt::format(" = {}", DefaultText(*attribute.default_value));
  }
  text += ')';
  return text;
}

std::vector<ValueId> GraphBuilder::Add(std::string_view kind, const std::vector<ValueId>& operands,
                                       std::vector<Attribute> attributes, SourceRange range) {
  const OperationRule* rule = FindOperation(kind);
  if (rule == nullptr || !rule->user_visible()) {
    diag_->Error(range, DiagKind::kBadOperation, fmt::format("there is no operation '{}'", kind))
        .Hint(fmt::format("did you mean {}?", Signature(*NearestOperation(kind))));
    return {};
  }
  size_t required = 0;
  for (const OperandInfo& operand : rule->operands()) required += operand.optional ? 0 : 1;
  if (operands.size() < required || (!rule->variadic() && operands.size() > rule->operands().size())) {
    diag_
        ->Error(range, DiagKind::kBadArguments,
                fmt::format("{} takes {}{} tensor{}, not {}", kind, rule->variadic() ? "at least " : "",
                            required, required == 1 ? "" : "s", operands.size()))
        .Hint(fmt::format("the form is {}", Signature(*rule)));
    return {};
  }
  auto within_limits = [&](const TensorType& type) {
    if (type.WithinLimits()) return true;
    diag_
        ->Error(range, DiagKind::kOutOfRange,
                fmt::format("{} has an empty dimension or too many elements for {}", type.ToString(), kind))
        .Hint("sizes are positive, and a tensor has at most 2^40 elements");
    return false;
  };
  for (ValueId operand : operands) {
    if (!within_limits(graph_->Type(operand))) return {};
  }
  Operation op;
  op.kind = std::string(kind);
  op.operands = operands;
  op.attributes = std::move(attributes);
  op.tags = tags_;
  op.range = range;
  if (!CompleteAttributes(*rule, &op.attributes, range, *diag_)) return {};
  rule->Canonicalise(*graph_, &op);

  std::optional<std::vector<TensorType>> types = rule->Infer(*graph_, op, *diag_);
  if (!types) return {};
  for (const TensorType& type : *types) {
    if (!within_limits(type)) return {};
    if (type.dims.size() > kMaxRank) {
      diag_
          ->Error(
              range, DiagKind::kBadOperation,
              fmt::format("the result {} of {} has more than {} dimensions", type.ToString(), kind, kMaxRank))
          .Hint("merge some of them first: reshape(x, [..])");
      return {};
    }
    for (size_t i = 0; i < type.dims.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (type.dims[i].name != type.dims[j].name) continue;
        diag_
            ->Error(range, DiagKind::kShapeMismatch,
                    fmt::format("the result {} of {} would have the dimension '{}' twice", type.ToString(),
                                kind, type.dims[i].name))
            .Hint(fmt::format("give one a name of its own first: rename(x, {0}, {0}_2)", type.dims[i].name));
        return {};
      }
    }
  }
  std::string stem = path_.empty() ? op.kind : path_ + "." + op.kind;
  op.path = fmt::format("{}#{}", stem, counts_[stem]++);
  OpId id = graph_->AddOperation(std::move(op), *types);
  const std::vector<ValueId>& results = graph_->operations[id].results;
  return {results.begin(), results.begin() + static_cast<ptrdiff_t>(rule->visible_results(results.size()))};
}

OpId FirstMixing(const Graph& graph, std::string_view dim) {
  // Names under which positions of the dimension go on: merged into another by a reshape, or renamed.
  std::vector<std::string> names = {std::string(dim)};
  for (OpId id = 0; id < graph.operations.size(); ++id) {
    const Operation& op = graph.operations[id];
    const OperationRule* rule = FindOperation(op.kind);
    for (size_t n = 0; n < names.size(); ++n) {
      if (rule->Mixes(graph, op, names[n])) return id;
      if (!rule->AliasOf(op)) continue;
      const TensorType& from = graph.Type(op.operands[0]);
      const TensorType& to = graph.Type(op.results[0]);
      if (FindDim(from, names[n]) < 0 || FindDim(to, names[n]) >= 0) continue;
      for (const Dim& d : to.dims) {
        if (FindDim(from, d.name) < 0 && std::find(names.begin(), names.end(), d.name) == names.end()) {
          names.push_back(d.name);
        }
      }
    }
  }
  return kNone;
}

namespace {

// The batch field that a cross-entropy's targets come from: integers pass only through operations that move
// no bytes.
InputId TargetsOf(const Graph& graph, const Operation& cross_entropy) {
  ValueId value = cross_entropy.operands[1];
  while (graph.values[value].source == Value::Source::kOperation) {
    value = graph.operations[graph.values[value].index].operands[0];
  }
  PIPER_CHECK(graph.values[value].source == Value::Source::kInput);
  return graph.values[value].index;
}

}  // namespace

LossScale FindLossScale(const Graph& graph) {
  LossScale scale;
  for (const Operation& op : graph.operations) {
    if (op.kind == "cross_entropy") return {LossScale::Kind::kTargets, TargetsOf(graph, op)};
    if (op.kind == "mse" || op.kind == "mean_loss") scale.kind = LossScale::Kind::kSamples;
  }
  return scale;
}

bool CheckLosses(const Graph& graph, DiagnosticEngine& diag) {
  // Whether a value is a linear combination of normalised losses.
  std::vector<bool> normalised(graph.values.size(), false);
  for (const Operation& op : graph.operations) {
    bool result = false;
    if (op.kind == "cross_entropy" || op.kind == "mse" || op.kind == "mean_loss") {
      result = true;
    } else if (op.kind == "add" || op.kind == "sub") {
      result = normalised[op.operands[0]] && normalised[op.operands[1]];
    } else if (op.kind == "affine") {
      result = normalised[op.operands[0]] && op.Number("offset") == 0;
    } else if (op.kind == "neg" || op.kind == "stop_gradient" || op.kind == "cast") {
      result = normalised[op.operands[0]];
    }
    normalised[op.results[0]] = result;
  }
  bool ok = true;
  const Operation* by_targets = nullptr;
  const Operation* by_samples = nullptr;
  for (const Operation& op : graph.operations) {
    if (op.kind == "cross_entropy") {
      if (by_targets == nullptr) by_targets = &op;
      InputId first = TargetsOf(graph, *by_targets), here = TargetsOf(graph, op);
      if (first != here) {
        diag.Error(op.range, DiagKind::kUnsupported,
                   fmt::format(
                       "this cross_entropy counts the targets of '{}', another one those of '{}': a step has "
                       "one count so far",
                       graph.inputs[here].name, graph.inputs[first].name))
            .Note(by_targets->range, "the other one is here")
            .Hint(
                "one loss over one field: cross_entropy(stack(a, b, dim = pair, axis = 2), targets), "
                "targets: [batch, seq, pair]");
        ok = false;
      }
    }
    if ((op.kind == "mse" || op.kind == "mean_loss") && by_samples == nullptr) by_samples = &op;
  }
  if (by_targets != nullptr && by_samples != nullptr) {
    diag.Error(
            by_samples->range, DiagKind::kUnsupported,
            fmt::format("{} averages over samples, cross_entropy over targets: a step has one count so far",
                        by_samples->kind))
        .Note(by_targets->range, "cross_entropy is here")
        .Hint("use one or the other");
    ok = false;
  }
  for (const Loss& loss : graph.losses) {
    const TensorType& type = graph.Type(loss.value);
    if (!type.dims.empty()) {
      diag.Error(loss.range, DiagKind::kNoLoss,
                 fmt::format("the loss '{}' is {}, not a scalar", loss.name, type.ToString()))
          .Hint("average it over the global batch: mean_loss(x)");
      ok = false;
    } else if (!normalised[loss.value]) {
      diag.Error(loss.range, DiagKind::kNoLoss,
                 fmt::format(
                     "the loss '{}' is not normalised over the global batch, so splitting the batch would "
                     "change what is learned",
                     loss.name))
          .Hint(
              "a loss is cross_entropy, mse or mean_loss, or a sum of such times numbers: wrap this one in "
              "mean_loss(..)");
      ok = false;
    }
  }
  return ok;
}

Graph WithoutDropout(const Graph& graph) {
  Graph result = graph;
  for (Operation& op : result.operations) {
    if (op.kind != "dropout") continue;
    for (Attribute& attribute : op.attributes) {
      if (attribute.name == "p") attribute.value = 0.0;
    }
  }
  return result;
}

}  // namespace piper::ir
