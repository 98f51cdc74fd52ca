// The tasks that a rank does by itself.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/arithmetic.h"
#include "kernels/norm.h"
#include "runtime/executor_state.h"
#include "runtime/optimizer.h"

namespace piper::runtime {
namespace {

// What the check of a body finds between its calls.
struct BodyCheck {
  ProgramState* program;
  const Task* task;
  const Body* body;
  std::byte* scratch;
  uint32_t culprit = kNone;  // first call after which something is not finite
  uint32_t previous = kNone;
};

ElementType FloatType(const RankProgram& program, const Task& task) {
  for (uint32_t i = 0; i < task.operand_count; ++i) {
    ElementType type = program.buffers[program.task_operands[task.first_operand + i]].type;
    if (type == ElementType::kF64 || type == ElementType::kF32) return type;
  }
  return ElementType::kF32;
}

void LookBetweenCalls(BodyContext& context) {
  BodyCheck& check = *static_cast<BodyCheck*>(context.check_state);
  uint32_t previous = check.previous;
  check.previous = context.current_call;
  if (check.culprit != kNone || previous == kNone) return;
  const RankProgram& program = *check.program->program;
  bool bad = FirstNonFinite(check.scratch, check.body->scratch_bytes, FloatType(program, *check.task)) >= 0;
  for (uint32_t i = 0; i < check.task->operand_count && !bad; ++i) {
    const Buffer& buffer = program.buffers[program.task_operands[check.task->first_operand + i]];
    const auto* data = static_cast<const std::byte*>(check.program->operands[check.task->first_operand + i]);
    bad = FirstNonFinite(data, buffer.bytes, buffer.type) >= 0;
  }
  if (bad) check.culprit = previous;
}

template <typename T>
void Fold(void* const* operands, uint32_t count) {
  T sum = *static_cast<const T*>(operands[1]);
  for (uint32_t i = 2; i < count; ++i) sum += *static_cast<const T*>(operands[i]);
  *static_cast<T*>(operands[0]) = sum;
}

template <typename T>
void Accumulate(const Task& task, void* const* operands) {
  if (task.flag != 0) {
    if (operands[0] != operands[1]) std::memcpy(operands[0], operands[1], task.bytes);
    return;
  }
  kernels::accumulate(static_cast<const T*>(operands[1]), static_cast<T*>(operands[0]),
                      task.bytes / static_cast<int64_t>(sizeof(T)));
}

}  // namespace

double Executor::State::ReadScalar(const ProgramState& program, uint32_t buffer) const {
  const std::byte* data = At(program, buffer);
  if (program.program->buffers[buffer].type == ElementType::kF64)
    return *reinterpret_cast<const double*>(data);
  return *reinterpret_cast<const float*>(data);
}

void Executor::State::FlagNonFinite() {
  finite.store(false);
  if (current->train && updates) transport().FlagNonFinite(step);
}

Status Executor::State::RunLocalTask(ProgramState& program, uint32_t index) {
  const Task& task = program.program->tasks[index];
  void* const* operands = program.operands.data() + task.first_operand;
  auto type = [&](uint32_t i) {
    return program.program->buffers[program.program->task_operands[task.first_operand + i]].type;
  };
  bool suspect = false;
  if (checking && task.kind != TaskKind::kCompute) BeforeChecked(program, task, suspect);
  switch (task.kind) {
    case TaskKind::kLoad: {
      std::lock_guard<std::mutex> lock(source_mutex);
      int64_t microbatch = task.microbatch < 0 ? 0 : task.microbatch;
      int64_t first = (program.row->replica * job().microbatches + microbatch) * job().samples_per_microbatch;
      return program.source->Fill(task.argument, step, first, job().samples_per_microbatch, operands[0]);
    }
    case TaskKind::kCompute:
      RunBody(program, task);
      return {};
    case TaskKind::kAccumulate:
      type(0) == ElementType::kF64 ? Accumulate<double>(task, operands) : Accumulate<float>(task, operands);
      break;
    case TaskKind::kSumSquares:
      SumSquares(program, task);
      break;
    case TaskKind::kClip:
      Clip(program, task);
      break;
    case TaskKind::kUpdate:
      Update(program, task);
      break;
    case TaskKind::kPartialSquares:
      PartialSquares(program, task);
      break;
    case TaskKind::kSave:
      Save(program);
      break;
    case TaskKind::kValidate:
      Validate(program, task);
      break;
    case TaskKind::kLossFold:
      type(0) == ElementType::kF64 ? Fold<double>(operands, task.operand_count)
                                   : Fold<float>(operands, task.operand_count);
      if (double loss = ReadScalar(program, program.program->task_operands[task.first_operand]);
          !std::isfinite(loss)) {
        FlagNonFinite();
      }
      break;
    case TaskKind::kCopy:
      CopyPiece(program, task, 0, task.bytes);
      break;
    case TaskKind::kBarrier:
    case TaskKind::kSend:
    case TaskKind::kRecv:
    case TaskKind::kCollective:
      return {};
  }
  if (checking) AfterChecked(program, task, suspect, kNone);
  return {};
}

int64_t Executor::State::CopyPiece(ProgramState& program, const Task& task, int64_t done, int64_t most) {
  int64_t moved = 0;
  for (uint32_t i = 0; i + 1 < task.operand_count && moved < most; i += 2) {
    const int64_t bytes =
        program.program->buffers[program.program->task_operands[task.first_operand + i]].bytes;
    if (done >= bytes) {
      done -= bytes;
      continue;
    }
    const int64_t piece = std::min(bytes - done, most - moved);
    std::memcpy(static_cast<std::byte*>(program.operands[task.first_operand + i + 1]) + done,
                static_cast<const std::byte*>(program.operands[task.first_operand + i]) + done, piece);
    moved += piece;
    done = 0;
  }
  return moved;
}

void Executor::State::RunBody(ProgramState& program, const Task& task) {
  const Body& body = program.program->bodies[task.argument];
  int64_t microbatch = task.microbatch < 0 ? 0 : task.microbatch;
  BodyContext context{};
  context.operands = program.operands.data() + task.first_operand;
  context.scratch = program.scratch[task.stream];
  context.seed = setup.seed;
  context.step = step;
  context.first_sample = static_cast<uint64_t>((program.row->replica * job().microbatches + microbatch) *
                                               job().samples_per_microbatch);
  bool suspect = false;
  BodyCheck check{&program, &task, &body, context.scratch};
  if (checking) {
    BeforeChecked(program, task, suspect);
    if (body.scratch_bytes > 0) std::memset(context.scratch, 0, body.scratch_bytes);
    if (!suspect) {
      context.check = LookBetweenCalls;
      context.check_state = &check;
    }
  }
  if (body.function != nullptr) {
    body.function(context);
  } else {
    program.bodies->Run(task.argument, context);
  }
  if (checking) AfterChecked(program, task, suspect, check.culprit != kNone ? check.culprit : check.previous);
}

void Executor::State::SumSquares(ProgramState& program, const Task& task) {
  double* sums = static_cast<double*>(program.operands[task.first_operand]);
  // Replicas have the same gradients: one of them counts, but all know their part.
  double* own =
      task.operand_count > 1 ? static_cast<double*>(program.operands[task.first_operand + 1]) : nullptr;
  std::memset(sums, 0, job().parameter_count * sizeof(double));
  if (own != nullptr) *own = 0;
  const bool counts_here = program.row->replica == 0;
  for (const Parameter& parameter : program.program->parameters) {
    if (parameter.owner == 0 || parameter.gradient == kNone || (!counts_here && own == nullptr)) continue;
    const std::byte* gradient = At(program, parameter.gradient);
    double sum = 0;
    if (program.program->buffers[parameter.gradient].type == ElementType::kF64) {
      kernels::sum_of_squares(reinterpret_cast<const double*>(gradient), &sum, parameter.elements);
    } else {
      kernels::sum_of_squares(reinterpret_cast<const float*>(gradient), &sum, parameter.elements);
    }
    if (counts_here) sums[parameter.global_index] = sum;
    if (own != nullptr) *own += sum;
  }
}

void Executor::State::Clip(ProgramState& program, const Task& task) {
  const double* sums = static_cast<const double*>(program.operands[task.first_operand]);
  double total = 0;
  for (uint32_t i = 0; i < job().parameter_count; ++i) total += sums[i];
  outcome.norm_known = true;
  outcome.gradient_norm = std::sqrt(total);
  if (!std::isfinite(outcome.gradient_norm)) {
    FlagNonFinite();
    return;
  }
  if (job().clip <= 0 || !updates) return;
  ScaleGradients(program, sums);
}

// By the factor that clips the norm of `sums`.
void Executor::State::ScaleGradients(ProgramState& program, const double* sums) {
  float factor = 1;
  double factor64 = 1;
  kernels::clip_factor(sums, &factor, int64_t{job().parameter_count}, job().clip);
  kernels::clip_factor(sums, &factor64, int64_t{job().parameter_count}, job().clip);
  for (const Parameter& parameter : program.program->parameters) {
    if (parameter.gradient == kNone) continue;
    std::byte* gradient = At(program, parameter.gradient);
    if (program.program->buffers[parameter.gradient].type == ElementType::kF64) {
      if (factor64 >= 1) continue;
      auto* x = reinterpret_cast<double*>(gradient);
      kernels::scale_by(x, &factor64, x, parameter.elements);
    } else {
      if (factor >= 1) continue;
      auto* x = reinterpret_cast<float*>(gradient);
      kernels::scale_by(x, &factor, x, parameter.elements);
    }
  }
}

void Executor::State::Update(ProgramState& program, const Task& task) {
  if (!updates) return;
  const Parameter& parameter = program.program->parameters[task.argument];
  if (task.flag != 0) {
    if (optimistic) UpdateOne(program, parameter, step);
    return;
  }
  ElementType type = program.program->buffers[parameter.value].type;
  const std::byte* gradient = At(program, parameter.gradient);
  // The norm has seen every gradient where there is one; elsewhere each is looked at before it is used:
  // squares of f32 cannot overflow their sum in f64, so one pass serves the report as well.
  if (!program.has_clip) {
    double squares = 0;
    if (type == ElementType::kF64) {
      kernels::sum_of_squares(reinterpret_cast<const double*>(gradient), &squares, parameter.elements);
    } else {
      kernels::sum_of_squares(reinterpret_cast<const float*>(gradient), &squares, parameter.elements);
    }
    if (!std::isfinite(squares) &&
        (type == ElementType::kF32 ||
         FirstNonFinite(gradient, parameter.elements * ElementBytes(type), type) >= 0)) {
      FlagNonFinite();
    }
    std::lock_guard<std::mutex> lock(update_mutex);
    outcome.squares_known = true;
    if (parameter.owner != 0 && program.row->replica == 0) outcome.squares.Add(squares);
  }
  // Nothing is updated any more once a value was not finite, on this rank or, as far as it is known, on
  // another.
  if (!finite.load(std::memory_order_relaxed) || transport().NonFinite(step)) return;
  UpdateOne(program, parameter, step);
}

void Executor::State::UpdateOne(ProgramState& program, const Parameter& parameter, uint64_t of_step) {
  const ElementType type = program.program->buffers[parameter.value].type;
  const std::byte* gradient = At(program, parameter.gradient);
  auto at = [&](uint32_t buffer) { return buffer == kNone ? nullptr : At(program, buffer); };
  const Optimizer& optimizer = job().optimizers[parameter.optimizer];
  {
    std::lock_guard<std::mutex> lock(update_mutex);
    outcome.updated = true;
  }
  if (type == ElementType::kF64) {
    UpdateParameter(optimizer, of_step, parameter.weight_decay, reinterpret_cast<const double*>(gradient),
                    reinterpret_cast<double*>(at(parameter.value)),
                    reinterpret_cast<double*>(at(parameter.state[0])),
                    reinterpret_cast<double*>(at(parameter.state[1])), parameter.elements);
  } else {
    UpdateParameter(optimizer, of_step, parameter.weight_decay, reinterpret_cast<const float*>(gradient),
                    reinterpret_cast<float*>(at(parameter.value)),
                    reinterpret_cast<float*>(at(parameter.state[0])),
                    reinterpret_cast<float*>(at(parameter.state[1])), parameter.elements);
  }
}

}  // namespace piper::runtime
