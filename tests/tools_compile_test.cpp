// From `.piper` text to processes: what piperc builds trains with the bits of `piper run`'s interpreter,
// holds no interpreter, counts the messages that the dry run predicted, and is built again only if something
// changed.
#include <gtest/gtest.h>

#include <signal.h>

#include <algorithm>
#include <chrono>

#include <nlohmann/json.hpp>

#include "tests/streams_text.h"
#include "tests/tools_process.h"

namespace piper::tools {
namespace {

using test::Outcome;

constexpr const char* kProgram = R"(import std.gpt
import std.schedules
import std.topologies

model net = gpt.GPT(layers = 4, embed = 16, heads = 2, vocab = 256, seq = 8)

strategy grid(p: int, replicas: int, m: int) {
  mesh (pp = p, dp = replicas)
  cut embed, layer, head into p as stage
  split batch into m as mb
  shard batch over dp
  zero 0 [*] as dp { bucket 4 KiB }
  for s in 0..p {
    place [stage = s] on pp[s]
    order on pp[s] { schedules.one_f_one_b(s, p, m) }
  }
}

train {
  model        net
  data         text("corpus.txt")
  global_batch 16
  steps        20
  optimizer    adamw(lr = warmup(5, 1e-2), weight_decay = 0.1)
  clip         1.0
  seed         7
  on           topologies.local(ranks = 4)
  using        grid(p = 2, replicas = 2, m = 4)
}
)";

class ToolsCompile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(scratch_ / "program.piper") << kProgram;
    std::ofstream corpus(scratch_ / "corpus.txt");
    for (int i = 0; i < 400; ++i)
      corpus << "line " << i << " of a text that repeats itself " << i * i << "\n";
  }
  Outcome Run(const std::vector<std::string>& arguments) { return test::RunProgram(scratch_, arguments); }
  std::string At(const std::string& name) const { return scratch_ / name; }
  test::ScratchDirectory scratch_;
};

std::vector<double> Losses(const std::string& metrics) {
  std::vector<double> losses;
  std::istringstream lines(test::Contents(metrics));
  for (std::string line; std::getline(lines, line);) losses.push_back(nlohmann::json::parse(line)["loss"]);
  return losses;
}

TEST_F(ToolsCompile, ExecutablesAreBitwiseTheInterpreter) {
  Outcome outcome = Run({PIPERC_BINARY, At("program.piper"), "-o", At("out")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  outcome = Run({At("out/train"), "--quiet", "--out", At("run")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<double> losses = Losses(At("run/metrics.jsonl"));
  ASSERT_EQ(losses.size(), 20u);
  EXPECT_LT(losses.back(), losses.front());

  outcome = Run({PIPER_BINARY, "run", At("program.piper"), "--no-timeline", "--execute", "--metrics",
                 At("interpreted.jsonl")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(Losses(At("interpreted.jsonl")), losses);
  outcome = Run({PIPER_BINARY, "run", At("program.piper"), "--no-timeline", "--verify", "--steps", "20"});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;

  // What the dry run said of memory and messages is what the processes counted.
  ASSERT_EQ(Run({PIPER_BINARY, "run", At("program.piper"), "--json", At("figures.json")}).code, 0);
  const auto predicted = nlohmann::json::parse(test::Contents(At("figures.json")));
  const auto counted = nlohmann::json::parse(test::Contents(At("run/run.json")));
  ASSERT_EQ(predicted["ranks"].size(), 4u);
  ASSERT_EQ(counted["ranks"].size(), 4u);
  for (size_t rank = 0; rank < 4; ++rank) {
    const auto &dry = predicted["ranks"][rank], &real = counted["ranks"][rank];
    for (const char* name : {"parameter_bytes", "arena_bytes"}) {
      EXPECT_EQ(dry[name], real[name]) << name << " of rank " << rank;
    }
    for (const char* name : {"messages", "message_bytes", "collectives", "collective_bytes"}) {
      EXPECT_EQ(20 * dry[name].get<int64_t>(), real[name].get<int64_t>()) << name << " of rank " << rank;
    }
  }

  for (const char* name : {"out/role0", "out/role1", "out/train", "out/sample"}) {
    EXPECT_EQ(test::Contents(At(name)).find("Interpreter"), std::string::npos) << name;
  }
  const Outcome sample =
      Run({At("out/train"), "--sample", "20", "--resume", At("run"), "--seed", "3", "--prompt", "line"});
  EXPECT_EQ(sample.code, 0) << sample.err;
  EXPECT_EQ(sample.out.rfind("line", 0), 0u) << sample.out;
  EXPECT_EQ(
      Run({At("out/train"), "--sample", "20", "--resume", At("run"), "--seed", "3", "--prompt", "line"}).out,
      sample.out);
}

// Lanes on two streams that compute and one of messages, pp 2 x dp 2: the processes learn what the
// interpreter and the reference learn, also where no message is buffered.
TEST_F(ToolsCompile, ExecutablesRunLanesOnTwoComputeStreams) {
  std::ofstream(At("lanes.piper")) << piper::testing::LanesText(2, 2);
  Outcome outcome = Run({PIPER_BINARY, "run", At("lanes.piper"), "--no-timeline", "--verify"});
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  outcome = Run({PIPER_BINARY, "run", At("lanes.piper"), "--no-timeline", "--execute", "--metrics",
                 At("interpreted.jsonl")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  outcome = Run({PIPERC_BINARY, At("lanes.piper"), "-o", At("out")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* rendezvous : {"0", "1"}) {
    const std::string into = At("run") + rendezvous;
    outcome = Run({"/usr/bin/env", std::string("PIPER_RENDEZVOUS=") + rendezvous, At("out/train"), "--quiet",
                   "--out", into});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::vector<double> losses = Losses(into + "/metrics.jsonl");
    ASSERT_EQ(losses.size(), 3u);
    EXPECT_EQ(losses, Losses(At("interpreted.jsonl")));
  }
}

// Layers that are replayed, with what they keep in host memory: the processes learn what they learn without.
TEST_F(ToolsCompile, ExecutablesReplayAndOffloadBitwise) {
  std::string text = test::Contents(At("program.piper"));
  text.replace(text.find("seq = 8"), 7, "seq = 8, dropout_rate = 0.2");
  std::ofstream(At("plain.piper")) << text;
  text.insert(text.find("  zero 0"), "  recompute [layer]\n  offload [layer] to host { prefetch 1 }\n");
  std::ofstream(At("lean.piper")) << text;
  Outcome outcome = Run({PIPER_BINARY, "run", At("plain.piper"), "--no-timeline", "--execute", "--steps", "5",
                         "--metrics", At("plain.jsonl")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  outcome = Run({PIPERC_BINARY, At("lean.piper"), "-o", At("out")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  outcome = Run({At("out/train"), "--quiet", "--out", At("run"), "--steps", "5"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(Losses(At("run/metrics.jsonl")), Losses(At("plain.jsonl")));
  outcome = Run({PIPER_BINARY, "run", At("lean.piper"), "--json", At("figures.json")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("host memory"), std::string::npos) << outcome.out;
  const auto predicted = nlohmann::json::parse(test::Contents(At("figures.json")));
  const auto counted = nlohmann::json::parse(test::Contents(At("run/run.json")));
  for (size_t rank = 0; rank < 4; ++rank) {
    const auto &dry = predicted["ranks"][rank], &real = counted["ranks"][rank];
    EXPECT_GT(dry["host_bytes"], 0);
    EXPECT_EQ(dry["host_bytes"], real["host_bytes"]);
    EXPECT_EQ(dry["host_bytes"], real["host_high_water_bytes"]);
    EXPECT_EQ(dry["arena_bytes"], real["high_water_bytes"]);
  }
}

// Updates before the norm of all ranks: the processes roll back, and learn what they learn without.
TEST_F(ToolsCompile, ExecutablesRollBackBitwise) {
  std::string text = test::Contents(At("program.piper"));
  const std::string clip = "clip         1.0";
  const auto norms_of = [&](const std::string& program, const char* steps) {
    std::ofstream(At("synchronised.piper")) << program;
    const Outcome run = Run({PIPER_BINARY, "run", At("synchronised.piper"), "--no-timeline", "--execute",
                             "--steps", steps, "--metrics", At("synchronised.jsonl")});
    EXPECT_EQ(run.code, 0) << run.err;
    std::vector<double> norms;
    std::istringstream lines(test::Contents(At("synchronised.jsonl")));
    for (std::string line; std::getline(lines, line);)
      norms.push_back(nlohmann::json::parse(line)["grad_norm"]);
    return norms;
  };
  // Just below the norm of the first step, which is clipped, as the ranks of stage 0 cannot know beforehand.
  const std::vector<double> first_norm = norms_of(text, "1");
  ASSERT_EQ(first_norm.size(), 1u);
  const std::string bound = std::to_string(first_norm[0] * 0.9999);
  text.replace(text.find(clip), clip.size(), "clip         " + bound);
  const std::vector<double> norms = norms_of(text, "20");
  const int64_t clipped =
      std::count_if(norms.begin(), norms.end(), [&](double n) { return std::stod(bound) / (n + 1e-6) < 1; });
  EXPECT_GT(clipped, 0);
  // Validated at the end of the step; within the next one, which is then begun again.
  for (const std::string edge : {"", "  edge [update.validate] -> BW distance 1\n"}) {
    std::string validated = text;
    validated.insert(validated.find("  zero 0"), "  optimizer post_validation\n" + edge);
    const std::string out = At(edge.empty() ? "out" : "overlapped"), run = out + "-run";
    std::ofstream(At("validated.piper")) << validated;
    Outcome outcome = Run({PIPERC_BINARY, At("validated.piper"), "-o", out});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    // In two runs, from a checkpoint in the middle.
    outcome = Run({out + "/train", "--quiet", "--out", run, "--steps", "9"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto first = nlohmann::json::parse(test::Contents(run + "/run.json"));
    outcome = Run({out + "/train", "--quiet", "--out", run, "--resume"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto second = nlohmann::json::parse(test::Contents(run + "/run.json"));
    EXPECT_EQ(Losses(run + "/metrics.jsonl"), Losses(At("synchronised.jsonl"))) << edge;
    int64_t rollbacks = 0;
    for (size_t rank = 0; rank < 4; ++rank) {
      int64_t judged = 0;
      for (const auto* counts : {&first, &second}) {
        const auto& counted = (*counts)["ranks"][rank];
        rollbacks += counted["rollbacks"].get<int64_t>();
        judged += counted["rollbacks"].get<int64_t>() + counted["late_updates"].get<int64_t>();
      }
      EXPECT_EQ(judged, clipped) << rank << edge;
    }
    EXPECT_GT(rollbacks, 0) << edge;
  }
}

TEST_F(ToolsCompile, AgainIsQuickAndAChangeIsSeen) {
  ASSERT_EQ(Run({PIPERC_BINARY, At("program.piper"), "-o", At("out")}).code, 0);
  const auto built = std::filesystem::last_write_time(At("out/role0"));
  const std::string role = test::Contents(At("out/role0"));
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(Run({PIPERC_BINARY, At("program.piper"), "-o", At("out")}).code, 0);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 1.0);
  EXPECT_EQ(std::filesystem::last_write_time(At("out/role0")), built);
  ASSERT_EQ(Run({PIPERC_BINARY, At("program.piper"), "-o", At("out"), "--set", "m=2"}).code, 0);
  EXPECT_NE(test::Contents(At("out/role0")), role);
  ASSERT_EQ(Run({PIPERC_BINARY, At("program.piper"), "-o", At("out"), "-j", "1"}).code, 0);
  EXPECT_EQ(test::Contents(At("out/role0")), role) << "two builds of one program differ";
}

TEST_F(ToolsCompile, AStoppedPipercLeavesNothing) {
  const pid_t pid = fork();
  if (pid == 0) {
    execl(PIPERC_BINARY, PIPERC_BINARY, At("program.piper").c_str(), "-o", At("out").c_str(), nullptr);
    _exit(127);
  }
  // As soon as a compiler has something to do.
  for (int i = 0; i < 2000 && !std::filesystem::exists(At("out")); ++i) usleep(1000);
  usleep(200'000);
  kill(pid, SIGTERM);
  int status = 0;
  waitpid(pid, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  EXPECT_FALSE(std::filesystem::exists(At("out")));
}

TEST_F(ToolsCompile, TheTargetIsCheckedAtStart) {
  // Which processors are refused is tests/runtime_processor_test.cpp's; that emitted programs ask is shown
  // here, where this one lacks something.
  const Outcome built =
      Run({PIPERC_BINARY, At("program.piper"), "-o", At("out"), "--target-cpu", "x86-64-v4"});
  ASSERT_EQ(built.code, 0) << built.err;
  const Outcome outcome = Run({At("out/train"), "--help"});
  if (outcome.code != 0) {
    EXPECT_EQ(outcome.code, 1);
    EXPECT_NE(
        outcome.err.find("error: this program was compiled for x86-64-v4, and this processor has no avx512"),
        std::string::npos)
        << outcome.err;
  }
  const Outcome refused =
      Run({PIPERC_BINARY, At("program.piper"), "-o", At("other"), "--target-cpu", "no-such-cpu"});
  EXPECT_EQ(refused.code, 74);
  EXPECT_NE(refused.err.find("no-such-cpu"), std::string::npos) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(At("other")));
}

}  // namespace
}  // namespace piper::tools
