// Lowering of hand-built pipelines: streams, operands, waits, collectives with their terms, memory that is
// safe under any timing and does not lengthen the step.
#include <gtest/gtest.h>

#include <chrono>

#include "ir/cost/simulator.h"
#include "ir/lower/lower.h"
#include "ir/lower/memory.h"
#include "tests/pipeline_dag.h"

namespace piper::ir {
namespace {

using testing::BuildPipelineDag;
using testing::PipelineDag;
using testing::PipelineDagOptions;

struct Case {
  SourceManager sources;
  DiagnosticEngine diag{sources};
  PipelineDag input;
  std::optional<Lowered> lowered;

  explicit Case(const PipelineDagOptions& options) {
    BuildPipelineDag(options, &input);
    lowered = Lower(input.program, input.regions, input.dag, nullptr, nullptr, diag);
  }
  const runtime::Job& job() const { return lowered->job->job(); }
};

PipelineDagOptions Options(int p, int m, int v = 1) {
  PipelineDagOptions options;
  options.ranks = p;
  options.stages = p * v;
  options.microbatches = m;
  options.steps = v == 1 ? testing::OneFOneB(p, m) : testing::Interleaved(p, v, m);
  return options;
}

const runtime::Task* FindTask(const runtime::Job& job, const runtime::RankProgram& program,
                              std::string_view name, int32_t microbatch) {
  for (const runtime::Task& task : program.tasks) {
    if (task.microbatch == microbatch && name == job.strings[task.name]) return &task;
  }
  return nullptr;
}

TEST(Lower, OneFOneBHasTheTextbookFigures) {
  Case c(Options(4, 8));
  ASSERT_TRUE(c.lowered);
  ASSERT_TRUE(c.lowered->simulation.deadlock.empty());
  EXPECT_EQ(c.lowered->simulation.makespan, 33);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(c.lowered->simulation.roles[r].idle, 9);
    EXPECT_EQ(c.lowered->simulation.roles[r].peak_activations, 4 - r);
    EXPECT_EQ(VerifyMemory(c.job().train[r]), "");
    EXPECT_GE(c.job().train[r].arena_bytes, c.job().train[r].live_bytes);
  }
}

TEST(Lower, MemoryWaitsNeverLengthenTheStepAndAlwaysHold) {
  for (int v : {1, 2}) {
    for (int m : {4, 8, 12}) {
      for (Picoseconds latency : {0, 1, 3}) {
        for (bool gpipe : {false, true}) {
          if (gpipe && v > 1) continue;
          PipelineDagOptions options = Options(4, m, v);
          if (gpipe) options.steps = testing::GPipe(4, m);
          options.forward = 3;
          options.backward_input = 4;
          options.backward_weight = 2;
          options.replicas = 2;
          options.tied = true;
          options.clip = 1;
          PipelineDag input;
          BuildPipelineDag(options, &input);
          input.program.topology = testing::FlatTopology(8, Link{1e15, latency, 1});
          SourceManager sources;
          DiagnosticEngine diag(sources);
          auto lowered = Lower(input.program, input.regions, input.dag, nullptr, nullptr, diag);
          ASSERT_TRUE(lowered);
          ASSERT_TRUE(lowered->simulation.deadlock.empty());
          const SimulationResult again = Simulate(lowered->job->job(), input.program.topology);
          ASSERT_TRUE(again.deadlock.empty());
          EXPECT_EQ(again.makespan, lowered->simulation.makespan);
          for (size_t r = 0; r < again.timings.size(); ++r) {
            EXPECT_EQ(VerifyMemory(lowered->job->job().train[r]), "");
            for (size_t t = 0; t < again.timings[r].size(); ++t) {
              ASSERT_EQ(again.timings[r][t].start, lowered->simulation.timings[r][t].start);
              ASSERT_EQ(again.timings[r][t].end, lowered->simulation.timings[r][t].end);
            }
          }
        }
      }
    }
  }
}

TEST(Lower, ActivationsSetTheArena) {
  // With large activations rank r's arena grows by one set of slots for each microbatch in flight.
  PipelineDagOptions options = Options(4, 16);
  options.width = 4096;
  Case c(options);
  ASSERT_TRUE(c.lowered);
  const int64_t activation = 2 * 4096 * 4;
  // A microbatch in flight holds its input and what F saved.
  const auto slots = [&](int r) { return c.job().train[r].arena_bytes - c.job().train[r].static_bytes; };
  EXPECT_EQ(slots(1) - slots(2), 2 * activation);
  for (int r = 0; r < 4; ++r) {
    // Gradient contributions are four times as large: what they leave free between backwards is not always
    // filled.
    EXPECT_LE(c.job().train[r].arena_bytes - c.job().train[r].live_bytes, 2 * activation + 64) << r;
  }
}

TEST(Lower, TheFirstGradientNeedsNoCopy) {
  Case c(Options(2, 4));
  const runtime::Job& job = c.job();
  EXPECT_EQ(FindTask(job, job.train[0], "accumulate 0 0", 0), nullptr);
  const runtime::Task* second = FindTask(job, job.train[0], "accumulate 0 0", 1);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->flag, 0);
  const runtime::Task* backward = FindTask(job, job.train[0], "BW stage0", 0);
  ASSERT_NE(backward, nullptr);
  const uint32_t accumulator = job.train[0].task_operands[second->first_operand];
  EXPECT_EQ(job.train[0].task_operands[backward->first_operand + 3], accumulator);
  EXPECT_EQ(job.train[0].parameters[0].gradient, accumulator);
}

TEST(Lower, ReceivedAndSavedValuesAreOneBuffer) {
  Case c(Options(2, 4));
  const runtime::Job& job = c.job();
  const runtime::RankProgram& program = job.train[1];
  for (int mb = 0; mb < 4; ++mb) {
    const runtime::Task* recv = FindTask(job, program, "recv 0 -> 1", mb);
    const runtime::Task* forward = FindTask(job, program, "F stage1", mb);
    const runtime::Task* weight = FindTask(job, program, "BW stage1", mb);
    ASSERT_TRUE(recv != nullptr && forward != nullptr && weight != nullptr);
    const uint32_t landed = program.task_operands[recv->first_operand];
    EXPECT_EQ(program.task_operands[forward->first_operand], landed);
    EXPECT_EQ(program.task_operands[weight->first_operand], landed);
  }
}

TEST(Lower, BucketsAreContiguousAndTiedSumsFoldRegionsInModelOrder) {
  PipelineDagOptions options = Options(2, 4);
  options.replicas = 2;
  options.tied = true;
  options.bucket = true;
  Case c(options);
  ASSERT_TRUE(c.lowered);
  const runtime::Job& job = c.job();
  for (int r = 0; r < 2; ++r) {
    const runtime::RankProgram& program = job.train[r];
    int buckets = 0, ties = 0;
    for (const runtime::Task& task : program.tasks) {
      if (task.kind != runtime::TaskKind::kCollective) continue;
      const runtime::Collective& collective = program.collectives[task.argument];
      const std::string name = collective.name;
      if (name.starts_with("dp.reduce")) {
        ++buckets;
        EXPECT_EQ(collective.term_count, 0u);
        EXPECT_EQ(collective.elements, 2 * 32 * 8);  // w and tied
        EXPECT_EQ(program.communicator_sizes[collective.communicator], 2u);
      } else if (name.starts_with("tie.reduce")) {
        ++ties;
        EXPECT_EQ(collective.contributions, 1u);
        EXPECT_EQ(collective.elements, 32 * 8);
        EXPECT_EQ(program.communicator_sizes[collective.communicator], 2u);
        // One communicator a replica: ranks d and 2 + d.
        for (const runtime::RankRow& row : program.ranks) {
          const auto group = job.groups[row.groups[collective.communicator]];
          EXPECT_EQ(group[0], row.replica);
          EXPECT_EQ(group[1], 2 + row.replica);
        }
      }
    }
    EXPECT_EQ(buckets, 1);
    EXPECT_EQ(ties, 1);
    // Both hosts hold the tied parameter; the first owns it.
    for (const runtime::Parameter& parameter : program.parameters) {
      if (std::string(parameter.name) == "tied") {
        EXPECT_EQ(parameter.owner, r == 0);
      }
    }
  }
}

TEST(Lower, EveryRankLearnsTheLoss) {
  PipelineDagOptions options = Options(2, 4);
  options.replicas = 2;
  Case c(options);
  for (const runtime::RankProgram& program : c.job().train) {
    ASSERT_NE(program.loss, runtime::kNone);
    for (const runtime::Task& task : program.tasks) {
      if (task.kind != runtime::TaskKind::kCollective) continue;
      const runtime::Collective& collective = program.collectives[task.argument];
      if (std::string(collective.name) != "loss.reduce") continue;
      // Ranks 2 and 3 contribute, in replica order; 0 and 1 only take the result.
      EXPECT_EQ(collective.contributions, std::string(program.name) == "role1" ? 1u : 0u);
      ASSERT_EQ(collective.term_count, 2u);
      EXPECT_EQ(program.terms[collective.first_term].member, 2u);
      EXPECT_EQ(program.terms[collective.first_term + 1].member, 3u);
      EXPECT_EQ(program.task_operands[task.first_operand + task.operand_count - 1], program.loss);
    }
  }
}

TEST(Lower, DevicesThatDifferGetProgramsOfTheirOwn) {
  PipelineDagOptions options = Options(2, 4);
  options.replicas = 2;
  PipelineDag input;
  BuildPipelineDag(options, &input);
  input.program.topology.kinds.push_back({"slow", 0, 0, {}, {}});
  input.program.topology.device_kind[1] = 1;
  SourceManager sources;
  DiagnosticEngine diag(sources);
  auto lowered = Lower(input.program, input.regions, input.dag, nullptr, nullptr, diag);
  ASSERT_TRUE(lowered);
  EXPECT_EQ(lowered->job->job().train.size(), 4u);  // its peers on the other host are told apart as well
  const SimulationResult folded = Simulate(lowered->job->job(), input.program.topology);
  SimulationOptions expand;
  expand.expand = true;
  EXPECT_EQ(folded.makespan, Simulate(lowered->job->job(), input.program.topology, expand).makespan);
}

TEST(Lower, TheSamePlanHasTheSameHash) {
  Case a(Options(4, 8)), b(Options(4, 8)), c(Options(4, 12));
  EXPECT_STREQ(a.job().plan_hash, b.job().plan_hash);
  EXPECT_STRNE(a.job().plan_hash, c.job().plan_hash);
}

TEST(Lower, SabotagedMemoryIsFound) {
  Case c(Options(4, 8));
  RoleStorage& role = c.lowered->job->train_roles()[0];
  ASSERT_EQ(VerifyMemory(c.job().train[0]), "");
  // Without its waits some receive lands in bytes that are still read.
  for (runtime::Task& task : role.tasks) {
    if (task.kind == runtime::TaskKind::kRecv) task.wait_count = 0;
  }
  c.lowered->job->Seal();
  EXPECT_NE(VerifyMemory(c.job().train[0]), "");
}

TEST(Lower, ManyReplicasFoldIntoTheirHosts) {
  PipelineDagOptions options = Options(8, 16);
  options.replicas = 512;
  options.tied = true;
  options.clip = 1;
  const auto begin = std::chrono::steady_clock::now();
  Case c(options);
  ASSERT_TRUE(c.lowered);
  EXPECT_EQ(c.job().train.size(), 8u);
  EXPECT_EQ(c.job().rank_count, 4096u);
  EXPECT_GE(c.lowered->simulation.makespan, 3 * (16 + 7));
  std::printf("4,096 ranks: %.3f s\n",
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

TEST(Lower, SixtyFourStagesByThousandMicrobatchesInTime) {
  PipelineDagOptions options = Options(64, 1024);
  PipelineDag input;
  BuildPipelineDag(options, &input);
  SourceManager sources;
  DiagnosticEngine diag(sources);
  const auto begin = std::chrono::steady_clock::now();
  auto lowered = Lower(input.program, input.regions, input.dag, nullptr, nullptr, diag);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ASSERT_TRUE(lowered);
  EXPECT_EQ(lowered->simulation.makespan, 3 * (1024 + 63));
  const auto checked = std::chrono::steady_clock::now();
  for (const runtime::RankProgram& program : lowered->job->job().train) EXPECT_EQ(VerifyMemory(program), "");
  std::printf("verified in %.3f s\n",
              std::chrono::duration<double>(std::chrono::steady_clock::now() - checked).count());
  const double nodes = input.dag.node_count();
  std::printf("%.0f nodes: %.3f s, %.1f bytes a node in the job\n", nodes, seconds,
              static_cast<double>(lowered->job->MemoryBytes()) / nodes);
  EXPECT_LT(static_cast<double>(lowered->job->MemoryBytes()) / nodes, 128.0);
}

}  // namespace
}  // namespace piper::ir
