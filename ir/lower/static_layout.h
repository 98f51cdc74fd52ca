// The static part of a role's memory: parameters, gradient accumulators (those of one bucket side by side, so
// that one collective reduces them in place), optimizer state, scalars. Computed from the training DAG and
// used for evaluation too.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ir/dag/dag.h"
#include "ir/lower/dag_index.h"
#include "ir/lower/job_storage.h"
#include "ir/lower/optimizer_groups.h"

namespace piper::ir {

constexpr int64_t AlignUp(int64_t bytes) {
  return (bytes + runtime::kAlignment - 1) / runtime::kAlignment * runtime::kAlignment;
}

// What Buffer::bytes can say: 128 TiB. Lowering refuses more, so that nothing is counted wrong.
constexpr int64_t kMostBufferBytes = (int64_t{1} << 47) - 1;

struct StaticLayout {
  std::vector<runtime::Buffer> buffers;
  std::vector<RoleStorage::HeldParameter> parameters;  // ascending by ParameterId
  std::map<ParameterId, uint32_t> parameter_index;     // into `parameters`
  std::map<GradientRef, uint32_t> accumulators;        // buffer
  // Per gradient reduction: this role's contributions, one buffer each. A bucket of one stage copy is one
  // contribution that covers its accumulators; a tied sum has one a region that this role hosts.
  std::map<TemplateId, std::vector<uint32_t>> contributions;
  std::vector<uint32_t> loss_parts;  // a loss fold of this role each; the first is `loss` where there is one
  uint32_t norm = kNone;             // f64 a parameter of the model; kNone without clipping
  // One f64 each, where updates precede the norm: the squares of this role's own gradients, the sum that the
  // host before passes on (kNone: it is the first), and the sum of both.
  uint32_t own_squares = kNone, received_squares = kNone, partial_squares = kNone;
  uint32_t loss_scale = kNone;
  uint32_t loss = kNone;
  int64_t bytes = 0;
};

// `owner`: whether this role's replica 0 saves and counts the parameter, per ParameterId.
StaticLayout BuildStaticLayout(const DagIndex& index, const std::vector<TemplateId>& templates,
                               const std::vector<OptimizerChoice>& optimizers, const TrainSpec& train,
                               const std::vector<uint8_t>& owner, JobStorage* job);

}  // namespace piper::ir
