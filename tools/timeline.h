// The schedule as a picture in the terminal: a row a rank (or a role, with the ranks that it stands for),
// time to the right. A step is its letter and, where there is room, its microbatch: `F3`, `B12--`; F forward,
// B backward, I and W its parts where they stand apart (inputs, weights), R recompute, U update, '.' idle; of
// a rank with several stages every second one in small letters; `F3&b1` one fused step. A column shows what
// filled most of it, so that a long schedule keeps its shape. With colour, the steps are blocks; the text
// stays the same.
#pragma once

#include <string>
#include <vector>

#include "tools/schedule_cells.h"

namespace piper::tools {

struct TimelineOptions {
  int columns = 80;
  size_t max_rows = 64;
  bool colour = false;
};
std::string RenderTimeline(const std::vector<CellRow>& rows, ir::Picoseconds makespan,
                           const TimelineOptions& options);

// The rows that RenderTimeline draws.
std::vector<CellRow> MakeCellRows(const std::vector<TimelineRow>& rows, std::span<const ir::StageCopy> stages,
                                  std::span<const char* const> strings);

}  // namespace piper::tools
