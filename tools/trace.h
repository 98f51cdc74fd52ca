// A simulated step as a Chrome trace (chrome://tracing, Perfetto): a process a rank, a thread a stream, an
// event a task, an arrow a message; times are relative to the step's start.
#pragma once

#include <string>
#include <vector>

#include "runtime/program.h"
#include "tools/schedule_cells.h"

namespace piper::tools {

std::string ChromeTrace(const runtime::Job& job, const std::vector<TimelineRow>& rows);

// `text` as a JSON string, with quotes. Bytes that are not UTF-8 become U+FFFD.
std::string JsonString(std::string_view text);

}  // namespace piper::tools
