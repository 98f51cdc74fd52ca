// Check mode: every task's operands are scanned, and the first task whose inputs were finite and whose
// results are not is named. Values that are already known to be bad when a task starts are not the task's
// doing.
#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/finite.h"
#include "runtime/executor_state.h"

namespace piper::runtime {

int64_t FirstNonFinite(const std::byte* data, int64_t bytes, ElementType type) {
  if (type == ElementType::kF32)
    return kernels::first_non_finite(reinterpret_cast<const float*>(data), bytes / 4);
  if (type == ElementType::kF64)
    return kernels::first_non_finite(reinterpret_cast<const double*>(data), bytes / 8);
  return -1;
}

// Sets `suspect` where an operand is bad before the task runs.
void Executor::State::BeforeChecked(ProgramState& program, const Task& task, bool& suspect) {
  auto look = [&](uint32_t index) {
    const Buffer& buffer = program.program->buffers[index];
    auto health = static_cast<Health>(program.health[index].load());
    if (health == Health::kUnknown) {
      health =
          FirstNonFinite(At(program, index), buffer.bytes, buffer.type) >= 0 ? Health::kBad : Health::kFinite;
      program.health[index].store(static_cast<uint8_t>(health));
    }
    suspect |= health == Health::kBad;
  };
  // Not operands, but what it reads: a norm of gradients that are bad is nobody's first fault.
  if (task.kind == TaskKind::kSumSquares) {
    for (const Parameter& parameter : program.program->parameters) {
      if (parameter.gradient != kNone) look(parameter.gradient);
    }
  }
  for (uint32_t i = 0; i < task.operand_count; ++i) {
    // The first term of a fold overwrites what stands there.
    if (i == 0 && task.kind == TaskKind::kAccumulate && task.flag != 0) continue;
    look(program.program->task_operands[task.first_operand + i]);
  }
}

void Executor::State::AfterChecked(ProgramState& program, const Task& task, bool suspect,
                                   uint32_t culprit_call) {
  for (uint32_t i = 0; i < task.operand_count; ++i) {
    uint32_t index = program.program->task_operands[task.first_operand + i];
    const Buffer& buffer = program.program->buffers[index];
    int64_t element = FirstNonFinite(At(program, index), buffer.bytes, buffer.type);
    program.health[index].store(static_cast<uint8_t>(element >= 0 ? Health::kBad : Health::kFinite));
    if (element < 0) continue;
    FlagNonFinite();
    if (suspect) continue;
    suspect = true;  // one finding a task
    double value = buffer.type == ElementType::kF64
                       ? reinterpret_cast<const double*>(At(program, index))[element]
                       : static_cast<double>(reinterpret_cast<const float*>(At(program, index))[element]);
    std::string text;
    if (task.kind == TaskKind::kCompute) {
      const Body& body = program.program->bodies[task.argument];
      if (culprit_call != kNone && culprit_call < body.call_count) {
        const Call& call = program.program->calls[body.first_call + culprit_call];
        text = std::string("operation '") + call.operation + "' in ";
      }
    }
    text += std::string("'") + Text(task.name) + "'";
    if (const char* origin = Text(task.origin); origin[0] != '\0') text += std::string(" (") + origin + ")";
    text += ", rank " + std::to_string(setup.rank);
    if (task.microbatch >= 0) text += ", microbatch " + std::to_string(task.microbatch);
    text += std::string(": '") + buffer.name + "' is " +
            (std::isnan(value) ? "nan"
             : value > 0       ? "inf"
                               : "-inf") +
            " at element " + std::to_string(element);
    std::lock_guard<std::mutex> lock(finding_mutex);
    if (finding.empty()) finding = text;
  }
}

Status Executor::FindNonFinite(uint64_t step, std::string& finding) {
  State& state = *state_;
  state.finding.clear();
  const bool updated = state.outcome.updated;  // of the step that is about to be repeated
  for (const Parameter& parameter : state.train.program->parameters) {
    const Buffer& buffer = state.train.program->buffers[parameter.value];
    int64_t element = FirstNonFinite(state.At(state.train, parameter.value), buffer.bytes, buffer.type);
    if (element >= 0) {
      state.finding =
          std::string("parameter '") + parameter.name + "' on rank " + std::to_string(state.setup.rank) +
          (updated ? " is not finite, at element " : " was not finite before the step, at element ") +
          std::to_string(element);
      break;
    }
  }
  // What the repeated step writes anew must not be judged by what the first try left there.
  for (const Buffer& buffer : state.train.program->buffers) {
    if (buffer.kind == BufferKind::kGradient || buffer.kind == BufferKind::kScalar) {
      std::fill_n(state.arena + buffer.offset, buffer.bytes, std::byte{0});
    }
  }
  state.checking = true;
  state.updates = false;
  Status status = state.RunPart(state.train.carried_check != kNone ? Part::kOwn : Part::kAll, step);
  state.checking = state.setup.options.check_finite;
  state.updates = true;
  finding = state.finding;
  return status;
}

}  // namespace piper::runtime
