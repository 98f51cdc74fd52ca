// What `piper run` prints and writes: timeline, figures, Chrome trace; the faults that --inject makes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ir/cost/simulator.h"
#include "tests/codegen_job.h"
#include "tools/inject.h"
#include "tools/job_dump.h"
#include "tools/report.h"
#include "tools/timeline.h"
#include "tools/trace.h"

namespace piper::tools {
namespace {

ir::Topology TwoDevices() {
  ir::Topology topology;
  topology.kinds.push_back({});
  topology.device_kind = {0, 0};
  return topology;
}

// F = BI = BW = 1 ms, everything else free.
std::unique_ptr<ir::JobStorage> TimedJob() {
  auto storage = test::MakeSmallJob();
  for (ir::RoleStorage& role : storage->train_roles()) {
    for (runtime::Task& task : role.tasks) {
      task.cost = task.kind == runtime::TaskKind::kCompute ? ir::kPsPerMs : 0;
    }
  }
  storage->Seal();
  return storage;
}

TEST(ToolsTimeline, ShowsPassesAndIdleTime) {
  const auto storage = TimedJob();
  const ir::SimulationResult result = ir::Simulate(storage->job(), TwoDevices());
  ASSERT_TRUE(result.deadlock.empty());
  ASSERT_EQ(result.makespan, 7 * ir::kPsPerMs);
  const std::vector<CellRow> rows =
      MakeCellRows(TimelineRows(storage->job(), result, false), {}, storage->job().strings);
  EXPECT_EQ(RenderTimeline(rows, result.makespan, {.columns = 23, .max_rows = 64, .colour = false}),
            "rank 0 |F0F1..B0....B1|\n"
            "rank 1 |..F0I0W0F1I1W1|\n"
            "        0         7 ms\n"
            "        F forward  B backward\n"
            "        I backward, inputs\n"
            "        W backward, weights  . idle\n");
  const std::string coloured =
      RenderTimeline(rows, result.makespan, {.columns = 23, .max_rows = 1, .colour = true});
  EXPECT_NE(coloured.find("\x1b[30;104mF0F1\x1b[0m"), std::string::npos) << coloured;
  EXPECT_NE(coloured.find("1 more rows\n"), std::string::npos) << coloured;
}

TEST(ToolsReport, FiguresAreThoseOfTheClock) {
  const auto storage = TimedJob();
  const ir::SimulationResult result = ir::Simulate(storage->job(), TwoDevices());
  const std::string text = RenderReport(storage->job(), result, false);
  EXPECT_NE(text.find("step time    7 ms\n"), std::string::npos) << text;
  EXPECT_NE(text.find("bubble       42.86 %"), std::string::npos) << text;
  EXPECT_NE(text.find("messages     4 a step, 4 KiB\n"), std::string::npos) << text;
  for (size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
    EXPECT_LE(text.find('\n', begin) - begin, 80u) << text;
  }
}

TEST(ToolsTrace, IsJsonWithAnEventATaskAndAnArrowAMessage) {
  test::JobNames names;
  names.task = "F \"embed\"\n\xff";
  const auto storage = test::MakeSmallJob(names);
  const ir::SimulationResult result = ir::Simulate(storage->job(), TwoDevices());
  const auto trace =
      nlohmann::json::parse(ChromeTrace(storage->job(), TimelineRows(storage->job(), result, false)));
  std::map<std::string, int> count;
  std::map<int, int> starts, ends;
  for (const auto& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    ++count[phase];
    if (phase == "s") ++starts[event["id"]];
    if (phase == "f") ++ends[event["id"]];
  }
  EXPECT_EQ(count["X"],
            static_cast<int>(storage->job().train[0].tasks.size() + storage->job().train[1].tasks.size()));
  EXPECT_EQ(count["M"], 2 + 8);
  EXPECT_EQ(starts.size(), 4u);
  EXPECT_EQ(starts, ends);
}

TEST(ToolsTrace, StringsAreJson) {
  EXPECT_EQ(JsonString("a\"b\\\n\x7f"), "\"a\\\"b\\\\\\u000a\\u007f\"");
  EXPECT_EQ(JsonString("\xc3\xa9"), "\"\xc3\xa9\"");
  EXPECT_EQ(JsonString("\xc3"), "\"\\ufffd\"");
  EXPECT_EQ(JsonString("\xed\xa0\x80x"), "\"\\ufffd\\ufffd\\ufffdx\"");
}

TEST(ToolsInject, EachFaultEditsTheJob) {
  for (const std::string& fault : FaultNames()) {
    const auto storage = test::MakeSmallJob();
    const std::string before = DumpJob(storage->job());
    const int64_t targets = storage->job().targets_per_sample;
    ASSERT_TRUE(InjectFault(fault, *storage).ok()) << fault;
    EXPECT_TRUE(DumpJob(storage->job()) != before || storage->job().targets_per_sample != targets) << fault;
  }
  const auto storage = test::MakeSmallJob();
  EXPECT_FALSE(InjectFault("no-such-fault", *storage).ok());
  const auto long_job = test::MakeLongJob(100);
  EXPECT_EQ(InjectFault("swap-microbatch", *long_job).error(),
            "this job has no place for the fault 'swap-microbatch'");
}

TEST(ToolsDump, ATaskSaysWhatItRunsAndWaitsFor) {
  const std::string text = DumpJob(test::MakeSmallJob()->job());
  EXPECT_NE(text.find("       3 F embed mb 1: run embed_fwd on 9 0 10, 1 ns  @ small.piper:20:5\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("       9 send y mb 0: send to peer 0 on 7 after 1, 1024 B"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace piper::tools
