// The memory proof, from `.piper` text: exactly the peak's bytes pass, one byte less does not; the executor's
// arena is the predicted one; every example's slots are ordered under any timing.
#include <gtest/gtest.h>

#include <string>

#include "frontend/frontend.h"
#include "ir/check/memory.h"
#include "ir/lower/memory.h"
#include "ir/pipeline.h"
#include "runtime/interpreter.h"
#include "runtime/local_runner.h"

namespace piper::ir {
namespace {

std::string Text(const std::string& schedule, int ranks, int m, const std::string& memory) {
  return "import std.gpt\nimport std.schedules\n"
         "topology machine {\n  device core { memory = " +
         memory +
         "; memory_bandwidth = 10 GB/s; compute f32 = 50 GFLOP/s }\n"
         "  level host = " +
         std::to_string(ranks) +
         " of core joined by { bandwidth = 10 GB/s; latency = 1 us }\n}\n"
         "model net = gpt.GPT(layers = 4, embed = 32, heads = 2, vocab = 32, seq = 16)\n"
         "strategy s(p: int, m: int) {\n  mesh (pp = p)\n  cut embed, layer, head into p as stage\n"
         "  split batch into m as mb\n"
         "  for s in 0..p {\n    place [stage = s] on pp[s]\n    order on pp[s] { " +
         schedule +
         " }\n  }\n}\n"
         "train {\n  model net\n  data random(vocab = 32)\n  global_batch 16\n  steps 1\n  optimizer "
         "adamw(lr = 1e-3)\n"
         "  clip 1.0\n  on machine\n  using s(p = " +
         std::to_string(ranks) + ", m = " + std::to_string(m) + ")\n}\n";
}

std::optional<Plan> Build(const std::string& text, std::string* errors, Topology* topology = nullptr) {
  SourceManager sources;
  DiagnosticEngine diag(sources);
  frontend::LoadOptions options;
  options.text = text;
  std::optional<Program> program = frontend::LoadProgram("memory.piper", options, sources, diag);
  std::optional<Plan> plan;
  if (program) plan = BuildPlan(*program, diag);
  if (program && topology != nullptr) *topology = program->topology;
  *errors = diag.Render(DiagnosticEngine::Format::kHuman, false);
  return plan;
}

TEST(Memory, ExactlyThePeakFitsAndOneByteLessDoesNot) {
  const std::string schedule = "schedules.one_f_one_b(s, p, m)";
  std::string errors;
  auto plan = Build(Text(schedule, 2, 4, "1 GiB"), &errors);
  ASSERT_TRUE(plan) << errors;
  int64_t peak = 0;
  for (const runtime::RankProgram& program : plan->job->job().train)
    peak = std::max(peak, program.arena_bytes);
  EXPECT_TRUE(Build(Text(schedule, 2, 4, std::to_string(peak) + " B"), &errors)) << errors;
  EXPECT_FALSE(Build(Text(schedule, 2, 4, std::to_string(peak - 1) + " B"), &errors));
  EXPECT_NE(errors.find("[memory-exceeded]"), std::string::npos) << errors;
  EXPECT_NE(errors.find("rank 0 (role0): the step needs"), std::string::npos) << errors;
  EXPECT_NE(errors.find("the peak stands at '"), std::string::npos) << errors;
  EXPECT_NE(errors.find("the largest holders: "), std::string::npos) << errors;
}

// Layers of 2^40 parameters each, the largest tensors that there are.
std::string Huge(int layers, const std::string& optimizer) {
  return "topology machine {\n  device core { compute f32 = 1 TFLOP/s }\n  level host = 1 of core\n}\n"
         "module Layer(a: dim, b: dim) {\n  param w: [a, b] = ones\n"
         "  forward(x: [batch, a, b]) -> [batch, a, b] { x * w }\n}\n"
         "module Chain(n: int, a: dim, b: dim) {\n  layers = [Layer(a, b) for i in 0..n]\n"
         "  forward(x: [batch, a, b], y: [batch, a, b]) -> loss {\n    var h = x\n"
         "    for l in layers { h = tag layer { l(h) } }\n    return tag head { mse(h, y) }\n  }\n}\n"
         "model net = Chain(n = " +
         std::to_string(layers) +
         ", a = 1048576, b = 1048576)\nstrategy s { mesh (dp = all) }\n"
         "train {\n  model net\n  data random()\n  global_batch 1\n  steps 1\n  optimizer " +
         optimizer + "\n  on machine\n  using s\n}\n";
}

// A plan counts up to 128 TiB: more is refused, and nothing is counted wrong.
TEST(Memory, WhatIsTooLargeToCountIsRefused) {
  constexpr int64_t kTensor = int64_t{1} << 42;
  std::string errors;
  auto plan = Build(Huge(15, "sgd(lr = 0.1)"), &errors);
  ASSERT_TRUE(plan) << errors;
  const runtime::RankProgram& program = plan->job->job().train[0];
  EXPECT_GE(program.static_bytes, 30 * kTensor);
  EXPECT_LT(program.static_bytes, 31 * kTensor);
  EXPECT_GT(program.arena_bytes, 40 * kTensor);
  EXPECT_EQ(VerifyMemory(program), "");
  EXPECT_FALSE(Build(Huge(16, "adamw(lr = 0.1)"), &errors));
  EXPECT_NE(errors.find("rank 0 holds 256 TiB of parameters, gradients and optimizer state"),
            std::string::npos)
      << errors;
}

TEST(Memory, EverySlotIsOrderedAndPackingLosesLittle) {
  for (int ranks : {1, 2, 4}) {
    for (int m : {1, 2, 4, 8, 16}) {
      for (const char* schedule : {"schedules.one_f_one_b(s, p, m)", "schedules.gpipe(s, p, m)"}) {
        std::string errors;
        Topology topology;
        auto plan = Build(Text(schedule, ranks, m, "1 GiB"), &errors, &topology);
        ASSERT_TRUE(plan) << errors;
        const runtime::Job& job = plan->job->job();
        // The waits for memory cost nothing.
        const SimulationResult again = Simulate(job, topology);
        ASSERT_EQ(again.makespan, plan->simulation.makespan);
        for (size_t r = 0; r < job.train.size(); ++r) {
          EXPECT_EQ(VerifyMemory(job.train[r]), "");
          for (size_t t = 0; t < job.train[r].tasks.size(); ++t) {
            ASSERT_EQ(again.timings[r][t].start, plan->simulation.timings[r][t].start);
          }
          EXPECT_LE(job.train[r].arena_bytes, job.train[r].live_bytes + job.train[r].live_bytes / 20)
              << schedule << " " << ranks << " ranks, " << m << " microbatches";
          // The report's holders add up to what is live.
          int64_t held = 0;
          for (const MemoryPeak::Holder& holder :
               FindPeak(job.train[r], plan->simulation.timings[r]).holders) {
            held += holder.bytes;
          }
          EXPECT_LE(held, job.train[r].live_bytes);
          EXPECT_GE(held, job.train[r].live_bytes - job.train[r].live_bytes / 20);
        }
      }
    }
  }
}

// The plan under real timing: released slots poisoned, random delays before every task. Any task that touched
// bytes too early or too late would change the losses.
TEST(Memory, PackedSlotsSurviveAnyTiming) {
  struct Setting {
    const char* schedule;
    int ranks, m;
  };
  for (const Setting& setting : {Setting{"schedules.one_f_one_b(s, p, m)", 4, 8},
                                 {"schedules.gpipe(s, p, m)", 2, 4},
                                 {"schedules.one_f_one_b(s, p, m)", 2, 8}}) {
    std::string errors;
    auto plan = Build(Text(setting.schedule, setting.ranks, setting.m, "1 GiB"), &errors);
    ASSERT_TRUE(plan) << errors;
    const runtime::Job& job = plan->job->job();
    std::vector<double> losses;
    for (uint64_t seed = 0; seed < 6; ++seed) {
      runtime::LocalOptions options;
      options.steps = 2;
      options.bodies = runtime::MakeInterpreter;
      options.execution.poison = seed > 0;
      options.execution.delay_microseconds = seed > 0 ? 60 : 0;
      options.execution.delay_seed = seed;
      options.execution.stall_seconds = 20;
      auto result = runtime::RunLocal(job, options);
      ASSERT_TRUE(result.ok()) << result.status().message();
      ASSERT_EQ(result->losses.size(), 2u);
      if (seed == 0) losses = result->losses;
      EXPECT_EQ(result->losses, losses) << setting.schedule << ", seed " << seed;
      for (size_t rank = 0; rank < result->ranks.size(); ++rank) {
        const runtime::RankProgram& program = job.train[job.rank_role[rank]];
        EXPECT_EQ(result->ranks[rank].arena_bytes, program.arena_bytes);
        EXPECT_EQ(result->ranks[rank].high_water_bytes, program.arena_bytes);
        EXPECT_LE(result->ranks[rank].peak_live_bytes, program.arena_bytes);
      }
    }
  }
}

}  // namespace
}  // namespace piper::ir
