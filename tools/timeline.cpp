#include "tools/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace piper::tools {
namespace {

using ir::Picoseconds;

constexpr std::string_view kLetters = ".FBWRU";

std::string Label(std::span<const runtime::RankRow> ranks) {
  std::string label = "rank ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == 3) return label + ", ..";
    label += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i].rank);
  }
  return label;
}

// Light backgrounds with dark text: legible on dark and light terminals.
std::string_view Colour(char letter) {
  switch (letter) {
    case 'F':
      return "\x1b[30;104m";
    case 'B':
      return "\x1b[30;102m";
    case 'W':
      return "\x1b[30;103m";
    case 'R':
      return "\x1b[30;106m";
    case 'U':
      return "\x1b[30;105m";
    default:
      return "\x1b[2m";
  }
}

// A BW that directly follows the BI of its own microbatch is part of a whole B.
std::vector<char> Letters(const runtime::RankProgram& program, const runtime::Stream& stream) {
  std::vector<char> letters;
  char last = 0;
  int32_t last_microbatch = -2;
  for (uint32_t i = 0; i < stream.task_count; ++i) {
    const runtime::Task& task = program.tasks[stream.first_task + i];
    char letter = TaskLetter(task);
    if (letter == 'W' && last == 'B' && last_microbatch == task.microbatch) letter = 'B';
    if (letter == 'F' || letter == 'B' || letter == 'W') {
      last = letter;
      last_microbatch = task.microbatch;
    }
    letters.push_back(letter);
  }
  return letters;
}

std::string Row(const TimelineRow& row, Picoseconds makespan, int width) {
  // Picoseconds of each letter in each column; several streams share a column's room.
  std::vector<std::array<Picoseconds, kLetters.size()>> share(static_cast<size_t>(width));
  auto boundary = [&](int column) {
    return static_cast<Picoseconds>(static_cast<__int128>(makespan) * column / width);
  };
  for (const runtime::Stream& stream : row.program->streams) {
    if (stream.computes == 0) continue;
    const std::vector<char> letters = Letters(*row.program, stream);
    for (uint32_t i = 0; i < stream.task_count; ++i) {
      if (letters[i] == 0) continue;
      const ir::TaskTiming& timing = row.timings[stream.first_task + i];
      if (timing.end <= timing.start) continue;
      const size_t letter = kLetters.find(letters[i]);
      int column =
          static_cast<int>(static_cast<__int128>(timing.start) * width / std::max<Picoseconds>(makespan, 1));
      for (; column < width && boundary(column) < timing.end; ++column) {
        const Picoseconds begin = std::max(timing.start, boundary(column));
        const Picoseconds end = std::min(timing.end, boundary(column + 1));
        if (end > begin) share[static_cast<size_t>(column)][letter] += end - begin;
      }
    }
  }
  std::string text;
  for (int column = 0; column < width; ++column) {
    auto& s = share[static_cast<size_t>(column)];
    Picoseconds busy = 0;
    for (size_t letter = 1; letter < kLetters.size(); ++letter) busy += s[letter];
    s[0] = std::max<Picoseconds>(boundary(column + 1) - boundary(column) - busy, 0);
    text += kLetters[static_cast<size_t>(std::max_element(s.begin(), s.end()) - s.begin())];
  }
  return text;
}

}  // namespace

char TaskLetter(const runtime::Task& task) {
  switch (task.kind) {
    case runtime::TaskKind::kCompute:
      return "FBWR"[std::min<uint8_t>(task.flag, 3)];
    case runtime::TaskKind::kUpdate:
    case runtime::TaskKind::kClip:
    case runtime::TaskKind::kSumSquares:
    case runtime::TaskKind::kSave:
    case runtime::TaskKind::kValidate:
      return 'U';
    default:
      return 0;
  }
}

std::vector<TimelineRow> TimelineRows(const runtime::Job& job, const ir::SimulationResult& result,
                                      bool expanded) {
  std::vector<TimelineRow> rows;
  if (expanded) {
    for (uint32_t rank = 0; rank < job.rank_count; ++rank) {
      rows.push_back({fmt::format("rank {}", rank), &job.train[job.rank_role[rank]], result.timings[rank]});
    }
    return rows;
  }
  std::vector<uint32_t> order(job.train.size());
  for (uint32_t role = 0; role < order.size(); ++role) order[role] = role;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    auto first = [&](uint32_t role) {
      return job.train[role].ranks.empty() ? 0 : job.train[role].ranks[0].rank;
    };
    return first(a) < first(b);
  });
  for (uint32_t role : order)
    rows.push_back({Label(job.train[role].ranks), &job.train[role], result.timings[role]});
  return rows;
}

std::string RenderTimeline(const std::vector<TimelineRow>& rows, Picoseconds makespan,
                           const TimelineOptions& options) {
  size_t label_width = 0;
  const size_t shown = std::min(rows.size(), options.max_rows);
  for (size_t i = 0; i < shown; ++i) label_width = std::max(label_width, rows[i].label.size());
  const int width = std::max(options.columns - static_cast<int>(label_width) - 3, 10);
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    text += fmt::format("{:<{}} |", rows[i].label, label_width);
    const std::string cells = Row(rows[i], makespan, width);
    if (!options.colour) {
      text += cells;
    } else {
      for (size_t begin = 0; begin < cells.size();) {
        const size_t end = std::min(cells.find_first_not_of(cells[begin], begin), cells.size());
        text += fmt::format("{}{}\x1b[0m", Colour(cells[begin]),
                            std::string_view(cells).substr(begin, end - begin));
        begin = end;
      }
    }
    text += "|\n";
  }
  if (shown < rows.size()) text += fmt::format("{} more rows\n", rows.size() - shown);
  const std::string right = ir::FormatTimeRounded(makespan);
  text += fmt::format("{:<{}}  0{:>{}}\n", "", label_width, right, width - 1);
  return text;
}

}  // namespace piper::tools
