#include "ir/lower/sample_job.h"

#include <algorithm>
#include <map>
#include <optional>

#include "ir/support/result.h"

namespace piper::ir {
namespace {

using runtime::BufferKind;
using runtime::ElementType;

ElementType ElementOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return ElementType::kF64;
    case DType::kBF16:
      return ElementType::kBF16;
    case DType::kI32:
      return ElementType::kI32;
    case DType::kF32:
      return ElementType::kF32;
  }
  return ElementType::kF32;
}

// The logits of the first loss that is a cross-entropy, or a sum that holds one.
std::optional<ValueId> FindLogits(const Graph& graph) {
  for (const Loss& loss : graph.losses) {
    const Value& value = graph.values[loss.value];
    if (value.source != Value::Source::kOperation) continue;
    std::vector<bool> reached(value.index + 1, false);
    reached[value.index] = true;
    for (size_t id = value.index + 1; id-- > 0;) {
      if (!reached[id]) continue;
      const Operation& op = graph.operations[id];
      if (op.kind == "cross_entropy") return op.operands[0];
      for (ValueId operand : op.operands) {
        const Value& source = graph.values[operand];
        if (source.source == Value::Source::kOperation) reached[source.index] = true;
      }
    }
  }
  return std::nullopt;
}

// What `root` needs of `from`, as a graph of its own, without dropout. `*result` receives root's value in it;
// `parameters` the original ids.
Graph Extract(const Graph& from, ValueId root, ValueId* result, std::vector<ParameterId>* parameters) {
  std::vector<bool> needed(from.values.size(), false);
  needed[root] = true;
  for (size_t id = from.operations.size(); id-- > 0;) {
    const Operation& op = from.operations[id];
    if (std::none_of(op.results.begin(), op.results.end(), [&](ValueId v) { return needed[v]; })) continue;
    for (ValueId operand : op.operands) needed[operand] = true;
  }
  Graph graph;
  graph.name = from.name;
  std::vector<ValueId> moved(from.values.size(), kNone);
  for (InputId i = 0; i < from.inputs.size(); ++i) {
    if (needed[from.InputValue(i)]) moved[from.InputValue(i)] = graph.AddInput(from.inputs[i]);
  }
  for (ParameterId p = 0; p < from.parameters.size(); ++p) {
    if (!needed[from.ParameterValue(p)]) continue;
    Parameter parameter = from.parameters[p];
    parameter.frozen = true;
    moved[from.ParameterValue(p)] = graph.AddParameter(std::move(parameter));
    parameters->push_back(p);
  }
  for (const Operation& op : from.operations) {
    if (std::none_of(op.results.begin(), op.results.end(), [&](ValueId v) { return needed[v]; })) continue;
    if (op.kind == "dropout") {
      moved[op.results[0]] = moved[op.operands[0]];
      continue;
    }
    Operation copy = op;
    for (ValueId& operand : copy.operands) operand = moved[operand];
    std::vector<TensorType> types;
    for (ValueId value : op.results) types.push_back(from.Type(value));
    copy.results.clear();
    copy.tags = graph.InternTags(from.tag_paths[op.tags]);
    const OpId id = graph.AddOperation(std::move(copy), types);
    for (size_t i = 0; i < op.results.size(); ++i) moved[op.results[i]] = graph.operations[id].results[i];
  }
  *result = moved[root];
  graph.outputs = {*result};
  return graph;
}

// Fills the only role, region by region.
class SampleBuilder {
 public:
  SampleBuilder(JobStorage& job, const RegionGraph& regions, const std::vector<ParameterId>& original)
      : job_(job), role_(job.AddTrainRole()), regions_(regions), original_(original) {}

  void Build(ValueId logits) {
    role_.name = job_.Intern("sample");
    role_.ranks = {{0, 0, {}, {}}};
    const Graph& graph = regions_.graph;
    for (ParameterId p = 0; p < graph.parameters.size(); ++p) AddParameter(p);
    role_.static_bytes = role_.arena_bytes;
    int64_t scratch_bytes = 0;
    for (const Region& region : regions_.regions)
      scratch_bytes = std::max(scratch_bytes, region.forward.scratch_bytes);
    uint32_t scratch = runtime::kNone;
    if (scratch_bytes > 0)
      scratch = AddBuffer(BufferKind::kScratch, ElementType::kF32, scratch_bytes, "scratch");
    role_.streams.push_back({job_.Intern("compute"), 0, 0, 1, scratch});
    const uint32_t tokens = ValueBuffer(graph.InputValue(0), "tokens", BufferKind::kInput);
    AddTask(runtime::TaskKind::kLoad, 0, {tokens}, "load tokens");
    for (const Region& region : regions_.regions) AddRegion(region, logits);
    role_.live_bytes = role_.arena_bytes;
  }

 private:
  uint32_t AddBuffer(BufferKind kind, ElementType type, int64_t bytes, const std::string& name) {
    role_.buffers.push_back({role_.arena_bytes, bytes, kind, type, job_.Intern(name)});
    role_.arena_bytes += (bytes + runtime::kAlignment - 1) / runtime::kAlignment * runtime::kAlignment;
    return static_cast<uint32_t>(role_.buffers.size() - 1);
  }

  uint32_t ValueBuffer(ValueId value, const std::string& name, BufferKind kind) {
    auto it = values_.find(value);
    if (it != values_.end()) return it->second;
    const TensorType& type = regions_.graph.Type(value);
    const uint32_t buffer = AddBuffer(kind, ElementOf(type.dtype), type.bytes(), name);
    values_.emplace(value, buffer);
    return buffer;
  }

  void AddParameter(ParameterId id) {
    const Parameter& parameter = regions_.graph.parameters[id];
    RoleStorage::HeldParameter held{};
    held.row.name = job_.Intern(parameter.name);
    held.row.elements = parameter.type.elements();
    for (const Dim& dim : parameter.type.dims) held.dims.push_back(dim.size);
    held.row.init = {static_cast<uint8_t>(parameter.init.kind), parameter.init.a, parameter.init.b};
    held.row.value = AddBuffer(BufferKind::kParameter, ElementOf(parameter.type.dtype),
                               parameter.type.bytes(), parameter.name);
    held.row.gradient = runtime::kNone;
    held.row.state[0] = held.row.state[1] = runtime::kNone;
    held.row.optimizer = runtime::kNone;
    held.row.global_index = original_[id];
    held.row.owner = 1;
    parameters_.push_back(held.row.value);
    role_.parameters.push_back(std::move(held));
  }

  void AddRegion(const Region& region, ValueId logits) {
    const Body& body = region.forward;
    if (body.empty()) return;
    std::vector<uint32_t> operands;
    for (const Formal& formal : body.formals) {
      if (formal.alias_of != kNone) {
        const uint32_t buffer = operands[formal.alias_of];
        if (formal.written) values_[formal.value] = buffer;
        operands.push_back(buffer);
        continue;
      }
      switch (formal.kind) {
        case FormalKind::kParameter:
          operands.push_back(parameters_[formal.parameter]);
          break;
        case FormalKind::kValue:
          operands.push_back(ValueBuffer(formal.value, formal.name, BufferKind::kInput));
          break;
        case FormalKind::kOutput:
          operands.push_back(
              ValueBuffer(formal.value, region.name + "." + formal.name, BufferKind::kActivation));
          break;
        case FormalKind::kSaved:
          operands.push_back(AddBuffer(BufferKind::kActivation, ElementOf(formal.type.dtype),
                                       formal.type.bytes(), region.name + "." + formal.name));
          break;
        default:
          PIPER_CHECK(false, "a forward body without losses reads no cotangent and no scale");
      }
    }
    // The runtime finds the logits by name.
    if (auto it = values_.find(logits); it != values_.end())
      role_.buffers[it->second].name = job_.Intern("logits");
    if (!body.calls.empty())
      AddTask(runtime::TaskKind::kCompute, AddBody(region), operands, "F " + region.name);
  }

  uint32_t AddBody(const Region& region) {
    const Body& body = region.forward;
    role_.bodies.push_back({job_.Intern(region.name + "_fwd"), nullptr,
                            static_cast<uint32_t>(role_.calls.size()),
                            static_cast<uint32_t>(body.calls.size()),
                            static_cast<uint32_t>(body.formals.size()), body.scratch_bytes});
    for (const KernelCall& call : body.calls) {
      runtime::Call row{};
      row.kernel = job_.Intern(call.kernel);
      row.first_operand = static_cast<uint32_t>(role_.call_operands.size());
      row.operand_count = static_cast<uint32_t>(call.operands.size());
      for (const OperandRef& ref : call.operands) {
        if (ref.kind == OperandRef::Kind::kFormal) {
          role_.call_operands.push_back({0, ref.index});
        } else {
          role_.call_operands.push_back(
              {1, static_cast<uint32_t>(body.locals[ref.index].offset / runtime::kAlignment)});
        }
      }
      row.first_int = static_cast<uint32_t>(role_.call_ints.size());
      row.int_count = static_cast<uint32_t>(call.ints.size());
      role_.call_ints.insert(role_.call_ints.end(), call.ints.begin(), call.ints.end());
      row.first_scalar = static_cast<uint32_t>(role_.call_scalars.size());
      row.scalar_count = static_cast<uint32_t>(call.scalars.size());
      role_.call_scalars.insert(role_.call_scalars.end(), call.scalars.begin(), call.scalars.end());
      row.random_key = call.random_key;
      row.operation =
          job_.Intern(call.operation == kNone ? "" : regions_.graph.operations[call.operation].path);
      role_.calls.push_back(row);
    }
    return static_cast<uint32_t>(role_.bodies.size() - 1);
  }

  void AddTask(runtime::TaskKind kind, uint32_t argument, const std::vector<uint32_t>& operands,
               const std::string& name) {
    runtime::Task task{};
    task.kind = kind;
    task.microbatch = 0;
    task.argument = argument;
    task.first_operand = static_cast<uint32_t>(role_.task_operands.size());
    task.operand_count = static_cast<uint32_t>(operands.size());
    role_.task_operands.insert(role_.task_operands.end(), operands.begin(), operands.end());
    task.name = job_.InternString(name);
    task.atomic = task.key = runtime::kNone;
    role_.tasks.push_back(task);
    ++role_.streams[0].task_count;
  }

  JobStorage& job_;
  RoleStorage& role_;
  const RegionGraph& regions_;
  const std::vector<ParameterId>& original_;
  std::map<ValueId, uint32_t> values_;
  std::vector<uint32_t> parameters_;
};

}  // namespace

SampleJob LowerSample(const Graph& model, const runtime::Job& train) {
  SampleJob result;
  auto refuse = [&](std::string why) {
    result.why = std::move(why);
    return std::move(result);
  };
  const std::optional<ValueId> trained_logits = FindLogits(model);
  if (!trained_logits) return refuse("no loss of the model is a cross_entropy of logits");

  std::vector<ParameterId> parameters;
  ValueId logits = kNone;
  Graph whole = Extract(model, *trained_logits, &logits, &parameters);
  if (whole.inputs.size() != 1 || whole.inputs[0].type.dtype != DType::kI32 ||
      whole.inputs[0].type.dims.size() != 2) {
    return refuse("the logits must come from one integer input [batch, seq]");
  }
  const std::vector<Dim>& dims = whole.inputs[0].type.dims;
  Graph graph = whole.WithDim(dims[0].name, 1);
  const TensorType& type = graph.Type(logits);
  const int64_t sequence = dims[1].size;
  if (type.dtype != DType::kF32 || type.dims.size() != 3 || type.dims[0].size != 1 ||
      type.dims[1].size != sequence || graph.values[logits].source != Value::Source::kOperation) {
    return refuse("the logits must be f32 [batch, seq, vocab], and are " + type.ToString());
  }
  const int64_t vocab = type.dims[2].size;
  result.regions = BuildRegions(graph);
  result.job = std::make_unique<JobStorage>();
  JobStorage& job = *result.job;
  SampleBuilder(job, result.regions, parameters).Build(logits);

  job.header.name = job.Intern(train.name);
  job.header.parameter_count = train.parameter_count;
  job.header.global_batch = job.header.replicas = job.header.microbatches =
      job.header.samples_per_microbatch = 1;
  job.header.targets_per_sample = sequence;
  job.header.steps = 1;
  job.header.seed = train.seed;
  job.header.data_kind = train.data_kind;
  job.header.data_path = job.Intern("");
  job.header.validation_path = job.Intern("");
  job.header.sequence = sequence;
  job.inputs = {{job.Intern("tokens"), ElementType::kI32, sequence, vocab}};
  job.rank_role = {0};
  job.Seal();
  return result;
}

}  // namespace piper::ir
