#include "ir/model/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <tuple>

#include "ir/model/interpret.h"
#include "ir/model/operations.h"
#include "ir/support/result.h"
#include "kernels/registry.h"

namespace piper::ir {

HostTensor HostTensor::Zeros(DType dtype, int64_t elements) {
  HostTensor tensor;
  tensor.dtype = dtype;
  if (dtype == DType::kF64) {
    tensor.f64.assign(static_cast<size_t>(elements), 0.0);
  } else {
    tensor.f32.assign(static_cast<size_t>(elements), 0.0f);
  }
  return tensor;
}

HostTensor HostTensor::As(DType other) const {
  if (other == dtype) return *this;
  HostTensor result = Zeros(other, size());
  if (other == DType::kF64) {
    std::copy(f32.begin(), f32.end(), result.f64.begin());
  } else {
    std::transform(f64.begin(), f64.end(), result.f32.begin(),
                   [](double x) { return static_cast<float>(x); });
  }
  return result;
}

namespace {

void Invoke(const char* kernel, DType dtype, std::vector<void*> operands, std::vector<int64_t> ints,
            std::vector<double> scalars = {}) {
  const kernels::KernelInfo* info = kernels::FindKernel(kernel);
  (dtype == DType::kF64 ? info->f64 : info->f32)(operands.data(), ints.data(), scalars.data(), nullptr);
}

// 64-byte aligned blocks that are handed out again by size, filled with NaN so that nothing unwritten is read
// unseen.
class Pool {
 public:
  ~Pool() {
    for (auto& [bytes, blocks] : free_) {
      for (std::byte* block : blocks) std::free(block);
    }
  }
  std::byte* Take(int64_t bytes) {
    std::vector<std::byte*>& blocks = free_[Rounded(bytes)];
    std::byte* block;
    if (blocks.empty()) {
      block = static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(Rounded(bytes))));
      PIPER_CHECK(block != nullptr, "out of memory");
    } else {
      block = blocks.back();
      blocks.pop_back();
    }
    std::memset(block, 0xff, static_cast<size_t>(Rounded(bytes)));
    return block;
  }
  void Give(std::byte* block, int64_t bytes) { free_[Rounded(bytes)].push_back(block); }

 private:
  static int64_t Rounded(int64_t bytes) { return std::max<int64_t>(64, (bytes + 63) / 64 * 64); }
  std::map<int64_t, std::vector<std::byte*>> free_;
};

// What one slice runs: every region's F, then, last region first, BI and BW; and which buffers they bind.
struct Plan {
  struct Step {
    const Body* body;
    std::vector<uint32_t> buffers;  // one a formal
    std::vector<uint32_t> dead;     // buffers that nothing reads later
  };
  struct Buffer {
    int64_t bytes = 0;
    enum class Source : uint8_t { kComputed, kInput, kParameter, kScale } source = Source::kComputed;
    uint32_t index = 0;  // InputId or ParameterId
  };
  std::vector<Step> steps;
  std::vector<Buffer> buffers;
  std::vector<uint32_t> losses;  // buffer of each
};

class Planner {
 public:
  Planner(const RegionGraph& regions, DType dtype, bool gradients) : regions_(regions), dtype_(dtype) {
    for (const Region& region : regions.regions) AddStep(region.forward);
    if (gradients) {
      for (size_t i = regions.regions.size(); i-- > 0;) {
        AddStep(regions.regions[i].backward_input);
        AddStep(regions.regions[i].backward_weight);
      }
    }
    for (const Loss& loss : regions.graph.losses) plan_.losses.push_back(ValueBuffer(loss.value));
    std::vector<size_t> last(plan_.buffers.size(), 0);
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      for (uint32_t buffer : plan_.steps[s].buffers) last[buffer] = s;
    }
    for (uint32_t loss : plan_.losses) last[loss] = SIZE_MAX;
    for (uint32_t b = 0; b < last.size(); ++b) {
      bool owned = plan_.buffers[b].source == Plan::Buffer::Source::kComputed ||
                   plan_.buffers[b].source == Plan::Buffer::Source::kInput;
      if (owned && last[b] != SIZE_MAX) plan_.steps[last[b]].dead.push_back(b);
    }
  }
  Plan Take() { return std::move(plan_); }

 private:
  using Key = std::tuple<int, uint32_t, uint32_t>;  // what a buffer holds: see FormalKind

  uint32_t ValueBuffer(ValueId value) {
    auto found = ids_.find(Key{0, value, 0});
    PIPER_CHECK(found != ids_.end(), "a value is read before it is computed");
    return found->second;
  }
  void AddStep(const Body& body) {
    if (body.empty()) return;
    Plan::Step step;
    step.body = &body;
    for (const Formal& formal : body.formals) {
      Key key;
      Plan::Buffer buffer;
      buffer.bytes = FormalBytes(formal, dtype_);
      switch (formal.kind) {
        case FormalKind::kValue:
        case FormalKind::kOutput: {
          key = {0, formal.value, 0};
          const Value& value = regions_.graph.values[formal.value];
          if (value.source == Value::Source::kInput) {
            buffer.source = Plan::Buffer::Source::kInput;
            buffer.index = value.index;
          }
          break;
        }
        case FormalKind::kParameter:
          key = {1, formal.parameter, 0};
          buffer.source = Plan::Buffer::Source::kParameter;
          buffer.index = formal.parameter;
          break;
        case FormalKind::kSaved:
          key = {2, body.region, formal.saved};
          break;
        case FormalKind::kCotangent:
          key = {3, formal.value, formal.consumer};
          break;
        case FormalKind::kInputCotangent:
          key = {3, formal.value, body.region};
          break;
        case FormalKind::kGradient:
          key = {4, body.region, formal.parameter};
          break;
        case FormalKind::kScale:
          key = {5, 0, 0};
          buffer.source = Plan::Buffer::Source::kScale;
          break;
      }
      if (formal.alias_of != kNone) {
        ids_[key] = step.buffers[formal.alias_of];
      } else if (ids_.count(key) == 0) {
        PIPER_CHECK(formal.written || buffer.source != Plan::Buffer::Source::kComputed,
                    formal.name + " is read before it is written");
        ids_[key] = static_cast<uint32_t>(plan_.buffers.size());
        plan_.buffers.push_back(buffer);
      }
      step.buffers.push_back(ids_.at(key));
    }
    plan_.steps.push_back(std::move(step));
  }

  const RegionGraph& regions_;
  DType dtype_;
  Plan plan_;
  std::map<Key, uint32_t> ids_;
};

// What becomes of the terms of a Fold besides their sum.
struct FoldOptions {
  bool pairwise = false;        // the groups' sums add up in pairs
  bool keep_groups = false;     // the sum of each group, in order
  bool keep_magnitude = false;  // the sum of the absolute values of the groups' sums
};

// A fold of equal tensors that arrive in any order.
class Fold {
 public:
  Fold(FoldOrder order, DType dtype, FoldOptions options)
      : order_(std::move(order)), dtype_(dtype), options_(options), cursors_(order_.size(), 0) {
    partial_.resize(order_.size());
  }
  void Add(Slice slice, const void* data, int64_t elements) {
    HostTensor term = HostTensor::Zeros(dtype_, elements);
    std::memcpy(term.data(), data, static_cast<size_t>(elements * DTypeBytes(dtype_)));
    pending_[slice] = std::move(term);
    for (size_t g = 0; g < order_.size(); ++g) {
      while (cursors_[g] < order_[g].size()) {
        auto found = pending_.find(order_[g][cursors_[g]]);
        if (found == pending_.end()) break;
        AddTo(&partial_[g], std::move(found->second));
        pending_.erase(found);
        ++cursors_[g];
      }
    }
    while (groups_ < order_.size() && cursors_[groups_] == order_[groups_].size()) {
      AddGroup(std::move(partial_[groups_]));
      partial_[groups_++] = {};
    }
  }
  HostTensor Take() {
    PIPER_CHECK(groups_ == order_.size() && pending_.empty(), "a fold order does not cover every slice once");
    while (sums_.size() > 1) MergeLast();
    HostTensor total = sums_.empty() ? HostTensor{} : std::move(sums_.back().first);
    sums_.clear();
    return total;
  }
  // Before Take; empty unless kept.
  const std::vector<HostTensor>& group_sums() const { return group_sums_; }
  const HostTensor& magnitude() const { return magnitude_; }
  int64_t groups() const { return static_cast<int64_t>(order_.size()); }
  static void AddTo(HostTensor* sum, HostTensor term) {
    if (sum->size() == 0) {
      *sum = std::move(term);
      return;
    }
    Invoke("accumulate", sum->dtype, {term.data(), sum->data()}, {sum->size()});
  }

 private:
  void AddGroup(HostTensor sum) {
    if (options_.keep_groups) group_sums_.push_back(sum);
    if (options_.keep_magnitude) {
      if (magnitude_.size() == 0) magnitude_ = HostTensor::Zeros(DType::kF64, sum.size());
      for (int64_t i = 0; i < sum.size(); ++i) magnitude_.f64[static_cast<size_t>(i)] += std::fabs(sum.at(i));
    }
    sums_.emplace_back(std::move(sum), 1);
    // From the left, or, in pairs, what covers equally many groups.
    while (sums_.size() > 1 &&
           (!options_.pairwise || sums_[sums_.size() - 2].second == sums_.back().second)) {
      MergeLast();
    }
  }
  void MergeLast() {
    std::pair<HostTensor, size_t> last = std::move(sums_.back());
    sums_.pop_back();
    AddTo(&sums_.back().first, std::move(last.first));
    sums_.back().second += last.second;
  }

  FoldOrder order_;
  DType dtype_;
  FoldOptions options_;
  std::vector<size_t> cursors_;
  size_t groups_ = 0;
  std::vector<HostTensor> partial_, group_sums_;
  std::vector<std::pair<HostTensor, size_t>> sums_;  // sums of consecutive groups, and of how many
  HostTensor magnitude_;
  std::map<Slice, HostTensor> pending_;
};

FoldOrder CanonicalOrder(int64_t replicas, int64_t microbatches, bool microbatch_major) {
  FoldOrder order(static_cast<size_t>(microbatch_major ? microbatches : replicas));
  for (int64_t d = 0; d < replicas; ++d) {
    for (int64_t i = 0; i < microbatches; ++i)
      order[static_cast<size_t>(microbatch_major ? i : d)].push_back({d, i});
  }
  return order;
}

// N: see LossScale. `fields` are read slice by slice so that the global batch is never held at once.
int64_t CountForScale(const Graph& graph, const ReferenceOptions& options, const BatchProvider& batch) {
  LossScale scale = FindLossScale(graph);
  int64_t slice = graph.Samples(), slices = options.replicas * options.microbatches;
  if (scale.kind != LossScale::Kind::kTargets) return slice * slices;
  int64_t count = 0;
  std::vector<int32_t> targets(static_cast<size_t>(graph.inputs[scale.targets].type.elements()));
  for (int64_t s = 0; s < slices; ++s) {
    batch(scale.targets, s * slice, slice, targets.data());
    count += std::count_if(targets.begin(), targets.end(), [](int32_t target) { return target >= 0; });
  }
  return count;
}

}  // namespace

ReferenceResult RunReferenceStep(const RegionGraph& regions, const ReferenceOptions& options,
                                 const std::vector<HostTensor>& parameters, const BatchProvider& batch) {
  const Graph& graph = regions.graph;
  const DType dtype = options.dtype;
  PIPER_CHECK(parameters.size() == graph.parameters.size());
  ReferenceResult result;
  result.count = CountForScale(graph, options, batch);
  HostTensor scale = HostTensor::Zeros(dtype, 1);
  double inverse = result.count > 0 ? 1.0 / static_cast<double>(result.count) : 0.0;
  if (dtype == DType::kF64) {
    scale.f64[0] = inverse;
  } else {
    scale.f32[0] = static_cast<float>(inverse);
  }

  Plan plan = Planner(regions, dtype, options.want_gradients).Take();
  int64_t scratch_bytes = 64;
  for (const Plan::Step& step : plan.steps)
    scratch_bytes = std::max(scratch_bytes, ScratchBytes(*step.body, dtype));

  FoldOrder gradient_order =
      CanonicalOrder(options.replicas, options.microbatches, options.reduce_per_microbatch);
  std::map<std::pair<ParameterId, RegionId>, Fold> folds;
  for (const Region& region : regions.regions) {
    if (!options.want_gradients) break;
    bool own = region.id < options.gradient_orders.size() && !options.gradient_orders[region.id].empty();
    for (const Formal& formal : region.backward_weight.formals) {
      if (formal.kind != FormalKind::kGradient) continue;
      folds.emplace(std::pair{formal.parameter, region.id},
                    Fold(own ? options.gradient_orders[region.id] : gradient_order, dtype,
                         {.pairwise = options.pairwise, .keep_magnitude = options.want_magnitudes}));
    }
  }
  std::vector<Fold> loss_folds;
  for (size_t l = 0; l < graph.losses.size(); ++l) {
    bool own = l < options.loss_orders.size() && !options.loss_orders[l].empty();
    loss_folds.emplace_back(
        own ? options.loss_orders[l] : CanonicalOrder(options.replicas, options.microbatches, false), dtype,
        FoldOptions{.keep_groups = true});
  }

  Pool pool;
  std::byte* scratch = pool.Take(scratch_bytes);
  std::vector<std::byte*> memory(plan.buffers.size(), nullptr);
  std::vector<void*> formals;
  std::vector<float> staging;
  // In the order in which gradients fold, so that few terms wait.
  for (const std::vector<Slice>& group : gradient_order) {
    for (Slice slice : group) {
      int64_t samples = graph.Samples();
      int64_t first = (slice.replica * options.microbatches + slice.microbatch) * samples;
      kernels::RandomKey key;
      key.seed = options.seed;
      key.step = options.step;
      key.first_sample = static_cast<uint64_t>(first);
      for (const Plan::Step& step : plan.steps) {
        formals.clear();
        for (uint32_t b : step.buffers) {
          const Plan::Buffer& buffer = plan.buffers[b];
          if (buffer.source == Plan::Buffer::Source::kParameter) {
            formals.push_back(const_cast<void*>(parameters[buffer.index].data()));
            continue;
          }
          if (buffer.source == Plan::Buffer::Source::kScale) {
            formals.push_back(scale.data());
            continue;
          }
          if (memory[b] == nullptr) {
            memory[b] = pool.Take(buffer.bytes);
            if (buffer.source == Plan::Buffer::Source::kInput) {
              const TensorType& type = graph.inputs[buffer.index].type;
              if (type.dtype == DType::kI32 || dtype == DType::kF32) {
                batch(buffer.index, first, samples, memory[b]);
              } else {
                staging.resize(static_cast<size_t>(type.elements()));
                batch(buffer.index, first, samples, staging.data());
                std::copy(staging.begin(), staging.end(), reinterpret_cast<double*>(memory[b]));
              }
            }
          }
          formals.push_back(memory[b]);
        }
        RunBody(*step.body, formals.data(), scratch, key, dtype);
        for (size_t f = 0; f < step.body->formals.size(); ++f) {
          const Formal& formal = step.body->formals[f];
          if (formal.kind != FormalKind::kGradient) continue;
          folds.at({formal.parameter, step.body->region}).Add(slice, formals[f], formal.type.elements());
        }
        for (uint32_t b : step.dead) {
          pool.Give(memory[b], plan.buffers[b].bytes);
          memory[b] = nullptr;
        }
      }
      for (size_t l = 0; l < plan.losses.size(); ++l) loss_folds[l].Add(slice, memory[plan.losses[l]], 1);
      for (uint32_t b : plan.losses) {
        if (memory[b] == nullptr) continue;
        pool.Give(memory[b], plan.buffers[b].bytes);
        memory[b] = nullptr;
      }
    }
  }
  pool.Give(scratch, scratch_bytes);

  HostTensor total;
  for (Fold& fold : loss_folds) {
    for (const HostTensor& sum : fold.group_sums()) Fold::AddTo(&total, sum);
    result.losses.push_back(fold.Take().at(0));
  }
  if (total.size() > 0) result.loss = total.at(0);
  result.gradients.resize(graph.parameters.size());
  for (auto& tensor : result.gradients) tensor.dtype = dtype;
  // Sorted by parameter, then by region: the canonical order.
  if (options.want_magnitudes) {
    result.magnitudes.resize(graph.parameters.size());
    result.additions.resize(graph.parameters.size(), -1);
    for (const auto& [key, fold] : folds) {
      HostTensor& magnitude = result.magnitudes[key.first];
      magnitude.dtype = DType::kF64;
      Fold::AddTo(&magnitude, fold.magnitude());
      // A region's sum joins that of the regions before.
      int64_t& additions = result.additions[key.first];
      additions = additions < 0 ? fold.groups() - 1 : std::max(additions, fold.groups() - 1) + 1;
    }
  }
  for (auto& [key, fold] : folds) Fold::AddTo(&result.gradients[key.first], fold.Take());
  return result;
}

double GlobalNorm(const std::vector<HostTensor>& gradients) {
  double sum = 0;
  for (const HostTensor& gradient : gradients) {
    if (gradient.size() == 0) continue;
    double squares = 0;
    Invoke("sum_of_squares", gradient.dtype, {const_cast<void*>(gradient.data()), &squares},
           {gradient.size()});
    sum += squares;
  }
  return std::sqrt(sum);
}

void ReferenceUpdate(std::vector<HostTensor>* parameters, std::vector<HostTensor>* gradients,
                     std::vector<UpdateState>* states, const std::vector<UpdateRule>& rules, double clip,
                     int64_t step) {
  PIPER_CHECK(parameters->size() == gradients->size() && parameters->size() == rules.size());
  states->resize(parameters->size());
  if (clip > 0) {
    std::vector<double> sums;
    for (const HostTensor& gradient : *gradients) {
      double squares = 0;
      if (gradient.size() > 0) {
        Invoke("sum_of_squares", gradient.dtype, {const_cast<void*>(gradient.data()), &squares},
               {gradient.size()});
      }
      sums.push_back(squares);
    }
    for (HostTensor& gradient : *gradients) {
      if (gradient.size() == 0) continue;
      HostTensor factor = HostTensor::Zeros(gradient.dtype, 1);
      Invoke("clip_factor", gradient.dtype, {sums.data(), factor.data()}, {static_cast<int64_t>(sums.size())},
             {clip});
      HostTensor clipped = HostTensor::Zeros(gradient.dtype, gradient.size());
      Invoke("scale_by", gradient.dtype, {gradient.data(), factor.data(), clipped.data()}, {gradient.size()});
      gradient = std::move(clipped);
    }
  }
  for (size_t p = 0; p < parameters->size(); ++p) {
    HostTensor& parameter = (*parameters)[p];
    HostTensor& gradient = (*gradients)[p];
    UpdateState& state = (*states)[p];
    const UpdateRule& rule = rules[p];
    if (gradient.size() == 0) continue;
    if (state.a.size() == 0) {
      state.a = HostTensor::Zeros(parameter.dtype, parameter.size());
      state.b = HostTensor::Zeros(parameter.dtype, parameter.size());
    }
    if (rule.kind == UpdateRule::Kind::kSgd) {
      Invoke("sgd_update", parameter.dtype, {gradient.data(), parameter.data(), state.a.data()},
             {parameter.size(), rule.nesterov ? 1 : 0}, {rule.lr, rule.momentum, rule.weight_decay});
    } else {
      double t = static_cast<double>(step + 1);
      Invoke("adamw_update", parameter.dtype,
             {gradient.data(), parameter.data(), state.a.data(), state.b.data()}, {parameter.size()},
             {rule.lr, rule.beta1, rule.beta2, rule.eps, rule.weight_decay, 1 - std::pow(rule.beta1, t),
              1 - std::pow(rule.beta2, t)});
    }
  }
}

}  // namespace piper::ir
