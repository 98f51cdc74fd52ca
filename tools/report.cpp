#include "tools/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/schedule_cells.h"
#include "tools/trace.h"

namespace piper::tools {
namespace {

double Share(ir::Picoseconds part, ir::Picoseconds whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

Totals SumUp(const runtime::Job& job, const ir::SimulationResult& result, bool expanded) {
  Totals totals;
  double busy = 0;
  for (uint32_t rank = 0; rank < job.rank_count; ++rank) {
    const uint32_t role = job.rank_role[rank];
    const ir::RoleStatistics& s = result.roles[expanded ? rank : role];
    totals.messages += s.messages;
    totals.message_bytes = ir::SaturatingAdd(totals.message_bytes, s.message_bytes);
    totals.collectives += s.collectives;
    totals.collective_bytes = ir::SaturatingAdd(totals.collective_bytes, s.collective_bytes);
    totals.peak_memory = std::max(totals.peak_memory, job.train[role].arena_bytes);
    totals.host_memory = std::max(totals.host_memory, job.train[role].host_bytes);
    busy += Share(s.busy, result.makespan);
  }
  totals.busy = job.rank_count > 0 ? busy / job.rank_count : 0;
  return totals;
}

std::string RenderReport(const runtime::Job& job, const ir::SimulationResult& result, bool expanded) {
  const Totals totals = SumUp(job, result, expanded);
  std::string text;
  text += fmt::format("step time    {}\n", ir::FormatTimeRounded(result.makespan));
  text += fmt::format("bubble       {:.2f} % (largest idle share of a rank), busy {:.2f} % on average\n",
                      100 * result.bubble(), 100 * totals.busy);
  text += fmt::format("messages     {} a step, {}\n", totals.messages, ir::FormatBytes(totals.message_bytes));
  if (totals.collectives > 0) {
    text += fmt::format("collectives  {} a step (members counted), {}\n", totals.collectives,
                        ir::FormatBytes(totals.collective_bytes));
  }
  text += fmt::format("peak memory  {} (largest arena of a rank)\n", ir::FormatBytes(totals.peak_memory));
  if (totals.host_memory > 0)
    text +=
        fmt::format("host memory  {} (largest of a rank, offloaded)\n", ir::FormatBytes(totals.host_memory));
  text += '\n';
  text += fmt::format("{:<12} {:>7} {:>12} {:>10} {:>10} {:>5} {:>5} {:>10}\n", "", "busy", "idle", "memory",
                      "static", "acts", "sends", "sent");
  const std::vector<TimelineRow> rows = TimelineRows(job, result, expanded);
  constexpr size_t kMaxRows = 64;
  for (size_t i = 0; i < std::min(rows.size(), kMaxRows); ++i) {
    const size_t role = static_cast<size_t>(rows[i].program - job.train.data());
    const ir::RoleStatistics& s = result.roles[expanded ? i : role];
    text += fmt::format("{:<12} {:>5.1f} % {:>12} {:>10} {:>10} {:>5} {:>5} {:>10}\n", rows[i].label,
                        100 * Share(s.busy, result.makespan), ir::FormatTimeRounded(s.idle),
                        ir::FormatBytes(rows[i].program->arena_bytes),
                        ir::FormatBytes(rows[i].program->static_bytes), s.peak_activations, s.messages,
                        ir::FormatBytes(s.message_bytes));
  }
  if (rows.size() > kMaxRows) text += fmt::format("{} more rows\n", rows.size() - kMaxRows);
  return text;
}

std::string RenderSteps(const ir::StepsResult& steps) {
  return fmt::format("{} step{} back to back {}, one every {}{} (bubble {:.2f} %)\n", steps.steps,
                     steps.steps == 1 ? "" : "s", ir::FormatTimeRounded(steps.total),
                     ir::FormatTimeRounded(steps.period), steps.steady ? "" : ", not steady yet",
                     100 * steps.bubble);
}

std::string ReportJson(const runtime::Job& job, const ir::SimulationResult& result, bool expanded,
                       const ir::StepsResult* steps) {
  std::string text = fmt::format(
      "{{\"job\":{},\"plan_hash\":{},\"step_time_ps\":{},\"bubble\":{},", JsonString(job.name),
      JsonString(job.plan_hash == nullptr ? "" : job.plan_hash), result.makespan, result.bubble());
  if (steps != nullptr) {
    text += fmt::format("\"steps\":{{\"count\":{},\"total_ps\":{},\"period_ps\":{},\"bubble\":{}}},",
                        steps->steps, steps->total, steps->period, steps->bubble);
  }
  text += "\"ranks\":[";
  for (uint32_t rank = 0; rank < job.rank_count; ++rank) {
    const uint32_t role = job.rank_role[rank];
    const runtime::RankProgram& program = job.train[role];
    const ir::RoleStatistics& s = result.roles[expanded ? rank : role];
    int64_t parameter_bytes = 0;
    for (const runtime::Parameter& p : program.parameters) parameter_bytes += program.buffers[p.value].bytes;
    text += fmt::format(
        "{}\n{{\"rank\":{},\"role\":{},\"busy_ps\":{},\"idle_ps\":{},\"parameter_bytes\":{},\"arena_bytes\":{"
        "},"
        "\"static_bytes\":{},\"peak_live_bytes\":{},\"peak_activations\":{},\"messages\":{},\"message_"
        "bytes\":{},"
        "\"collectives\":{},\"collective_bytes\":{},\"host_bytes\":{}}}",
        rank == 0 ? "" : ",", rank, JsonString(program.name), s.busy, s.idle, parameter_bytes,
        program.arena_bytes, program.static_bytes, program.live_bytes, s.peak_activations, s.messages,
        s.message_bytes, s.collectives, s.collective_bytes, program.host_bytes);
  }
  return text + "\n]}\n";
}

}  // namespace piper::tools
