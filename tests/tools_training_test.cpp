// Training with emitted executables as a user lives through it: two runs, a rank that is killed, a checkpoint
// that goes on under another strategy, a learning rate that is far too high. One model (tied embedding,
// dropout, shuffled text) is compiled under each strategy once for all tests.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/tools_process.h"

namespace piper::tools {
namespace {

using test::Outcome;

// Names like step-160 below are made of these.
constexpr int kSteps = 160;  // until the learning rate, half a cosine wave, is zero
constexpr int kEvery = 20;   // a checkpoint
constexpr int kMiddle = 80;  // one of them
constexpr const char* kLast = "/step-160";

std::string ProgramText(const std::string& strategy, int ranks, const std::string& rate) {
  return R"(import std.gpt
import std.strategies
import std.topologies

model net = gpt.GPT(layers = 2, embed = 16, heads = 2, vocab = 256, seq = 8, dropout_rate = 0.1)

train {
  model        net
  data         text("corpus.txt", shuffle = true)
  global_batch 16
  steps        )" +
         std::to_string(kSteps) + R"(
  optimizer    adamw(lr = )" +
         rate + R"(, weight_decay = 0.1, eps = 1e-5)
  clip         1.0
  seed         7
  on           topologies.local(ranks = )" +
         std::to_string(ranks) + R"()
  using        strategies.)" +
         strategy + "\n}\n";
}

// A directory listing, for what a job leaves behind.
std::set<std::string> Entries(const std::string& path) {
  std::set<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored)) {
    names.insert(entry.path().filename());
  }
  return names;
}

// Scratch of tests and compilations that may run beside this one is not the job's.
std::set<std::string> SystemFiles() {
  std::set<std::string> files;
  for (const std::string& name : Entries("/dev/shm")) files.insert("/dev/shm/" + name);
  for (const std::string& name : Entries("/tmp")) {
    const bool scratch = name.rfind("piper_test_", 0) == 0 || name.rfind("piper-test-", 0) == 0 ||
                         name.rfind("piper_build_", 0) == 0;
    if (name.find("piper") != std::string::npos && !scratch) files.insert("/tmp/" + name);
  }
  return files;
}

struct Step {
  std::string loss, norm;  // as printed: 17 digits where they are needed
  double rate = 0;
  bool operator==(const Step& other) const { return loss == other.loss && norm == other.norm; }
};

// Lines by step; a step that a resumed run repeats must say the same again.
std::map<int, Step> Metrics(const std::string& path) {
  std::map<int, Step> steps;
  std::istringstream lines(test::Contents(path));
  for (std::string line; std::getline(lines, line);) {
    const auto value = nlohmann::json::parse(line);
    const Step step{value["loss"].dump(), value["grad_norm"].dump(), value["lr"]};
    const auto [at, fresh] = steps.emplace(value["step"].get<int>(), step);
    EXPECT_TRUE(fresh || at->second == step) << path << ": step " << at->first << " differs";
  }
  return steps;
}

std::string LossColumn(const std::string& path) {
  std::string column;
  for (const auto& [number, step] : Metrics(path)) column += std::to_string(number) + " " + step.loss + "\n";
  return column;
}

// Tensors of all shards "<kind>-*.safetensors" of a checkpoint, by name.
std::map<std::string, std::vector<float>> Tensors(const std::string& checkpoint, const std::string& kind) {
  std::map<std::string, std::vector<float>> tensors;
  for (const std::string& name : Entries(checkpoint)) {
    if (name.rfind(kind + "-", 0) != 0) continue;
    const std::string bytes = test::Contents(checkpoint + "/" + name);
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), 8);
    const auto index = nlohmann::json::parse(bytes.substr(8, header));
    for (const auto& [tensor, entry] : index.items()) {
      if (tensor == "__metadata__") continue;
      EXPECT_EQ(entry["dtype"], "F32");
      const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
      std::vector<float> values((end - begin) / 4);
      std::memcpy(values.data(), bytes.data() + 8 + header + begin, end - begin);
      EXPECT_TRUE(tensors.emplace(tensor, std::move(values)).second) << tensor << " is saved twice";
    }
  }
  return tensors;
}

// max|a - b| / max|b| of the worst tensor.
double Distance(const std::map<std::string, std::vector<float>>& a,
                const std::map<std::string, std::vector<float>>& b) {
  double worst = 0;
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [name, expected] : b) {
    const auto found = a.find(name);
    if (found == a.end() || found->second.size() != expected.size()) return INFINITY;
    double difference = 0, largest = 1e-30;
    for (size_t i = 0; i < expected.size(); ++i) {
      difference = std::max<double>(difference, std::abs(found->second[i] - expected[i]));
      largest = std::max<double>(largest, std::abs(expected[i]));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

class ToolsTraining : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = new test::ScratchDirectory;
    // Prose-like: words that follow one another by a rule with some noise, and numbers.
    std::ofstream corpus(At("corpus.txt"));
    const char* words[] = {"the", "copy", "of", "this", "licence", "grants", "each", "user", "rights"};
    uint32_t state = 1;
    for (int i = 0; i < 3000; ++i) {
      state = state * 1664525u + 1013904223u;
      corpus << words[(i + (state >> 29) / 3) % 9] << (i % 11 == 10 ? ".\n" : i % 37 == 36 ? " 1991 " : " ");
    }
  }
  static void TearDownTestSuite() {
    delete scratch_;
    scratch_ = nullptr;
  }

  static std::string At(const std::string& name) { return *scratch_ / name; }
  static Outcome Run(const std::vector<std::string>& arguments) {
    return test::RunProgram(*scratch_, arguments);
  }
  static std::string Wave() { return "cosine(1e-2, total = " + std::to_string(kSteps) + ", warmup = 5)"; }

  // Compiled once; the path of its `train`.
  static std::string Built(const std::string& name, const std::string& strategy, int ranks,
                           const std::string& rate = Wave()) {
    const std::string train = At(name + "/train");
    if (std::filesystem::exists(train)) return train;
    std::ofstream(At(name + ".piper")) << ProgramText(strategy, ranks, rate);
    const Outcome outcome = Run({PIPERC_BINARY, At(name + ".piper"), "-o", At(name)});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return train;
  }
  static std::string Grid() { return Built("grid", "pipeline_data_parallel(p = 2, dp = 2, m = 4)", 4); }
  static std::string Pipeline() { return Built("pipeline", "gpipe(p = 4, m = 2)", 4); }
  static std::string Single() { return Built("single", "single(m = 4)", 1); }

  // The uninterrupted run under `Grid`, with all checkpoints.
  static std::string Whole() {
    const std::string directory = At("whole");
    if (std::filesystem::exists(directory + kLast)) return directory;
    const Outcome outcome = Run(
        {Grid(), "--quiet", "--out", directory, "--checkpoint-every", std::to_string(kEvery), "--keep", "0"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return directory;
  }

  // Resumes `checkpoint` with `train` until `steps`; the directory of the run.
  static std::string Resume(const std::string& train, const std::string& checkpoint, int steps,
                            const std::string& name) {
    const Outcome outcome =
        Run({train, "--resume", checkpoint, "--steps", std::to_string(steps), "--out", At(name)});
    EXPECT_EQ(outcome.code, 0) << name << "\n" << outcome.err;
    EXPECT_NE(outcome.out.find("resuming from " + checkpoint), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("the checkpoint comes from another plan"), std::string::npos) << outcome.out;
    return At(name);
  }

  static test::ScratchDirectory* scratch_;
};

test::ScratchDirectory* ToolsTraining::scratch_ = nullptr;

TEST_F(ToolsTraining, TwoRunsAreTheSame) {
  const std::string whole = Whole();
  const auto steps = Metrics(whole + "/metrics.jsonl");
  ASSERT_EQ(steps.size(), static_cast<size_t>(kSteps));
  EXPECT_LT(std::stod(steps.at(kSteps).loss), std::stod(steps.at(1).loss) - 1) << "it does not learn";
  EXPECT_EQ(test::Contents(whole + "/metrics.jsonl").find("null"), std::string::npos)
      << "every figure of the metrics is known";
  const Outcome outcome = Run({Grid(), "--quiet", "--out", At("again")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(LossColumn(At("again/metrics.jsonl")), LossColumn(whole + "/metrics.jsonl"));
  EXPECT_EQ(Entries(At("again") + kLast), Entries(whole + kLast));
}

TEST_F(ToolsTraining, ACheckpointLoadsUnderAnyStrategy) {
  const std::string whole = Whole();
  const auto expected = Metrics(whole + "/metrics.jsonl");
  const auto saved = Tensors(whole + kLast, "model");
  ASSERT_GE(saved.size(), 20u);
  EXPECT_EQ(std::count_if(saved.begin(), saved.end(),
                          [](const auto& tensor) { return tensor.first.find("wte") != std::string::npos; }),
            1)
      << "the tied weight is one tensor";
  const struct {
    const char* name;
    std::string train;
  } others[] = {{"pipeline", Pipeline()}, {"single", Single()}};
  for (const auto& [name, train] : others) {
    SCOPED_TRACE(name);
    const std::string tag = std::string("_") + name;
    // After the last step the rate is zero: another step, under another strategy, writes what it read.
    const std::string still = Resume(train, whole + kLast, kSteps + 1, "still" + tag);
    ASSERT_EQ(Metrics(still + "/metrics.jsonl").at(kSteps + 1).rate, 0);
    EXPECT_TRUE(Tensors(still + "/step-161", "model") == saved) << "parameters changed between strategies";
    // And back.
    const std::string back = Resume(Grid(), still + "/step-161", kSteps + 2, "back" + tag);
    EXPECT_TRUE(Tensors(back + "/step-162", "model") == saved) << "parameters changed on the way back";

    // From the middle training goes on as it would have: parameters, moments, data and dropout's masks are
    // those of the uninterrupted run. Sums are associated otherwise, so to rounding.
    const std::string onward = Resume(train, whole + "/step-80", kMiddle + kEvery, "onward" + tag);
    const auto steps = Metrics(onward + "/metrics.jsonl");
    ASSERT_EQ(steps.size(), static_cast<size_t>(kEvery));
    for (const auto& [number, step] : steps) {
      const double loss = std::stod(expected.at(number).loss), norm = std::stod(expected.at(number).norm);
      EXPECT_NEAR(std::stod(step.loss), loss, 1e-6 * loss) << "step " << number;
      EXPECT_NEAR(std::stod(step.norm), norm, 1e-5 * norm) << "step " << number;
    }
    for (const char* kind : {"model", "optimizer"}) {
      EXPECT_LT(Distance(Tensors(onward + "/step-100", kind), Tensors(whole + "/step-100", kind)), 1e-4)
          << kind;
    }
    const std::string home = Resume(Grid(), onward + "/step-100", kMiddle + kEvery + 1, "home" + tag);
    const double loss = std::stod(expected.at(kMiddle + kEvery + 1).loss);
    EXPECT_NEAR(std::stod(Metrics(home + "/metrics.jsonl").at(kMiddle + kEvery + 1).loss), loss, 1e-6 * loss);
  }
}

// Processes started by `parent`, by rank; -1: not there.
pid_t ChildOfRank(pid_t parent, int rank) {
  const std::string self = std::to_string(parent);
  std::istringstream children(test::Contents("/proc/" + self + "/task/" + self + "/children"));
  for (pid_t child; children >> child;) {
    const std::string variables = '\0' + test::Contents("/proc/" + std::to_string(child) + "/environ");
    if (variables.find('\0' + ("PIPER_RANK=" + std::to_string(rank)) + '\0') != std::string::npos)
      return child;
  }
  return -1;
}

TEST_F(ToolsTraining, AKilledRankEndsTheJobAndResumingContinuesBitForBit) {
  const std::string whole = Whole(), run = At("killed"), temporary = At("temporary");
  std::filesystem::create_directory(temporary);
  const std::set<std::string> before = SystemFiles();
  std::vector<std::string> arguments = {Grid(),   "--out", run, "--checkpoint-every", std::to_string(kEvery),
                                        "--keep", "0"};
  // Three times: a rank that others wait for, the one that writes metrics and manifests, and one that writes
  // its part of a checkpoint.
  const struct {
    int rank, at_line;  // 0: when a checkpoint is being written
  } kills[] = {{3, kEvery + 5}, {0, 3 * kEvery}, {2, 0}};
  for (const auto& [rank, at_line] : kills) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    const std::set<std::string> left = Entries(run);  // by the kill before
    const auto running = test::StartProgram(*scratch_, arguments, {}, {"TMPDIR=" + temporary});
    auto due = [&, at_line = at_line] {
      if (at_line == 0) {
        const auto names = Entries(run);
        return std::any_of(names.begin(), names.end(),
                           [&](const auto& name) { return name[0] == '.' && left.count(name) == 0; });
      }
      const std::string text = test::Contents(run + "/metrics.jsonl");
      return std::count(text.begin(), text.end(), '\n') >= at_line;
    };
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!due() && std::chrono::steady_clock::now() < deadline) usleep(at_line == 0 ? 50 : 1000);
    const pid_t victim = ChildOfRank(running.pid, rank);
    ASSERT_GT(victim, 0);
    // What the ranks share has no name in any directory.
    const std::string maps = test::Contents("/proc/" + std::to_string(victim) + "/maps");
    EXPECT_EQ(maps.find(" /dev/shm/"), std::string::npos) << maps;
    EXPECT_EQ(maps.find(temporary), std::string::npos) << maps;
    const auto start = std::chrono::steady_clock::now();
    kill(victim, SIGKILL);
    const Outcome outcome = running.Wait();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_EQ(outcome.code, 75) << outcome.out << outcome.err;
    EXPECT_LT(seconds, 5) << "until the others ended";
    RecordProperty("milliseconds_to_end_after_rank_" + std::to_string(rank), static_cast<int>(1e3 * seconds));
    EXPECT_NE(outcome.err.find("rank " + std::to_string(rank) + " died"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("at step"), std::string::npos) << outcome.err;
    EXPECT_EQ(SystemFiles(), before);
    EXPECT_EQ(Entries(temporary), std::set<std::string>{});
    EXPECT_FALSE(std::filesystem::exists(run + kLast)) << "it was over before the kill";
    if (arguments.back() != "--resume") arguments.push_back("--resume");
  }
  const Outcome outcome = Run(arguments);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("resuming from " + run + "/step-"), std::string::npos) << outcome.out;
  EXPECT_EQ(SystemFiles(), before);

  EXPECT_EQ(Metrics(run + "/metrics.jsonl"), Metrics(whole + "/metrics.jsonl"));
  for (int step = kEvery; step <= kSteps; step += kEvery) {
    const std::string name = "/step-" + std::to_string(step);
    const std::set<std::string> files = Entries(whole + name);
    EXPECT_EQ(Entries(run + name), files);
    for (const char* file :
         {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
          "optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"}) {
      EXPECT_EQ(files.count(file), 1u) << file;
    }
    for (const std::string& file : files) {
      EXPECT_TRUE(test::Contents(run + name + "/" + file) == test::Contents(whole + name + "/" + file))
          << name << "/" << file << " differs";
    }
  }
  // Nothing of the checkpoint that a death interrupted is left.
  for (const std::string& name : Entries(run)) EXPECT_NE(name[0], '.') << name;
}

// "operation 'X' in 'F[..]' (..), rank R, microbatch M: '..' is nan at element ..".
void ExpectNamed(const std::string& message) {
  for (const char* part :
       {"step ", "not finite; first in operation '", ", rank ", ", microbatch ", "' is "}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
}

TEST_F(ToolsTraining, ANonFiniteValueIsNamed) {
  const std::string train = Built("wild", "pipeline_data_parallel(p = 2, dp = 1, m = 4)", 2, "1e30");
  Outcome outcome = Run({train, "--quiet", "--out", At("wild_run")});
  EXPECT_EQ(outcome.code, 1) << outcome.out;
  ExpectNamed(outcome.err);
  EXPECT_EQ(outcome.err.find("\npiper:"), std::string::npos) << "said twice: " << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(At("wild_run") + kLast));

  const std::string said = outcome.err;
  outcome = Run({PIPER_BINARY, "run", At("wild.piper"), "--no-timeline", "--execute"});
  EXPECT_EQ(outcome.code, 1) << outcome.out;
  ExpectNamed(outcome.err);
  EXPECT_EQ(outcome.err.substr(outcome.err.find("step ")), said.substr(said.find("step ")))
      << "the interpreter blames another operation";
}

}  // namespace
}  // namespace piper::tools
