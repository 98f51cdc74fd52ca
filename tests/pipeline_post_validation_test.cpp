// Updates before the norm of all ranks is known: whatever the bound of clipping, after every step losses,
// norms, gradients and parameters have the bits of the synchronised step; every step that was clipped is one
// whose updates were rolled back, or waited where the squares of the ranks up to this one had shown it; what
// is not finite stops the run with the parameters from before the step.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "runtime/data.h"
#include "runtime/interpreter.h"
#include "runtime/shared_memory_transport.h"
#include "tests/pipeline_support.h"

namespace piper::testing {
namespace {

TrainText Layout(const std::string& schedule, int64_t p, int64_t dp, int64_t m) {
  TrainText text;
  text.schedule = schedule;
  text.p = p;
  text.dp = dp;
  text.m = m;
  return text;
}

runtime::LocalOptions Steps(int64_t steps) {
  runtime::LocalOptions options;
  options.steps = steps;
  return options;
}

std::string Clip(double bound) { return bound > 0 ? "  clip " + std::to_string(bound) + "\n" : ""; }

TrainText PostValidated(TrainText text) {
  text.directives += "  optimizer post_validation\n";
  return text;
}

TrainText Overlapped(TrainText text) {
  text = PostValidated(text);
  text.directives += "  edge [update.validate] -> BW distance 1\n";
  return text;
}

RunResult RunText(const TrainText& text, runtime::LocalOptions options) {
  std::unique_ptr<Compiled> compiled = Compile(text.Text());
  EXPECT_TRUE(compiled->ok()) << text.Name() << "\n" << compiled->Messages();
  return compiled->ok() ? RunJob(compiled->job(), std::move(options)) : RunResult{};
}

// A rank's messages a step that pass on sums of squares.
int64_t PassedOn(const runtime::Job& job, size_t rank) {
  const auto& tasks = job.train[job.rank_role[rank]].tasks;
  return std::count_if(tasks.begin(), tasks.end(), [&](const runtime::Task& task) {
    return task.kind == runtime::TaskKind::kSend &&
           std::string(job.strings[task.name]).rfind("clip.send", 0) == 0;
  });
}

int64_t Clipped(const std::vector<double>& norms, double bound) {
  return std::count_if(norms.begin(), norms.end(), [&](double norm) { return bound / (norm + 1e-6) < 1; });
}

constexpr const char* kOptimizers[] = {"optimizer adamw(lr = warmup(2, 1e-2), weight_decay = 0.1)",
                                       "optimizer sgd(lr = 0.05, momentum = 0.9)",
                                       "optimizer sgd(lr = 0.05)"};

class PostValidation : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (std::filesystem::temp_directory_path() / "piper-post-validation-XXXXXX").string();
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    directory_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};

TEST_F(PostValidation, HasTheBitsOfTheSynchronisedStepWhateverIsClipped) {
  constexpr int64_t kSteps = 6;
  int64_t rolled_back = 0, late = 0, kept = 0;
  std::vector<TrainText> layouts = {Layout("one_f_one_b", 4, 1, 4), Layout("gpipe", 2, 2, 2),
                                    Layout("", 1, 1, 2)};
  if (Soak()) {
    layouts.push_back(Layout("zb1p", 4, 1, 8));
    layouts.push_back(Layout("gpipe", 2, 4, 2));
    layouts.push_back(Layout("", 1, 4, 1));
  }
  for (TrainText text : layouts) {
    for (const char* optimizer : kOptimizers) {
      // A sample: each layout with another optimizer.
      if (!Soak() && std::string(optimizer) != kOptimizers[text.p == 4 ? 0 : text.p == 2 ? 1 : 2]) continue;
      text.optimizer = optimizer;
      text.model =
          text.p > 1 ? "llama" : "gpt";  // with a head of its own, whose gradients the first rank cannot know
      text.train = Clip(1e6);
      const RunResult free = RunText(text, Steps(kSteps));
      ASSERT_EQ(free.norms.size(), static_cast<size_t>(kSteps));
      // Bounds just below a norm, so that the first ranks cannot know, above all: and one that
      // every rank's own part exceeds.
      std::vector<double> norms = free.norms;
      std::sort(norms.begin(), norms.end());
      for (double bound :
           {0.0, norms.front() * 0.9999, norms[2] * 0.9999, norms[4] * 0.9999, norms.back() * 2, 1e-4}) {
        text.train = Clip(bound);
        SCOPED_TRACE(text.Name() + " " + optimizer + text.train);
        const RunResult expected = RunText(text, Steps(kSteps));
        runtime::LocalOptions options;
        options.steps = kSteps;
        options.execution.delay_microseconds = bound > norms.front() && bound < norms.back() ? 50 : 0;
        options.execution.delay_seed = 3;
        const RunResult result = RunText(PostValidated(text), options);
        EXPECT_EQ(result.losses, expected.losses);
        EXPECT_EQ(result.gradients, expected.gradients);
        EXPECT_EQ(result.parameters, expected.parameters);
        if (bound > 0) {
          EXPECT_EQ(result.norms, expected.norms);
        }
        const int64_t clipped = bound > 0 ? Clipped(expected.norms, bound) : 0;
        if (bound == 1e-4) {
          EXPECT_EQ(clipped, kSteps);
        }
        for (const runtime::RankStatistics& rank : result.ranks) {
          EXPECT_EQ(rank.rollbacks + rank.late_updates, clipped);
          rolled_back += rank.rollbacks;
          late += rank.late_updates;
          kept += kSteps - clipped;
        }
        for (const runtime::RankStatistics& rank : expected.ranks)
          EXPECT_EQ(rank.rollbacks + rank.late_updates, 0);
      }
    }
  }
  // All three really happened.
  EXPECT_GE(rolled_back, 12);
  EXPECT_GT(late, 20);
  EXPECT_GT(kept, 20);
}

// What a rank goes by is the sum over the ranks up to it, exactly; each bound between two of these sums gives
// another count of rollbacks. With its own part alone every rank would roll back more often.
TEST_F(PostValidation, TheSquaresOfTheRanksBeforeSaveRollbacks) {
  int64_t saved = 0;
  for (const int64_t dp : {1, 2}) {
    TrainText text = Layout("one_f_one_b", 4, dp, 4);
    text.train = Clip(1e6);
    std::unique_ptr<Compiled> compiled = Compile(PostValidated(text).Text());
    ASSERT_TRUE(compiled->ok()) << compiled->Messages();
    const runtime::Job& job = compiled->job();
    const RunResult free = RunJob(job, 1);
    ASSERT_EQ(free.norms.size(), 1u);
    // Per stage: its own norm, and that of the stages up to it.
    std::vector<double> own, prefix, marks;
    double sum = 0;
    for (const runtime::RankProgram& program : job.train) {
      double squares = 0;
      for (const runtime::Parameter& parameter : program.parameters) {
        if (parameter.owner == 0) continue;
        for (const auto& [name, gradient] : free.gradients) {
          if (name != parameter.name) continue;
          for (float g : gradient) squares += double{g} * g;
        }
      }
      sum += squares;
      own.push_back(std::sqrt(squares));
      prefix.push_back(std::sqrt(sum));
      marks.insert(marks.end(), {own.back(), prefix.back()});
    }
    ASSERT_EQ(job.train.size(), 4u) << "a role a stage, in the order of the pipeline";
    ASSERT_NEAR(prefix.back(), free.norms[0], 1e-6 * free.norms[0]);
    std::sort(marks.begin(), marks.end());
    for (size_t i = 0; i + 1 < marks.size(); ++i) {
      const double bound = (marks[i] + marks[i + 1]) / 2;
      if (marks[i + 1] - marks[i] < 1e-4 * bound) continue;
      text.train = Clip(bound);
      SCOPED_TRACE(text.Name() + text.train);
      std::unique_ptr<Compiled> clipped = Compile(PostValidated(text).Text());
      ASSERT_TRUE(clipped->ok()) << clipped->Messages();
      runtime::LocalOptions options = Steps(1);
      options.rendezvous = i % 2 == 1;
      const RunResult result = RunJob(clipped->job(), options);
      EXPECT_EQ(result.parameters, RunText(text, Steps(1)).parameters);
      for (size_t r = 0; r < result.ranks.size(); ++r) {
        const size_t stage = clipped->job().rank_role[r];
        EXPECT_EQ(result.ranks[r].rollbacks, prefix[stage] < bound ? 1 : 0) << "rank " << r;
        EXPECT_EQ(result.ranks[r].late_updates, prefix[stage] < bound ? 0 : 1) << "rank " << r;
        saved += (own[stage] < bound ? 1 : 0) - result.ranks[r].rollbacks;
      }
    }
  }
  EXPECT_GE(saved, 10);
}

// The messages are nodes: they stand on their streams, take the time of the links, and an order in which they
// cannot meet is refused.
TEST_F(PostValidation, PartialSumsAreMessages) {
  TrainText text = PostValidated(Layout("one_f_one_b", 4, 1, 4));
  text.model = "llama";  // no tied parameter that would make the ranks wait for each other
  std::unique_ptr<Compiled> compiled = Compile(text.Text());
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  const runtime::Job& job = compiled->job();
  for (size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(PassedOn(job, r), r < 3 ? 1 : 0);
    for (const runtime::Task& task : job.train[job.rank_role[r]].tasks) {
      if (std::string(job.strings[task.name]).rfind("clip.send", 0) == 0) {
        EXPECT_EQ(task.bytes, 8);
      }
    }
  }
  EXPECT_LT(compiled->plan->simulation.makespan, 300 * ir::kPsPerMs);
  text.directives += "  cost [clip.send] = 100 ms\n";
  std::unique_ptr<Compiled> slow = Compile(text.Text());
  ASSERT_TRUE(slow->ok()) << slow->Messages();
  EXPECT_GE(slow->plan->simulation.makespan, 300 * ir::kPsPerMs);
  text.directives += "  edge [update, stage = 3] -> BW[stage = 0, mb = 3]\n";
  std::unique_ptr<Compiled> stuck = Compile(text.Text());
  EXPECT_FALSE(stuck->ok());
  EXPECT_NE(stuck->Messages().find("clip.partial pp[0] needs"), std::string::npos) << stuck->Messages();
}

TEST_F(PostValidation, EqualsTheReference) {
  TrainText text = PostValidated(Layout("zb1p", 4, 2, 4));
  text.model = "gpt_dropout";
  text.train = Clip(0.5);
  text.steps = 3;
  ExpectEqualToReference(text);
}

TEST_F(PostValidation, ResumesBitForBit) {
  TrainText text = Layout("one_f_one_b", 2, 2, 4);
  text.train = Clip(1e6);
  std::vector<double> norms = RunText(text, Steps(6)).norms;
  text.train = Clip(*std::min_element(norms.begin(), norms.end()) * 0.9999);
  const RunResult expected = RunText(text, Steps(6));
  std::unique_ptr<Compiled> compiled = Compile(PostValidated(text).Text());
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  runtime::LocalOptions first;
  first.steps = 3;
  first.checkpoint_directory = directory_;
  const RunResult begun = RunJob(compiled->job(), first);
  EXPECT_GT(begun.ranks[0].rollbacks + begun.ranks[1].rollbacks, 0);
  // Under the plan that wrote it, and under the synchronised one.
  for (const TrainText& reader : {PostValidated(text), text}) {
    runtime::LocalOptions second;
    second.steps = 6;
    second.resume = directory_ + "/step-3";
    const RunResult rest = RunText(reader, second);
    EXPECT_EQ(rest.losses, std::vector<double>(expected.losses.begin() + 3, expected.losses.end()));
    EXPECT_EQ(rest.parameters, expected.parameters);
  }
}

// From step 1 on targets of sample 13 are huge.
class Huge : public runtime::BatchSource {
 public:
  Huge(std::unique_ptr<runtime::BatchSource> source, const runtime::Job& job, float value)
      : source_(std::move(source)), job_(job), value_(value) {}
  runtime::Status Fill(uint32_t field, uint64_t step, int64_t first, int64_t samples, void* out) override {
    runtime::Status status = source_->Fill(field, step, first, samples, out);
    if (step >= 1 && std::string(job_.inputs[field].name) == "y" && first <= 13 && 13 < first + samples) {
      static_cast<float*>(out)[(13 - first) * job_.inputs[field].elements_per_sample] = value_;
    }
    return status;
  }

 private:
  std::unique_ptr<runtime::BatchSource> source_;
  const runtime::Job& job_;
  float value_;
};

TEST_F(PostValidation, AStepThatIsNotFiniteLeavesNoTrace) {
  TrainText text = Layout("one_f_one_b", 2, 2, 4);
  text.model = "skip";
  text.optimizer = "optimizer sgd(lr = 0.01, momentum = 0.9)";
  text.train = Clip(1e30);
  // The loss alone; the gradients as well.
  for (float value : {1e21F, 3e38F}) {
    std::vector<std::string> messages;
    for (const TrainText& way : {text, PostValidated(text), Overlapped(text)}) {
      std::unique_ptr<Compiled> compiled = Compile(way.Text());
      ASSERT_TRUE(compiled->ok()) << compiled->Messages();
      runtime::LocalOptions options;
      options.steps = 3;
      options.bodies = runtime::MakeInterpreter;
      options.source = [&](const runtime::Job& job, uint32_t) -> std::unique_ptr<runtime::BatchSource> {
        runtime::Result<std::unique_ptr<runtime::BatchSource>> opened =
            runtime::OpenData(job, "", job.seed, false);
        if (!opened.ok()) return nullptr;
        return std::make_unique<Huge>(std::move(*opened), job, value);
      };
      runtime::Result<runtime::LocalResult> run = runtime::RunLocal(compiled->job(), options);
      ASSERT_FALSE(run.ok());
      messages.push_back(run.status().message());
    }
    // The search for the cause begins with the parameters from before the step, so it says the same; updates
    // that had stayed would be found first ("parameter .. was not finite before the step").
    EXPECT_EQ(messages[1], messages[0]) << value;
    EXPECT_EQ(messages[2], messages[0]) << value;
    EXPECT_EQ(messages[1].rfind("step 1: the loss is not finite; first in operation ", 0), 0u) << messages[1];
  }
}

// ---- steps that overlap

TEST_F(PostValidation, StepsOverlapBitwise) {
  constexpr int64_t kSteps = 7;
  int64_t rolled_back = 0, late = 0, kept = 0;
  std::vector<TrainText> layouts = {Layout("zb2p", 4, 1, 7), Layout("one_f_one_b", 2, 2, 4),
                                    Layout("", 1, 1, 2)};
  if (Soak()) {
    layouts.push_back(Layout("zb2p", 4, 2, 4));
    layouts.push_back(Layout("gpipe", 2, 4, 2));
    layouts.push_back(Layout("", 1, 4, 1));
  }
  for (TrainText text : layouts) {
    text.model = text.p == 1 ? "skip" : "gpt_dropout";
    if (text.m == 7) text.batch = 14;
    text.train = Clip(1e6);
    std::vector<double> norms = RunText(text, Steps(kSteps)).norms;
    ASSERT_EQ(norms.size(), static_cast<size_t>(kSteps));
    std::sort(norms.begin(), norms.end());
    for (double bound : {0.0, norms.front() * 0.9999, norms[3] * 0.9999, norms.back() * 2, 1e-4}) {
      text.train = Clip(bound);
      SCOPED_TRACE(text.Name() + text.train);
      const RunResult expected = RunText(text, Steps(kSteps));
      std::unique_ptr<Compiled> compiled = Compile(Overlapped(text).Text());
      ASSERT_TRUE(compiled->ok()) << compiled->Messages();
      const bool sometimes = bound > norms.front() && bound < norms.back();
      for (uint64_t seed = 0; seed < (Soak() ? 20 : sometimes ? 2 : 1); ++seed) {
        runtime::LocalOptions options = Steps(kSteps);
        options.execution.delay_microseconds = seed % 2 == 1 ? 60 : 0;
        options.execution.check_finite = seed == 2;
        options.execution.delay_seed = seed;
        options.execution.stall_seconds = 60;
        options.execution.poison = true;
        options.rendezvous = seed % 3 == 1;
        const RunResult result = RunJob(compiled->job(), options);
        EXPECT_EQ(result.losses, expected.losses);
        EXPECT_EQ(result.gradients, expected.gradients);
        EXPECT_EQ(result.parameters, expected.parameters);
        if (bound > 0) {
          EXPECT_EQ(result.norms, expected.norms);
        }
        const int64_t clipped = bound > 0 ? Clipped(expected.norms, bound) : 0;
        for (size_t r = 0; r < result.ranks.size(); ++r) {
          EXPECT_EQ(result.ranks[r].rollbacks + result.ranks[r].late_updates, clipped);
          EXPECT_EQ(result.ranks[r].messages,
                    expected.ranks[r].messages + kSteps * PassedOn(compiled->job(), r));
          EXPECT_EQ(result.ranks[r].steps, kSteps);
          rolled_back += result.ranks[r].rollbacks;
          late += result.ranks[r].late_updates;
          kept += kSteps - clipped;
        }
      }
    }
  }
  EXPECT_GE(rolled_back, 12);
  EXPECT_GT(late, 20);
  EXPECT_GT(kept, 20);
}

TEST_F(PostValidation, OverlappedStepsEqualTheReference) {
  TrainText text = Overlapped(Layout("zb2p", 4, 2, 4));
  text.train = Clip(0.5);
  text.steps = 4;
  ExpectEqualToReference(text);
}

// Checkpoints and evaluations lie between steps that overlap: the ranks settle the step before.
TEST_F(PostValidation, OverlappedRunsResumeAndEvaluate) {
  {
    std::ofstream file(directory_ + "/tokens.txt", std::ios::binary);
    for (int i = 0; i < 4000; ++i) file.put(static_cast<char>(i * i % 31));
  }
  TrainText text = Layout("one_f_one_b", 2, 2, 4);
  text.train = "  eval_every 3\n  eval_batches 2\n";
  const auto run = [&](const TrainText& what, double bound, const runtime::LocalOptions& options) {
    std::string program = what.Text();
    const std::string data = "data random(32)", evaluation = "  eval_every";
    program.replace(program.find(data), data.size(),
                    "data text(\"" + directory_ + "/tokens.txt\", validation = 25 %)");
    program.insert(program.find(evaluation), Clip(bound));
    std::unique_ptr<Compiled> compiled = Compile(program);
    EXPECT_TRUE(compiled->ok()) << compiled->Messages();
    return compiled->ok() ? RunJob(compiled->job(), options) : RunResult{};
  };
  runtime::LocalOptions whole = Steps(8);
  whole.evaluate = true;
  const std::vector<double> norms = run(text, 1e6, whole).norms;
  ASSERT_EQ(norms.size(), 8u);
  const double bound = *std::min_element(norms.begin(), norms.end()) * 0.97;
  const RunResult expected = run(text, bound, whole);
  ASSERT_EQ(expected.eval_losses.size(), 3u);
  runtime::LocalOptions first = whole;
  first.steps = 5;
  first.checkpoint_directory = directory_;
  first.checkpoint_every = 2;
  const RunResult begun = run(Overlapped(text), bound, first);
  EXPECT_EQ(begun.losses, std::vector<double>(expected.losses.begin(), expected.losses.begin() + 5));
  ASSERT_FALSE(begun.eval_losses.empty());
  EXPECT_EQ(begun.eval_losses.front(), expected.eval_losses.front());
  for (const int64_t from : {2, 4, 5}) {
    for (const TrainText& reader : {Overlapped(text), text}) {
      runtime::LocalOptions second = whole;
      second.resume = directory_ + "/step-" + std::to_string(from);
      const RunResult rest = run(reader, bound, second);
      EXPECT_EQ(rest.losses, std::vector<double>(expected.losses.begin() + from, expected.losses.end()));
      EXPECT_EQ(rest.parameters, expected.parameters);
      ASSERT_FALSE(rest.eval_losses.empty());
      EXPECT_EQ(rest.eval_losses.back(), expected.eval_losses.back());
    }
  }
}

// A request to stop reaches ranks that are not in the same step: all end after the same one, with a
// checkpoint.
TEST_F(PostValidation, OverlappedRunsStopTogether) {
  TrainText text = Layout("one_f_one_b", 2, 2, 4);
  text.train = Clip(0.5);
  std::unique_ptr<Compiled> compiled = Compile(Overlapped(text).Text());
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  runtime::LocalOptions options = Steps(10'000);
  options.bodies = runtime::MakeInterpreter;
  options.checkpoint_directory = directory_;
  options.execution.delay_microseconds = 200;
  std::vector<int64_t> ended(4, 0);
  runtime::LocalHooks hooks;
  hooks.step_done = [&](const runtime::RankView& view, uint64_t step, const runtime::StepOutcome&) {
    ended[view.rank] = static_cast<int64_t>(step) + 1;
    if (view.rank == 2 && step == 3) runtime::process_stop_signal.store(SIGTERM);
  };
  runtime::Result<runtime::LocalResult> run = runtime::RunLocal(compiled->job(), options, hooks);
  runtime::process_stop_signal.store(0);
  ASSERT_TRUE(run.ok()) << run.status().message();
  const int64_t steps = static_cast<int64_t>(run->losses.size());
  EXPECT_GE(steps, 4);
  EXPECT_LE(steps, 8);
  EXPECT_EQ(ended, std::vector<int64_t>(4, steps));
  runtime::LocalOptions rest = Steps(10);
  rest.resume = directory_ + "/step-" + std::to_string(steps);
  const RunResult expected = RunText(text, Steps(10));
  EXPECT_EQ(RunText(text, rest).parameters, expected.parameters);
}

TEST_F(PostValidation, TheCheckComesBeforeGradientsAreOverwritten) {
  TrainText text = Overlapped(Layout("zb2p", 4, 1, 7));
  text.batch = 14;
  text.train = Clip(1.0);
  std::unique_ptr<Compiled> compiled = Compile(text.Text());
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  EXPECT_EQ(compiled->job().overlaps, 1);
  for (const runtime::RankProgram& program : compiled->job().train) {
    int checks = 0;
    for (const runtime::Task& task : program.tasks) {
      if (task.kind == runtime::TaskKind::kValidate) {
        ++checks;
        EXPECT_EQ(task.flag, 1);
      }
      if (task.kind == runtime::TaskKind::kCompute && task.flag == static_cast<uint8_t>(ir::Pass::kBW)) {
        EXPECT_EQ(checks, 1);
      }
    }
    EXPECT_EQ(checks, 1);
  }
}

// The copies are counted: a device with the plan's bytes holds it, and it needs more than the synchronised
// one.
TEST_F(PostValidation, CopiesAreCountedAndAllocated) {
  TrainText text = Layout("one_f_one_b", 2, 1, 4);
  text.train = Clip(1.0);
  std::unique_ptr<Compiled> plain = Compile(text.Text()), validated = Compile(PostValidated(text).Text());
  ASSERT_TRUE(plain->ok() && validated->ok()) << validated->Messages();
  const RunResult run = RunJob(validated->job(), 1);
  for (size_t r = 0; r < validated->job().train.size(); ++r) {
    const runtime::RankProgram& program = validated->job().train[r];
    int64_t copies = 0, changed = 0;
    for (const runtime::Parameter& parameter : program.parameters) {
      ASSERT_NE(parameter.saved, runtime::kNone);
      copies += program.buffers[parameter.saved].bytes;
      changed += 3 * parameter.elements * 4;  // value, m, v
    }
    EXPECT_GE(copies, changed);
    // Three numbers beside them: the rank's own squares, those passed on to it, and the sum.
    EXPECT_EQ(program.static_bytes - plain->job().train[r].static_bytes,
              copies + static_cast<int64_t>(r == 0 ? 2 : 3) * runtime::kAlignment);
    EXPECT_EQ(run.ranks[r].arena_bytes, program.arena_bytes);
    EXPECT_EQ(run.ranks[r].high_water_bytes, program.arena_bytes);
  }
}

}  // namespace
}  // namespace piper::testing
