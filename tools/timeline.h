// The schedule as a picture in the terminal: a row a rank (or a role, with the ranks that it stands for),
// time to the right, in each column what the rank's compute streams did most: F, B, W (a weight gradient that
// stands apart from its B), R recompute, U update, '.' idle. With colour, blocks; the letters stay.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/cost/simulator.h"
#include "runtime/program.h"

namespace piper::tools {

// One row of a picture: a role's representative or a single rank.
struct TimelineRow {
  std::string label;  // "rank 3", "rank 0, 4", "rank 0, 8, ..": ranks that do the same
  const runtime::RankProgram* program = nullptr;
  std::vector<ir::TaskTiming> timings;  // a task
};

// Rows in rank order. `expanded`: the result has one timeline a rank.
std::vector<TimelineRow> TimelineRows(const runtime::Job& job, const ir::SimulationResult& result,
                                      bool expanded);

struct TimelineOptions {
  int columns = 80;
  size_t max_rows = 64;
  bool colour = false;
};
std::string RenderTimeline(const std::vector<TimelineRow>& rows, ir::Picoseconds makespan,
                           const TimelineOptions& options);

// What a task is in the picture: 'F', 'B', 'W', 'R', 'U', or 0 for what is not compute.
char TaskLetter(const runtime::Task& task);

}  // namespace piper::tools
