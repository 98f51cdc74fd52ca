#include "ir/lower/static_layout.h"

#include <algorithm>
#include <set>

#include "ir/support/result.h"

namespace piper::ir {
namespace {

class Layout {
 public:
  Layout(const DagIndex& index, const std::vector<TemplateId>& templates, JobStorage* job)
      : index_(index),
        graph_(index.regions.graph),
        templates_(templates),
        job_(job),
        tie_(InternName("tie.reduce")) {}

  StaticLayout Build(const std::vector<OptimizerChoice>& optimizers, const TrainSpec& train,
                     const std::vector<uint8_t>& owner) {
    AddParameters(optimizers, owner);
    AddAccumulators();
    AddOptimizerState(train);
    AddScalars();
    SetGradients();
    AddSaved();
    layout_.bytes = next_;
    return std::move(layout_);
  }

 private:
  uint32_t Add(int64_t bytes, runtime::BufferKind kind, DType type, const std::string& name) {
    next_ = AlignUp(next_);
    layout_.buffers.push_back(
        {next_, bytes, kind, static_cast<runtime::ElementType>(type), job_->Intern(name)});
    next_ = AlignUp(next_ + bytes);
    return static_cast<uint32_t>(layout_.buffers.size()) - 1;
  }

  void AddParameters(const std::vector<OptimizerChoice>& optimizers, const std::vector<uint8_t>& owner) {
    std::set<ParameterId> held;
    for (TemplateId t : templates_) {
      const NodeTemplate& node = index_.dag.templates[t];
      if (node.kind == NodeKind::kUpdate) held.insert(node.parameter);
      if (node.kind != NodeKind::kCompute) continue;
      for (const Formal& formal : index_.BodyOf(node).formals) {
        if (formal.kind == FormalKind::kParameter) held.insert(formal.parameter);
      }
    }
    for (ParameterId p : held) {
      const Parameter& parameter = graph_.parameters[p];
      RoleStorage::HeldParameter row{};
      for (const Dim& dim : parameter.type.dims) row.dims.push_back(dim.size);
      row.row.name = job_->Intern(parameter.name);
      row.row.elements = parameter.type.elements();
      row.row.init = {static_cast<uint8_t>(parameter.init.kind), parameter.init.a, parameter.init.b};
      row.row.value =
          Add(parameter.type.bytes(), runtime::BufferKind::kParameter, parameter.type.dtype, parameter.name);
      row.row.gradient = kNone;
      row.row.state[0] = row.row.state[1] = row.row.saved = kNone;
      row.row.optimizer = optimizers[p].spec;
      row.row.weight_decay = optimizers[p].weight_decay;
      row.row.global_index = p;
      row.row.owner = owner[p];
      layout_.parameter_index[p] = static_cast<uint32_t>(layout_.parameters.size());
      layout_.parameters.push_back(row);
    }
  }

  uint32_t AddAccumulator(const GradientRef& ref) {
    auto found = layout_.accumulators.find(ref);
    PIPER_CHECK(found == layout_.accumulators.end(), "a gradient in two buckets");
    const Parameter& parameter = graph_.parameters[ref.parameter];
    const uint32_t buffer = Add(parameter.type.bytes(), runtime::BufferKind::kGradient, parameter.type.dtype,
                                "d_" + parameter.name + " of " + index_.regions.regions[ref.region].name);
    layout_.accumulators[ref] = buffer;
    return buffer;
  }

  void AddAccumulators() {
    std::set<GradientRef> hosted;
    for (TemplateId t : templates_) {
      const NodeTemplate& node = index_.dag.templates[t];
      if (node.kind == NodeKind::kAccumulate && !node.step_level()) hosted.insert(node.gradients.at(0));
    }
    // A bucket's accumulators side by side.
    for (TemplateId t : templates_) {
      const NodeTemplate& node = index_.dag.templates[t];
      if (!IsBucket(node)) continue;
      std::set<uint32_t> copies;
      for (const GradientRef& ref : node.gradients) {
        if (hosted.count(ref) != 0) copies.insert(ref.copy);
      }
      for (uint32_t copy : copies) {
        uint32_t first = kNone, last = kNone;
        for (const GradientRef& ref : node.gradients) {
          if (ref.copy != copy || hosted.count(ref) == 0) continue;
          last = AddAccumulator(ref);
          if (first == kNone) first = last;
        }
        if (first != last) {
          const runtime::Buffer begin = layout_.buffers[first], end = layout_.buffers[last];
          runtime::Buffer cover = begin;
          cover.bytes = end.offset + end.bytes - begin.offset;
          cover.name = job_->Intern(node.name);
          layout_.buffers.push_back(cover);
          first = static_cast<uint32_t>(layout_.buffers.size()) - 1;
        }
        layout_.contributions[t].push_back(first);
      }
    }
    for (const GradientRef& ref : hosted) {
      if (layout_.accumulators.count(ref) == 0) AddAccumulator(ref);
    }
    for (TemplateId t : templates_) {
      const NodeTemplate& node = index_.dag.templates[t];
      if (!HasName(node, tie_)) continue;
      std::vector<uint32_t>& contributions = layout_.contributions[t];
      for (const GradientRef& ref : node.gradients) {
        if (hosted.count(ref) != 0) contributions.push_back(layout_.accumulators.at(ref));
      }
      // A host that reads the parameter without differentiating it contributes nothing, but takes the sum.
      if (contributions.empty())
        AddAccumulator({node.gradients.at(0).parameter, node.gradients[0].region, kNone});
    }
  }

  bool IsBucket(const NodeTemplate& node) const {
    return node.kind == NodeKind::kAllReduce && !node.gradients.empty() && !HasName(node, tie_) &&
           node.step_level();
  }

  void AddOptimizerState(const TrainSpec& train) {
    for (RoleStorage::HeldParameter& held : layout_.parameters) {
      if (held.row.optimizer == kNone) continue;
      const OptimizerSpec& spec = train.optimizers[held.row.optimizer];
      const Parameter& parameter = graph_.parameters[held.row.global_index];
      const bool adam = spec.kind == OptimizerSpec::Kind::kAdamW;
      const int states = adam ? 2 : spec.momentum != 0 ? 1 : 0;
      for (int s = 0; s < states; ++s) {
        const std::string name = (!adam ? "momentum of " : s == 0 ? "m of " : "v of ") + parameter.name;
        held.row.state[s] =
            Add(parameter.type.bytes(), runtime::BufferKind::kOptimizerState, parameter.type.dtype, name);
      }
    }
  }

  void AddScalars() {
    bool scale = false, fold_result = false, partial = false, received = false;
    for (TemplateId t : templates_) {
      const NodeTemplate& node = index_.dag.templates[t];
      if (node.kind == NodeKind::kCompute) {
        for (const Formal& formal : index_.BodyOf(node).formals)
          scale = scale || formal.kind == FormalKind::kScale;
      } else if (node.kind == NodeKind::kLossFold) {
        layout_.loss_parts.push_back(kNone);
      } else if (node.kind == NodeKind::kNorm || node.kind == NodeKind::kClip ||
                 node.kind == NodeKind::kValidate) {
        fold_result = true;
      } else if (node.kind == NodeKind::kPartial) {
        partial = true;
        for (TemplateId from : index_.Predecessors(t))
          received = received || index_.dag.templates[from].kind == NodeKind::kRecv;
      }
    }
    bool loss = !layout_.loss_parts.empty();
    for (TemplateId t : templates_) loss = loss || ReducesLoss(t);
    if (fold_result) {
      layout_.norm = Add(8 * static_cast<int64_t>(graph_.parameters.size()), runtime::BufferKind::kScalar,
                         DType::kF64, "squares of gradients");
    }
    const auto squares = [&](const char* name) {
      return Add(8, runtime::BufferKind::kScalar, DType::kF64, name);
    };
    if (partial) {
      layout_.own_squares = squares("own squares");
      if (received) layout_.received_squares = squares("squares of the ranks before");
      layout_.partial_squares = squares("squares as far as known");
    }
    if (scale) layout_.loss_scale = Add(4, runtime::BufferKind::kScalar, DType::kF32, "loss scale");
    if (loss) layout_.loss = Add(4, runtime::BufferKind::kScalar, DType::kF32, "loss");
    for (size_t i = 0; i < layout_.loss_parts.size(); ++i) {
      layout_.loss_parts[i] =
          i == 0 ? layout_.loss
                 : Add(4, runtime::BufferKind::kScalar, DType::kF32, "loss part " + std::to_string(i));
    }
  }

  // A collective whose data predecessor folds losses.
  bool ReducesLoss(TemplateId t) const {
    if (index_.dag.templates[t].kind != NodeKind::kAllReduce || !index_.dag.templates[t].gradients.empty())
      return false;
    for (TemplateId from : index_.Predecessors(t)) {
      if (index_.dag.templates[from].kind == NodeKind::kLossFold) return true;
    }
    return false;
  }

  // Where the final gradient of each parameter stands: the first entry of its tied sum that this role hosts,
  // else its first accumulator by (region, copy).
  void SetGradients() {
    for (RoleStorage::HeldParameter& held : layout_.parameters) {
      const ParameterId p = held.row.global_index;
      if (held.row.optimizer == kNone) continue;
      auto first = layout_.accumulators.lower_bound({p, 0, 0});
      if (first != layout_.accumulators.end() && first->first.parameter == p)
        held.row.gradient = first->second;
    }
    for (const auto& [t, buffers] : layout_.contributions) {
      const NodeTemplate& node = index_.dag.templates[t];
      if (!HasName(node, tie_) || buffers.empty()) continue;
      auto held = layout_.parameter_index.find(node.gradients.at(0).parameter);
      if (held != layout_.parameter_index.end()) layout_.parameters[held->second].row.gradient = buffers[0];
    }
  }

  // Room for the copy of each parameter that is updated before the norm of all ranks is known.
  void AddSaved() {
    std::set<ParameterId> updated;
    bool saves = false;
    for (TemplateId t : templates_) {
      const NodeTemplate& node = index_.dag.templates[t];
      saves = saves || node.kind == NodeKind::kSave;
      if (node.kind == NodeKind::kUpdate) updated.insert(node.parameter);
    }
    for (RoleStorage::HeldParameter& held : layout_.parameters) {
      if (!saves || updated.count(held.row.global_index) == 0) continue;
      const Parameter& parameter = graph_.parameters[held.row.global_index];
      int64_t bytes = AlignUp(parameter.type.bytes());
      for (uint32_t state : held.row.state)
        bytes += state == kNone ? 0 : AlignUp(layout_.buffers[state].bytes);
      held.row.saved =
          Add(bytes, runtime::BufferKind::kSaved, parameter.type.dtype, "copy of " + parameter.name);
    }
  }

  const DagIndex& index_;
  const Graph& graph_;
  const std::vector<TemplateId>& templates_;
  JobStorage* job_;
  NameId tie_;
  int64_t next_ = 0;
  StaticLayout layout_;
};

}  // namespace

StaticLayout BuildStaticLayout(const DagIndex& index, const std::vector<TemplateId>& templates,
                               const std::vector<OptimizerChoice>& optimizers, const TrainSpec& train,
                               const std::vector<uint8_t>& owner, JobStorage* job) {
  return Layout(index, templates, job).Build(optimizers, train, owner);
}

}  // namespace piper::ir
