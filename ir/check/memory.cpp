#include "ir/check/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "ir/check/deadlock.h"
#include "ir/support/units.h"

namespace piper::ir {
namespace {

using runtime::BufferKind;

const char* StaticName(BufferKind kind) {
  switch (kind) {
    case BufferKind::kParameter:
      return "parameters";
    case BufferKind::kGradient:
      return "gradients";
    case BufferKind::kOptimizerState:
      return "optimizer state";
    case BufferKind::kScratch:
      return "scratch";
    case BufferKind::kScalar:
      return "scalars";
    case BufferKind::kSaved:
      return "saved copies";
    default:
      return nullptr;
  }
}

}  // namespace

MemoryPeak FindPeak(const runtime::RankProgram& program, const std::vector<TaskTiming>& timings) {
  MemoryPeak peak;
  // A moment is an instant and, within a fused node, whose parts all start at one instant, the part.
  using Moment = std::pair<Picoseconds, uint32_t>;
  struct Life {
    uint32_t first = runtime::kNone;
    Moment begin{INT64_MAX, 0}, end{INT64_MIN, 0};  // [begin, end)
  };
  std::vector<Life> lives(program.buffers.size());
  for (uint32_t t = 0; t < program.tasks.size(); ++t) {
    const runtime::Task& task = program.tasks[t];
    const bool fused = task.atomic != runtime::kNone;
    const bool followed = fused && t + 1 < program.tasks.size() && program.tasks[t + 1].atomic == task.atomic;
    const Moment begin{timings[t].start, fused ? t : 0};
    const Moment end = followed ? Moment{timings[t].start, t + 1} : Moment{timings[t].end, 0};
    for (uint32_t i = 0; i < task.operand_count; ++i) {
      Life& life = lives[program.task_operands[task.first_operand + i]];
      if (begin < life.begin) {
        life.begin = begin;
        life.first = t;
      }
      life.end = std::max(life.end, end);
    }
  }
  // The moment: of the instants at which a slot is first used, the one with the most bytes in use. What ends
  // at an instant does not count, unless it began there as well.
  std::vector<uint32_t> begins, ends;
  for (uint32_t b = 0; b < program.buffers.size(); ++b) {
    if (StaticName(program.buffers[b].kind) == nullptr && program.buffers[b].kind != BufferKind::kHost &&
        lives[b].first != runtime::kNone)
      begins.push_back(b);
  }
  ends = begins;
  std::stable_sort(begins.begin(), begins.end(),
                   [&](uint32_t x, uint32_t y) { return lives[x].begin < lives[y].begin; });
  std::stable_sort(ends.begin(), ends.end(),
                   [&](uint32_t x, uint32_t y) { return lives[x].end < lives[y].end; });
  int64_t live = 0, most = -1;
  uint32_t top = runtime::kNone;
  size_t next_end = 0;
  for (size_t i = 0; i < begins.size();) {
    const Moment moment = lives[begins[i]].begin;
    uint32_t largest = begins[i];
    // Ends up to here first; of what began earlier only. The rest is taken off at the next moment.
    while (next_end < ends.size() && lives[ends[next_end]].end <= moment &&
           lives[ends[next_end]].begin < moment) {
      live -= program.buffers[ends[next_end++]].bytes;
    }
    for (; i < begins.size() && lives[begins[i]].begin == moment; ++i) {
      live += program.buffers[begins[i]].bytes;
      if (program.buffers[begins[i]].bytes > program.buffers[largest].bytes) largest = begins[i];
    }
    if (live <= most) continue;
    most = live;
    top = largest;
  }
  std::map<std::string, MemoryPeak::Holder> holders;
  std::vector<std::pair<int64_t, int64_t>> gradients;  // a bucket covers its accumulators: count bytes once
  for (uint32_t b = 0; b < program.buffers.size(); ++b) {
    const runtime::Buffer& buffer = program.buffers[b];
    if (buffer.kind == BufferKind::kHost) continue;
    const char* name = StaticName(buffer.kind);
    if (name == nullptr) {
      if (top == runtime::kNone || lives[b].first == runtime::kNone) continue;
      const Moment moment = lives[top].begin;
      if (lives[b].begin > moment || lives[b].end < moment ||
          (lives[b].end == moment && lives[b].begin < moment))
        continue;
      name = buffer.name;
    } else if (buffer.kind == BufferKind::kGradient) {
      gradients.emplace_back(buffer.offset, buffer.offset + buffer.bytes);
      continue;
    }
    MemoryPeak::Holder& holder = holders[name];
    holder.bytes += buffer.bytes;
    ++holder.buffers;
  }
  std::sort(gradients.begin(), gradients.end());
  int64_t covered = INT64_MIN;
  for (const auto& [begin, end] : gradients) {
    if (end <= covered) continue;
    MemoryPeak::Holder& holder = holders[StaticName(BufferKind::kGradient)];
    holder.bytes += end - std::max(begin, covered);
    ++holder.buffers;
    covered = end;
  }
  if (top != runtime::kNone) peak.task = lives[top].first;
  for (auto& [name, holder] : holders) {
    holder.what = name;
    peak.holders.push_back(holder);
  }
  std::stable_sort(peak.holders.begin(), peak.holders.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return peak;
}

bool CheckMemory(const runtime::Job& job, const Topology& topology, const SimulationResult& simulation,
                 const std::map<uint32_t, SourceRange>& origins, DiagnosticEngine& diag) {
  bool fits = true;
  for (size_t r = 0; r < job.train.size(); ++r) {
    const runtime::RankProgram& program = job.train[r];
    const bool evaluation = !job.eval.empty() && job.eval[r].arena_bytes > program.arena_bytes;
    const int64_t needed = evaluation ? job.eval[r].arena_bytes : program.arena_bytes;
    const uint32_t rank = program.ranks[0].rank;
    const DeviceKind& kind = topology.Kind(job.rank_device.empty() ? rank : job.rank_device[rank]);
    if (kind.memory <= 0 || needed <= kind.memory) continue;
    fits = false;
    auto error =
        diag.Error(kind.range.valid() ? kind.range : topology.range, DiagKind::kMemoryExceeded,
                   fmt::format("{} ({}): the step needs {} ({} bytes) of memory, {} has {} ({} bytes)",
                               RanksText(program), program.name, FormatBytes(needed), needed, kind.name,
                               FormatBytes(kind.memory), kind.memory));
    if (evaluation) {
      error.Note({}, "the evaluation step is the larger one");
      continue;
    }
    const MemoryPeak peak = FindPeak(program, simulation.timings[r]);
    if (peak.task != runtime::kNone) {
      const runtime::Task& task = program.tasks[peak.task];
      auto origin = origins.find(task.origin);
      error.Note(origin == origins.end() ? SourceRange{} : origin->second,
                 fmt::format("the peak stands at {} at {}", TaskText(job, task),
                             FormatTime(simulation.timings[r][peak.task].start)));
    }
    std::string text;
    constexpr size_t kShown = 5;
    for (size_t i = 0; i < peak.holders.size() && i < kShown; ++i) {
      const MemoryPeak::Holder& holder = peak.holders[i];
      text += fmt::format("{}{} {}", i == 0 ? "" : ", ", FormatBytes(holder.bytes), holder.what);
      if (holder.buffers > 1) text += fmt::format(" ({} buffers)", holder.buffers);
    }
    error.Note({}, "the largest holders: " + text);
    if (program.arena_bytes > program.live_bytes) {
      error.Note({}, fmt::format("live at once: {}; packing loses {}", FormatBytes(program.live_bytes),
                                 FormatBytes(program.arena_bytes - program.live_bytes)));
    }
    error.Hint("more, smaller microbatches; a schedule with fewer in flight; or more stages");
  }
  return fits;
}

}  // namespace piper::ir
