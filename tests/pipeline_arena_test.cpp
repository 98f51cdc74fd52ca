// What the plan says of memory is what happens: for every example and every schedule of the library, with and
// without `recompute` and `offload`, a rank's arena and host pool have exactly the predicted bytes, the
// executor's high-water mark of slot acquisitions is exactly that, and the numbers do not change where
// released slots are poisoned.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "frontend/frontend.h"
#include "ir/lower/memory.h"
#include "tests/pipeline_support.h"

namespace piper::testing {
namespace {

void ExpectPredicted(const Compiled& compiled, const std::string& data, bool twice, const std::string& what) {
  const runtime::Job& job = compiled.job();
  std::vector<double> losses;
  for (bool poison : twice ? std::vector<bool>{false, true} : std::vector<bool>{true}) {
    runtime::LocalOptions options;
    options.steps = 1;
    options.data_path = data;
    options.execution.poison = poison;
    options.execution.stall_seconds = 60;
    RunResult run = RunJob(job, options);
    ASSERT_EQ(run.ranks.size(), job.rank_count) << what;
    if (!losses.empty()) {
      EXPECT_EQ(run.losses, losses) << what;
    }
    losses = run.losses;
    for (uint32_t rank = 0; rank < job.rank_count; ++rank) {
      const runtime::RankProgram& program = job.train[job.rank_role[rank]];
      EXPECT_EQ(run.ranks[rank].arena_bytes, program.arena_bytes) << what << ", rank " << rank;
      EXPECT_EQ(run.ranks[rank].high_water_bytes, program.arena_bytes) << what << ", rank " << rank;
      EXPECT_EQ(run.ranks[rank].host_bytes, program.host_bytes) << what << ", rank " << rank;
      EXPECT_EQ(run.ranks[rank].host_high_water_bytes, program.host_bytes) << what << ", rank " << rank;
    }
  }
  for (const runtime::RankProgram& program : job.train) EXPECT_EQ(ir::VerifyMemory(program), "") << what;
}

TEST(Arena, OfEveryExampleIsAsPredicted) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("examples")) {
    if (entry.path().extension() == ".piper") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  ASSERT_GE(files.size(), 9u);
  for (const std::string& file : files) {
    Compiled compiled;
    compiled.program = frontend::LoadProgram(file, {}, compiled.sources, compiled.diag);
    ASSERT_TRUE(compiled.program) << file << "\n" << compiled.Messages();
    // The evaluation may need the larger arena; here it is the step's that counts.
    compiled.program->train.eval_every = 0;
    compiled.plan = ir::BuildPlan(*compiled.program, compiled.diag);
    ASSERT_TRUE(compiled.ok()) << file << "\n" << compiled.Messages();
    const bool reads = compiled.program->train.data.kind != ir::DataSpec::Kind::kRandom;
    ExpectPredicted(compiled, reads ? "README.md" : "", false, file);
  }
}

// A model that keeps something of every kind, small enough for all schedules.
std::string Text(const std::string& schedule, int64_t stages, const std::string& arguments, int64_t ranks,
                 int64_t batch, const std::string& directives) {
  return "import std.gpt\nimport std.strategies\nimport std.topologies\n"
         "model net = gpt.GPT(layers = " +
         std::to_string(std::max<int64_t>(stages - 2, 2)) +
         ", embed = 8, heads = 2, vocab = 16, seq = 4, dropout_rate = 0.1)\nstrategy study {\n  use "
         "strategies." +
         schedule + "(" + arguments + ")\n" + directives +
         "\n}\ntrain {\n  model net\n  data random(16)\n  steps 2\n"
         "  optimizer adamw(lr = 1e-2)\n  clip 1\n  seed 5\n  global_batch " +
         std::to_string(batch) + "\n  on topologies.local(ranks = " + std::to_string(ranks) +
         ")\n  using study\n}\n";
}

TEST(Arena, OfEveryScheduleIsAsPredicted) {
  int cases = 0;
  for (const char* schedule :
       {"gpipe", "one_f_one_b", "eager_1f1b", "zb1p", "zb2p", "looped_bfs", "interleaved", "interleaved_zb",
        "zbv", "v_half", "v_min", "dualpipe", "dualpipev"}) {
    const std::string name = schedule;
    const bool looped = name == "interleaved" || name == "interleaved_zb" || name == "looped_bfs";
    const bool two = looped || name == "zbv" || name == "v_half" || name == "v_min" || name == "dualpipev";
    for (int64_t p : Soak() ? std::vector<int64_t>{2, 4, 8} : std::vector<int64_t>{2, 4}) {
      for (int64_t dp : Soak() ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{p == 2 ? 2 : 1}) {
        int which = 0;
        for (const char* directives : {"", "  recompute [layer]", "  offload [layer] to host",
                                       "  recompute [stage]\n  offload [*] to host { prefetch 0 }"}) {
          // All of them for two stages a rank at most; of the larger ones a sample.
          if (!Soak() && p > 2 && which++ % 3 != 0) continue;
          const int64_t m = 2 * p + (name == "dualpipe" ? 0 : 1);
          std::string arguments = "p = " + std::to_string(p) + (looped ? ", v = 2" : "") +
                                  ", m = " + std::to_string(m) + ", dp = " + std::to_string(dp);
          if (looped)
            arguments = "p = " + std::to_string(p) + ", v = 2, m = " + std::to_string(2 * p) +
                        ", dp = " + std::to_string(dp);
          std::unique_ptr<Compiled> compiled =
              Compile(Text(name, two ? 2 * p : p, arguments, p * dp, (looped ? 2 * p : m) * dp, directives));
          const std::string what = name + "(" + arguments + ")" + directives;
          ASSERT_TRUE(compiled->ok()) << what << "\n" << compiled->Messages();
          ExpectPredicted(*compiled, "", true, what);
          if (Soak()) ExpectEqualToReference(*compiled, 2, what);
          ++cases;
        }
      }
    }
  }
  EXPECT_GE(cases, 60);
}

}  // namespace
}  // namespace piper::testing
