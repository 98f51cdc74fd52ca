#include "tools/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace piper::tools {
namespace {

using ir::Picoseconds;

// Light backgrounds with dark text for a rank's first stage, darker ones for the next: legible on dark and
// light terminals.
std::string_view Colour(CellPass pass, bool second) {
  constexpr std::string_view kFirst[] = {"\x1b[30;104m", "\x1b[30;102m", "\x1b[30;106m",
                                         "\x1b[30;103m", "\x1b[30;47m",  "\x1b[30;105m"};
  constexpr std::string_view kSecond[] = {"\x1b[97;44m", "\x1b[30;42m",  "\x1b[30;46m",
                                          "\x1b[30;43m", "\x1b[97;100m", "\x1b[97;45m"};
  return (second ? kSecond : kFirst)[static_cast<size_t>(pass)];
}
constexpr std::string_view kIdle = "\x1b[2m";

bool Second(const Cell& cell) { return cell.chunk % 2 == 1; }

std::string Letter(const Cell& cell) {
  const char letter = CellLetter(cell.pass);
  return {Second(cell) ? static_cast<char>(letter - 'A' + 'a') : letter};
}

std::string Name(const Cell& cell) {
  return cell.microbatch < 0 ? Letter(cell) : Letter(cell) + std::to_string(cell.microbatch);
}

// A column's text and colour.
struct Column {
  char text = '.';
  std::string_view colour = kIdle;
};

class RowPainter {
 public:
  // One lane of the row.
  RowPainter(const CellRow& row, uint32_t lane, Picoseconds makespan, int width)
      : row_(row), lane_(lane), makespan_(std::max<Picoseconds>(makespan, 1)), width_(width) {}

  std::vector<Column> Paint() {
    MeasureShares();
    std::vector<Column> columns(static_cast<size_t>(width_));
    for (size_t begin = 0; begin < owner_.size();) {
      size_t end = begin + 1;
      while (end < owner_.size() && owner_[end] == owner_[begin]) ++end;
      if (owner_[begin] >= 0) Write(static_cast<size_t>(owner_[begin]), &columns[begin], end - begin);
      begin = end;
    }
    return columns;
  }

 private:
  Picoseconds Boundary(int column) const {
    return static_cast<Picoseconds>(static_cast<__int128>(makespan_) * column / width_);
  }
  // Whose kind competes for a column: passes and stages of a column's many cells are added up before they do.
  static size_t Kind(const Cell& cell) { return static_cast<size_t>(cell.pass) * 2 + (Second(cell) ? 1 : 0); }

  // owner_: per column the cell that shows, or -1. Of the kinds of step in a column the one with the most
  // time wins, then the cell with the most of that.
  void MeasureShares() {
    struct Share {
      std::array<Picoseconds, 2 * kCellPasses> time{};
      std::array<Picoseconds, 2 * kCellPasses> largest{};
      std::array<int64_t, 2 * kCellPasses> cell{};
    };
    std::vector<Share> shares(static_cast<size_t>(width_));
    for (size_t c = 0; c < row_.cells.size(); ++c) {
      const Cell& cell = row_.cells[c];
      if (cell.lane != lane_) continue;
      if (cell.part != 0) continue;  // a fused step competes as its first part
      const size_t kind = Kind(cell);
      int column = static_cast<int>(static_cast<__int128>(cell.start) * width_ / makespan_);
      for (; column < width_ && Boundary(column) < cell.end; ++column) {
        const Picoseconds time =
            std::min(cell.end, Boundary(column + 1)) - std::max(cell.start, Boundary(column));
        if (time <= 0) continue;
        Share& share = shares[static_cast<size_t>(column)];
        share.time[kind] += time;
        if (time > share.largest[kind]) {
          share.largest[kind] = time;
          share.cell[kind] = static_cast<int64_t>(c);
        }
      }
    }
    for (int column = 0; column < width_; ++column) {
      const Share& share = shares[static_cast<size_t>(column)];
      Picoseconds busy = 0;
      for (Picoseconds time : share.time) busy += time;
      const auto kind =
          static_cast<size_t>(std::max_element(share.time.begin(), share.time.end()) - share.time.begin());
      const Picoseconds idle = Boundary(column + 1) - Boundary(column) - busy;
      owner_.push_back(share.time[kind] > 0 && share.time[kind] > idle ? share.cell[kind] : -1);
    }
  }

  void Write(size_t cell, Column* columns, size_t width) const {
    const Cell& first = row_.cells[cell];
    std::string text;
    size_t joint = std::string::npos;  // where the second part of a fused step begins
    if (first.parts > 1) {
      const Cell& second = row_.cells[cell + 1];
      const std::string rest = first.parts > 2 ? "&.." : "";
      text = Name(first) + "&" + Name(second) + rest;
      joint = Name(first).size();
      if (text.size() > width) {
        text = Letter(first) + "&" + Letter(second);
        joint = 1;
      }
      if (text.size() > width) {
        text = "&";
        joint = 0;
      }
      for (size_t i = 0; i < width; ++i) columns[i].colour = Colour(second.pass, Second(second));
    } else {
      text = Name(first);
      if (text.size() > width) text = Letter(first);
    }
    for (size_t i = 0; i < width; ++i) {
      columns[i].text = i < text.size() ? text[i] : '-';
      if (i < joint) columns[i].colour = Colour(first.pass, Second(first));
    }
  }

  const CellRow& row_;
  uint32_t lane_;
  Picoseconds makespan_;
  int width_;
  std::vector<int64_t> owner_;
};

// What the letters mean, of those that stand in the picture.
std::string Legend(const std::string& drawn, size_t indent, size_t columns) {
  auto holds = [&](char letter) { return drawn.find(letter) != std::string::npos; };
  std::vector<std::string> words;
  std::string smalls;
  for (size_t pass = 0; pass < kCellPasses; ++pass) {
    const auto kind = static_cast<CellPass>(pass);
    const char letter = CellLetter(kind);
    const char small = static_cast<char>(letter - 'A' + 'a');
    if (holds(letter) || holds(small)) words.push_back(fmt::format("{} {}", letter, CellPassText(kind)));
    if (holds(small)) smalls += fmt::format("{}{}", smalls.empty() ? "" : " ", small);
  }
  if (holds('.')) words.push_back(". idle");
  if (!smalls.empty()) words.push_back(smalls + " another stage of the rank");
  if (holds('&')) words.push_back("& fused");
  std::string text, line(indent, ' ');
  for (const std::string& word : words) {
    if (line.size() > indent && line.size() + 2 + word.size() > columns) {
      text += line + '\n';
      line.assign(indent, ' ');
    }
    line += (line.size() > indent ? "  " : "") + word;
  }
  return words.empty() ? "" : text + line + '\n';
}

}  // namespace

std::vector<CellRow> MakeCellRows(const std::vector<TimelineRow>& rows, std::span<const ir::StageCopy> stages,
                                  std::span<const char* const> strings) {
  std::vector<CellRow> cells;
  for (const TimelineRow& row : rows) cells.push_back(MakeCells(row, stages, strings));
  return cells;
}

std::string RenderTimeline(const std::vector<CellRow>& rows, Picoseconds makespan,
                           const TimelineOptions& options) {
  size_t label_width = 0;
  const size_t shown = std::min(rows.size(), options.max_rows);
  // A device that computes on several streams has a line for each, the first with its label.
  const auto label_of = [&](size_t i, uint32_t lane) {
    const CellRow& row = rows[i];
    if (row.lanes == 1 || row.lane_names.size() != row.lanes) return lane == 0 ? row.label : "";
    return (lane == 0 ? row.label : std::string(row.label.size(), ' ')) + " " + row.lane_names[lane];
  };
  for (size_t i = 0; i < shown; ++i) {
    for (uint32_t lane = 0; lane < rows[i].lanes; ++lane)
      label_width = std::max(label_width, label_of(i, lane).size());
  }
  const int width = std::max(options.columns - static_cast<int>(label_width) - 3, 10);
  std::string text, drawn;
  const auto draw = [&](size_t i, uint32_t lane) {
    text += fmt::format("{:<{}} |", label_of(i, lane), label_width);
    const std::vector<Column> columns = RowPainter(rows[i], lane, makespan, width).Paint();
    for (size_t begin = 0; begin < columns.size();) {
      size_t end = begin;
      std::string run;
      for (; end < columns.size() && columns[end].colour == columns[begin].colour; ++end)
        run += columns[end].text;
      drawn += run;
      text += options.colour ? fmt::format("{}{}\x1b[0m", columns[begin].colour, run) : run;
      begin = end;
    }
    text += "|\n";
  };
  for (size_t i = 0; i < shown; ++i) {
    for (uint32_t lane = 0; lane < rows[i].lanes; ++lane) draw(i, lane);
  }
  if (shown < rows.size()) text += fmt::format("{} more rows\n", rows.size() - shown);
  const std::string right = ir::FormatTimeRounded(makespan);
  text += fmt::format("{:<{}}  0{:>{}}\n", "", label_width, right, width - 1);
  return text + Legend(drawn, label_width + 2, static_cast<size_t>(std::max(options.columns, 40)));
}

}  // namespace piper::tools
