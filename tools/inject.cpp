#include "tools/inject.h"

#include <fmt/format.h>

namespace piper::tools {
namespace {

using runtime::Task;
using runtime::TaskKind;

// A microbatch's contribution to one gradient is lost: the last accumulate that adds (or, with one
// microbatch, the one that assigns).
bool DropAccumulate(ir::JobStorage& job) {
  Task* victim = nullptr;
  for (ir::RoleStorage& role : job.train_roles()) {
    for (Task& task : role.tasks) {
      if (task.kind != TaskKind::kAccumulate) continue;
      if (victim == nullptr || task.flag <= victim->flag) victim = &task;
    }
  }
  if (victim == nullptr) return false;
  victim->kind = TaskKind::kBarrier;
  victim->operand_count = 0;
  victim->bytes = 0;
  return true;
}

// One rank reads the samples of one microbatch in place of another's, for one input field.
bool SwapMicrobatch(ir::JobStorage& job) {
  for (ir::RoleStorage& role : job.train_roles()) {
    Task* first = nullptr;
    for (Task& task : role.tasks) {
      if (task.kind != TaskKind::kLoad) continue;
      if (first == nullptr) {
        first = &task;
      } else if (task.argument == first->argument && task.microbatch != first->microbatch) {
        std::swap(task.microbatch, first->microbatch);
        return true;
      }
    }
  }
  return false;
}

// The loss is averaged over the wrong number of targets.
bool WrongScale(ir::JobStorage& job) {
  job.header.targets_per_sample *= 2;
  return job.header.targets_per_sample > 0;
}

}  // namespace

const std::vector<std::string>& FaultNames() {
  static const std::vector<std::string> names = {"drop-accumulate", "swap-microbatch", "wrong-scale"};
  return names;
}

Status InjectFault(const std::string& name, ir::JobStorage& job) {
  bool done = false;
  if (name == "drop-accumulate") {
    done = DropAccumulate(job);
  } else if (name == "swap-microbatch") {
    done = SwapMicrobatch(job);
  } else if (name == "wrong-scale") {
    done = WrongScale(job);
  } else {
    return Error{fmt::format("there is no fault '{}'; there are {}", name, fmt::join(FaultNames(), ", "))};
  }
  if (!done) return Error{fmt::format("this job has no place for the fault '{}'", name)};
  job.Seal();
  return Ok();
}

}  // namespace piper::tools
