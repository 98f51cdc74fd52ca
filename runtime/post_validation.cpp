// Updates that precede the norm of all ranks: the copies that they start from, and the node that judges them.
// Nothing is undone by inverse arithmetic: what was wrong is overwritten by the copy, and the update is
// computed again exactly as it would have been with the norm known.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/norm.h"
#include "runtime/executor_state.h"
#include "runtime/futex.h"

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

// Whether clipping is due as far as is known here: the norm of all ranks is at least that of those up to this
// one (but for the last bits, since their squares are added in another order: kValidate decides).
void Executor::State::PartialSquares(ProgramState& program, const Task& task) {
  const auto at = [&](uint32_t operand) {
    return static_cast<double*>(program.operands[task.first_operand + operand]);
  };
  const double total = task.operand_count > 2 ? *at(2) + *at(1) : *at(1);
  *at(0) = total;
  double factor = 1;
  if (job().clip > 0) kernels::clip_factor(&total, &factor, 1, job().clip);
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

// What the norm of all ranks says of the updates of a step; `about` takes the norm.
Verdict Executor::State::Judge(ProgramState& program, const Task& task, StepOutcome& about) {
  const double* sums = static_cast<const double*>(program.operands[task.first_operand]);
  double total = 0;
  for (uint32_t i = 0; i < job().parameter_count; ++i) total += sums[i];
  about.norm_known = true;
  about.gradient_norm = std::sqrt(total);
  if (!std::isfinite(about.gradient_norm)) about.finite = false;
  if (!about.finite) return Verdict::kStop;
  double factor = 1;
  if (job().clip > 0) kernels::clip_factor(sums, &factor, int64_t{job().parameter_count}, job().clip);
  return optimistic && !(factor < 1) ? Verdict::kKeep : Verdict::kRepeat;
}

// Does what was found. Where the run stops, it looks for the cause with the parameters from before the step.
void Executor::State::Execute(ProgramState& program, Verdict verdict, const Task& task, uint64_t of_step) {
  if (verdict == Verdict::kKeep) return;
  if (optimistic) {
    Restore(program);
    ++counts.rollbacks;
  }
  if (verdict == Verdict::kStop) return;
  if (!optimistic) ++counts.late_updates;
  if (job().clip > 0)
    ScaleGradients(program, static_cast<const double*>(program.operands[task.first_operand]));
  for (const Parameter& parameter : program.program->parameters) {
    if (parameter.saved != kNone) UpdateOne(program, parameter, of_step);
  }
}

// The task: within the step it is about, or alone after it. (Within the step that follows JudgeAhead was
// first.)
void Executor::State::Validate(ProgramState& program, const Task& task) {
  const bool carried = task.flag != 0;
  if (carried && part == Part::kAll) return;
  const uint64_t of_step = carried ? pending_step : step;
  if (updates && observer != nullptr) observer(observer_state, *self, of_step);
  StepOutcome& about = carried ? pending_outcome : outcome;
  if (!carried && updates) about.finite = finite.load() && !transport().NonFinite(step);
  const Verdict verdict = Judge(program, task, about);
  if (!std::isfinite(about.gradient_norm)) FlagNonFinite();
  if (updates) Execute(program, verdict, task, of_step);
}

bool Executor::State::CanJudge(const ProgramState& program) const {
  if (program.carried_check == kNone || part != Part::kAll || judged) return false;
  const auto done = [&](uint32_t task) { return program.done[task].load(std::memory_order_acquire) == run; };
  const Task& check = program.program->tasks[program.carried_check];
  const std::span<const uint32_t> waits = program.program->waits.subspan(check.first_wait, check.wait_count);
  return std::all_of(waits.begin(), waits.end(), done) &&
         std::all_of(program.carried_before.begin(), program.carried_before.end(), done);
}

// All ranks find the same, each when the norm has reached it. The gradients of the step before still stand:
// the check precedes all that overwrites them.
Status Executor::State::JudgeAhead(ProgramState& program) {
  const Task& check = program.program->tasks[program.carried_check];
  judged = true;
  if (observer != nullptr) observer(observer_state, *self, pending_step);
  const Verdict verdict = Judge(program, check, pending_outcome);
  return verdict == Verdict::kKeep ? Status{} : BeginAgain(program, verdict);
}

// What has been computed of this step rests on wrong parameters. All ranks stop, take back what is on its
// way, put the parameters right, and begin the step again.
Status Executor::State::BeginAgain(ProgramState& program, Verdict verdict) {
  while (communicating.exchange(true)) CpuRelax();
  uint32_t none = 0;
  std::vector<uint32_t> all(transport().size());
  // After the first meeting nobody reads another's memory any more; after the second nothing old can be met.
  Status met = transport().Exchange(&none, all.data(), sizeof none);
  if (met.ok()) {
    transport().Withdraw();
    met = transport().Exchange(&none, all.data(), sizeof none);
  }
  if (met.ok()) {
    Execute(program, verdict, program.program->tasks[program.carried_check], pending_step);
    sent.store(sent_before[0]), sent_bytes.store(sent_before[1]);
    joined.store(sent_before[2]), joined_bytes.store(sent_before[3]);
    given_up = verdict == Verdict::kStop;
    part = Part::kOwn;
    if (given_up) {
      communication_left.store(0);
    } else {
      // The carried collective has been joined.
      for (const Task& task : program.program->tasks) {
        if (task.kind != TaskKind::kCollective || task.flag == 0) continue;
        joined.fetch_add(1);
        joined_bytes.fetch_add(task.bytes);
      }
      met = Begin(program, step);
      if (!met.ok()) transport().Abort(met);
    }
  }
  communicating.store(false);
  if (!met.ok()) return transport().Failure();
  if (!given_up) transport().Ring(Engine::kCommunication);
  return {};
}

Status Executor::State::RunPart(Part which, uint64_t of_step) {
  part = which;
  judged = given_up = false;
  Status status = Run(train, of_step);
  part = Part::kAll;
  return status;
}

bool Executor::overlaps() const { return job().overlaps != 0 && !state_->setup.options.check_finite; }
bool Executor::pending() const { return state_->pending; }
const StepOutcome& Executor::pending_outcome() const { return state_->pending_outcome; }

Status Executor::RunAhead(uint64_t step, StepOutcome& before) {
  State& state = *state_;
  state.transport().SetStep(step);
  const bool judges = state.pending;
  PIPER_RETURN_IF_ERROR(state.RunPart(judges ? Part::kAll : Part::kOwn, step));
  if (judges) before = state.pending_outcome;
  state.pending = !state.given_up;
  if (state.given_up) return {};
  ++state.counts.steps;
  state.pending_step = step;
  state.pending_outcome = state.outcome;
  return {};
}

Status Executor::Settle(StepOutcome& outcome) {
  State& state = *state_;
  if (state.pending) PIPER_RETURN_IF_ERROR(state.RunPart(Part::kCarried, state.pending_step));
  state.pending = false;
  outcome = state.pending_outcome;
  return {};
}

}  // namespace piper::runtime
