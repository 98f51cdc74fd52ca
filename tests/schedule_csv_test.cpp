// PyTorch pipelining's schedule CSV: strict parsing, what is checked, and both ways cell for cell against
// what PyTorch's own classes list (tests/golden/pytorch_schedules.py). PIPER_SOAK=1 takes every p in 2..16.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>

#include "frontend/formatter.h"
#include "ir/schedule_csv/check.h"
#include "ir/schedule_csv/communication.h"
#include "ir/schedule_csv/from_dag.h"
#include "ir/schedule_csv/parse.h"
#include "ir/schedule_csv/spacing.h"
#include "ir/schedule_csv/to_piper.h"
#include "ir/schedule_csv/unshard.h"
#include "tests/schedules_support.h"
#include "tools/known_schedule.h"

namespace piper {
namespace {

namespace csv = ir::schedule_csv;

constexpr char kGoldens[] = "tests/golden/pytorch_schedules";

bool Soak() { return std::getenv("PIPER_SOAK") != nullptr; }

std::string Contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Imported {
  std::optional<csv::Table> table;
  std::optional<csv::Extent> extent;
  std::string errors;
};

Imported Import(const std::string& text) {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  const ir::FileId file = sources.Add("x.csv", text);
  Imported result;
  result.table = csv::Parse(file, diag);
  if (result.table) result.extent = csv::Check(*result.table, file, diag);
  result.errors = diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
  EXPECT_EQ(result.extent.has_value(), !diag.HasErrors()) << text;
  return result;
}

csv::Table WithoutIdleCells(const csv::Table& table) {
  csv::Table dense;
  for (const std::vector<csv::Cell>& row : table.ranks) {
    dense.ranks.emplace_back();
    for (const csv::Cell& cell : row) {
      if (cell.count > 0) dense.ranks.back().push_back(cell);
    }
  }
  return dense;
}

std::optional<csv::Export> Export(const std::string& program_text, std::string* errors) {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  frontend::LoadOptions options;
  options.text = program_text;
  std::optional<csv::Export> exported;
  if (std::optional<ir::Program> program = frontend::LoadProgram("x.piper", options, sources, diag)) {
    if (std::optional<ir::Plan> plan = ir::BuildPlan(*program, diag)) {
      exported = csv::FromDag(plan->dag, *program, diag);
    }
  }
  *errors = diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
  return exported;
}

// All that PyTorch's runtime adds to a schedule, for stages that are all sharded.
std::string Lowered(const csv::Table& table, const csv::Extent& extent, size_t active = csv::kActiveStages) {
  csv::Communication all;
  all.reduced.assign(static_cast<size_t>(extent.stages), true);
  all.waits = true;
  all.active_stages = active;
  return csv::TableText(csv::WithCommunication(table, extent, all));
}

enum class Form { kDense, kSpaced, kLowered };

// CSV -> .piper -> plan -> CSV: the same bytes, whether the .piper lists steps or calls a schedule of the
// library.
void ExpectRoundTrip(const std::string& text, Form form = Form::kDense) {
  Imported imported = Import(text);
  ASSERT_TRUE(imported.extent) << imported.errors << text;
  const std::string piper = csv::ToPiper(*imported.table, *imported.extent, "x", "");
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  EXPECT_EQ(frontend::FormatSource(sources, sources.Add("x.piper", piper), diag), piper)
      << "is not formatted";
  std::string errors;
  std::optional<csv::Export> exported = Export(piper, &errors);
  ASSERT_TRUE(exported) << errors << piper;
  if (form == Form::kLowered) {
    EXPECT_EQ(Lowered(exported->table, exported->extent), text) << piper;
  } else {
    EXPECT_EQ(csv::TableText(exported->table), csv::TableText(WithoutIdleCells(*imported.table))) << piper;
  }
  if (form == Form::kSpaced) {
    EXPECT_EQ(csv::TableText(csv::WithSpacing(exported->table, exported->extent,
                                              tools::SpacingOf(exported->table, exported->extent))),
              text);
  }
  EXPECT_EQ(exported->extent.rank_of, imported.extent->rank_of);
  EXPECT_EQ(exported->extent.microbatches, imported.extent->microbatches);
}

std::string Digest(const std::string& text) {
  uint64_t value = 0xcbf29ce484222325;
  for (char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value));
  return digits;
}

// ---- parsing

TEST(ScheduleCsv, WhatIsNoStepIsRefusedWhereItStands) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"", "x.csv:1:1: error: the file holds no schedule"},
      {" \n\n", "error: the file holds no schedule"},
      {"2F0garbage", "x.csv:1:4: error: 'garbage' behind the step"},
      {"0F0,0B0,2F0 garbage", "x.csv:1:12: error: ' garbage' behind the step"},
      {"0F0,0B0\n\n1F0,1B0", "x.csv:2:1: error: this row has no step"},
      {"0F0,F1", "x.csv:1:5: error: 'F1' is no step: it begins with no stage"},
      {"0F0,0", "x.csv:1:6: error: '0' is no step: no action follows the stage"},
      {"0G0", "x.csv:1:2: error: there is no action 'G'"},
      {"0SEND_G0", "did you mean 'SEND_F'?"},
      {"0f0", "x.csv:1:2: error: '0f0' is no step: no action follows the stage"},
      {"0F", "x.csv:1:1: error: F takes a microbatch"},
      {"0UNSHARD1", "x.csv:1:9: error: UNSHARD takes no microbatch"},
      {"00F1", "x.csv:1:1: error: the stage '00' begins with a zero"},
      {"0F01", "x.csv:1:3: error: the microbatch '01' begins with a zero"},
      {"0F1000000", "x.csv:1:3: error: the microbatch '1000000' is too large"},
      {"99999999999999999999F0", "x.csv:1:1: error: the stage '99999999999999999999' is too large"},
      {"-1F0", "'-1F0' is no step"},
      {"0F-1", "x.csv:1:3: error: '-1' behind the step"},
      {"\"0F0\"", "'\"0F0\"' is no step"},
      {"0F0;0F1", "x.csv:1:4: error: ';0F1' behind the step"},
      {"(0F0;1B0", "x.csv:1:1: error: this '(' is never closed"},
      {"(0F0;1B0),0F1", "x.csv:1:10: error: '' where OVERLAP_F_B belongs"},
      {"(0F0;1B0)OVERLAP_F_Bx", "x.csv:1:10: error: 'OVERLAP_F_Bx' where OVERLAP_F_B belongs"},
      {"(0F0)OVERLAP_F_B", "x.csv:1:1: error: a fused step has exactly two parts"},
      {"(0F0;1B0;0F1)OVERLAP_F_B", "a fused step has exactly two parts"},
      {"(0F0;1F0)OVERLAP_F_B", "x.csv:1:1: error: the parts of a fused step are a forward and a backward"},
      {"(0F0;0UNSHARD)OVERLAP_F_B", "the parts of a fused step are a forward and a backward"},
      {"(0F0;1B0x)OVERLAP_F_B", "x.csv:1:9: error: 'x' behind the step"},
      {"(;)OVERLAP_F_B", "'' is no step"},
      {"0F0,\xff\xfe", "is no step"},
  };
  for (const auto& [text, message] : cases) {
    const Imported imported = Import(text);
    EXPECT_FALSE(imported.extent) << text;
    EXPECT_NE(imported.errors.find(message), std::string::npos) << text << "\n" << imported.errors;
    EXPECT_NE(imported.errors.find("hint: "), std::string::npos) << imported.errors;
  }
}

TEST(ScheduleCsv, WhatIsNoScheduleIsRefusedWhereItStands) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"0F0,0B0,0F0", "x.csv:1:9: error: 0F0 is listed twice"},
      {"0F0,0B0\n0F1,0B1", "x.csv:2:1: error: stage 0 stands on rank 0 and on rank 1"},
      {"0F0,0B0,2F0,2B0", "x.csv:1:9: error: stage 1 stands on no rank, and stage 2 on rank 0"},
      {"0F0,0F1,0B1", "x.csv:1:9: error: rank 0 has no backward of stage 0 for microbatch 0, of 2"},
      {"0F0,0B0,0B1", "rank 0 has no forward of stage 0 for microbatch 1, of 2"},
      {"0F0,0I0", "rank 0 has no weight gradient of stage 0 for microbatch 0"},
      {"0F0,0W0", "rank 0 has no input gradient of stage 0 for microbatch 0"},
      {"0F0,0B0,0W0", "x.csv:1:9: error: 0B0 and 0W0: the backward is listed whole and in halves"},
      {"0B0,0F0", "x.csv:1:1: error: 0B0 stands before 0F0, whose result it needs"},
      {"0F0,0W0,0I0", "x.csv:1:5: error: 0W0 stands before 0I0"},
      {"0F0,(0B1;0F1)OVERLAP_F_B,0B0", "0B1 stands before 0F1"},
      {"0F0,0SEND_F0,0B0\n1F0,1B0", "x.csv:1:5: error: 0SEND_F0 has no 1RECV_F0"},
      {"0F0,0B0,0SEND_B0", "0SEND_B0 has no other end"},
      {"0F0,0B0\n1RECV_F0,1F0,1B0", "1RECV_F0 has no 0SEND_F0"},
      {"0F0,0B0,0WAIT_REDUCE_GRAD", "0WAIT_REDUCE_GRAD has no 0REDUCE_GRAD"},
      {"0F0,0UNSHARD,1UNSHARD,0B0", "error: stage 1 has no F"},
      {"0F0,0UNSHARD,0B0", "x.csv:1:1: error: 0F0 where the parameters of stage 0 are not gathered"},
      {"0UNSHARD,0F0,0UNSHARD,0B0",
       "x.csv:1:14: error: 0UNSHARD where the parameters of stage 0 are gathered "
       "already"},
      {"0UNSHARD,0F0,0RESHARD,0RESHARD,0UNSHARD,0B0",
       "x.csv:1:23: error: 0RESHARD where the parameters of stage 0 are not gathered"},
      {"0UNSHARD,0F0,0RESHARD,0B0",
       "x.csv:1:23: error: 0B0 where the parameters of stage 0 are not gathered"},
      {"0F0,0F1,0B0,0REDUCE_GRAD,0B1", "x.csv:1:13: error: 0REDUCE_GRAD stands before 0B1"},
      {"0F0,0I0,0WAIT_REDUCE_GRAD,0W0,0REDUCE_GRAD", "0WAIT_REDUCE_GRAD stands before 0REDUCE_GRAD"},
      {"0SEND_F0,0F0,0B0\n1RECV_F0,1F0,1B0", "x.csv:1:1: error: 0SEND_F0 stands before 0F0"},
      {"0F0,0SEND_F0,0B0\n1F0,1RECV_F0,1B0", "x.csv:2:1: error: 1F0 stands before 1RECV_F0"},
      {"0F0,0RECV_B0,0B0\n1F0,1SEND_B0,1B0", "x.csv:2:5: error: 1SEND_B0 stands before 1B0"},
      {"0F0,0WAIT_SEND_F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0", "0WAIT_SEND_F0 stands before 0SEND_F0"},
      {"0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0",
       "x.csv:1:5: error: the ranks wait for each other: rank 0 waits at 0B0 for stage 1's"},
      {"0F0,999999F999999", "error: stage 1 stands on no rank"},
      {"0F0,0F999999", "rank 0 has no forward of stage 0 for microbatch 1, of 1000000"},
  };
  for (const auto& [text, message] : cases) {
    const Imported imported = Import(text);
    EXPECT_FALSE(imported.extent) << text;
    EXPECT_NE(imported.errors.find(message), std::string::npos) << text << "\n" << imported.errors;
    EXPECT_NE(imported.errors.find("hint: "), std::string::npos) << imported.errors;
  }
}

TEST(ScheduleCsv, ACellMoreOrLessIsNoticed) {
  const std::string good = Contents(std::string(kGoldens) + "/ScheduleDualPipeV_p2_v2_m4.csv");
  ASSERT_TRUE(Import(good).extent);
  // Any step taken out, doubled, or exchanged with a character of another meaning.
  for (size_t at = 0; at < good.size(); ++at) {
    if (good[at] == ',' || good[at] == '\n') continue;
    std::string bad = good;
    bad.erase(at, 1);
    if (const Imported imported = Import(bad); imported.extent) {
      ADD_FAILURE() << "accepted without byte " << at << ": " << bad;
    }
    bad = good;
    bad.insert(at, 1, 'x');
    EXPECT_FALSE(Import(bad).extent) << bad;
  }
}

TEST(ScheduleCsv, IdleCellsSpacesAndLineEndsMeanNothing) {
  const std::string one = csv::TableText(WithoutIdleCells(*Import("0F0, 0F1 ,0B0,0B1\n").table));
  EXPECT_EQ(one, "0F0,0F1,0B0,0B1\n");
  for (const char* text : {"0F0,0F1,0B0,0B1", "0F0,,0F1,,,0B0,0B1,,\r\n", ",0F0,0F1,0B0,0B1\n\n"}) {
    EXPECT_EQ(csv::TableText(WithoutIdleCells(*Import(text).table)), one) << text;
  }
}

// ---- the literal

// Parts run one after another as listed: a last stage may fuse a forward with its own backward.
TEST(ScheduleCsv, AForwardBesideItsOwnBackward) {
  ExpectRoundTrip("0F0,0F1,0B0,0B1\n1F0,1B0,(1F1;1B1)OVERLAP_F_B\n");
}

// Whose devices compute on one stream of another name: its order is that stream's.
TEST(ScheduleCsv, OrdersNameTheStream) {
  const auto text = [](const std::string& orders) {
    return "import std.gpt\nimport std.topologies\n"
           "model net = gpt.GPT(layers = 1, embed = 8, heads = 2, vocab = 16, seq = 4)\n"
           "strategy s {\n  mesh (pp = 2)\n  cut embed, layer, head into [embed, layer + head] as stage\n"
           "  split batch into 4 as mb\n  for s in 0..2 { place [stage = s] on pp[s] }\n"
           "  stream [stage = 1] on side\n" +
           orders +
           "}\ntrain {\n  model net\n  data random(16)\n  global_batch 4\n  optimizer sgd(0.1)\n"
           "  on topologies.local(ranks = 2)\n  using s\n}\n";
  };
  const auto orders = [](const std::string& program) {
    ir::SourceManager sources;
    ir::DiagnosticEngine diag(sources);
    frontend::LoadOptions options;
    options.text = program;
    const std::optional<ir::Program> loaded = frontend::LoadProgram("x.piper", options, sources, diag);
    const std::optional<ir::Plan> plan = loaded ? ir::BuildPlan(*loaded, diag) : std::nullopt;
    const std::optional<csv::Export> exported = plan ? csv::FromDag(plan->dag, *loaded, diag) : std::nullopt;
    return exported ? csv::OrdersText(*exported, plan->dag)
                    : diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
  };
  const std::string found = orders(text(""));
  EXPECT_EQ(found, "order on pp[0] { steps \"4*(F B)\" }\norder on pp[1] { side: steps \"4*(F B)\" }\n");
  EXPECT_EQ(orders(text(found)), found);
}

TEST(ScheduleCsv, RepeatsAreFolded) {
  auto fold = [](const std::string& text) {
    std::istringstream in(text);
    return csv::FoldRepeats({std::istream_iterator<std::string>(in), {}});
  };
  EXPECT_EQ(fold("F"), "F");
  EXPECT_EQ(fold("F F"), "F F");
  EXPECT_EQ(fold("F F F F"), "4*F");
  EXPECT_EQ(fold("F B F B F B"), "3*(F B)");
  EXPECT_EQ(fold("a a a b a a a b c"), "2*(3*a b) c");
  EXPECT_EQ(fold("0F&1B 0F&1B 0F&1B"), "3*0F&1B");
}

std::string LiteralOf(const std::string& row, bool one_stage) {
  return csv::StepsLiteral(Import(row).table->ranks[0], one_stage);
}

TEST(ScheduleCsv, LiteralsAreShort) {
  EXPECT_EQ(LiteralOf("0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3", true), "4*F 4*B");
  EXPECT_EQ(LiteralOf("0F0,0F1,0F2,0B0,0F3,0B1,0F4,0B2,0B3,0B4", true), "3*F 2*(B F) 3*B");
  EXPECT_EQ(LiteralOf("0F0,0F1,0F2,0B2,0B1,0B0", true), "3*F B2 B1 B0");
  // A W behind a B of a later microbatch is not the next one.
  EXPECT_EQ(LiteralOf("0F0,0F1,0F2,0I0,0B1,0W0,0I2,0W2", true), "3*F I B W0 I W");
  EXPECT_EQ(LiteralOf("0F0,1F0,1B0,(0F1;0B0)OVERLAP_F_B", false), "0F 1F 1B 0F&0B");
}

TEST(ScheduleCsv, TheFileIsFormattedAndNamesWhatItIs) {
  const Imported imported = Import(Contents(std::string(kGoldens) + "/ScheduleZBVZeroBubble_p4_v2_m8.csv"));
  ASSERT_TRUE(imported.extent);
  const std::string text = csv::ToPiper(*imported.table, *imported.extent, "zbv", "");
  EXPECT_EQ(text.rfind("// The schedule of zbv.csv: 4 ranks, 8 stages, 8 microbatches;", 0), 0u) << text;
  EXPECT_NE(text.find("let rank_of = [if s < ranks { s } else { 2 * ranks - 1 - s } for s in 0..stages]\n"),
            std::string::npos);
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  EXPECT_EQ(frontend::FormatSource(sources, sources.Add("x.piper", text), diag), text);
  // A name cannot leave its comment.
  EXPECT_NE(csv::ToPiper(*imported.table, *imported.extent, "a\nlet x = 1", "")
                .find("// The schedule of a?let x = 1.csv"),
            std::string::npos);
}

// Stages may lie anywhere; long lists break as `piper fmt` breaks them.
TEST(ScheduleCsv, AnyPlacement) {
  for (int stages : {3, 30, 31, 60, 61, 62}) {
    std::string first, second;
    for (int s = 0; s < stages; ++s) (s % 3 == 0 ? first : second) += std::to_string(s) + "F0,";
    for (int s = stages - 1; s >= 0; --s) (s % 3 == 0 ? first : second) += std::to_string(s) + "B0,";
    ExpectRoundTrip(first + "\n" + second + "\n");
  }
}

// ---- PyTorch's classes

// A schedule that PyTorch has in another order than the library.
constexpr char kUserSchedules[] = R"(
// LoopedBFS: backwards begin with the last microbatch.
fn looped_from_the_end(r: int, p: int, v: int, m: int) -> schedule {
  for c in 0..v { for i in 0..m { F[stage = c * p + r, mb = i] } }
  for c in reversed(0..v) { for i in reversed(0..m) { B[stage = c * p + r, mb = i] } }
}
)";

// A row of the goldens: class, p, v, m, and what else it has.
struct PyTorchCase {
  std::string name;
  int p = 0, v = 0, m = 0;
  std::vector<std::string> fields;
};

PyTorchCase CaseOf(const std::string& line) {
  PyTorchCase result;
  std::istringstream in(line);
  std::string p, v, m;
  for (std::string* field : {&result.name, &p, &v, &m}) EXPECT_TRUE(std::getline(in, *field, ',')) << line;
  result.p = std::stoi(p);
  result.v = std::stoi(v);
  result.m = std::stoi(m);
  for (std::string field; std::getline(in, field, ',');) result.fields.push_back(field);
  return result;
}

// The same schedule from text, on a chain of stages.
std::string ProgramOf(const PyTorchCase& c) {
  Schedule schedule;
  schedule.v = c.v;
  bool ours = false;
  if (c.name == "ScheduleGPipe") schedule.name = "gpipe";
  if (c.name == "Schedule1F1B") schedule.name = "one_f_one_b";
  if (c.name == "ScheduleInterleaved1F1B") schedule = {"interleaved", Shape::kLooped, c.v, true};
  if (c.name == "ScheduleInterleavedZeroBubble") schedule = {"interleaved_zb", Shape::kLooped, c.v, true};
  if (c.name == "ScheduleZBVZeroBubble") schedule = {"zbv", Shape::kV, 2};
  if (c.name == "ScheduleDualPipeV") schedule = {"dualpipev", Shape::kV, 2};
  if (c.name == "ScheduleLoopedBFS") schedule = {"looped_from_the_end", Shape::kLooped, c.v, ours = true};
  EXPECT_FALSE(schedule.name.empty()) << c.name;
  const ::piper::Row costs{schedule.name, c.p, c.m, 1, 1, 1, -1, 0, 0, {}, {}};
  std::string text = ChainProgram(schedule, c.p, c.m, Costs(costs), kIdealMachine);
  if (ours) {
    const std::string library = "schedules." + schedule.name;
    text.replace(text.find(library), library.size(), schedule.name);
    text += kUserSchedules;
  }
  return text;
}

TEST(ScheduleCsv, GoldensGoBothWays) {
  int spaced = 0, lowered = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldens)) {
    const std::string name = entry.path().filename();
    if (name.rfind("Schedule", 0) != 0) continue;
    SCOPED_TRACE(name);
    const bool is_lowered = name.find(".lowered.csv") != std::string::npos;
    ++(is_lowered ? lowered : spaced);
    ExpectRoundTrip(Contents(entry.path()), is_lowered ? Form::kLowered : Form::kSpaced);
  }
  EXPECT_EQ(spaced, 14) << "two of each class";
  EXPECT_EQ(lowered, 14);
}

// By hand: a rank of three stages that may hold two. The pair at the end is never cut: it gathers a third.
TEST(ScheduleCsv, StagesAreGatheredBeforeTheyAreNeeded) {
  const auto unsharded = [](const char* row, size_t active) {
    return csv::TableText(csv::WithUnsharding(*Import(row).table, active));
  };
  const char* row = "0F0,1F0,2F0,2B0,1B0,0B0";
  EXPECT_EQ(
      unsharded(row, 1),
      "0UNSHARD,0F0,0RESHARD,1UNSHARD,1F0,1RESHARD,2UNSHARD,2F0,2B0,2RESHARD,1UNSHARD,1B0,1RESHARD,0UNSHARD,"
      "0B0,0RESHARD\n");
  EXPECT_EQ(
      unsharded(row, 2),
      "0UNSHARD,1UNSHARD,0F0,0RESHARD,2UNSHARD,1F0,2F0,2B0,2RESHARD,0UNSHARD,1B0,1RESHARD,0B0,0RESHARD\n");
  EXPECT_EQ(unsharded(row, 3),
            "0UNSHARD,1UNSHARD,2UNSHARD,0F0,1F0,2F0,2B0,2RESHARD,1B0,1RESHARD,0B0,0RESHARD\n");
  EXPECT_EQ(
      unsharded("0F0,1F0,0F1,2F0,1F1,2F1,2B0,1B0,2B1,(0F2;1B1)OVERLAP_F_B,0B0,0B1", 2),
      "0UNSHARD,1UNSHARD,0F0,1F0,1RESHARD,2UNSHARD,0F1,0RESHARD,1UNSHARD,2F0,1F1,2F1,2B0,1B0,0UNSHARD,2B1,"
      "2RESHARD,(0F2;1B1)OVERLAP_F_B,1RESHARD,0B0,0B1,0RESHARD\n");
}

// A rank may hold fewer stages than it has, or more.
TEST(ScheduleCsv, UnshardingIsPyTorchs) {
  std::istringstream rows(Contents(std::string(kGoldens) + "/unshard.csv"));
  std::string line;
  std::getline(rows, line);
  std::getline(rows, line);
  ASSERT_EQ(line, "class,p,v,m,active,lowered");
  int checked = 0;
  std::string last_case;
  std::optional<csv::Export> exported;
  while (std::getline(rows, line)) {
    const PyTorchCase c = CaseOf(line);
    if (!Soak() && c.p != 2 && c.p != 4) continue;
    SCOPED_TRACE(line);
    if (const std::string key = c.name + std::to_string(c.p) + "," + std::to_string(c.v); key != last_case) {
      last_case = key;
      std::string errors;
      exported = Export(ProgramOf(c), &errors);
      ASSERT_TRUE(exported) << errors;
    }
    const std::string lowered =
        Lowered(exported->table, exported->extent, static_cast<size_t>(std::stoi(c.fields[0])));
    EXPECT_EQ(Digest(lowered), c.fields[1]) << lowered;
    EXPECT_TRUE(Import(lowered).extent);
    ++checked;
  }
  EXPECT_GE(checked, 100);
}

TEST(ScheduleCsv, SchedulesAreThoseOfPyTorchsClasses) {
  std::istringstream rows(Contents(std::string(kGoldens) + "/digests.csv"));
  std::string line;
  std::getline(rows, line);
  std::getline(rows, line);
  ASSERT_EQ(line, "class,p,v,m,compute,spaced,communication,lowered");
  std::map<std::string, int> seen;
  while (std::getline(rows, line)) {
    const PyTorchCase c = CaseOf(line);
    ASSERT_EQ(c.fields.size(), 4u);
    ++seen[c.name];
    if (!Soak() && (c.p > 4 || c.v > 2 || c.m > 2 * c.p + 1)) continue;
    SCOPED_TRACE(line);
    std::string errors;
    std::optional<csv::Export> exported = Export(ProgramOf(c), &errors);
    ASSERT_TRUE(exported) << errors;
    const std::string rows_text = csv::TableText(exported->table);
    EXPECT_EQ(Digest(rows_text), c.fields[0]) << rows_text;
    const std::string spaced = csv::TableText(csv::WithSpacing(
        exported->table, exported->extent, tools::SpacingOf(exported->table, exported->extent)));
    EXPECT_EQ(Digest(spaced), c.fields[1]) << spaced;
    csv::Communication communication;
    communication.reduced.assign(static_cast<size_t>(exported->extent.stages), true);
    const std::string listed =
        csv::TableText(csv::WithCommunication(exported->table, exported->extent, communication));
    EXPECT_EQ(Digest(listed), c.fields[2]) << listed;
    const std::string lowered = Lowered(exported->table, exported->extent);
    EXPECT_EQ(Digest(lowered), c.fields[3]) << lowered;
    ExpectRoundTrip(spaced, Form::kSpaced);
    // With all that it makes of a schedule it is the same schedule.
    const Imported with = Import(lowered);
    ASSERT_TRUE(with.extent) << with.errors;
    EXPECT_EQ(with.extent->rank_of, exported->extent.rank_of);
  }
  EXPECT_EQ(seen.size(), 7u);
  for (const auto& [name, count] : seen) EXPECT_GE(count, 30) << name;
}

// ---- what a plan may hold

// A replay that an order lists early is not exported, which is said; one that is derived needs no word.
TEST(ScheduleCsv, SaysWhatIsListedAndNotExported) {
  auto warnings = [](const std::string& replay) {
    std::string errors;
    const std::optional<csv::Export> result = Export(
        "import std.gpt\nimport std.topologies\n"
        "model net = gpt.GPT(layers = 4, embed = 16, heads = 2, vocab = 64, seq = 8)\n"
        "strategy s {\n  mesh (pp = 2)\n  cut embed, layer, head into 2 as stage\n  split batch into 2 as "
        "mb\n"
        "  recompute [layer]\n  for s in 0..2 {\n    place [stage = s] on pp[s]\n    order on pp[s] { "
        "F[stage = "
        "s]; " +
            replay +
            "B[stage = s] }\n  }\n}\ntrain {\n  model net\n  data random()\n  global_batch 8\n  optimizer "
            "sgd(0.1)\n  on topologies.ideal(ranks = 2)\n  using s\n}\n",
        &errors);
    EXPECT_TRUE(result) << errors;
    return errors;
  };
  EXPECT_EQ(warnings(""), "");
  const std::string listed = warnings("R[stage = s]; ");
  EXPECT_NE(listed.find("is listed here, and an export lists F, BI and BW only [not-expressible]"),
            std::string::npos)
      << listed;
}

TEST(ScheduleCsv, ReducesWhereThePlanDoes) {
  auto exported = [](int dp) {
    std::string errors;
    std::optional<csv::Export> result = Export(
        "import std.gpt\nimport std.strategies\nimport std.topologies\n"
        "model net = gpt.GPT(layers = 4, embed = 16, heads = 2, vocab = 64, seq = 8)\n"
        "train {\n  model net\n  data random()\n  global_batch 8\n  optimizer sgd(0.1)\n"
        "  on topologies.ideal(ranks = 4)\n  using strategies.one_f_one_b(p = 2, m = 2, dp = " +
            std::to_string(dp) + ")\n}\n",
        &errors);
    EXPECT_TRUE(result) << errors;
    csv::Communication communication;
    communication.reduced = result->reduced;
    communication.waits = true;
    return csv::TableText(csv::WithCommunication(result->table, result->extent, communication));
  };
  EXPECT_EQ(exported(1),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1\n"
            "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1\n");
  EXPECT_EQ(
      exported(2),
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1,0REDUCE_GRAD,"
      "0WAIT_REDUCE_GRAD\n"
      "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1WAIT_SEND_B0,"
      "1WAIT_SEND_B1\n");
}

TEST(ScheduleCsv, WhatThePlanHasAndTheFormatHasNotIsRefused) {
  std::string errors;
  EXPECT_FALSE(Export(ChainProgram({"dualpipe", Shape::kTwoWays, 1}, 2, 4,
                                   Costs({"dualpipe", 2, 4, 1, 1, 1, -1, 0, 0, {}, {}}), kIdealMachine),
                      &errors));
  EXPECT_NE(errors.find("a stage has two copies, and an export has one rank a stage [not-expressible]"),
            std::string::npos)
      << errors;
}

}  // namespace
}  // namespace piper
