// The pictures of docs/schedules.md are dry runs of the schedules that they stand under: p = 4 ranks, m = 8
// microbatches, F = BI = BW = 1, as text and as docs/images/NAME.svg. PIPER_UPDATE_GOLDENS=1 draws them anew.
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ir/dag/stage_copies.h"
#include "tests/schedules_support.h"
#include "tools/schedule_svg.h"
#include "tools/timeline.h"

namespace piper {
namespace {

constexpr int kRanks = 4, kMicrobatches = 8;
constexpr char kPath[] = "docs/schedules.md";

// The pipeline of the section on greedy: stages of unequal cost.
std::optional<ir::Plan> PlanUneven(const std::string& order) {
  Schedule schedule;
  schedule.order = order;
  std::string costs = "  cost [send] = 0 us\n";
  constexpr int kCosts[kRanks][3] = {{1, 1, 1}, {1, 2, 1}, {2, 2, 1}, {1, 1, 1}};
  for (int s = 0; s < kRanks; ++s) {
    for (int pass = 0; pass < 3; ++pass) {
      costs += std::string("  cost ") +
               (pass == 0   ? "F"
                : pass == 1 ? "BI"
                            : "BW") +
               "[layer = " + std::to_string(s) + "] = " + std::to_string(kCosts[s][pass]) + " us\n";
    }
  }
  std::string errors;
  std::optional<ir::Plan> plan =
      PlanText(ChainProgram(schedule, kRanks, kMicrobatches, costs, kIdealMachine), &errors);
  EXPECT_TRUE(plan) << errors;
  return plan;
}

// A line a rank, or two where it holds two stages: digits are forwards, small letters BI, capital letters BW
// (of microbatch 0: 0, a, A), dots idle time.
std::string Draw(const std::string& name) {
  std::optional<ir::Plan> plan = name == "greedy"
                                     ? PlanUneven("greedy(priority = [B, F, W], in_flight = 4)")
                                     : PlanRow({name, kRanks, kMicrobatches, 1, 1, 1, -1, 0, 0, {}, {}});
  if (!plan) return "";
  const auto columns = static_cast<size_t>(plan->simulation.makespan / ir::kPsPerUs);
  const runtime::Job& job = plan->job->job();
  std::string picture;
  for (size_t r = 0; r < job.train.size(); ++r) {
    const runtime::RankProgram& program = job.train[r];
    // Stage copies are told apart by their key: lines by first appearance, which is the way in.
    std::map<uint32_t, size_t> line_of;
    std::vector<std::string> lines;
    std::string idle(columns, '.');
    ir::Picoseconds inside = 0;  // a fused node: its parts, one after another
    for (size_t t = 0; t < program.tasks.size(); ++t) {
      const runtime::Task& task = program.tasks[t];
      const bool fused = t > 0 && task.atomic != runtime::kNone && task.atomic == program.tasks[t - 1].atomic;
      if (!fused) inside = 0;
      const ir::Picoseconds start = plan->simulation.timings[r][t].start + inside;
      inside += task.cost;
      if (task.kind != runtime::TaskKind::kCompute || task.cost == 0) continue;
      auto [it, fresh] = line_of.try_emplace(task.key, lines.size());
      if (fresh) lines.emplace_back(columns, ' ');
      for (ir::Picoseconds at = 0; at < task.cost; at += ir::kPsPerUs) {
        const auto column = static_cast<size_t>((start + at) / ir::kPsPerUs);
        lines[it->second][column] = static_cast<char>("0aA"[task.flag] + task.microbatch);
        idle[column] = ' ';
      }
    }
    for (size_t line = 0; line < lines.size(); ++line) {
      for (size_t i = 0; line == 0 && i < columns; ++i) {
        if (idle[i] == '.') lines[0][i] = '.';
      }
      picture +=
          (line == 0 ? "rank " + std::to_string(r) : std::string("      ")) + " |" + lines[line] + "|\n";
    }
  }
  return picture;
}

TEST(SchedulePictures, AreDryRuns) {
  std::ifstream in(kPath);
  ASSERT_TRUE(in) << kPath;
  std::string line, heading, text;
  std::map<std::string, int> drawn;
  while (std::getline(in, line)) {
    text += line + "\n";
    if (line.rfind("## ", 0) == 0) heading = line.substr(3);
    if (line.rfind("```", 0) != 0) continue;
    if (line != "```") {  // a block of code
      while (std::getline(in, line) && line != "```") text += line + "\n";
      text += "```\n";
      continue;
    }
    // The first plain block under a heading.
    std::string picture;
    while (std::getline(in, line) && line != "```") picture += line + "\n";
    if (drawn[heading]++ == 0) {
      const bool looped = heading == "interleaved" || heading == "interleaved_zb" || heading == "looped_bfs";
      const std::string expected = Draw(looped ? heading + "_v2" : heading);
      if (std::getenv("PIPER_UPDATE_GOLDENS") != nullptr) {
        picture = expected;
      } else {
        EXPECT_EQ(picture, expected) << heading;
      }
    }
    text += picture + "```\n";
  }
  in.close();
  for (const char* name : {"gpipe", "one_f_one_b", "eager_1f1b", "zb1p", "zb2p", "looped_bfs", "interleaved",
                           "interleaved_zb", "zbv", "v_half", "v_min", "dualpipe", "dualpipev", "greedy"}) {
    EXPECT_EQ(drawn[name], 1) << "one picture under ## " << name;
  }
  if (std::getenv("PIPER_UPDATE_GOLDENS") != nullptr) std::ofstream(kPath) << text;
}

std::string Contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(SchedulePictures, FilesAreWhatPiperDraws) {
  const std::string page = Contents(kPath);
  for (const char* name : {"gpipe", "one_f_one_b", "eager_1f1b", "zb1p", "zb2p", "looped_bfs", "interleaved",
                           "interleaved_zb", "zbv", "v_half", "v_min", "dualpipe", "dualpipev"}) {
    SCOPED_TRACE(name);
    const std::string full = name == std::string("looped_bfs") || name == std::string("interleaved") ||
                                     name == std::string("interleaved_zb")
                                 ? name + std::string("_v2")
                                 : name;
    const Schedule schedule = Find(full);
    const Row row{full, kRanks, kMicrobatches, 1, 1, 1, -1, 0, 0, {}, {}};
    ir::SourceManager sources;
    ir::DiagnosticEngine diag(sources);
    frontend::LoadOptions options;
    options.text = ChainProgram(schedule, kRanks, kMicrobatches, Costs(row), kIdealMachine);
    std::optional<ir::Program> program = frontend::LoadProgram("study.piper", options, sources, diag);
    ASSERT_TRUE(program);
    std::optional<ir::Plan> plan = ir::BuildPlan(*program, diag);
    ASSERT_TRUE(plan);
    const runtime::Job& job = plan->job->job();
    const std::string svg = tools::RenderScheduleSvg(
        tools::MakeCellRows(tools::TimelineRows(job, plan->simulation, false),
                            ir::ListStageCopies(plan->dag, *program), job.strings),
        plan->simulation.makespan, {.title = name, .bubble = plan->simulation.bubble()});
    const std::string path = std::string("docs/images/") + name + ".svg";
    EXPECT_NE(page.find("](images/" + std::string(name) + ".svg)"), std::string::npos)
        << kPath << " shows it";
    if (std::getenv("PIPER_UPDATE_GOLDENS") != nullptr) {
      std::ofstream(path, std::ios::binary) << svg;
    } else {
      EXPECT_EQ(Contents(path), svg) << path << ": after a wanted change, PIPER_UPDATE_GOLDENS=1";
    }
  }
}

// The figures beside the picture of greedy.
TEST(SchedulePictures, GreedyBesideClosedSchedules) {
  std::ifstream in(kPath);
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  const auto units = [](const std::string& order) {
    std::optional<ir::Plan> plan = PlanUneven(order);
    return plan ? std::to_string(plan->simulation.makespan / ir::kPsPerUs) : "";
  };
  const std::string sentence = "1F1B takes " + units("schedules.one_f_one_b(r, p, m)") +
                               " units for that, ZB1P " + units("schedules.zb1p(r, p, m)") +
                               ", and this order " + units("greedy(priority = [B, F, W], in_flight = 4)") +
                               ", where the third stage alone is busy for 40.";
  EXPECT_NE(page.find(sentence), std::string::npos) << sentence;
}

}  // namespace
}  // namespace piper
