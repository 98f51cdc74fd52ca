#include "ir/cost/steps.h"

#include <algorithm>
#include <vector>

#include "ir/support/result.h"

namespace piper::ir {
namespace {

using runtime::RankProgram;
using runtime::Stream;
using runtime::Task;
using runtime::TaskKind;

// A role's program, `steps` times: on every stream one step's tasks after the other's. The first task of a
// stream waits for the last of every other in the step before: a rank begins a step when its own part of the
// last one is over.
struct Unrolled {
  std::vector<Stream> streams;
  std::vector<Task> tasks;
  std::vector<uint32_t> waits;
  std::vector<uint32_t> step_of;  // a task

  Unrolled(const RankProgram& program, uint32_t steps, uint32_t keys) {
    uint32_t atomics = 0, first = 0;
    for (const Task& task : program.tasks) {
      if (task.atomic != kNone) atomics = std::max(atomics, task.atomic + 1);
    }
    for (const Stream& stream : program.streams) {
      streams.push_back(stream);
      streams.back().first_task = first;
      streams.back().task_count = stream.task_count * steps;
      first += streams.back().task_count;
    }
    const auto at = [&](uint32_t task, uint32_t step) {
      const uint32_t s = program.tasks[task].stream;
      const Stream& stream = program.streams[s];
      return streams[s].first_task + step * stream.task_count + (task - stream.first_task);
    };
    tasks.reserve(program.tasks.size() * steps);
    for (uint32_t s = 0; s < program.streams.size(); ++s) {
      const Stream& stream = program.streams[s];
      for (uint32_t step = 0; step < steps; ++step) {
        for (uint32_t t = stream.first_task; t < stream.first_task + stream.task_count; ++t) {
          Task task = program.tasks[t];
          task.first_wait = static_cast<uint32_t>(waits.size());
          for (uint32_t w = 0; w < task.wait_count; ++w)
            waits.push_back(at(program.waits[program.tasks[t].first_wait + w], step));
          if (step > 0 && t == stream.first_task) {
            for (uint32_t other = 0; other < program.streams.size(); ++other) {
              const Stream& before = program.streams[other];
              if (other != s && before.task_count > 0)
                waits.push_back(at(before.first_task + before.task_count - 1, step - 1));
            }
          }
          task.wait_count = static_cast<uint32_t>(waits.size()) - task.first_wait;
          if (task.atomic != kNone) task.atomic += step * atomics;
          if (task.kind == TaskKind::kSend || task.kind == TaskKind::kRecv) task.key += step * keys;
          tasks.push_back(task);
          step_of.push_back(step);
        }
      }
    }
  }
};

}  // namespace

StepsResult SimulateSteps(const runtime::Job& job, const Topology& topology, const SimulationResult& single,
                          int64_t steps) {
  PIPER_CHECK(steps >= 1 && single.deadlock.empty());
  StepsResult result;
  result.steps = steps;
  const auto finish = [&](Picoseconds period) {
    result.period = period;
    for (const RoleStatistics& role : single.roles) {
      if (period > 0)
        result.bubble = std::max(result.bubble, static_cast<double>(period - std::min(period, role.busy)) /
                                                    static_cast<double>(period));
    }
  };
  if (job.overlaps == 0 || steps == 1) {
    result.total = single.makespan > INT64_MAX / steps ? INT64_MAX : single.makespan * steps;
    result.steady = true;
    finish(single.makespan);
    return result;
  }
  const uint32_t simulated = static_cast<uint32_t>(std::min(steps, kSimulatedSteps));
  uint32_t keys = 0;
  for (const RankProgram& program : job.train) {
    for (const Task& task : program.tasks) {
      const bool message = task.kind == TaskKind::kSend || task.kind == TaskKind::kRecv;
      if (message && task.key != kNone) keys = std::max(keys, task.key + 1);
    }
  }
  std::vector<Unrolled> unrolled;
  std::vector<RankProgram> programs;
  unrolled.reserve(job.train.size());
  for (const RankProgram& program : job.train) {
    const Unrolled& rows = unrolled.emplace_back(program, simulated, keys);
    RankProgram& copy = programs.emplace_back(program);
    copy.streams = rows.streams;
    copy.tasks = rows.tasks;
    copy.waits = rows.waits;
  }
  runtime::Job whole = job;
  whole.train = programs;
  const SimulationResult timed = Simulate(whole, topology);
  PIPER_CHECK(timed.deadlock.empty(), "a job whose step completes stops in a later one");
  std::vector<Picoseconds> ends(simulated, 0);
  for (size_t role = 0; role < programs.size(); ++role) {
    for (size_t t = 0; t < programs[role].tasks.size(); ++t) {
      Picoseconds& end = ends[unrolled[role].step_of[t]];
      end = std::max(end, timed.timings[role][t].end);
    }
  }
  finish(ends[simulated - 1] - ends[simulated - 2]);
  result.steady = simulated >= 3 && result.period == ends[simulated - 2] - ends[simulated - 3];
  result.total = ends[simulated - 1];
  const int64_t more = steps - simulated;
  const bool huge = more > 0 && result.period > INT64_MAX / more;
  result.total = SaturatingAdd(result.total, huge ? INT64_MAX : result.period * more);
  return result;
}

}  // namespace piper::ir
