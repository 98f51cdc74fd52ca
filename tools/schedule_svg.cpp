#include "tools/schedule_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace piper::tools {
namespace {

using ir::Picoseconds;

constexpr int kShades = 4;           // of a rank's stages; more stages take turns
constexpr size_t kTooltips = 6'000;  // cells up to which each says what it is under the pointer
constexpr double kMinStep = 3;       // pixels; narrower steps are drawn as shares
constexpr int kSlice = 4;            // pixels of such a share
constexpr int kTop = 34, kLeft = 10, kRight = 14, kGap = 5;

struct Rgb {
  int r, g, b;
};
// By CellPass. Hue says the pass: blue forward; green, teal and amber backward.
constexpr Rgb kColours[] = {{138, 180, 248}, {129, 201, 149}, {120, 205, 205},
                            {253, 201, 104}, {196, 190, 210}, {240, 160, 200}};

std::string Shade(CellPass pass, int shade) {
  const Rgb c = kColours[static_cast<size_t>(pass)];
  const int keep = 100 - 14 * shade;
  return fmt::format("#{:02x}{:02x}{:02x}", c.r * keep / 100, c.g * keep / 100, c.b * keep / 100);
}

std::string Escape(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // Names of files may hold any byte; SVG may not.
        out += static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f ? '?' : c;
    }
  }
  return out;
}

// Pixels with at most two decimals.
std::string Px(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

class Painter {
 public:
  Painter(const std::vector<CellRow>& rows, Picoseconds makespan, const SvgOptions& options)
      : rows_(rows), makespan_(std::max<Picoseconds>(makespan, 1)), options_(options) {}

  std::string Paint() {
    Measure();
    std::string body;
    int y = kTop;
    for (size_t r = 0; r < shown_; ++r) {
      const CellRow& row = rows_[r];
      body += fmt::format("<rect class=\"row\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", plot_left_,
                          y, plot_width_, row_height_);
      body += fmt::format("<text class=\"label\" x=\"{}\" y=\"{}\">{}</text>\n", plot_left_ - 8,
                          Px(y + row_height_ / 2.0 + 4), Escape(row.label));
      body += dense_ ? Shares(row, y) : Steps(row, y);
      y += row_height_;
      if (options_.communication) body += Communications(row, &y);
      y += kGap;
    }
    if (shown_ < rows_.size()) {
      y += 14;
      body += fmt::format("<text class=\"note\" x=\"{}\" y=\"{}\">{} more rows</text>\n", plot_left_, y - 3,
                          rows_.size() - shown_);
    }
    const int axis = y;
    std::string grid = Axis(axis);
    std::string legend = Legend(axis + 46);
    const int height = axis + 46 + legend_rows_ * 20;
    const std::string size = fmt::format("width=\"{}\" height=\"{}\"", width_, height);
    std::string text = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" {} viewBox=\"0 0 {} {}\" font-family=\"-apple-system, "
        "Segoe UI, "
        "Helvetica, Arial, sans-serif\" font-size=\"12\">\n",
        size, width_, height);
    text += Style();
    text += fmt::format("<rect class=\"page\" {}/>\n", size);
    text += fmt::format("<text class=\"title\" x=\"{}\" y=\"20\">{}step {}, bubble {:.1f} %</text>\n", kLeft,
                        options_.title.empty() ? "" : Escape(options_.title) + ": ",
                        ir::FormatTimeRounded(makespan_), 100 * options_.bubble);
    return text + grid + body + legend + "</svg>\n";
  }

 private:
  double X(Picoseconds time) const {
    return plot_left_ + static_cast<double>(time) * plot_width_ / static_cast<double>(makespan_);
  }
  int ShadeOf(const Cell& cell) const {
    if (chunks_ <= 1) return 0;
    const int at = static_cast<int>(cell.chunk) % kShades;
    return chunks_ == 2 ? 2 * at : at;  // two stages: well apart
  }
  static std::string Class(CellPass pass, int shade) {
    const char letter = CellLetter(pass);
    return shade == 0 ? std::string{letter} : fmt::format("{}{}", letter, shade);
  }

  void Measure() {
    shown_ = std::min(rows_.size(), options_.max_rows);
    size_t label = 0;
    std::vector<Picoseconds> lengths;
    for (size_t r = 0; r < shown_; ++r) {
      label = std::max(label, rows_[r].label.size());
      chunks_ = std::max(chunks_, rows_[r].chunks);
      for (const Cell& cell : rows_[r].cells) {
        copies_ = copies_ || cell.copy > 0;
        fused_ = fused_ || cell.parts > 1;
        used_[static_cast<size_t>(cell.pass)] = true;
        if (cell.pass != CellPass::kUpdate && cell.end > cell.start) lengths.push_back(cell.end - cell.start);
      }
      cells_ += rows_[r].cells.size();
    }
    // What a step usually takes: a quarter of them are shorter.
    Picoseconds usual = makespan_;
    if (!lengths.empty()) {
      const auto quarter = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 4);
      std::nth_element(lengths.begin(), quarter, lengths.end());
      usual = *quarter;
    }
    const double steps =
        static_cast<double>(makespan_) / static_cast<double>(std::max<Picoseconds>(usual, 1));
    dense_ = steps * kMinStep > 2400;
    plot_width_ = dense_ ? 1600 : static_cast<int>(std::clamp(steps * 24, 720.0, 2400.0));
    row_height_ = dense_ || shown_ > 32 ? 16 : fused_ ? 30 : 24;
    plot_left_ = kLeft + static_cast<int>(label) * 7 + 8;
    width_ = plot_left_ + plot_width_ + kRight;
  }

  std::string Style() const {
    std::string text =
        "<style>\n.page{fill:#ffffff}.row{fill:#f4f5f7}.grid{stroke:#e2e5ea}.axis{stroke:#8a9099}\n"
        "text{fill:#24292f}.label{text-anchor:end}.tick,.note{fill:#59636e;font-size:11px}.tick{text-anchor:"
        "middle}\n"
        ".title{font-size:13px}.n{fill:#10141a;text-anchor:middle;font-size:11px}.n2{fill:#ffffff}\n"
        ".c{stroke:#ffffff;stroke-width:1}.send{fill:#7a869a}.recv{fill:#a8b3c4}.coll{fill:#c77dba}\n";
    for (size_t pass = 0; pass < kCellPasses; ++pass) {
      if (!used_[pass]) continue;
      for (int shade = 0; shade < kShades; ++shade) {
        if (shade > 0 && chunks_ <= 1) break;
        text += fmt::format(".{}{{fill:{}}}", Class(static_cast<CellPass>(pass), shade),
                            Shade(static_cast<CellPass>(pass), shade));
      }
    }
    return text +
           "\n@media (prefers-color-scheme:dark){.page{fill:#0d1117}.row{fill:#171c24}.grid{stroke:#2b323c}"
           ".axis{stroke:#7d8590}\ntext{fill:#e6edf3}.tick,.note{fill:#9198a1}.n{fill:#10141a}.n2{fill:#"
           "ffffff}"
           ".c{stroke:#0d1117}}\n</style>\n";
  }

  std::string Steps(const CellRow& row, int y) const {
    std::string text;
    const double lane_height = static_cast<double>(row_height_) / row.lanes;
    for (const Cell& cell : row.cells) {
      const double left = X(cell.start), width = X(cell.end) - left;
      const double height = lane_height / cell.parts;
      const double top = y + cell.lane * lane_height + cell.part * height;
      const int shade = ShadeOf(cell);
      text += fmt::format("<rect class=\"c {}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"",
                          Class(cell.pass, shade), Px(left), Px(top), Px(width), Px(height));
      if (cells_ <= kTooltips) {
        text += ">" + Tooltip(cell) + "</rect>\n";
      } else {
        text += "/>\n";
      }
      if (cell.microbatch < 0 || height < 9) continue;
      const std::string number = std::to_string(cell.microbatch);
      if (width < 6.3 * static_cast<double>(number.size()) + 2) continue;
      text += fmt::format("<text class=\"n{}\" x=\"{}\" y=\"{}\">{}</text>\n", shade > 2 ? " n2" : "",
                          Px(left + width / 2), Px(top + height / 2 + 4), number);
    }
    return text;
  }

  std::string Tooltip(const Cell& cell) const {
    std::string what(CellPassText(cell.pass));
    if (cell.stage >= 0 && cell.microbatch >= 0) what += fmt::format(", stage {}", cell.stage);
    if (cell.copy > 0) what += fmt::format(" (copy {})", cell.copy);
    if (cell.microbatch >= 0) what += fmt::format(", microbatch {}", cell.microbatch);
    return fmt::format("<title>{}: {} to {}</title>", what, ir::FormatTimeRounded(cell.start),
                       ir::FormatTimeRounded(cell.end));
  }

  // Shares of slices of time, stacked: a path a (pass, shade), neighbouring slices of one height joined.
  std::string Shares(const CellRow& row, int y) const {
    const int slices = plot_width_ / kSlice;
    auto boundary = [&](int slice) {
      return static_cast<Picoseconds>(static_cast<__int128>(makespan_) * slice / slices);
    };
    const size_t kinds = static_cast<size_t>(kCellPasses) * kShades;
    std::vector<std::vector<Picoseconds>> time(kinds);
    for (const Cell& cell : row.cells) {
      std::vector<Picoseconds>& of =
          time[static_cast<size_t>(cell.pass) * kShades + static_cast<size_t>(ShadeOf(cell))];
      of.resize(static_cast<size_t>(slices));
      int slice = static_cast<int>(static_cast<__int128>(cell.start) * slices / makespan_);
      for (; slice < slices && boundary(slice) < cell.end; ++slice) {
        const Picoseconds inside =
            std::min(cell.end, boundary(slice + 1)) - std::max(cell.start, boundary(slice));
        if (inside > 0) of[static_cast<size_t>(slice)] += inside / cell.parts / row.lanes;
      }
    }
    std::vector<Picoseconds> below(static_cast<size_t>(slices), 0);
    std::string text;
    for (size_t kind = 0; kind < kinds; ++kind) {
      if (time[kind].empty()) continue;
      std::string path;
      int begin = 0, from = 0, to = 0;  // a run of slices with one pair of heights
      auto flush = [&](int end) {
        if (to > from) {
          path += fmt::format("M{} {}h{}v{}h-{}z", plot_left_ + begin * kSlice, y + row_height_ - to,
                              (end - begin) * kSlice, to - from, (end - begin) * kSlice);
        }
      };
      for (int slice = 0; slice < slices; ++slice) {
        const auto at = static_cast<size_t>(slice);
        const Picoseconds length = std::max<Picoseconds>(boundary(slice + 1) - boundary(slice), 1);
        const int low = static_cast<int>(below[at] * row_height_ / length);
        below[at] += time[kind][at];
        const int high = std::min(static_cast<int>(below[at] * row_height_ / length), row_height_);
        if (low != from || high != to) {
          flush(slice);
          begin = slice;
          from = low;
          to = high;
        }
      }
      flush(slices);
      if (path.empty()) continue;
      text +=
          fmt::format("<path class=\"{}\" d=\"{}\"/>\n",
                      Class(static_cast<CellPass>(kind / kShades), static_cast<int>(kind % kShades)), path);
    }
    return text;
  }

  // Three thin lanes: sends, receives, collectives.
  std::string Communications(const CellRow& row, int* y) const {
    constexpr int kLane = 5;
    constexpr const char* kClasses[] = {"send", "recv", "coll"};
    std::array<std::string, 3> paths;
    std::array<double, 3> reached{-1, -1, -1};
    for (const Communication& item : row.communication) {
      const auto lane = static_cast<size_t>(item.kind);
      // Far below a pixel apart, transfers are one line; `reached` only moves on within a stream's order.
      const double left = X(item.start), right = std::max(X(item.end), left + 0.4);
      if (dense_ && left >= reached[lane] - 1 && right < reached[lane] + 0.5) continue;
      reached[lane] = right;
      const double top = *y + 1 + static_cast<double>(lane) * kLane;
      paths[lane] +=
          fmt::format("M{} {}H{}V{}H{}z", Px(left), Px(top), Px(right), Px(top + kLane - 1), Px(left));
    }
    std::string text;
    for (size_t lane = 0; lane < paths.size(); ++lane) {
      if (!paths[lane].empty())
        text += fmt::format("<path class=\"{}\" d=\"{}\"/>\n", kClasses[lane], paths[lane]);
    }
    *y += 3 * kLane + 1;
    return text;
  }

  // Ticks at 1, 2 or 5 times a power of ten, at least 80 pixels apart, in the unit that fits the step.
  std::string Axis(int y) const {
    Picoseconds step = 1;
    while (static_cast<double>(step) * plot_width_ / static_cast<double>(makespan_) < 80) {
      int64_t leading = step;
      while (leading >= 10) leading /= 10;
      step = leading == 2 ? step / 2 * 5 : step * 2;
    }
    std::string lines, labels;
    for (Picoseconds at = 0; at <= makespan_; at += step) {
      const std::string x = Px(X(at));
      lines += fmt::format("<path class=\"grid\" d=\"M{} {}V{}\"/>\n", x, kTop - 4, y + 4);
      labels += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\">{}</text>\n", x, y + 17,
                            at == 0 ? "0" : ir::FormatTimeRounded(at));
    }
    return lines +
           fmt::format("<path class=\"axis\" d=\"M{} {}H{}\"/>\n", plot_left_, y, plot_left_ + plot_width_) +
           labels;
  }

  std::string Legend(int y) {
    struct Entry {
      std::string swatch, text;
    };
    std::vector<Entry> entries;
    for (size_t pass = 0; pass < kCellPasses; ++pass) {
      if (used_[pass]) {
        const auto kind = static_cast<CellPass>(pass);
        entries.push_back({Class(kind, 0), std::string(CellPassText(kind))});
      }
    }
    if (chunks_ > 1) {
      for (uint32_t chunk = 0; chunk < std::min<uint32_t>(chunks_, kShades); ++chunk) {
        const CellPass pass = used_[0] ? CellPass::kForward : CellPass::kBackward;
        Cell cell;
        cell.chunk = chunk;
        constexpr std::string_view kOrdinals[] = {"first", "second", "third", "fourth"};
        entries.push_back(
            {Class(pass, ShadeOf(cell)),
             fmt::format("{} {}", kOrdinals[chunk], copies_ ? "direction" : "stage of a rank")});
      }
      if (chunks_ > kShades) entries.back().text += ", and so on";
    }
    if (options_.communication) {
      entries.push_back({"send", "send"});
      entries.push_back({"recv", "receive"});
      entries.push_back({"coll", "collective"});
    }
    if (fused_ && !dense_) entries.push_back({"", "one above the other: fused"});
    if (dense_) {
      entries.push_back({"", fmt::format("share of each pass in slices of {}",
                                         ir::FormatTimeRounded(makespan_ * kSlice / plot_width_))});
    }
    std::string text;
    int x = plot_left_;
    legend_rows_ = 1;
    for (const Entry& entry : entries) {
      const int room = static_cast<int>(entry.text.size()) * 13 / 2 + (entry.swatch.empty() ? 0 : 18);
      if (x > plot_left_ && x + room > width_ - kRight) {
        x = plot_left_;
        y += 20;
        ++legend_rows_;
      }
      int text_x = x;
      if (!entry.swatch.empty()) {
        text += fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"13\" height=\"13\"/>", entry.swatch,
                            x, y - 11);
        text_x += 18;
      }
      text += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", text_x, y, Escape(entry.text));
      x += room + 14;
    }
    return text;
  }

  const std::vector<CellRow>& rows_;
  Picoseconds makespan_;
  const SvgOptions& options_;
  size_t shown_ = 0, cells_ = 0;
  uint32_t chunks_ = 1;
  bool copies_ = false, fused_ = false, dense_ = false;
  std::array<bool, kCellPasses> used_{};
  int plot_width_ = 0, plot_left_ = 0, width_ = 0, row_height_ = 0, legend_rows_ = 1;
};

}  // namespace

std::string RenderScheduleSvg(const std::vector<CellRow>& rows, Picoseconds makespan,
                              const SvgOptions& options) {
  return Painter(rows, makespan, options).Paint();
}

}  // namespace piper::tools
