#include "ir/check/asserts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ir/lower/select.h"
#include "ir/lower/utilisation.h"

namespace piper::ir {
namespace {

using Interval = std::pair<Picoseconds, Picoseconds>;

// Sorted, disjoint, without empty ones.
std::vector<Interval> Union(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::vector<Interval> merged;
  for (const Interval& interval : intervals) {
    if (interval.first >= interval.second) continue;
    if (!merged.empty() && interval.first <= merged.back().second) {
      merged.back().second = std::max(merged.back().second, interval.second);
    } else {
      merged.push_back(interval);
    }
  }
  return merged;
}

// What of `from` lies outside `cover`; both as Union returns them.
Picoseconds Uncovered(const std::vector<Interval>& from, const std::vector<Interval>& cover) {
  Picoseconds total = 0;
  size_t next = 0;
  for (const Interval& interval : from) {
    Picoseconds at = interval.first;
    while (next < cover.size() && cover[next].second <= at) ++next;
    for (size_t c = next; c < cover.size() && cover[c].first < interval.second; ++c) {
      total += std::max<Picoseconds>(0, cover[c].first - at);
      at = std::max(at, cover[c].second);
    }
    total += std::max<Picoseconds>(0, interval.second - at);
  }
  return total;
}

bool IsCommunication(runtime::TaskKind kind) {
  return kind == runtime::TaskKind::kSend || kind == runtime::TaskKind::kRecv ||
         kind == runtime::TaskKind::kCollective || kind == runtime::TaskKind::kCopy;
}

double Exposed(const PlanView& plan, const Selector& selector) {
  std::vector<NameId> split;
  for (const auto& [name, count] : plan.dag.split_dims) split.push_back(InternName(name));
  // Templates have unique names, and tasks carry them.
  std::vector<std::string_view> selected;
  for (const NodeTemplate& node : plan.dag.templates) {
    if (MatchesTemplate(selector, node, split)) selected.push_back(node.name);
  }
  std::sort(selected.begin(), selected.end());
  std::vector<int8_t> is_selected(plan.job.strings.size(), -1);
  Picoseconds worst = 0;
  for (size_t r = 0; r < plan.job.train.size(); ++r) {
    const runtime::RankProgram& program = plan.job.train[r];
    std::vector<Interval> communication, compute;
    for (size_t t = 0; t < program.tasks.size(); ++t) {
      const runtime::Task& task = program.tasks[t];
      const Interval interval{plan.simulation.timings[r][t].start, plan.simulation.timings[r][t].end};
      if (IsCommunication(task.kind)) {
        int8_t& known = is_selected[task.name];
        if (known < 0) {
          known = std::binary_search(selected.begin(), selected.end(),
                                     std::string_view(plan.job.strings[task.name]));
        }
        if (known != 0) communication.push_back(interval);
      } else if (program.streams[task.stream].computes != 0) {
        compute.push_back(interval);
      }
    }
    worst = std::max(worst, Uncovered(Union(std::move(communication)), Union(std::move(compute))));
  }
  return plan.simulation.makespan > 0
             ? static_cast<double>(worst) / static_cast<double>(plan.simulation.makespan)
             : 0;
}

// Coordinates along an axis, per device; empty if no mesh has it.
std::vector<int64_t> Coordinates(const PlanView& plan, const std::string& axis) {
  for (const Directive& directive : plan.program.directives) {
    const MeshDirective* mesh = std::get_if<MeshDirective>(&directive.body);
    if (mesh == nullptr) continue;
    const int64_t devices = plan.dag.device_count;
    int64_t known = 1;
    for (const MeshDirective::Axis& a : mesh->axes) known *= a.size > 0 ? a.size : 1;
    int64_t stride = 1, size = 0;
    for (size_t i = mesh->axes.size(); i-- > 0;) {
      const int64_t extent =
          mesh->axes[i].size > 0 ? mesh->axes[i].size : std::max<int64_t>(1, devices / known);
      if (mesh->axes[i].name == axis) {
        size = extent;
        break;
      }
      stride *= extent;
    }
    if (size == 0) continue;
    std::vector<int64_t> coordinates(static_cast<size_t>(devices), 0);
    for (int64_t i = 0; i < devices; ++i) {
      const int64_t device = mesh->devices.empty() ? i
                             : i < static_cast<int64_t>(mesh->devices.size())
                                 ? mesh->devices[static_cast<size_t>(i)]
                                 : i;
      if (device < devices) coordinates[static_cast<size_t>(device)] = i / stride % size;
    }
    return coordinates;
  }
  return {};
}

double BytesAlong(const PlanView& plan, const std::string& axis) {
  const std::vector<int64_t> at = Coordinates(plan, axis);
  if (at.empty()) return 0;
  double total = 0;
  for (const runtime::RankProgram& program : plan.job.train) {
    for (const runtime::RankRow& row : program.ranks) {
      for (const runtime::Task& task : program.tasks) {
        bool crosses = false;
        if (task.kind == runtime::TaskKind::kSend) {
          crosses = at[row.rank] != at[row.peers[task.argument]];
        } else if (task.kind == runtime::TaskKind::kCollective) {
          const uint32_t slot = program.collectives[task.argument].communicator;
          for (uint32_t member : plan.job.groups[row.groups[slot]])
            crosses = crosses || at[member] != at[row.rank];
        }
        if (crosses) total += static_cast<double>(task.bytes);
      }
    }
  }
  return total;
}

double ModelFlopsUtilisation(const PlanView& plan) {
  const double available = PeakFlops(plan.program.topology, plan.dag.device_count);
  const double seconds = static_cast<double>(plan.simulation.makespan) / static_cast<double>(kPsPerS);
  return available > 0 && seconds > 0 ? ModelFlops(plan.dag) / (available * seconds) : 0;
}

bool Holds(double value, AssertDirective::Compare compare, double bound) {
  switch (compare) {
    case AssertDirective::Compare::kLess:
      return value < bound;
    case AssertDirective::Compare::kLessEqual:
      return value <= bound;
    case AssertDirective::Compare::kGreater:
      return value > bound;
    case AssertDirective::Compare::kGreaterEqual:
      return value >= bound;
    case AssertDirective::Compare::kEqual:
      return value == bound;
  }
  return false;
}

const char* Spelling(AssertDirective::Compare compare) {
  switch (compare) {
    case AssertDirective::Compare::kLess:
      return "<";
    case AssertDirective::Compare::kLessEqual:
      return "<=";
    case AssertDirective::Compare::kGreater:
      return ">";
    case AssertDirective::Compare::kGreaterEqual:
      return ">=";
    case AssertDirective::Compare::kEqual:
      return "==";
  }
  return "?";
}

// Shares to four digits; everything else exactly.
std::string Text(const Quantity& measured) {
  if (measured.kind == UnitKind::kPercent) return fmt::format("{:.4g} %", 100 * measured.value);
  return FormatQuantity(measured);
}

std::string Name(const AssertDirective& assertion) {
  if (assertion.select) return assertion.metric + "(" + assertion.select->ToString() + ")";
  if (!assertion.axis.empty()) return assertion.metric + "(" + assertion.axis + ")";
  return assertion.metric;
}

}  // namespace

std::optional<Quantity> Measure(const PlanView& plan, const AssertDirective& assertion) {
  if (assertion.metric == "step_time")
    return Quantity{static_cast<double>(plan.simulation.makespan), UnitKind::kTime};
  if (assertion.metric == "peak_memory") {
    int64_t peak = 0;
    for (const runtime::RankProgram& program : plan.job.train) peak = std::max(peak, program.arena_bytes);
    for (const runtime::RankProgram& program : plan.job.eval) peak = std::max(peak, program.arena_bytes);
    return Quantity{static_cast<double>(peak), UnitKind::kBytes};
  }
  if (assertion.metric == "bubble") return Quantity{plan.simulation.bubble(), UnitKind::kPercent};
  if (assertion.metric == "exposed") {
    return Quantity{Exposed(plan, assertion.select ? *assertion.select : Selector::All()),
                    UnitKind::kPercent};
  }
  if (assertion.metric == "bytes") return Quantity{BytesAlong(plan, assertion.axis), UnitKind::kBytes};
  if (assertion.metric == "mfu") return Quantity{ModelFlopsUtilisation(plan), UnitKind::kPercent};
  return std::nullopt;
}

bool CheckAsserts(const PlanView& plan, DiagnosticEngine& diag) {
  bool all = true;
  for (const Directive& directive : plan.program.directives) {
    const AssertDirective* assertion = std::get_if<AssertDirective>(&directive.body);
    if (assertion == nullptr) continue;
    const std::optional<Quantity> value = Measure(plan, *assertion);
    if (!value || Holds(value->value, assertion->compare, assertion->bound.value)) continue;
    all = false;
    Quantity bound = assertion->bound;
    if (bound.kind == UnitKind::kNone) bound.kind = value->kind;
    auto error = diag.Error(directive.range, DiagKind::kAssertFailed,
                            fmt::format("{} is {}, which is not {} {}", Name(*assertion), Text(*value),
                                        Spelling(assertion->compare), FormatQuantity(bound)));
    if (assertion->metric == "peak_memory") {
      size_t worst = 0;
      for (size_t r = 0; r < plan.job.train.size(); ++r) {
        if (plan.job.train[r].arena_bytes > plan.job.train[worst].arena_bytes) worst = r;
      }
      error.Note({}, fmt::format("the largest arena is that of {}, rank {}", plan.job.train[worst].name,
                                 plan.job.train[worst].ranks[0].rank));
    } else if (assertion->metric == "bubble") {
      size_t worst = 0;
      for (size_t r = 0; r < plan.simulation.roles.size(); ++r) {
        if (plan.simulation.roles[r].idle > plan.simulation.roles[worst].idle) worst = r;
      }
      error.Note({}, fmt::format("rank {} is idle for {} of {}", plan.job.train[worst].ranks[0].rank,
                                 FormatTime(plan.simulation.roles[worst].idle),
                                 FormatTime(plan.simulation.makespan)));
    }
    for (const SourceRange& use : directive.used_from) error.Note(use, "the strategy is used here");
  }
  return all;
}

}  // namespace piper::ir
