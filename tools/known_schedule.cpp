#include "tools/known_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "frontend/frontend.h"
#include "ir/schedule_csv/from_orders.h"
#include "ir/schedule_csv/to_piper.h"

namespace piper::tools {
namespace {

namespace csv = ir::schedule_csv;

// Elaborating a candidate takes the time of its steps; beyond this nobody writes CSV by hand.
constexpr int32_t kMaxStages = 512;

std::vector<std::string> Candidates(const csv::Extent& extent, size_t ranks) {
  const auto stages = static_cast<size_t>(extent.stages);
  bool looped = stages % ranks == 0, in_v = stages == 2 * ranks;
  for (size_t s = 0; s < stages; ++s) {
    looped = looped && extent.rank_of[s] == s % ranks;
    in_v = in_v && extent.rank_of[s] == (s < ranks ? s : 2 * ranks - 1 - s);
  }
  std::vector<std::string> calls;
  auto add = [&](std::initializer_list<const char*> names, const std::string& arguments) {
    for (const char* name : names) calls.push_back(fmt::format("schedules.{}({})", name, arguments));
  };
  if (looped && stages == ranks) {
    add({"one_f_one_b", "gpipe", "eager_1f1b", "zb1p", "zb2p"}, "rank, ranks, microbatches");
  } else if (looped) {
    add({"interleaved", "interleaved_zb", "looped_bfs"},
        fmt::format("rank, ranks, {}, microbatches", stages / ranks));
  }
  if (in_v) add({"zbv", "dualpipev", "v_half", "v_min"}, "rank, ranks, microbatches");
  return calls;
}

}  // namespace

std::string KnownSchedule(const csv::Table& table, const csv::Extent& extent) {
  if (extent.stages > kMaxStages) return "";
  csv::Table steps;
  for (const std::vector<csv::Cell>& row : table.ranks) {
    steps.ranks.emplace_back();
    std::copy_if(row.begin(), row.end(), std::back_inserter(steps.ranks.back()), [](const csv::Cell& cell) {
      return cell.count > 0 && csv::IsCompute(cell.steps[0].action);
    });
  }
  const std::string wanted = csv::TableText(steps);
  for (const std::string& call : Candidates(extent, table.ranks.size())) {
    ir::SourceManager sources;
    ir::DiagnosticEngine diag(sources);
    frontend::LoadOptions options;
    options.text = csv::ToPiper(table, extent, "candidate", call);
    const std::optional<ir::Program> program =
        frontend::LoadProgram("candidate.piper", options, sources, diag);
    if (!program) continue;  // a requirement that these sizes do not meet
    const std::optional<csv::Table> listed = csv::FromOrders(*program);
    if (listed && csv::TableText(*listed) == wanted) return call;
  }
  return "";
}

csv::Spacing SpacingOf(const csv::Table& table, const csv::Extent& extent) {
  const std::string call = KnownSchedule(table, extent);
  const auto is = [&](const std::string& name) { return call.rfind("schedules." + name + "(", 0) == 0; };
  if (is("gpipe") || is("one_f_one_b") || is("dualpipev")) return csv::Spacing::kNone;
  if (is("interleaved")) return csv::Spacing::kInterleaved;
  if (is("interleaved_zb")) return csv::Spacing::kInterleavedZeroBubble;
  return csv::Spacing::kTicks;
}

}  // namespace piper::tools
