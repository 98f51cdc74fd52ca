// The virtual clock on hand-built pipelines: the figures of docs/schedules.md, every golden row of GPipe,
// 1F1B and interleaved 1F1B, the golden communication case, fused nodes, collectives, folding, and deadlocks
// with their cycles.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "ir/cost/simulator.h"
#include "tests/pipeline_job.h"

namespace piper::ir {
namespace {

using testing::CommunicationStreams;
using testing::FlatTopology;
using testing::PipelineCosts;
using testing::PipelineJob;
using testing::RankSteps;

SimulationResult Clock(const PipelineJob& pipeline, Link link = {}, bool expand = false) {
  SimulationOptions options;
  options.expand = expand;
  return Simulate(pipeline.job(), FlatTopology(pipeline.job().rank_count, link), options);
}

TEST(Simulator, OneFOneBOfFourByEight) {
  PipelineJob pipeline(testing::OneFOneB(4, 8), 4, {1, 2, 0, true, 0});
  const SimulationResult result = Clock(pipeline);
  ASSERT_TRUE(result.deadlock.empty());
  EXPECT_EQ(result.makespan, 33);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(result.roles[r].idle, 9);
    EXPECT_EQ(result.roles[r].busy, 24);
    EXPECT_EQ(result.roles[r].peak_activations, 4 - r);
  }
  EXPECT_EQ(result.roles[0].messages, 8);
  EXPECT_DOUBLE_EQ(result.bubble(), 9.0 / 33);
}

TEST(Simulator, InterleavedOfFourByEight) {
  PipelineJob pipeline(testing::Interleaved(4, 2, 8), 8, {1, 2, 0, true, 0});
  const SimulationResult result = Clock(pipeline);
  ASSERT_TRUE(result.deadlock.empty());
  EXPECT_EQ(result.makespan, 57);
  const int64_t peaks[] = {11, 9, 7, 5};
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(result.roles[r].idle, 9);
    EXPECT_EQ(result.roles[r].peak_activations, peaks[r]);
  }
}

std::vector<int64_t> Numbers(const std::string& text) {
  std::istringstream in(text);
  std::vector<int64_t> values;
  for (int64_t value; in >> value;) values.push_back(value);
  return values;
}

TEST(Simulator, EveryGoldenRow) {
  std::ifstream file("tests/golden/schedule_goldens.csv");
  ASSERT_TRUE(file.is_open());
  std::string line;
  std::getline(file, line);
  int rows = 0;
  while (std::getline(file, line)) {
    std::vector<std::string> cells;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
    ASSERT_EQ(cells.size(), 11u) << line;
    const int p = std::stoi(cells[1]), m = std::stoi(cells[2]);
    std::vector<RankSteps> steps;
    int chunks = 1;
    if (cells[0] == "gpipe") {
      steps = testing::GPipe(p, m);
    } else if (cells[0] == "one_f_one_b") {
      steps = testing::OneFOneB(p, m);
    } else if (cells[0].starts_with("interleaved_v")) {
      chunks = std::stoi(cells[0].substr(13));
      steps = testing::Interleaved(p, chunks, m);
    } else {
      continue;
    }
    ++rows;
    const PipelineCosts costs{std::stoi(cells[3]), std::stoi(cells[4]) + std::stoi(cells[5]),
                              std::stoi(cells[7]), true, 0};
    PipelineJob pipeline(steps, p * chunks, costs);
    const SimulationResult result = Clock(pipeline);
    ASSERT_TRUE(result.deadlock.empty()) << line;
    EXPECT_EQ(result.makespan, std::stoll(cells[8])) << line;
    const std::vector<int64_t> idle = Numbers(cells[9]), peak = Numbers(cells[10]);
    for (int r = 0; r < p; ++r) {
      EXPECT_EQ(result.roles[r].idle, idle[r]) << line;
      EXPECT_EQ(result.roles[r].peak_activations, peak[r]) << line;
    }
  }
  EXPECT_EQ(rows, 100);
}

TEST(Simulator, GoldenCommunication) {
  // 1 MiB over 50 GiB/s is 19,531.25 ns, and 500 ns of latency.
  const Link link{50.0 * (1LL << 30), 500 * kPsPerNs, 1};
  const int64_t transfer = 20'031'250;
  const int hops[][3] = {{4, 8, 16}, {8, 32, 68}, {32, 256, 556}, {16, 128, 268}, {64, 512, 1132}};
  for (const auto& [p, m, h] : hops) {
    PipelineJob pipeline(testing::OneFOneB(p, m), p,
                         {100 * kPsPerUs, 200 * kPsPerUs, transfer, false, 1 << 20});
    const SimulationResult result = Clock(pipeline, link);
    ASSERT_TRUE(result.deadlock.empty());
    EXPECT_EQ(result.makespan, (m + p - 1) * 300 * kPsPerUs + h * transfer) << p << " x " << m;
  }
}

TEST(Simulator, MessagesOfOneStreamShareItsBandwidthButNotItsLatency) {
  // GPipe on two ranks with free compute: m messages of 10 occupy the link one after another; latency 7 is
  // paid once.
  PipelineJob pipeline(testing::GPipe(2, 5), 2, {0, 0, 17, false, 0});
  const SimulationResult result = Clock(pipeline, Link{1, 7, 1});
  ASSERT_TRUE(result.deadlock.empty());
  EXPECT_EQ(result.makespan, 2 * (5 * 10 + 7));
}

TEST(Simulator, ExpandedEqualsFolded) {
  for (const auto& steps : {testing::OneFOneB(8, 16), testing::GPipe(8, 3)}) {
    PipelineJob pipeline(steps, 8, {3, 5, 2, true, 0});
    const SimulationResult folded = Clock(pipeline), expanded = Clock(pipeline, {}, true);
    EXPECT_EQ(folded.makespan, expanded.makespan);
    for (size_t r = 0; r < 8; ++r) EXPECT_EQ(folded.roles[r].idle, expanded.roles[r].idle);
  }
}

// All replicas of a two-stage pipeline: `replicas` ranks a role, peers by identity, one all-reduce a stage at
// the end.
std::unique_ptr<JobStorage> ReplicatedPipeline(uint32_t replicas, int64_t reduce_cost, bool crossed) {
  PipelineJob pipeline(testing::OneFOneB(2, 4), 2, {1, 2, 1, true, 0});
  auto job = std::make_unique<JobStorage>();
  for (uint32_t r = 0; r < 2; ++r) {
    RoleStorage& role = job->AddTrainRole();
    role = pipeline.storage().train_roles()[r];
    role.name = job->Intern(role.name);
    role.ranks.clear();
    job->groups.emplace_back();
    for (uint32_t d = 0; d < replicas; ++d) {
      job->groups.back().push_back(r * replicas + d);
      role.ranks.push_back({r * replicas + d, d, {d, replicas + d}, {r}});
    }
    role.communicator_sizes = {replicas};
    role.collectives.push_back({runtime::CollectiveKind::kAllReduce, runtime::ElementType::kF32, 0, 1, 0, 0,
                                1, job->Intern("reduce" + std::to_string(r))});
    runtime::Task reduce{};
    reduce.kind = runtime::TaskKind::kCollective;
    reduce.microbatch = -1;
    reduce.cost = reduce_cost;
    reduce.atomic = runtime::kNone;
    reduce.stream = static_cast<uint16_t>(role.streams.size());
    reduce.first_wait = static_cast<uint32_t>(role.waits.size());
    reduce.wait_count = 1;
    role.waits.push_back(role.streams[0].task_count - 1);
    role.streams.push_back({job->Intern("reduce"), static_cast<uint32_t>(role.tasks.size()), 1, 0});
    role.tasks.push_back(reduce);
    for (uint32_t d = 0; d < replicas; ++d) job->rank_role.push_back(r);
  }
  if (crossed) {  // role 1 reduces before its first task: it waits for nothing that role 0 does
    RoleStorage& role = job->train_roles()[1];
    role.tasks[0].first_wait = static_cast<uint32_t>(role.waits.size());
    role.tasks[0].wait_count = 1;
    role.waits.push_back(static_cast<uint32_t>(role.tasks.size()) - 1);
  }
  job->Seal();
  return job;
}

TEST(Simulator, FoldedCollectivesEqualExpandedOnesUpTo64Ranks) {
  for (uint32_t replicas : {1u, 2u, 8u, 32u}) {
    for (bool crossed : {false, true}) {
      auto storage = ReplicatedPipeline(replicas, 5, crossed);
      SimulationOptions options;
      const Topology topology = FlatTopology(2 * replicas);
      const SimulationResult folded = Simulate(storage->job(), topology, options);
      options.expand = true;
      const SimulationResult expanded = Simulate(storage->job(), topology, options);
      EXPECT_EQ(folded.deadlock.empty(), !crossed);
      EXPECT_EQ(expanded.deadlock.empty(), !crossed);
      if (crossed) {
        EXPECT_EQ(folded.deadlock.size(), expanded.deadlock.size());
        continue;
      }
      EXPECT_EQ(folded.makespan, expanded.makespan);
      for (uint32_t rank = 0; rank < 2 * replicas; ++rank) {
        const uint32_t role = rank / replicas;
        EXPECT_EQ(folded.roles[role].idle, expanded.roles[rank].idle);
        ASSERT_EQ(folded.timings[role].size(), expanded.timings[rank].size());
        for (size_t t = 0; t < folded.timings[role].size(); ++t) {
          EXPECT_EQ(folded.timings[role][t].end, expanded.timings[rank][t].end);
        }
      }
    }
  }
}

TEST(Simulator, AFusedPairStartsWhenBothAreReadyAndEndsTogether) {
  // Rank 1 runs F of microbatch 1 fused with B of microbatch 0, in each textual order.
  for (bool forward_first : {true, false}) {
    std::vector<RankSteps> steps(2);
    steps[0] = {{Pass::kF, 0, 0}, {Pass::kF, 0, 1}, {Pass::kBI, 0, 0}, {Pass::kBI, 0, 1}};
    testing::PipelineStep f{Pass::kF, 1, 1, 7}, b{Pass::kBI, 1, 0, 7};
    steps[1] = {{Pass::kF, 1, 0}, forward_first ? f : b, forward_first ? b : f, {Pass::kBI, 1, 1}};
    PipelineJob pipeline(steps, 2, {3, 4, 0, true, 0});
    const SimulationResult result = Clock(pipeline);
    ASSERT_TRUE(result.deadlock.empty());
    // F0 of rank 1 runs 3..6, F1's input is there at 6; the pair takes 6..13, B1 until 17; rank 0: B0 13..17,
    // B1 ..21.
    EXPECT_EQ(result.timings[1][1].start, 6);
    EXPECT_EQ(result.timings[1][2].start, 6);
    EXPECT_EQ(result.timings[1][1].end, 13);
    EXPECT_EQ(result.timings[1][2].end, 13);
    EXPECT_EQ(result.makespan, 21);
    EXPECT_EQ(result.roles[1].idle, 21 - 14);
  }
}

TEST(Simulator, SendsOnTheComputeStreamDeadlockOneFOneB) {
  PipelineJob pipeline(testing::OneFOneB(4, 8), 4, {1, 2, 0, true, 0}, CommunicationStreams::kCompute);
  const SimulationResult result = Clock(pipeline);
  ASSERT_EQ(result.deadlock.size(), 2u);
  EXPECT_EQ(result.deadlock[0].stream, 0u);
  EXPECT_EQ(result.deadlock[1].stream, 0u);
  EXPECT_EQ(result.deadlock[0].role + 1, result.deadlock[1].role);
}

TEST(Simulator, OneCommunicationStreamARankDeadlocksOneFOneB) {
  PipelineJob pipeline(testing::OneFOneB(4, 8), 4, {1, 2, 0, true, 0}, CommunicationStreams::kSingle);
  EXPECT_FALSE(Clock(pipeline).deadlock.empty());
  // GPipe keeps each direction to itself, so one stream suffices.
  PipelineJob gpipe(testing::GPipe(4, 8), 4, {1, 2, 0, true, 0}, CommunicationStreams::kSingle);
  EXPECT_TRUE(Clock(gpipe).deadlock.empty());
}

TEST(Simulator, AMessageThatNobodyTakesIsNamed) {
  std::vector<RankSteps> steps(2);
  steps[0] = {{Pass::kF, 0, 0}, {Pass::kF, 0, 1}};
  steps[1] = {{Pass::kF, 1, 0}, {Pass::kF, 1, 1}};
  PipelineJob pipeline(steps, 2, {});
  RoleStorage& role = pipeline.storage().train_roles()[1];
  for (runtime::Task& task : role.tasks) {
    if (task.kind == runtime::TaskKind::kRecv && task.microbatch == 1) task.key = 99;
  }
  pipeline.storage().Seal();
  const SimulationResult result = Clock(pipeline);
  ASSERT_EQ(result.deadlock.size(), 1u);
}

TEST(Simulator, TheLogIsALegalHistory) {
  PipelineJob pipeline(testing::OneFOneB(4, 8), 4, {0, 0, 0, true, 0});  // everything at one instant
  SimulationOptions options;
  options.record_log = true;
  const SimulationResult result = Simulate(pipeline.job(), FlatTopology(4), options);
  for (size_t r = 0; r < 4; ++r) {
    const runtime::RankProgram& program = pipeline.job().train[r];
    ASSERT_EQ(result.log[r].size(), 2 * program.tasks.size());
    std::vector<int> state(program.tasks.size(), 0);
    for (uint32_t entry : result.log[r]) {
      const runtime::Task& task = program.tasks[entry / 2];
      EXPECT_EQ(state[entry / 2], static_cast<int>(entry % 2));
      if (entry % 2 == 0) {
        for (uint32_t w = 0; w < task.wait_count; ++w)
          EXPECT_EQ(state[program.waits[task.first_wait + w]], 2);
      }
      ++state[entry / 2];
    }
  }
}

}  // namespace
}  // namespace piper::ir
