// Exact schedule figures, from `.piper` text through the whole pipeline: every row of
// tests/golden/schedule_goldens.csv (made by an independent event loop; integer units, one unit = 1 us here)
// for the schedules of the standard library, the table of docs/schedules, and the golden communication case.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/schedules_support.h"

namespace piper {
namespace {

std::vector<int64_t> Numbers(const std::string& text) {
  std::istringstream in(text);
  std::vector<int64_t> values;
  int64_t value;
  while (in >> value) values.push_back(value);
  return values;
}

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
    if (!cells[6].empty()) row.fused = std::stoll(cells[6]);
    row.latency = std::stoll(cells[7]);
    row.makespan = std::stoll(cells[8]);
    row.idle = Numbers(cells[9]);
    row.peak = Numbers(cells[10]);
    rows.push_back(row);
  }
  return rows;
}

void Check(const Row& row) {
  std::optional<ir::Plan> plan = PlanRow(row);
  ASSERT_TRUE(plan);
  const ir::SimulationResult& result = plan->simulation;
  EXPECT_EQ(result.makespan, row.makespan * ir::kPsPerUs) << row.schedule << " p=" << row.p << " m=" << row.m;
  ASSERT_EQ(result.roles.size(), static_cast<size_t>(row.p));
  for (size_t r = 0; r < result.roles.size(); ++r) {
    EXPECT_EQ(result.roles[r].idle, row.idle[r] * ir::kPsPerUs)
        << row.schedule << " p=" << row.p << " m=" << row.m << " rank " << r;
    EXPECT_EQ(result.roles[r].peak_activations, row.peak[r])
        << row.schedule << " p=" << row.p << " m=" << row.m << " rank " << r;
  }
}

TEST(ScheduleGoldens, EveryRow) {
  std::vector<Row> rows = ReadRows();
  EXPECT_EQ(rows.size(), 200u);
  for (const Row& row : rows) Check(row);
}

TEST(ScheduleGoldens, TheTable) {
  Check({"one_f_one_b", 4, 8, 1, 1, 1, -1, 0, 33, {9, 9, 9, 9}, {4, 3, 2, 1}});
  Check({"zb1p", 4, 8, 1, 1, 1, -1, 0, 27, {3, 3, 3, 3}, {4, 4, 4, 4}});
  Check({"interleaved_v2", 4, 8, 1, 1, 1, -1, 0, 57, {9, 9, 9, 9}, {11, 9, 7, 5}});
  Check({"dualpipev", 4, 8, 1, 1, 1, -1, 0, 54, {6, 6, 6, 6}, {9, 9, 9, 9}});
  Check({"dualpipev", 4, 8, 1, 1, 1, 2, 0, 44, {1, 2, 3, 3}, {9, 9, 9, 9}});
  Check({"dualpipe", 8, 20, 1, 1, 1, -1, 0, 66, {6, 6, 6, 6, 6, 6, 6, 6}, {9, 9, 9, 9, 9, 9, 9, 9}});
  Check({"dualpipe", 8, 20, 1, 1, 1, 2, 0, 52, {1, 2, 3, 3, 3, 3, 2, 1}, {9, 9, 9, 9, 9, 9, 9, 9}});
}

// 1F1B, F = 100 us, B = 200 us, 1 MiB boundary messages, link 500 ns + 50 GiB/s, sends off the compute
// stream: makespan (m + p - 1) * 300 us + H * 20,031.25 ns.
TEST(ScheduleGoldens, Communication) {
  struct Case {
    int p, m, hops;
  };
  for (Case c :
       {Case{4, 8, 16}, Case{8, 32, 68}, Case{16, 128, 268}, Case{32, 256, 556}, Case{64, 512, 1132}}) {
    std::string machine =
        "topology machine(ranks: int) {\n  device unit { compute f32 = 1 TFLOP/s }\n"
        "  level all = ranks of unit joined by { bandwidth = 50 GiB/s; latency = 500 ns }\n}\n";
    std::string errors;
    std::optional<ir::Plan> plan = PlanText(
        ChainProgram(Find("one_f_one_b"), c.p, c.m,
                     "  cost F[layer] = 100 us\n  cost B[layer] = 200 us\n  cost [send] = 1 MiB\n", machine),
        &errors);
    ASSERT_TRUE(plan) << errors;
    EXPECT_EQ(plan->simulation.makespan, (c.m + c.p - 1) * 300 * ir::kPsPerUs + c.hops * 20'031'250LL)
        << c.p << " x " << c.m;
  }
}

}  // namespace
}  // namespace piper
