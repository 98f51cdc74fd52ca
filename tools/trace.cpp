#include "tools/trace.h"

#include <fmt/format.h>

#include <iterator>
#include <map>

namespace piper::tools {
namespace {

using ir::Picoseconds;
using runtime::TaskKind;

// Microseconds with the picoseconds behind the point.
std::string Microseconds(Picoseconds ps) { return fmt::format("{}.{:06}", ps / 1'000'000, ps % 1'000'000); }

// The length of the UTF-8 sequence at `text[at]`, 0 if it is none.
size_t SequenceLength(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const unsigned first = byte(0);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xc2 && first < 0xe0 ? 2
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (length == 3 && ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0))) return 0;
  if (length == 4 && ((first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90))) return 0;
  return length;
}

}  // namespace

std::string JsonString(std::string_view text) {
  std::string json = "\"";
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const size_t length = SequenceLength(text, i);
    if (length == 0) {
      json += "\\ufffd";
      ++i;
    } else if (length > 1) {
      json += text.substr(i, length);
      i += length;
    } else {
      if (c == '"' || c == '\\') {
        json += '\\';
        json += c;
      } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
        json += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
      } else {
        json += c;
      }
      ++i;
    }
  }
  return json + '"';
}

std::string ChromeTrace(const runtime::Job& job, const std::vector<TimelineRow>& rows) {
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  bool first = true;
  auto event = [&](const std::string& body) {
    text += first ? "\n{" : ",\n{";
    text += body;
    text += '}';
    first = false;
  };
  auto string = [&](uint32_t index) {
    return index < job.strings.size() ? std::string_view(job.strings[index]) : "";
  };
  std::map<std::pair<uint32_t, int32_t>, int> flows;  // (key, microbatch) -> id
  auto flow_id = [&](const runtime::Task& task) {
    return flows.emplace(std::pair{task.key, task.microbatch}, static_cast<int>(flows.size()) + 1)
        .first->second;
  };
  for (size_t r = 0; r < rows.size(); ++r) {
    const TimelineRow& row = rows[r];
    event(fmt::format("\"ph\":\"M\",\"pid\":{},\"name\":\"process_name\",\"args\":{{\"name\":{}}}", r,
                      JsonString(row.label)));
    for (size_t s = 0; s < row.program->streams.size(); ++s) {
      const runtime::Stream& stream = row.program->streams[s];
      event(
          fmt::format("\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}",
                      r, s, JsonString(stream.name)));
      for (uint32_t i = 0; i < stream.task_count; ++i) {
        const runtime::Task& task = row.program->tasks[stream.first_task + i];
        const ir::TaskTiming& timing = row.timings[stream.first_task + i];
        std::string args;
        if (task.microbatch >= 0) args += fmt::format("\"mb\":{},", task.microbatch);
        if (task.bytes > 0) args += fmt::format("\"bytes\":{},", task.bytes);
        if (task.origin != 0) args += fmt::format("\"line\":{},", JsonString(string(task.origin)));
        if (!args.empty()) args.pop_back();
        event(
            fmt::format("\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},\"name\":{},\"args\":{{{}}}",
                        r, s, Microseconds(timing.start), Microseconds(timing.end - timing.start),
                        JsonString(string(task.name)), args));
        if ((task.kind == TaskKind::kSend || task.kind == TaskKind::kRecv) && task.key != runtime::kNone) {
          const bool send = task.kind == TaskKind::kSend;
          event(fmt::format(
              "\"ph\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{},\"id\":{},\"name\":\"message\",\"cat\":"
              "\"message\"{}",
              send ? "s" : "f", r, s, Microseconds(send ? timing.start : timing.end), flow_id(task),
              send ? "" : ",\"bp\":\"e\""));
        }
      }
    }
  }
  return text + "\n]}\n";
}

}  // namespace piper::tools
