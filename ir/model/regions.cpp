#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ir/model/body.h"
#include "ir/model/gradient.h"
#include "ir/model/operations.h"
#include "ir/model/region_lowering.h"
#include "ir/support/result.h"

namespace piper::ir {

std::string_view PassName(Pass pass) {
  switch (pass) {
    case Pass::kF:
      return "F";
    case Pass::kBI:
      return "BI";
    case Pass::kBW:
      return "BW";
    case Pass::kR:
      return "R";
    case Pass::kU:
      return "U";
    case Pass::kNone:
      return "none";
  }
  return "?";
}

namespace {

// Operations that contribute to a loss or to a wanted output.
std::vector<bool> LiveOperations(const Graph& graph) {
  std::vector<bool> live(graph.operations.size(), false);
  auto mark = [&](ValueId value) {
    const Value& v = graph.values[value];
    if (v.source == Value::Source::kOperation) live[v.index] = true;
  };
  for (const Loss& loss : graph.losses) mark(loss.value);
  for (ValueId output : graph.outputs) mark(output);
  for (size_t id = graph.operations.size(); id-- > 0;) {
    const Operation& op = graph.operations[id];
    if (!live[id]) continue;
    for (ValueId operand : op.operands) mark(operand);
  }
  return live;
}

// A trainable parameter contributes to it, differentiably.
std::vector<bool> RequiresGradient(const Graph& graph) {
  std::vector<bool> requires_gradient(graph.values.size(), false);
  for (ParameterId p = 0; p < graph.parameters.size(); ++p) {
    requires_gradient[graph.ParameterValue(p)] = !graph.parameters[p].frozen;
  }
  for (const Operation& op : graph.operations) {
    const OperationRule* rule = FindOperation(op.kind);
    if (!rule->Differentiable()) continue;
    bool any = std::any_of(op.operands.begin(), op.operands.end(),
                           [&](ValueId operand) { return requires_gradient[operand]; });
    if (!any) continue;
    for (size_t i = 0; i < rule->visible_results(op.results.size()); ++i)
      requires_gradient[op.results[i]] = true;
  }
  return requires_gradient;
}

// "layer3.attn": a tag's index is written if its name occurs more than once within the parent tag's instance.
class RegionNames {
 public:
  explicit RegionNames(const Graph& graph) {
    for (const TagPath& path : graph.tag_paths) {
      for (size_t i = 0; i < path.size(); ++i) {
        if (path[i].index == 0) continue;
        repeated_[{TagPath(path.begin(), path.begin() + static_cast<ptrdiff_t>(i)), path[i].name}] = true;
      }
    }
  }
  std::string Name(const TagPath& path) {
    std::string name;
    for (size_t i = 0; i < path.size(); ++i) {
      if (i > 0) name += '.';
      name += path[i].name;
      if (repeated_.count({TagPath(path.begin(), path.begin() + static_cast<ptrdiff_t>(i)), path[i].name}) >
          0) {
        name += fmt::format("{}", path[i].index);
      }
    }
    if (name.empty()) name = "main";
    std::string unique = name;
    for (int n = 2; !taken_.emplace(unique, true).second; ++n) unique = fmt::format("{}_{}", name, n);
    return unique;
  }

 private:
  std::map<std::pair<TagPath, std::string>, bool> repeated_;
  std::map<std::string, bool> taken_;
};

template <typename T>
void SortUnique(std::vector<T>* items) {
  std::sort(items->begin(), items->end());
  items->erase(std::unique(items->begin(), items->end()), items->end());
}

// Cuts the live operations into maximal runs of one tag set and finds what the runs read of each other. Dead
// operations in between separate nothing.
void SplitRegions(RegionGraph* result, const std::vector<bool>& live,
                  std::vector<std::vector<OpId>>* operations) {
  const Graph& graph = result->graph;
  RegionNames names(graph);
  result->value_region.assign(graph.values.size(), kNone);
  for (OpId id = 0; id < graph.operations.size(); ++id) {
    const Operation& op = graph.operations[id];
    if (live[id] && (result->regions.empty() || result->regions.back().tags != op.tags)) {
      Region region;
      region.id = static_cast<RegionId>(result->regions.size());
      region.first = result->regions.empty() ? 0 : id;
      region.tags = op.tags;
      region.name = names.Name(graph.tag_paths[op.tags]);
      result->regions.push_back(std::move(region));
      operations->emplace_back();
    }
    if (result->regions.empty()) continue;
    Region& region = result->regions.back();
    region.last = id + 1;
    if (!live[id]) continue;
    operations->back().push_back(id);
    for (ValueId value : op.results) result->value_region[value] = region.id;
    for (ValueId operand : op.operands) {
      const Value& value = graph.values[operand];
      if (value.source == Value::Source::kParameter) region.parameters.push_back(value.index);
      if (value.source == Value::Source::kInput) region.model_inputs.push_back(value.index);
      if (value.source == Value::Source::kOperation && result->value_region[operand] != region.id) {
        region.inputs.push_back(operand);
      }
    }
  }
  std::map<ValueId, std::vector<RegionId>> readers;
  for (Region& region : result->regions) {
    SortUnique(&region.parameters);
    SortUnique(&region.model_inputs);
    SortUnique(&region.inputs);
    for (ValueId value : region.inputs) readers[value].push_back(region.id);
  }
  for (uint32_t i = 0; i < graph.losses.size(); ++i) {
    ValueId value = graph.losses[i].value;
    PIPER_CHECK(result->value_region[value] != kNone, "a loss must be computed");
    result->regions[result->value_region[value]].losses.push_back(i);
    readers[value];
  }
  for (ValueId value : graph.outputs) {
    if (result->value_region[value] != kNone) readers[value];
  }
  for (auto& [value, regions] : readers) {
    result->regions[result->value_region[value]].outputs.push_back({value, regions, {}});
  }
}

}  // namespace

RegionGraph BuildRegions(const Graph& graph) {
  RegionGraph result;
  result.graph = graph;
  std::vector<std::vector<OpId>> operations;
  SplitRegions(&result, LiveOperations(graph), &operations);

  Graph grown = graph;
  GradientBuilder builder(&grown, RequiresGradient(graph));
  // Per forward value the partials that later regions send back, latest region first.
  std::map<ValueId, std::vector<RegionWork::Partial>> partials;
  for (RegionId r = static_cast<RegionId>(result.regions.size()); r-- > 0;) {
    Region& region = result.regions[r];
    RegionWork work;
    work.region = r;
    work.forward = operations[r];
    work.first_backward = static_cast<OpId>(grown.operations.size());
    for (RegionOutput& output : region.outputs) {
      auto found = partials.find(output.value);
      if (found == partials.end()) continue;
      std::reverse(found->second.begin(), found->second.end());
      for (const RegionWork::Partial& partial : found->second) {
        builder.ContributeFromOutside(output.value, partial.source);
        output.differentiable_consumers.push_back(partial.consumer);
        work.partials.push_back(partial);
      }
      partials.erase(found);
    }
    for (uint32_t loss : region.losses) {
      ValueId value = graph.losses[loss].value;
      if (builder.requires_gradient(value)) builder.ContributeFromOutside(value, builder.AddSeed(value));
    }
    for (size_t i = work.forward.size(); i-- > 0;) builder.DifferentiateOperation(work.forward[i]);
    for (ValueId value : region.inputs) {
      if (!builder.requires_gradient(value)) continue;
      std::optional<ValueId> cotangent = builder.TakeSum(value);
      if (!cotangent) continue;
      work.input_cotangents.emplace_back(value, *cotangent);
      partials[value].push_back({value, r, builder.AddSource(value)});
    }
    for (ParameterId parameter : region.parameters) {
      ValueId value = graph.ParameterValue(parameter);
      if (!builder.requires_gradient(value)) continue;
      if (std::optional<ValueId> gradient = builder.TakeSum(value))
        work.gradients.emplace_back(parameter, *gradient);
    }
    work.last_backward = static_cast<OpId>(grown.operations.size());
    RegionLowering(&grown, &builder, result.value_region, result.regions, std::move(work)).Run(&region);
  }
  return result;
}

}  // namespace piper::ir
