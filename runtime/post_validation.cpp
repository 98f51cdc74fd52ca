// Updates that precede the norm of all ranks: the copies that they start from, and the node that judges them.
// Nothing is undone by inverse arithmetic: what was wrong is overwritten by the copy, and the update is
// computed again exactly as it would have been with the norm known.
#include <cmath>
#include <cstring>

#include "kernels/norm.h"
#include "runtime/executor_state.h"

namespace piper::runtime {
namespace {

// The parameter's value and optimizer state, in the order of the copy.
template <typename F>
void ForEachSaved(const RankProgram& program, const Parameter& parameter, F visit) {
  int64_t at = 0;
  for (uint32_t buffer : {parameter.value, parameter.state[0], parameter.state[1]}) {
    if (buffer == kNone) continue;
    visit(buffer, at, program.buffers[buffer].bytes);
    at += (program.buffers[buffer].bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
}

}  // namespace

// Whether clipping is due as far as this rank knows: the norm of all ranks is at least that of its own part.
void Executor::State::DecideOptimistic(const double* own_sums) {
  double total = 0;
  for (uint32_t i = 0; i < job().parameter_count; ++i) total += own_sums[i];
  double factor = 1;
  if (job().clip > 0) kernels::clip_factor(own_sums, &factor, int64_t{job().parameter_count}, job().clip);
  optimistic = std::isfinite(total) && !(factor < 1);
}

void Executor::State::Save(ProgramState& program) {
  if (!updates || !optimistic) return;
  for (const Parameter& parameter : program.program->parameters) {
    if (parameter.saved == kNone) continue;
    ForEachSaved(*program.program, parameter, [&](uint32_t buffer, int64_t at, int64_t bytes) {
      std::memcpy(At(program, parameter.saved) + at, At(program, buffer), static_cast<size_t>(bytes));
    });
  }
}

void Executor::State::Restore(ProgramState& program) {
  for (const Parameter& parameter : program.program->parameters) {
    if (parameter.saved == kNone) continue;
    ForEachSaved(*program.program, parameter, [&](uint32_t buffer, int64_t at, int64_t bytes) {
      std::memcpy(At(program, buffer), At(program, parameter.saved) + at, static_cast<size_t>(bytes));
    });
  }
  outcome.updated = false;
}

void Executor::State::Validate(ProgramState& program, const Task& task) {
  const double* sums = static_cast<const double*>(program.operands[task.first_operand]);
  double total = 0;
  for (uint32_t i = 0; i < job().parameter_count; ++i) total += sums[i];
  outcome.norm_known = true;
  outcome.gradient_norm = std::sqrt(total);
  const bool norm_finite = std::isfinite(outcome.gradient_norm);
  if (!norm_finite) FlagNonFinite();
  if (!updates) return;
  if (!norm_finite || !finite.load() || transport().NonFinite(step)) {
    // The run stops, and looks for the cause with the parameters from before the step.
    if (optimistic) {
      Restore(program);
      ++counts.rollbacks;
    }
    return;
  }
  double factor = 1;
  if (job().clip > 0) kernels::clip_factor(sums, &factor, int64_t{job().parameter_count}, job().clip);
  if (optimistic && !(factor < 1)) return;
  if (optimistic) {
    Restore(program);
    ++counts.rollbacks;
  } else {
    ++counts.late_updates;
  }
  if (job().clip > 0) ScaleGradients(program, sums);
  for (const Parameter& parameter : program.program->parameters) {
    if (parameter.saved != kNone) UpdateOne(program, parameter);
  }
}

}  // namespace piper::runtime
