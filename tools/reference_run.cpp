#include "tools/reference_run.h"

#include <algorithm>

#include "kernels/arithmetic.h"
#include "kernels/initialize.h"
#include "runtime/initialize.h"
#include "runtime/optimizer.h"

namespace piper::tools {
namespace {

void Fill(const ir::Parameter& parameter, uint64_t seed, ir::HostTensor* tensor) {
  const kernels::RandomKey key{.seed = seed, .operation = runtime::ParameterKey(parameter.name)};
  float* values = tensor->f32.data();
  const int64_t n = tensor->size();
  using Kind = ir::Initializer::Kind;
  switch (parameter.init.kind) {
    case Kind::kZeros:
      kernels::fill(values, n, 0.0);
      break;
    case Kind::kOnes:
      kernels::fill(values, n, 1.0);
      break;
    case Kind::kConstant:
      kernels::fill(values, n, parameter.init.a);
      break;
    case Kind::kNormal:
      kernels::normal_fill(values, n, 0, 0.0, parameter.init.a, key);
      break;
    case Kind::kUniform:
      kernels::uniform_fill(values, n, 0, parameter.init.a, parameter.init.b, key);
      break;
  }
}

ir::UpdateRule Rule(const runtime::Optimizer& optimizer, double weight_decay, int64_t step) {
  ir::UpdateRule rule;
  rule.kind = optimizer.kind == 0 ? ir::UpdateRule::Kind::kSgd : ir::UpdateRule::Kind::kAdamW;
  rule.lr = runtime::LearningRate(optimizer, static_cast<uint64_t>(step));
  rule.weight_decay = weight_decay;
  rule.momentum = optimizer.momentum;
  rule.nesterov = optimizer.nesterov != 0;
  rule.beta1 = optimizer.beta1;
  rule.beta2 = optimizer.beta2;
  rule.eps = optimizer.eps;
  return rule;
}

// The model as the program has it, at the shapes of a microbatch, with the plan's frozen parameters.
ir::Graph SliceOfModel(const ir::Program& program, const ir::Plan& plan) {
  ir::Graph graph = program.model;
  const std::string batch = graph.SampleDim();
  if (!batch.empty()) graph = graph.WithDim(batch, plan.dag.samples_per_microbatch);
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    graph.parameters[p].frozen = plan.regions.graph.parameters[p].frozen;
  }
  return graph;
}

// A cut between operations that carry no tag of their own divides a region; the expression that the numerics
// rules state speaks of the regions that the plan has.
bool SamePartition(const ir::RegionGraph& a, const ir::RegionGraph& b) {
  return std::equal(
      a.regions.begin(), a.regions.end(), b.regions.begin(), b.regions.end(),
      [](const ir::Region& x, const ir::Region& y) { return x.first == y.first && x.last == y.last; });
}

// The microbatches of each copy of a region, ascending.
std::vector<std::vector<int32_t>> CopyMicrobatches(const ir::GradientExpression& expression, size_t region) {
  std::vector<std::pair<int32_t, int32_t>> ranges = {{0, static_cast<int32_t>(expression.microbatches)}};
  if (!expression.copy_ranges.empty()) ranges = expression.copy_ranges[region];
  std::vector<std::vector<int32_t>> copies;
  for (auto [begin, end] : ranges) {
    std::vector<int32_t>& microbatches = copies.emplace_back();
    for (int32_t i = begin; i < end; ++i) microbatches.push_back(i);
  }
  return copies;
}

// Replica major, copy minor; `per_microbatch`: a group a microbatch, over the replicas.
ir::FoldOrder FoldCopies(const ir::GradientExpression& expression,
                         const std::vector<std::vector<int32_t>>& copies, bool per_microbatch) {
  ir::FoldOrder order;
  if (per_microbatch) {
    for (const std::vector<int32_t>& microbatches : copies) {
      for (int32_t microbatch : microbatches) {
        std::vector<ir::Slice>& group = order.emplace_back();
        for (int64_t d = 0; d < expression.replicas; ++d) group.push_back({d, microbatch});
      }
    }
    return order;
  }
  for (int64_t d = 0; d < expression.replicas; ++d) {
    for (const std::vector<int32_t>& microbatches : copies) {
      std::vector<ir::Slice>& group = order.emplace_back();
      for (int32_t microbatch : microbatches) group.push_back({d, microbatch});
    }
  }
  return order;
}

}  // namespace

std::vector<ir::FoldOrder> GradientOrders(const ir::Plan& plan) {
  const ir::GradientExpression& expression = plan.dag.expression;
  std::vector<ir::FoldOrder> orders(plan.regions.regions.size());
  bool canonical = true;
  for (size_t region = 0; region < orders.size(); ++region) {
    std::vector<std::vector<int32_t>> copies = CopyMicrobatches(expression, region);
    bool own = copies.size() > 1;
    for (const ir::GradientExpression::Permutation& permuted : expression.permuted) {
      if (permuted.region != region) continue;
      copies[permuted.copy] = permuted.microbatches;
      own = true;
    }
    if (!own) continue;
    canonical = false;
    orders[region] = FoldCopies(expression, copies, expression.reduce_per_microbatch);
  }
  if (canonical) orders.clear();
  return orders;
}

std::vector<ir::FoldOrder> LossOrders(const ir::Plan& plan) {
  const ir::GradientExpression& expression = plan.dag.expression;
  std::vector<ir::FoldOrder> orders;
  if (expression.copy_ranges.empty()) return orders;
  orders.resize(plan.regions.graph.losses.size());
  for (const ir::Region& region : plan.regions.regions) {
    for (uint32_t loss : region.losses)
      orders[loss] = FoldCopies(expression, CopyMicrobatches(expression, region.id), false);
  }
  return orders;
}

runtime::Result<std::unique_ptr<ReferenceRun>> ReferenceRun::Create(
    const ir::Program& program, const ir::Plan& plan, std::unique_ptr<runtime::BatchSource> data) {
  std::unique_ptr<ReferenceRun> run(new ReferenceRun(program, plan));
  run->data_ = std::move(data);
  const runtime::Job& job = plan.job->job();
  run->regions_ = ir::BuildRegions(SliceOfModel(program, plan));
  if (!SamePartition(run->regions_, plan.regions)) run->regions_ = plan.regions;
  const ir::Graph& graph = run->regions_.graph;
  for (const ir::Input& input : graph.inputs) {
    uint32_t field = runtime::kNone;
    for (uint32_t i = 0; i < job.inputs.size(); ++i) {
      if (job.inputs[i].name == input.name) field = i;
    }
    run->field_of_input_.push_back(field);
  }
  run->optimizer_of_.resize(graph.parameters.size(), {runtime::kNone, 0.0});
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    const ir::Parameter& parameter = graph.parameters[p];
    if (parameter.type.dtype != ir::DType::kF32) {
      return runtime::UsageError("cannot verify: parameter '" + parameter.name + "' is not f32");
    }
    run->by_name_[parameter.name] = static_cast<int64_t>(p);
    run->initial_.push_back(ir::HostTensor::Zeros(ir::DType::kF32, parameter.type.elements()));
    Fill(parameter, job.seed, &run->initial_.back());
  }
  for (const runtime::RankProgram& role : job.train) {
    for (const runtime::Parameter& parameter : role.parameters) {
      const int64_t p = run->FindParameter(parameter.name);
      if (p >= 0) run->optimizer_of_[static_cast<size_t>(p)] = {parameter.optimizer, parameter.weight_decay};
    }
  }
  run->current_ = run->initial_;
  run->states_.resize(graph.parameters.size());
  run->gradient_orders_ = GradientOrders(plan);
  run->loss_orders_ = LossOrders(plan);
  return run;
}

int64_t ReferenceRun::FindParameter(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? -1 : it->second;
}

void ReferenceRun::Advance() {
  const runtime::Job& job = plan_.job->job();
  const ir::Dag& dag = plan_.dag;
  ir::ReferenceOptions options;
  options.replicas = dag.expression.replicas;
  options.microbatches = dag.expression.microbatches;
  options.reduce_per_microbatch = dag.expression.reduce_per_microbatch;
  options.pairwise = dag.expression.pairwise;
  options.seed = job.seed;
  options.step = static_cast<uint64_t>(next_);
  options.gradient_orders = gradient_orders_;
  options.loss_orders = loss_orders_;
  auto batch = [&](ir::InputId input, int64_t first, int64_t samples, void* out) {
    const uint32_t field = field_of_input_[input];
    if (field == runtime::kNone || !status_.ok()) return;
    if (runtime::Status status = data_->Fill(field, options.step, first, samples, out); !status.ok()) {
      status_ = status;
    }
  };
  Step step;
  if (next_ == 0 && options.pairwise) {
    options.pairwise = false;
    options.want_magnitudes = true;
    canonical_ = ir::RunReferenceStep(regions_, options, current_, batch);
    options.pairwise = true;
    options.want_magnitudes = false;
  }
  step.result = ir::RunReferenceStep(regions_, options, current_, batch);
  std::vector<ir::UpdateRule> rules;
  for (const auto& [optimizer, weight_decay] : optimizer_of_) {
    rules.push_back(optimizer == runtime::kNone ? ir::UpdateRule{}
                                                : Rule(job.optimizers[optimizer], weight_decay, next_));
  }
  std::vector<ir::HostTensor> gradients = step.result.gradients;
  ir::ReferenceUpdate(&current_, &gradients, &states_, rules, program_.train.clip, next_);
  step.parameters = current_;
  steps_.emplace(next_, std::move(step));
  ++next_;
}

const ReferenceRun::Step& ReferenceRun::At(int64_t step) {
  while (next_ <= step) Advance();
  return steps_.at(step);
}

void ReferenceRun::Forget(int64_t step) { steps_.erase(steps_.begin(), steps_.lower_bound(step)); }

}  // namespace piper::tools
