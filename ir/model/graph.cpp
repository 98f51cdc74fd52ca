#include "ir/model/graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/model/operations.h"
#include "ir/support/diagnostics.h"
#include "ir/support/result.h"

namespace piper::ir {

int64_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 8;
    case DType::kBF16:
      return 2;
    case DType::kF32:
    case DType::kI32:
      return 4;
  }
  return 4;
}

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kBF16:
      return "bf16";
    case DType::kI32:
      return "i32";
  }
  return "?";
}

int64_t TensorType::elements() const {
  int64_t product = 1;
  for (const Dim& dim : dims) product *= dim.size;
  return product;
}

bool TensorType::WithinLimits() const {
  int64_t product = 1;
  for (const Dim& dim : dims) {
    if (dim.size <= 0 || dim.size > (int64_t{1} << 40) / product) return false;
    product *= dim.size;
  }
  return true;
}

std::string TensorType::ToString() const {
  std::string text(DTypeName(dtype));
  text += '[';
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ", ";
    text += fmt::format("{}={}", dims[i].name, dims[i].size);
  }
  text += ']';
  return text;
}

const AttributeValue* Operation::Find(std::string_view name) const {
  for (const Attribute& attribute : attributes) {
    if (attribute.name == name) return &attribute.value;
  }
  return nullptr;
}

int64_t Operation::Int(std::string_view name) const {
  const AttributeValue* value = Find(name);
  PIPER_CHECK(value != nullptr && std::holds_alternative<int64_t>(*value), kind + "." + std::string(name));
  return std::get<int64_t>(*value);
}

double Operation::Number(std::string_view name) const {
  const AttributeValue* value = Find(name);
  PIPER_CHECK(value != nullptr, kind + "." + std::string(name));
  if (std::holds_alternative<int64_t>(*value)) return static_cast<double>(std::get<int64_t>(*value));
  PIPER_CHECK(std::holds_alternative<double>(*value), kind + "." + std::string(name));
  return std::get<double>(*value);
}

bool Operation::Flag(std::string_view name) const {
  const AttributeValue* value = Find(name);
  if (value == nullptr) return false;
  PIPER_CHECK(std::holds_alternative<bool>(*value), kind + "." + std::string(name));
  return std::get<bool>(*value);
}

const std::string& Operation::Text(std::string_view name) const {
  const AttributeValue* value = Find(name);
  PIPER_CHECK(value != nullptr && std::holds_alternative<std::string>(*value),
              kind + "." + std::string(name));
  return std::get<std::string>(*value);
}

ValueId Graph::AddInput(Input input) {
  ValueId value = static_cast<ValueId>(values.size());
  values.push_back({Value::Source::kInput, static_cast<uint32_t>(inputs.size()), 0, input.type});
  inputs.push_back(std::move(input));
  input_values_.push_back(value);
  return value;
}

ValueId Graph::AddParameter(Parameter parameter) {
  ValueId value = static_cast<ValueId>(values.size());
  values.push_back({Value::Source::kParameter, static_cast<uint32_t>(parameters.size()), 0, parameter.type});
  parameters.push_back(std::move(parameter));
  parameter_values_.push_back(value);
  return value;
}

OpId Graph::AddOperation(Operation operation, const std::vector<TensorType>& result_types) {
  OpId id = static_cast<OpId>(operations.size());
  operation.results.clear();
  for (size_t i = 0; i < result_types.size(); ++i) {
    operation.results.push_back(static_cast<ValueId>(values.size()));
    values.push_back({Value::Source::kOperation, id, static_cast<uint32_t>(i), result_types[i]});
  }
  operations.push_back(std::move(operation));
  return id;
}

TagPathId Graph::InternTags(const TagPath& path) {
  if (indexed_tags_ > tag_paths.size()) {
    tag_ids_.clear();
    indexed_tags_ = 0;
  }
  for (; indexed_tags_ < tag_paths.size(); ++indexed_tags_) {
    tag_ids_.emplace(tag_paths[indexed_tags_], static_cast<TagPathId>(indexed_tags_));
  }
  auto [found, fresh] = tag_ids_.emplace(path, static_cast<TagPathId>(tag_paths.size()));
  if (fresh) {
    tag_paths.push_back(path);
    ++indexed_tags_;
  }
  return found->second;
}

std::vector<std::vector<Graph::Use>> Graph::BuildUses() const {
  std::vector<std::vector<Use>> uses(values.size());
  for (OpId id = 0; id < operations.size(); ++id) {
    const std::vector<ValueId>& operands = operations[id].operands;
    for (uint32_t i = 0; i < operands.size(); ++i) uses[operands[i]].push_back({id, i});
  }
  return uses;
}

std::optional<Graph> Graph::TryWithDim(std::string_view dim, int64_t size, DiagnosticEngine& diag) const {
  Graph resized = *this;
  for (Parameter& parameter : resized.parameters) {
    for (const Dim& d : parameter.type.dims) {
      if (d.name != dim || d.size == size) continue;
      diag.Error(parameter.range, DiagKind::kShapeMismatch,
                 fmt::format("the parameter '{}' has the dimension '{}', which cannot be sliced to {}",
                             parameter.name, dim, size))
          .Hint("slice a dimension that only inputs and activations have");
      return std::nullopt;
    }
  }
  for (Input& input : resized.inputs) {
    for (Dim& d : input.type.dims) {
      if (d.name == dim) d.size = size;
    }
  }
  for (InputId i = 0; i < inputs.size(); ++i) resized.values[input_values_[i]].type = resized.inputs[i].type;
  for (Operation& operation : resized.operations) {
    const OperationRule* rule = FindOperation(operation.kind);
    PIPER_CHECK(rule != nullptr, operation.kind);
    // Attributes that name a slice's dimension without holding its size need the graph's idea of that size,
    // so the results of this operation are still the old ones while its rule looks.
    std::optional<std::vector<TensorType>> types = rule->Infer(resized, operation, diag);
    if (!types) return std::nullopt;
    PIPER_CHECK(types->size() == operation.results.size(), operation.kind);
    for (size_t i = 0; i < types->size(); ++i) resized.values[operation.results[i]].type = (*types)[i];
  }
  return resized;
}

Graph Graph::WithDim(std::string_view dim, int64_t size) const {
  SourceManager sources;
  DiagnosticEngine diag(sources);
  std::optional<Graph> resized = TryWithDim(dim, size, diag);
  PIPER_CHECK(resized.has_value(), diag.Render(DiagnosticEngine::Format::kHuman, false));
  return *std::move(resized);
}

int64_t Graph::DimSize(std::string_view dim) const {
  for (const Value& value : values) {
    for (const Dim& d : value.type.dims) {
      if (d.name == dim) return d.size;
    }
  }
  return 0;
}

int64_t Graph::Samples() const {
  for (const Input& input : inputs) {
    if (!input.type.dims.empty()) return input.type.dims[0].size;
  }
  return 1;
}

std::string Graph::SampleDim() const {
  for (const Input& input : inputs) {
    if (!input.type.dims.empty()) return input.type.dims[0].name;
  }
  return "";
}

std::string TagPathText(const TagPath& path) {
  std::string text;
  for (const TagInstance& tag : path) {
    if (!text.empty()) text += '.';
    text += fmt::format("{}[{}]", tag.name, tag.index);
  }
  return text;
}

namespace {

std::string AttributeText(const AttributeValue& value) {
  struct Printer {
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return fmt::format("{}", v); }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(const std::string& v) const { return fmt::format("\"{}\"", v); }
    std::string operator()(const std::vector<int64_t>& v) const {
      return fmt::format("[{}]", fmt::join(v, ", "));
    }
    std::string operator()(const std::vector<std::string>& v) const {
      return fmt::format("[{}]", fmt::join(v, ", "));
    }
  };
  return std::visit(Printer{}, value);
}

}  // namespace

std::string Graph::ToText() const {
  std::string text = fmt::format("model {} {{\n", name);
  auto value_name = [&](ValueId id) {
    const Value& value = values[id];
    if (value.source == Value::Source::kInput) return inputs[value.index].name;
    if (value.source == Value::Source::kParameter) return "@" + parameters[value.index].name;
    return fmt::format("%{}", id);
  };
  for (const Input& input : inputs)
    text += fmt::format("  input {}: {}\n", input.name, input.type.ToString());
  for (const Parameter& parameter : parameters) {
    text += fmt::format("  param @{}: {} = ", parameter.name, parameter.type.ToString());
    switch (parameter.init.kind) {
      case Initializer::Kind::kZeros:
        text += "zeros";
        break;
      case Initializer::Kind::kOnes:
        text += "ones";
        break;
      case Initializer::Kind::kConstant:
        text += fmt::format("constant({})", parameter.init.a);
        break;
      case Initializer::Kind::kNormal:
        text += fmt::format("normal({})", parameter.init.a);
        break;
      case Initializer::Kind::kUniform:
        text += fmt::format("uniform({}, {})", parameter.init.a, parameter.init.b);
        break;
    }
    if (parameter.frozen) text += " frozen";
    text += '\n';
  }
  for (const Operation& operation : operations) {
    text += "  ";
    for (size_t i = 0; i < operation.results.size(); ++i) {
      text += fmt::format("{}%{}", i > 0 ? ", " : "", operation.results[i]);
    }
    text += fmt::format(" = {}(", operation.kind);
    bool first = true;
    for (ValueId operand : operation.operands) {
      text += fmt::format("{}{}", first ? "" : ", ", value_name(operand));
      first = false;
    }
    for (const Attribute& attribute : operation.attributes) {
      text += fmt::format("{}{} = {}", first ? "" : ", ", attribute.name, AttributeText(attribute.value));
      first = false;
    }
    text += ") :";
    for (size_t i = 0; i < operation.results.size(); ++i) {
      text += fmt::format("{} {}", i > 0 ? "," : "", values[operation.results[i]].type.ToString());
    }
    text += fmt::format("  # {}", operation.path);
    if (operation.tags != 0) text += fmt::format(" in {}", TagPathText(tag_paths[operation.tags]));
    text += '\n';
  }
  for (const Loss& loss : losses) text += fmt::format("  loss {} = {}\n", loss.name, value_name(loss.value));
  for (ValueId output : outputs) text += fmt::format("  output {}\n", value_name(output));
  text += "}\n";
  return text;
}

}  // namespace piper::ir
