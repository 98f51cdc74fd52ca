// The schedule as an SVG picture in the manner of the papers: a row a rank, time to the right on an axis, a
// cell a step with the microbatch in it, a colour a pass, a shade a stage of the rank, idle time blank, the
// parts of a fused step one above the other, optionally communication in thin lanes below. Readable on light
// and dark pages; the same input gives the same bytes.
//
// Scale: the picture is as wide as its steps need for their numbers, from 720 to 2,400 pixels; numbers go
// where they no longer fit. Where steps would be narrower than 3 pixels (about 200 microbatches), single
// steps cannot be told apart: then each row shows, for slices of time of 4 pixels, which share of it each
// pass takes, stacked from below. 64 ranks by 1,024 microbatches stay below a megabyte. Rows after
// `max_rows` are counted, not drawn.
#pragma once

#include <string>
#include <vector>

#include "tools/schedule_cells.h"

namespace piper::tools {

struct SvgOptions {
  std::string title;  // the first line, before step time and bubble
  double bubble = 0;  // the largest idle share of a rank
  bool communication = false;
  size_t max_rows = 256;
};
std::string RenderScheduleSvg(const std::vector<CellRow>& rows, ir::Picoseconds makespan,
                              const SvgOptions& options);

}  // namespace piper::tools
