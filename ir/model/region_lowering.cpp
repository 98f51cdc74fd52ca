#include "ir/model/region_lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "ir/model/operations.h"
#include "ir/support/result.h"

namespace piper::ir {

// A body in the making: formals with the root that each holds, and the calls' operations.
struct RegionLowering::BodyPlan {
  Body body;
  std::map<ValueId, uint32_t> places;  // root -> formal
  std::set<OpId> operations;
  std::set<ValueId> wanted;
  std::map<std::string, int> names;

  std::string Unique(const std::string& name) {
    int n = ++names[name];
    if (n == 1) return name;
    // A suffix that no other name has taken.
    for (;; ++n) {
      std::string candidate = fmt::format("{}_{}", name, n);
      if (names.emplace(candidate, 1).second) {
        names[name] = n;
        return candidate;
      }
    }
  }
  uint32_t Add(Formal formal) {
    formal.name = Unique(formal.name);
    body.formals.push_back(std::move(formal));
    return static_cast<uint32_t>(body.formals.size() - 1);
  }
};

RegionLowering::RegionLowering(Graph* graph, GradientBuilder* builder,
                               const std::vector<RegionId>& value_region, const std::vector<Region>& regions,
                               RegionWork work)
    : graph_(graph),
      builder_(builder),
      value_region_(value_region),
      regions_(regions),
      work_(std::move(work)) {}

bool RegionLowering::IsBackward(ValueId value) const { return value >= value_region_.size(); }

bool RegionLowering::ProducedHere(ValueId value) const {
  if (IsBackward(value)) return graph_->values[value].source == Value::Source::kOperation;
  return value_region_[value] == work_.region;
}

ValueId RegionLowering::Root(ValueId value) const {
  while (ProducedHere(value)) {
    const Operation& op = graph_->operations[graph_->values[value].index];
    std::optional<uint32_t> alias = FindOperation(op.kind)->AliasOf(op);
    if (!alias) break;
    value = op.operands[*alias];
  }
  return value;
}

std::string RegionLowering::Name(ValueId value) const {
  if (IsBackward(value)) {
    if (ValueId forward = builder_->forward_of(value); forward != kNone) return "d_" + Name(forward);
    const Value& v = graph_->values[value];
    if (v.source == Value::Source::kOperation) return graph_->operations[v.index].kind;
    return "cotangent";
  }
  const Value& v = graph_->values[value];
  const Region& region = regions_[work_.region];
  if (region.inputs.size() == 1 && region.inputs[0] == value) return "x";
  if (region.outputs.size() == 1 && region.outputs[0].value == value && region.losses.empty()) return "out";
  if (v.source == Value::Source::kInput) return graph_->inputs[v.index].name;
  if (v.source == Value::Source::kParameter) {
    const std::string& path = graph_->parameters[v.index].name;
    return path.substr(path.rfind('.') + 1);
  }
  const Operation& op = graph_->operations[v.index];
  const OperationRule* rule = FindOperation(op.kind);
  size_t visible = rule->visible_results(op.results.size());
  if (v.result >= visible) return fmt::format("{}_{}", op.kind, rule->hidden_results()[v.result - visible]);
  return visible == 1 ? op.kind : fmt::format("{}{}", op.kind, v.result);
}

std::set<OpId> RegionLowering::Ancestors(const std::vector<ValueId>& values) const {
  std::vector<bool> needed(work_.last_backward - work_.first_backward, false);
  auto mark = [&](ValueId value) {
    const Value& v = graph_->values[value];
    if (IsBackward(value) && v.source == Value::Source::kOperation)
      needed[v.index - work_.first_backward] = true;
  };
  for (ValueId value : values) mark(value);
  std::set<OpId> result;
  for (OpId id = work_.last_backward; id-- > work_.first_backward;) {
    if (!needed[id - work_.first_backward]) continue;
    result.insert(id);
    for (ValueId operand : graph_->operations[id].operands) mark(operand);
  }
  return result;
}

void RegionLowering::SeparateGradients() {
  std::set<ValueId> taken;
  for (auto& [parameter, gradient] : work_.gradients) {
    ValueId root = Root(gradient);
    const Value& v = graph_->values[root];
    bool own = IsBackward(root) && v.source == Value::Source::kOperation && input_set_.count(v.index) == 0 &&
               taken.insert(root).second;
    if (own) continue;
    // Named after the operation that reads the parameter first.
    Operation owner = graph_->operations[work_.forward.front()];
    gradient = builder_->EmitOne(owner, "copy", {gradient}, graph_->Type(gradient));
    work_.last_backward = static_cast<OpId>(graph_->operations.size());
    weight_set_.insert(work_.last_backward - 1);
  }
}

void RegionLowering::FindSaved(const Region& region) {
  for (const RegionOutput& output : region.outputs) {
    ValueId root = Root(output.value);
    if (ProducedHere(root)) outputs_.emplace(root, output.value);
  }
  for (auto [value, cotangent] : work_.input_cotangents) {
    ValueId root = Root(cotangent);
    if (IsBackward(root) && ProducedHere(root)) input_roots_.emplace(root, value);
  }
  std::set<ValueId> forward_read, shared;
  auto scan = [&](const std::set<OpId>& operations, bool weight) {
    for (OpId id : operations) {
      const Operation& op = graph_->operations[id];
      if (FindOperation(op.kind)->AliasOf(op)) continue;
      for (ValueId operand : op.operands) {
        ValueId root = Root(operand);
        if (!ProducedHere(root)) continue;
        if (!IsBackward(root)) {
          if (outputs_.count(root) == 0) forward_read.insert(root);
        } else if (weight && input_set_.count(graph_->values[root].index) > 0 &&
                   input_roots_.count(root) == 0) {
          shared.insert(root);
        }
      }
    }
  };
  scan(input_set_, false);
  scan(weight_set_, true);
  uint32_t key = 0;
  for (ValueId root : forward_read) saved_[root] = key++;
  for (ValueId root : shared) saved_[root] = key++;
}

// Adds formals for what is read and was not computed in this pass, in the order that body.h's kinds suggest.
void RegionLowering::AddReads(BodyPlan* plan, const std::set<ValueId>& roots) {
  bool backward = plan->body.pass != Pass::kF;
  auto add = [&](ValueId root, Formal formal) {
    formal.type = graph_->Type(root);
    plan->places[root] = plan->Add(std::move(formal));
  };
  for (const RegionWork::Partial& partial : work_.partials) {
    if (roots.count(partial.source) == 0) continue;
    Formal formal{};
    formal.kind = FormalKind::kCotangent;
    formal.name = "d_" + Name(partial.value);
    if (std::count_if(work_.partials.begin(), work_.partials.end(),
                      [&](const RegionWork::Partial& p) { return p.value == partial.value; }) > 1) {
      formal.name += "_from_" + regions_[partial.consumer].name;
    }
    formal.value = partial.value;
    formal.consumer = partial.consumer;
    add(partial.source, formal);
  }
  std::vector<ValueId> values, parameters, outputs, saved_forward, saved_backward, input_cotangents;
  for (ValueId root : roots) {
    if (plan->places.count(root) > 0) continue;
    const Value& v = graph_->values[root];
    if (IsBackward(root)) {
      PIPER_CHECK(backward);
      if (plan->operations.count(v.index) > 0) continue;  // computed in this pass
      (input_roots_.count(root) > 0 ? input_cotangents : saved_backward).push_back(root);
    } else if (!ProducedHere(root)) {
      (v.source == Value::Source::kParameter ? parameters : values).push_back(root);
    } else if (backward) {
      (outputs_.count(root) > 0 ? outputs : saved_forward).push_back(root);
    }
  }
  for (ValueId root : values) {
    Formal formal{};
    formal.kind = FormalKind::kValue;
    formal.value = root;
    formal.name = Name(root);
    add(root, formal);
  }
  for (ValueId root : parameters) {
    Formal formal{};
    formal.kind = FormalKind::kParameter;
    formal.parameter = graph_->values[root].index;
    formal.name = Name(root);
    add(root, formal);
  }
  for (ValueId root : outputs) {
    Formal formal{};
    formal.kind = FormalKind::kOutput;
    formal.value = outputs_.at(root);
    formal.name = Name(root);
    add(root, formal);
  }
  auto add_saved = [&](ValueId root) {
    Formal formal{};
    formal.kind = FormalKind::kSaved;
    formal.value = IsBackward(root) ? kNone : root;
    formal.saved = saved_.at(root);
    formal.name = Name(root);
    add(root, formal);
  };
  for (ValueId root : saved_forward) add_saved(root);
  for (ValueId root : input_cotangents) {
    Formal formal{};
    formal.kind = FormalKind::kInputCotangent;
    formal.value = input_roots_.at(root);
    formal.name = Name(root);
    add(root, formal);
  }
  for (ValueId root : saved_backward) add_saved(root);
}

namespace {

bool ReadsScale(const Graph& graph, const std::set<OpId>& operations) {
  return std::any_of(operations.begin(), operations.end(),
                     [&](OpId id) { return FindOperation(graph.operations[id].kind)->ReadsScale(); });
}

Formal ScaleFormal() {
  Formal formal{};
  formal.kind = FormalKind::kScale;
  formal.type = {DType::kF32, {}};
  formal.name = "scale";
  return formal;
}

}  // namespace

Body RegionLowering::LowerForward(const Region& region) {
  BodyPlan plan;
  plan.body.region = work_.region;
  plan.body.pass = Pass::kF;
  plan.operations = forward_set_;
  std::set<ValueId> read;
  for (OpId id : forward_set_) {
    const Operation& op = graph_->operations[id];
    if (FindOperation(op.kind)->AliasOf(op)) continue;
    for (ValueId operand : op.operands) read.insert(Root(operand));
  }
  plan.wanted = read;
  for (const RegionOutput& output : region.outputs) read.insert(Root(output.value));
  AddReads(&plan, read);
  if (ReadsScale(*graph_, forward_set_)) plan.Add(ScaleFormal());
  for (const RegionOutput& output : region.outputs) {
    ValueId root = Root(output.value);
    Formal formal{};
    formal.kind = FormalKind::kOutput;
    formal.written = true;
    formal.type = graph_->Type(output.value);
    formal.value = output.value;
    formal.name = Name(output.value);
    auto found = plan.places.find(root);
    if (found != plan.places.end()) formal.alias_of = found->second;
    uint32_t index = plan.Add(formal);
    if (formal.alias_of == kNone) plan.places[root] = index;
    plan.wanted.insert(root);
  }
  for (auto [root, key] : saved_) {
    if (IsBackward(root)) continue;
    Formal formal{};
    formal.kind = FormalKind::kSaved;
    formal.written = true;
    formal.type = graph_->Type(root);
    formal.value = root;
    formal.saved = key;
    formal.name = Name(root);
    plan.places[root] = plan.Add(formal);
    plan.wanted.insert(root);
  }
  return Emit(&plan);
}

Body RegionLowering::LowerBackward(Pass pass) {
  BodyPlan plan;
  plan.body.region = work_.region;
  plan.body.pass = pass;
  plan.operations = pass == Pass::kBI ? input_set_ : weight_set_;
  std::set<ValueId> read;
  for (OpId id : plan.operations) {
    const Operation& op = graph_->operations[id];
    if (FindOperation(op.kind)->AliasOf(op)) continue;
    for (ValueId operand : op.operands) read.insert(Root(operand));
  }
  plan.wanted = read;
  if (pass == Pass::kBI) {
    for (auto [value, cotangent] : work_.input_cotangents) read.insert(Root(cotangent));
  }
  AddReads(&plan, read);
  if (ReadsScale(*graph_, plan.operations)) plan.Add(ScaleFormal());
  if (pass == Pass::kBI) {
    for (auto [value, cotangent] : work_.input_cotangents) {
      ValueId root = Root(cotangent);
      Formal formal{};
      formal.kind = FormalKind::kInputCotangent;
      formal.written = true;
      formal.type = graph_->Type(value);
      formal.value = value;
      formal.name = "d_" + Name(value);
      auto found = plan.places.find(root);
      if (found != plan.places.end()) formal.alias_of = found->second;
      uint32_t index = plan.Add(formal);
      if (formal.alias_of == kNone) plan.places[root] = index;
      plan.wanted.insert(root);
    }
    for (auto [root, key] : saved_) {
      if (!IsBackward(root)) continue;
      Formal formal{};
      formal.kind = FormalKind::kSaved;
      formal.written = true;
      formal.type = graph_->Type(root);
      formal.saved = key;
      formal.name = Name(root);
      plan.places[root] = plan.Add(formal);
      plan.wanted.insert(root);
    }
  } else {
    for (auto [parameter, gradient] : work_.gradients) {
      ValueId root = Root(gradient);
      Formal formal{};
      formal.kind = FormalKind::kGradient;
      formal.written = true;
      formal.type = graph_->parameters[parameter].type;
      formal.parameter = parameter;
      formal.name = "d_" + Name(graph_->ParameterValue(parameter));
      plan.places[root] = plan.Add(formal);
      plan.wanted.insert(root);
    }
  }
  return Emit(&plan);
}

Body RegionLowering::Emit(BodyPlan* plan) {
  BodyBuilder body(*graph_, &plan->body);
  for (auto [root, formal] : plan->places) body.Bind(root, formal);
  body.SetWanted(&plan->wanted);
  std::function<std::string(ValueId)> names = [this](ValueId value) { return Name(value); };
  body.SetNames(&names);
  for (OpId id : plan->operations) {
    const Operation& op = graph_->operations[id];
    const OperationRule* rule = FindOperation(op.kind);
    if (rule->AliasOf(op)) continue;
    for (ValueId operand : op.operands) {
      ValueId root = Root(operand);
      if (root != operand) body.SetRoot(operand, root);
    }
    body.Begin(builder_->origin(id), op.path);
    rule->Lower(body, op);
  }
  body.Finish();
  for (Local& local : plan->body.locals) local.name = plan->Unique(local.name);
  return std::move(plan->body);
}

void RegionLowering::Run(Region* region) {
  forward_set_.insert(work_.forward.begin(), work_.forward.end());
  std::vector<ValueId> input_values, gradient_values;
  for (auto [value, cotangent] : work_.input_cotangents) input_values.push_back(cotangent);
  for (auto [parameter, gradient] : work_.gradients) gradient_values.push_back(gradient);
  input_set_ = Ancestors(input_values);
  for (OpId id : Ancestors(gradient_values)) {
    if (input_set_.count(id) == 0) weight_set_.insert(id);
  }
  SeparateGradients();
  FindSaved(*region);
  region->forward = LowerForward(*region);
  region->backward_input.region = region->backward_weight.region = work_.region;
  region->backward_input.pass = Pass::kBI;
  region->backward_weight.pass = Pass::kBW;
  if (!work_.input_cotangents.empty()) region->backward_input = LowerBackward(Pass::kBI);
  if (!work_.gradients.empty()) region->backward_weight = LowerBackward(Pass::kBW);
}

}  // namespace piper::ir
