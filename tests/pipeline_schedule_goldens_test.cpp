// Exact schedule figures, from `.piper` text through the whole pipeline: every row of tests/golden/schedule_goldens.csv
// (made by an independent event loop; integer units, one unit = 1 us here) for the schedules of the standard library,
// the table of docs/schedules, and the golden communication case.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "frontend/frontend.h"
#include "ir/pipeline.h"

namespace piper {
namespace {

// A chain of one-region stages whose figures all come from `cost` lines.
std::string ChainProgram(const std::string& body, int stages, int ranks, int m, const std::string& topology) {
  std::ostringstream text;
  text << "import std.schedules\nimport std.topologies\n"
       << "module Layer(width: dim) {\n  param w: [width] = ones\n"
       << "  forward(x: [batch, width]) -> [batch, width] { x * w }\n}\n"
       << "module Chain(n: int, width: dim) {\n  layers = [Layer(width) for i in 0..n]\n"
       << "  forward(x: [batch, width], y: [batch, width]) -> loss {\n    var h = x\n"
       << "    for i in 0..n - 1 { h = tag layer { layers[i](h) } }\n"
       << "    return tag layer { mse(layers[n - 1](h), y) }\n  }\n}\n"
       << "model net = Chain(n = " << stages << ", width = 1)\n"
       << topology << "strategy study {\n  mesh (pp = " << ranks << ")\n  cut layer into " << stages << " as stage\n"
       << "  split batch into " << m << " as mb\n"
       << "  for s in 0.." << stages << " { place [stage = s] on pp[s % " << ranks << "] }\n"
       << body
       << "  cost [accumulate] = 0 us\n  cost [update] = 0 us\n  cost [loss.fold] = 0 us\n"
       << "  cost [loss.reduce] = 0 us\n}\n"
       << "train {\n  model net\n  data random()\n  global_batch " << m << "\n  steps 1\n  optimizer sgd(lr = 0.1)\n"
       << "  on machine(" << ranks << ")\n  using study\n}\n";
  return text.str();
}

const char kIdealMachine[] =
    "topology machine(ranks: int) {\n  device unit { compute f32 = 1 TFLOP/s }\n  level all = ranks of unit\n}\n";

std::optional<ir::Plan> PlanText(const std::string& text, std::string* errors) {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  frontend::LoadOptions options;
  options.text = text;
  std::optional<ir::Program> program = frontend::LoadProgram("study.piper", options, sources, diag);
  std::optional<ir::Plan> plan;
  if (program) plan = ir::BuildPlan(*program, diag);
  *errors = diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
  return plan;
}

std::vector<int64_t> Numbers(const std::string& text) {
  std::istringstream in(text);
  std::vector<int64_t> values;
  int64_t value;
  while (in >> value) values.push_back(value);
  return values;
}

struct Row {
  std::string schedule;
  int p = 0, m = 0;
  int64_t f = 0, bi = 0, bw = 0, latency = 0, makespan = 0;
  std::vector<int64_t> idle, peak;
};

std::vector<Row> ReadRows() {
  std::ifstream in("tests/golden/schedule_goldens.csv");
  std::string line;
  std::getline(in, line);
  std::vector<Row> rows;
  while (std::getline(in, line)) {
    std::vector<std::string> cells;
    std::istringstream cell_stream(line);
    std::string cell;
    while (std::getline(cell_stream, cell, ',')) cells.push_back(cell);
    if (cells.size() != 11) ADD_FAILURE() << "bad row: " << line;
    Row row;
    row.schedule = cells[0];
    row.p = std::stoi(cells[1]);
    row.m = std::stoi(cells[2]);
    row.f = std::stoll(cells[3]);
    row.bi = std::stoll(cells[4]);
    row.bw = std::stoll(cells[5]);
    row.latency = std::stoll(cells[7]);
    row.makespan = std::stoll(cells[8]);
    row.idle = Numbers(cells[9]);
    row.peak = Numbers(cells[10]);
    rows.push_back(row);
  }
  return rows;
}

std::string Order(const std::string& schedule, int ranks, int v, int m) {
  std::ostringstream out;
  out << "  for r in 0.." << ranks << " { order on pp[r] { schedules." << schedule << "(r, " << ranks;
  if (schedule == "interleaved") out << ", " << v;
  out << ", " << m << ") } }\n";
  return out.str();
}

std::string WholeBackwardCosts(int stages, int64_t f, int64_t b, int64_t latency) {
  std::ostringstream out;
  out << "  for s in 0.." << stages << " {\n    cost F[stage = s] = " << f << " us\n    cost B[stage = s] = " << b
      << " us\n  }\n";
  if (stages > 1) out << "  cost [send]? = " << latency << " us\n";
  return out.str();
}

void Check(const Row& row, int v) {
  int stages = row.p * v;
  std::string text = ChainProgram(
      Order(row.schedule, row.p, v, row.m) + WholeBackwardCosts(stages, row.f, row.bi + row.bw, row.latency), stages,
      row.p, row.m, kIdealMachine);
  std::string errors;
  std::optional<ir::Plan> plan = PlanText(text, &errors);
  ASSERT_TRUE(plan) << row.schedule << " p=" << row.p << " m=" << row.m << "\n" << errors << text;
  const ir::SimulationResult& result = plan->simulation;
  EXPECT_EQ(result.makespan, row.makespan * ir::kPsPerUs) << row.schedule << " p=" << row.p << " m=" << row.m;
  ASSERT_EQ(result.roles.size(), static_cast<size_t>(row.p));
  for (int r = 0; r < row.p; ++r) {
    EXPECT_EQ(result.roles[r].idle, row.idle[r] * ir::kPsPerUs) << row.schedule << " p=" << row.p << " m=" << row.m << " rank " << r;
    EXPECT_EQ(result.roles[r].peak_activations, row.peak[r])
        << row.schedule << " p=" << row.p << " m=" << row.m << " rank " << r;
  }
}

TEST(ScheduleGoldens, EveryRowOfTheStandardSchedules) {
  int checked = 0;
  for (const Row& row : ReadRows()) {
    int v = 1;
    if (row.schedule.rfind("interleaved", 0) == 0) {
      // "interleaved", or "interleaved_vN"
      size_t at = row.schedule.find("_v");
      v = at == std::string::npos ? 2 : std::stoi(row.schedule.substr(at + 2));
    } else if (row.schedule != "gpipe" && row.schedule != "one_f_one_b") {
      continue;
    }
    Row plain = row;
    if (v > 1) plain.schedule = "interleaved";
    Check(plain, v);
    ++checked;
  }
  EXPECT_GE(checked, 60);
}

TEST(ScheduleGoldens, TheTable) {
  Check({"one_f_one_b", 4, 8, 1, 1, 1, 0, 33, {9, 9, 9, 9}, {4, 3, 2, 1}}, 1);
  Check({"interleaved", 4, 8, 1, 1, 1, 0, 57, {9, 9, 9, 9}, {11, 9, 7, 5}}, 2);
}

// 1F1B, F = 100 us, B = 200 us, 1 MiB boundary messages, link 500 ns + 50 GiB/s, sends off the compute stream: makespan
// (m + p - 1) * 300 us + H * 20,031.25 ns.
TEST(ScheduleGoldens, Communication) {
  struct Case {
    int p, m, hops;
  };
  for (Case c : {Case{4, 8, 16}, Case{8, 32, 68}, Case{16, 128, 268}}) {
    std::string machine =
        "topology machine(ranks: int) {\n  device unit { compute f32 = 1 TFLOP/s }\n"
        "  level all = ranks of unit joined by { bandwidth = 50 GiB/s; latency = 500 ns }\n}\n";
    std::ostringstream body;
    body << Order("one_f_one_b", c.p, 1, c.m) << "  for s in 0.." << c.p
         << " {\n    cost F[stage = s] = 100 us\n    cost B[stage = s] = 200 us\n  }\n  cost [send] = 1 MiB\n";
    std::string errors;
    std::optional<ir::Plan> plan = PlanText(ChainProgram(body.str(), c.p, c.p, c.m, machine), &errors);
    ASSERT_TRUE(plan) << errors;
    EXPECT_EQ(plan->simulation.makespan, (c.m + c.p - 1) * 300 * ir::kPsPerUs + c.hops * 20'031'250LL)
        << c.p << " x " << c.m;
  }
}

}  // namespace
}  // namespace piper
