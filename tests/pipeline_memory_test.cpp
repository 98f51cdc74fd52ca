// What is predicted is what happens: bytes of the arena, messages and collectives of a real run are those of
// the dry run, and a device that has exactly the bytes of the peak is enough.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/pipeline_support.h"

namespace piper::testing {
namespace {

std::vector<TrainText> Cases() {
  std::vector<TrainText> cases;
  auto add = [&](const char* model, const char* schedule, int64_t p, int64_t v, int64_t dp, int64_t m) {
    TrainText text = Layout(model, schedule, p, v, dp, m);
    if (dp > 1) text.zero = "zero 0 [*] as dp { bucket 3 KiB }";
    cases.push_back(text);
  };
  add("gpt", "one_f_one_b", 4, 1, 2, 4);
  add("gpt", "gpipe", 2, 1, 1, 8);
  add("skip", "interleaved", 2, 2, 2, 4);
  add("llama", "", 1, 1, 2, 4);
  cases[0].train = "  clip 1.0\n";
  return cases;
}

TEST(PipelineMemory, TheRunNeedsWhatTheDryRunSays) {
  for (const TrainText& text : Cases()) {
    SCOPED_TRACE(text.Name());
    std::unique_ptr<Compiled> compiled = Compile(text.Text());
    ASSERT_TRUE(compiled->ok()) << compiled->Messages();
    const runtime::Job& job = compiled->job();
    RunResult run = RunJob(job, 2);
    ASSERT_EQ(run.ranks.size(), job.rank_count);
    for (uint32_t rank = 0; rank < job.rank_count; ++rank) {
      uint32_t role = job.rank_role[rank];
      const runtime::RankProgram& program = job.train[role];
      const ir::RoleStatistics& predicted = compiled->plan->simulation.roles[role];
      const runtime::RankStatistics& real = run.ranks[rank];
      EXPECT_EQ(real.arena_bytes, program.arena_bytes) << "rank " << rank;
      // The arena ends aligned.
      EXPECT_EQ((real.high_water_bytes + 63) / 64 * 64, program.arena_bytes) << "rank " << rank;
      EXPECT_LE(real.peak_live_bytes, program.arena_bytes) << "rank " << rank;
      EXPECT_GE(program.arena_bytes, program.live_bytes) << "rank " << rank;
      EXPECT_EQ(real.messages, predicted.messages * real.steps) << "rank " << rank;
      EXPECT_EQ(real.message_bytes, predicted.message_bytes * real.steps) << "rank " << rank;
      EXPECT_EQ(real.collectives, predicted.collectives * real.steps) << "rank " << rank;
      EXPECT_EQ(real.collective_bytes, predicted.collective_bytes * real.steps) << "rank " << rank;
      int64_t parameters = 0;
      for (const runtime::Parameter& parameter : program.parameters) parameters += parameter.elements * 4;
      EXPECT_EQ(real.parameter_bytes, parameters) << "rank " << rank;
    }
  }
}

// Each rank holds only what its stages use; a tied parameter stands on both of its ranks.
TEST(PipelineMemory, ARankHoldsItsStagesParametersOnly) {
  TrainText text = Cases()[0];
  std::unique_ptr<Compiled> compiled = Compile(text.Text());
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  std::map<std::string, int> holders;
  int64_t whole = 0, held = 0;
  for (const ir::Parameter& parameter : compiled->program->model.parameters)
    whole += parameter.type.elements();
  ASSERT_EQ(compiled->job().train.size(), 4u);
  for (const runtime::RankProgram& program : compiled->job().train) {
    for (const runtime::Parameter& parameter : program.parameters) {
      ++holders[parameter.name];
      held += parameter.elements;
    }
  }
  for (const auto& [name, count] : holders) EXPECT_EQ(count, name == "wte.weight" ? 2 : 1) << name;
  EXPECT_EQ(holders.size(), compiled->program->model.parameters.size());
  EXPECT_EQ(held, whole + 32 * 16);
}

std::string OnMachine(const TrainText& text, int64_t bytes) {
  std::string program = text.Text();
  const std::string call = "topologies.local(ranks = ";
  size_t at = program.find(call);
  program.replace(at, call.size(), "exact(ranks = ");
  return program + "topology exact(ranks: int) {\n  device core { memory = " + std::to_string(bytes) +
         " B; memory_bandwidth = 10 GB/s; compute f32 = 50 GFLOP/s }\n  level host = ranks of core joined by "
         "{ "
         "bandwidth = 5 GB/s; latency = 5 us }\n}\n";
}

TEST(PipelineMemory, ADeviceWithExactlyThePeaksBytesPassesOneByteLessFails) {
  for (const TrainText& text : Cases()) {
    SCOPED_TRACE(text.Name());
    std::unique_ptr<Compiled> roomy = Compile(OnMachine(text, int64_t{1} << 40));
    ASSERT_TRUE(roomy->ok()) << roomy->Messages();
    int64_t peak = 0;
    uint32_t worst = 0;
    for (const runtime::RankProgram& program : roomy->job().train) {
      if (program.arena_bytes > peak) worst = program.ranks[0].rank;
      peak = std::max(peak, program.arena_bytes);
    }
    std::unique_ptr<Compiled> exact = Compile(OnMachine(text, peak));
    EXPECT_TRUE(exact->ok()) << exact->Messages();
    std::unique_ptr<Compiled> short_of_one = Compile(OnMachine(text, peak - 1));
    EXPECT_FALSE(short_of_one->ok());
    EXPECT_TRUE(short_of_one->Has(ir::DiagKind::kMemoryExceeded)) << short_of_one->Messages();
    // The rank, the bytes and the holders are named.
    std::string message = short_of_one->Messages();
    EXPECT_NE(message.find("rank"), std::string::npos) << message;
    EXPECT_NE(message.find(std::to_string(worst)), std::string::npos) << message;
    EXPECT_NE(message.find("parameters"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace piper::testing
