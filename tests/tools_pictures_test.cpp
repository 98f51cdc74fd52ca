// The pictures of schedules, from cells made by hand: what the terminal shows in little room, and that the
// SVG is well-formed, complete, the same every time, and of bounded size.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tools/schedule_svg.h"
#include "tools/timeline.h"

namespace piper::tools {
namespace {

constexpr ir::Picoseconds kUnit = ir::kPsPerUs;

Cell Step(int64_t start, int64_t end, CellPass pass, int32_t microbatch, uint32_t chunk = 0) {
  Cell cell;
  cell.start = start * kUnit;
  cell.end = end * kUnit;
  cell.pass = pass;
  cell.microbatch = microbatch;
  cell.stage = cell.chunk = chunk;
  return cell;
}

std::vector<CellRow> FusedRows() {
  CellRow row;
  row.label = "rank 0";
  row.chunks = 2;
  row.cells = {Step(0, 6, CellPass::kForward, 3), Step(6, 18, CellPass::kForward, 12),
               Step(6, 18, CellPass::kBackward, 7, 1), Step(20, 21, CellPass::kBackwardInput, 8, 1)};
  row.cells[1].parts = row.cells[2].parts = 2;
  row.cells[2].part = 1;
  return {row};
}

TEST(Timeline, NumbersWhereTheyFit) {
  const std::vector<CellRow> rows = FusedRows();
  auto first_line = [&](int columns, bool colour = false) {
    const std::string text =
        RenderTimeline(rows, 24 * kUnit, {.columns = columns, .max_rows = 64, .colour = colour});
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(first_line(9 + 24), "rank 0 |F3----F12&b7------..i...|");
  EXPECT_EQ(first_line(9 + 12), "rank 0 |F3-F12&b7...|");
  EXPECT_EQ(first_line(9 + 10), "rank 0 |F3-F&b-...|");
  EXPECT_EQ(first_line(9 + 24, true),
            "rank 0 |\x1b[30;104mF3----F12\x1b[0m\x1b[30;42m&b7------\x1b[0m\x1b[2m..\x1b[0m\x1b[30;46mi"
            "\x1b[0m\x1b[2m...\x1b[0m|");
}

// A rank's B and BI belong to different microbatches and stages: the legend names exactly the letters that
// are drawn.
TEST(Timeline, TheLegendNamesWhatIsDrawn) {
  const std::string text =
      RenderTimeline(FusedRows(), 24 * kUnit, {.columns = 80, .max_rows = 64, .colour = false});
  EXPECT_NE(text.find("F forward  B backward  I backward, inputs  . idle"), std::string::npos) << text;
  EXPECT_NE(text.find("b i another stage of the rank  & fused\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("W "), std::string::npos) << text;
}

// 1F1B of p ranks and m microbatches at F = 1, B = 2, by its closed form.
std::vector<CellRow> OneForwardOneBackward(int p, int m) {
  std::vector<CellRow> rows;
  for (int s = 0; s < p; ++s) {
    CellRow row;
    row.label = "rank " + std::to_string(s);
    for (int i = 0; i < m; ++i) {
      const int warm = p - s;  // forwards before the first backward
      const int b = 2 * p - s - 1 + 3 * i;
      const int f = i < warm ? s + i : 2 * p - s - 1 + 3 * (i - warm) + 2;
      row.cells.push_back(Step(f, f + 1, CellPass::kForward, i));
      row.cells.push_back(Step(b, b + 2, CellPass::kBackward, i));
    }
    rows.push_back(row);
  }
  return rows;
}

// Every element is closed, in order; attributes are quoted; '<' and '&' stand nowhere else. Returns the
// elements by name.
std::map<std::string, int> Elements(const std::string& svg) {
  std::map<std::string, int> count;
  std::vector<std::string> open;
  for (size_t at = 0; at < svg.size();) {
    if (svg[at] == '&') {
      const size_t end = svg.find(';', at);
      const std::string entity = svg.substr(at, end - at + 1);
      EXPECT_TRUE(entity == "&amp;" || entity == "&lt;" || entity == "&gt;" || entity == "&quot;") << entity;
      at = end + 1;
      continue;
    }
    if (svg[at] != '<') {
      EXPECT_GE(svg[at] == '\n' ? 0x20 : static_cast<unsigned char>(svg[at]), 0x20);
      ++at;
      continue;
    }
    const size_t end = svg.find('>', at);
    EXPECT_NE(end, std::string::npos);
    if (end == std::string::npos) return count;
    const std::string tag = svg.substr(at + 1, end - at - 1);
    EXPECT_EQ(tag.find('<'), std::string::npos) << tag;
    EXPECT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << tag;
    if (tag[0] == '/') {
      EXPECT_FALSE(open.empty());
      if (open.empty() || open.back() != tag.substr(1)) {
        ADD_FAILURE() << "</" << tag << " closes nothing";
        return count;
      }
      open.pop_back();
    } else {
      const std::string name = tag.substr(0, tag.find_first_of(" /"));
      ++count[name];
      if (tag.back() != '/') open.push_back(name);
    }
    at = end + 1;
  }
  EXPECT_TRUE(open.empty());
  return count;
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(ScheduleSvg, ACellAStepWithItsMicrobatch) {
  std::vector<CellRow> rows = OneForwardOneBackward(4, 8);
  const std::string svg = RenderScheduleSvg(rows, 33 * kUnit, {.title = "a <b> & \"c\"\x01", .bubble = 0.25});
  std::map<std::string, int> elements = Elements(svg);
  EXPECT_EQ(elements["svg"], 1);
  EXPECT_EQ(Count(svg, "<rect class=\"c F\""), 32);
  EXPECT_EQ(Count(svg, "<rect class=\"c B\""), 32);
  EXPECT_EQ(Count(svg, "<title>"), 64);
  EXPECT_EQ(Count(svg, ">7</text>"), 8) << "each rank's F and B of the last microbatch";
  EXPECT_NE(svg.find("a &lt;b&gt; &amp; &quot;c&quot;?: step 33 us, bubble 25.0 %"), std::string::npos);
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_EQ(svg, RenderScheduleSvg(rows, 33 * kUnit, {.title = "a <b> & \"c\"\x01", .bubble = 0.25}));
  rows[0].communication = {{kUnit, 2 * kUnit, Communication::Kind::kSend, "send"}};
  EXPECT_EQ(Count(RenderScheduleSvg(rows, 33 * kUnit, {}), "class=\"send\""), 0);
  const std::string with =
      RenderScheduleSvg(rows, 33 * kUnit, {.title = "", .bubble = 0, .communication = true});
  Elements(with);
  EXPECT_EQ(Count(with, "<path class=\"send\""), 1);
}

TEST(ScheduleSvg, FusedPartsShareTheHeight) {
  const std::string svg = RenderScheduleSvg(FusedRows(), 24 * kUnit, {});
  Elements(svg);
  EXPECT_NE(svg.find("one above the other: fused"), std::string::npos);
  EXPECT_EQ(Count(svg, "height=\"15\""), 2) << "half of a row of 30";
  EXPECT_EQ(Count(svg, "class=\"c B2\""), 1) << "the second stage's shade";
}

// Long schedules become shares of slices: few elements, and each slice of a busy rank is full.
TEST(ScheduleSvg, SixtyFourRanksByAThousandMicrobatches) {
  const std::vector<CellRow> rows = OneForwardOneBackward(64, 1024);
  const ir::Picoseconds makespan = (3 * (1024 + 63)) * kUnit;
  const std::string svg = RenderScheduleSvg(rows, makespan, {});
  std::map<std::string, int> elements = Elements(svg);
  EXPECT_LT(svg.size(), 2'000'000u);
  EXPECT_LE(elements["path"], 64 * 2 + 40);
  EXPECT_EQ(Count(svg, "class=\"row\""), 64);
  EXPECT_NE(svg.find("share of each pass in slices of"), std::string::npos);
  EXPECT_EQ(svg, RenderScheduleSvg(rows, makespan, {}));
  EXPECT_NE(
      RenderScheduleSvg(rows, makespan, {.title = "", .bubble = 0, .communication = false, .max_rows = 10})
          .find(">54 more rows<"),
      std::string::npos);
}

TEST(ScheduleSvg, NothingToDraw) {
  Elements(RenderScheduleSvg({}, 0, {}));
  CellRow idle;
  idle.label = "rank 0";
  Elements(RenderScheduleSvg({idle}, 0, {}));
  EXPECT_NE(RenderTimeline({idle}, 0, {}).find("rank 0 |"), std::string::npos);
}

}  // namespace
}  // namespace piper::tools
