#include "ir/check/deadlock.h"

#include <fmt/format.h>

namespace piper::ir {
namespace {

SourceRange RangeOf(const std::map<uint32_t, SourceRange>& origins, const runtime::Task& task) {
  auto found = origins.find(task.origin);
  return found == origins.end() ? SourceRange{} : found->second;
}

std::string Waiting(const runtime::Job& job, std::span<const runtime::RankProgram> programs,
                    const BlockedHead& head) {
  const runtime::RankProgram& program = programs[head.role];
  const runtime::Task& task = program.tasks[head.task];
  std::string text = fmt::format("{}, stream '{}': {}", RanksText(program), program.streams[head.stream].name,
                                 TaskText(job, task));
  if (head.awaited == runtime::kNone) return text + " has no other end";
  const runtime::RankProgram& other = programs[head.awaited_role];
  const runtime::Task& awaited = other.tasks[head.awaited];
  text += fmt::format(" waits for {}", TaskText(job, awaited));
  if (head.awaited_role != head.role) text += fmt::format(" of {}", RanksText(other));
  return text;
}

}  // namespace

std::string RanksText(const runtime::RankProgram& program) {
  if (program.ranks.size() == 1) return fmt::format("rank {}", program.ranks[0].rank);
  bool run = true;
  for (size_t i = 1; i < program.ranks.size(); ++i)
    run = run && program.ranks[i].rank == program.ranks[i - 1].rank + 1;
  if (run && program.ranks.size() > 2) {
    return fmt::format("ranks {}..{}", program.ranks.front().rank, program.ranks.back().rank);
  }
  std::string text = "ranks ";
  constexpr size_t kShown = 6;
  for (size_t i = 0; i < program.ranks.size() && i < kShown; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", program.ranks[i].rank);
  }
  if (program.ranks.size() > kShown) text += ", ..";
  return text;
}

std::string TaskText(const runtime::Job& job, const runtime::Task& task) {
  const char* name = job.strings[task.name];
  return task.microbatch < 0 ? fmt::format("'{}'", name)
                             : fmt::format("'{}' (microbatch {})", name, task.microbatch);
}

bool CheckDeadlock(const runtime::Job& job, const SimulationResult& simulation,
                   const std::map<uint32_t, SourceRange>& origins, DiagnosticEngine& diag, bool evaluation) {
  if (simulation.deadlock.empty()) return true;
  const std::span<const runtime::RankProgram> programs = evaluation ? job.eval : job.train;
  const auto range_of = [&](const BlockedHead& head) {
    return RangeOf(origins, programs[head.role].tasks[head.task]);
  };
  SourceRange where;
  for (const BlockedHead& head : simulation.deadlock) {
    if (!where.valid()) where = range_of(head);
  }
  const size_t length = simulation.deadlock.size();
  std::string what = evaluation ? "the evaluation step deadlocks: " : "the step deadlocks: ";
  if (simulation.deadlock[0].awaited == runtime::kNone) {
    what += "a message has only one end";
  } else if (length == 1) {
    what += "a stream waits for itself";
  } else {
    what += fmt::format("{} streams wait for each other, whatever the timing", length);
  }
  auto error = diag.Error(where, DiagKind::kDeadlock, what);
  constexpr size_t kShown = 16;
  for (size_t i = 0; i < length && i < kShown; ++i) {
    error.Note(range_of(simulation.deadlock[i]), Waiting(job, programs, simulation.deadlock[i]));
  }
  // A message that shares its stream with anything but messages of its kind to the same peer.
  bool shared = false;
  for (const BlockedHead& head : simulation.deadlock) {
    const runtime::RankProgram& program = programs[head.role];
    const runtime::Task& blocked = program.tasks[head.task];
    if (blocked.kind != runtime::TaskKind::kSend && blocked.kind != runtime::TaskKind::kRecv) continue;
    const runtime::Stream& stream = program.streams[head.stream];
    for (uint32_t t = stream.first_task; t < stream.first_task + stream.task_count; ++t) {
      const runtime::Task& other = program.tasks[t];
      shared = shared || other.kind != blocked.kind || other.argument != blocked.argument;
    }
  }
  if (shared) {
    error.Hint(
        "a send blocks its stream until the receive is posted: give each direction and peer a stream of its "
        "own "
        "(drop the `stream` line), or let one side receive first");
  } else {
    error.Hint("let the steps that meet stand in the same order on both sides");
  }
  return false;
}

}  // namespace piper::ir
