// Around the step, end to end: checkpoints go on bit for bit and load under any other strategy; evaluation is
// the forward pass of the training loss; sampling is reproducible; a value that is not finite is named.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "ir/lower/sample_job.h"
#include "runtime/checkpoint.h"
#include "runtime/data.h"
#include "runtime/interpreter.h"
#include "runtime/sampler.h"
#include "tests/pipeline_support.h"

namespace piper::testing {
namespace {

class PipelineTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (std::filesystem::temp_directory_path() / "piper-training-XXXXXX").string();
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    directory_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};

TrainText Clipped(const std::string& schedule, int64_t p, int64_t v, int64_t dp, int64_t m) {
  TrainText text = Layout("gpt", schedule, p, v, dp, m);
  text.train = "  clip 1.0\n";
  return text;
}

TEST_F(PipelineTraining, ResumingContinuesBitForBit) {
  for (const char* optimizer : {"optimizer adamw(lr = warmup(3, 1e-2), weight_decay = 0.1)",
                                "optimizer sgd(lr = cosine(0.1, total = 6), momentum = 0.9)"}) {
    TrainText text = Clipped("one_f_one_b", 2, 1, 2, 4);
    text.model = "gpt_dropout";
    text.optimizer = optimizer;
    std::unique_ptr<Compiled> compiled = Compile(text.Text());
    ASSERT_TRUE(compiled->ok()) << compiled->Messages();
    RunResult whole = RunJob(compiled->job(), 6);
    runtime::LocalOptions first;
    first.steps = 3;
    first.checkpoint_directory = directory_;
    RunJob(compiled->job(), first);
    runtime::LocalOptions second;
    second.steps = 6;
    second.resume = directory_ + "/step-3";
    RunResult rest = RunJob(compiled->job(), second);
    EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 3, whole.losses.end()));
    EXPECT_EQ(rest.gradients, whole.gradients);
    EXPECT_EQ(rest.parameters, whole.parameters);
    std::filesystem::remove_all(directory_ + "/step-3");
  }
}

// Written under one strategy, read under others, from one rank to eight: parameters and optimizer state
// arrive whole, and the next steps agree within rounding (bit for bit where the expression is the same).
TEST_F(PipelineTraining, ACheckpointLoadsUnderAnyOtherStrategy) {
  TrainText writer = Clipped("one_f_one_b", 4, 1, 2, 2);
  std::unique_ptr<Compiled> compiled = Compile(writer.Text());
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  runtime::LocalOptions write;
  write.steps = 2;
  write.checkpoint_directory = directory_;
  RunJob(compiled->job(), write);
  RunResult whole = RunJob(compiled->job(), 4);
  struct Case {
    TrainText text;
    bool same_expression;
  };
  for (const Case& c :
       {Case{Clipped("gpipe", 2, 1, 2, 2), true}, Case{Clipped("interleaved", 2, 2, 2, 2), true},
        Case{Clipped("", 1, 1, 1, 1), false}, Case{Clipped("one_f_one_b", 8, 1, 1, 4), false}}) {
    std::unique_ptr<Compiled> reader = Compile(c.text.Text());
    ASSERT_TRUE(reader->ok()) << reader->Messages();
    runtime::LocalOptions read;
    read.steps = 4;
    read.resume = directory_ + "/step-2";
    RunResult rest = RunJob(reader->job(), read);
    ASSERT_EQ(rest.losses.size(), 2u) << c.text.Name();
    ASSERT_EQ(rest.parameters.size(), whole.parameters.size());
    if (c.same_expression) {
      EXPECT_EQ(rest.losses[1], whole.losses[3]) << c.text.Name();
      EXPECT_EQ(rest.parameters, whole.parameters) << c.text.Name();
    } else {
      EXPECT_NEAR(rest.losses[0], whole.losses[2], 1e-6 * whole.losses[2]) << c.text.Name();
      EXPECT_NEAR(rest.norms[0], whole.norms[2], 1e-6 * whole.norms[2]) << c.text.Name();
      EXPECT_NEAR(rest.losses[1], whole.losses[3], 1e-5 * whole.losses[3]) << c.text.Name();
    }
  }
  // Another model's checkpoint is refused by name, not half loaded.
  TrainText other = Clipped("gpipe", 2, 1, 1, 2);
  other.model = "llama";
  std::unique_ptr<Compiled> wrong = Compile(other.Text());
  ASSERT_TRUE(wrong->ok()) << wrong->Messages();
  runtime::LocalOptions read;
  read.steps = 4;
  read.bodies = runtime::MakeInterpreter;
  read.resume = directory_ + "/step-2";
  runtime::Result<runtime::LocalResult> refused = runtime::RunLocal(wrong->job(), read);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), runtime::kExitInput) << refused.status().message();
}

// One source for training and evaluation, and a learning rate of zero: the evaluation's loss has the training
// loss's bits, under any layout. With dropout they differ, for evaluation drops nothing.
TEST_F(PipelineTraining, EvaluationIsTheForwardOfTheTrainingLoss) {
  {
    std::ofstream file(directory_ + "/tokens.txt", std::ios::binary);
    for (int i = 0; i < 4000; ++i) file.put(static_cast<char>(i * i % 31));
  }
  for (const char* model : {"gpt", "llama", "gpt_dropout"}) {
    for (TrainText text :
         {Clipped("one_f_one_b", 4, 1, 2, 4), Clipped("interleaved", 2, 2, 1, 2), Clipped("", 1, 1, 1, 1)}) {
      text.model = model;
      text.optimizer = "optimizer sgd(lr = 0.0)";
      text.train = "  eval_every 1\n  eval_batches 1\n";
      SCOPED_TRACE(text.Name());
      std::string program = text.Text();
      const std::string data = "data random(32)";
      program.replace(program.find(data), data.size(),
                      "data text(\"" + directory_ + "/tokens.txt\", validation = 25 %)");
      std::unique_ptr<Compiled> compiled = Compile(program);
      ASSERT_TRUE(compiled->ok()) << compiled->Messages();
      ASSERT_FALSE(compiled->job().eval.empty());
      runtime::LocalOptions options;
      options.steps = 1;
      options.evaluate = true;
      options.source = [](const runtime::Job& job, uint32_t) {
        runtime::Result<std::unique_ptr<runtime::BatchSource>> opened =
            runtime::OpenData(job, "", job.seed, false);
        return opened.ok() ? std::move(*opened) : nullptr;
      };
      RunResult run = RunJob(compiled->job(), options);
      ASSERT_EQ(run.losses.size(), 1u);
      ASSERT_EQ(run.eval_losses.size(), 1u);
      if (std::string(model) == "gpt_dropout") {
        EXPECT_NE(run.eval_losses[0], run.losses[0]);
        EXPECT_NEAR(run.eval_losses[0], run.losses[0], 0.2 * run.losses[0]);
      } else {
        EXPECT_EQ(run.eval_losses[0], run.losses[0]);
      }
    }
  }
}

// Training on a real file with a validation tail goes down, on both, under a pipeline with replicas.
TEST_F(PipelineTraining, LearnsFromAFile) {
  {
    std::ofstream file(directory_ + "/corpus.txt");
    for (int i = 0; i < 400; ++i) file << "the piper plays for rats and the rats dance\n";
  }
  std::string program = R"(import std.gpt
import std.strategies
import std.topologies
model net = gpt.GPT(layers = 2, embed = 32, heads = 2, vocab = 256, seq = 16)
train {
  model net
  data text(")" + directory_ +
                        R"(/corpus.txt", validation = 10 %)
  global_batch 16
  steps 150
  optimizer adamw(lr = warmup(5, 1e-2))
  eval_every 50
  eval_batches 2
  on topologies.local(ranks = 4)
  using strategies.pipeline_data_parallel(p = 2, dp = 2, m = 4)
}
)";
  std::unique_ptr<Compiled> compiled = Compile(program);
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  runtime::LocalOptions options;
  options.evaluate = true;
  options.checkpoint_directory = directory_ + "/run";
  std::filesystem::create_directory(options.checkpoint_directory);
  options.steps = 150;
  RunResult run = RunJob(compiled->job(), options);
  ASSERT_EQ(run.losses.size(), 150u);
  EXPECT_GT(run.losses.front(), 5.0);
  EXPECT_LT(run.losses.back(), 1.5);
  ASSERT_GE(run.eval_losses.size(), 2u);
  EXPECT_LT(run.eval_losses.back(), 1.5);

  // And the checkpoint writes text: the same for one seed, another for another.
  ir::SampleJob sampler = ir::LowerSample(compiled->program->model, compiled->job());
  ASSERT_NE(sampler.job, nullptr) << sampler.why;
  runtime::SampleOptions sample;
  sample.checkpoint = options.checkpoint_directory + "/step-150";
  sample.tokens = 24;
  sample.prompt = "the ";
  auto write = [&](uint64_t seed, double temperature) {
    sample.seed = seed;
    sample.temperature = temperature;
    std::string text;
    runtime::Status status = runtime::Sample(sampler.job->job(), sample, runtime::MakeInterpreter,
                                             [&](const std::string& piece) { text += piece; });
    EXPECT_TRUE(status.ok()) << status.message();
    return text;
  };
  EXPECT_EQ(write(1, 1.0), write(1, 1.0));
  EXPECT_NE(write(1, 3.0), write(2, 3.0));
  EXPECT_EQ(write(1, 0.0), write(2, 0.0));
  EXPECT_EQ(write(1, 0.0).substr(0, 4), "the ");
  EXPECT_EQ(write(1, 0.0).size(), 28u);
}

// Features of one sample are huge.
class Poisoned : public runtime::BatchSource {
 public:
  Poisoned(std::unique_ptr<runtime::BatchSource> inner, const runtime::Job& job, int64_t sample,
           uint64_t step)
      : inner_(std::move(inner)), job_(job), sample_(sample), step_(step) {}
  runtime::Status Fill(uint32_t field, uint64_t step, int64_t first, int64_t samples, void* out) override {
    runtime::Status status = inner_->Fill(field, step, first, samples, out);
    int64_t width = job_.inputs[field].elements_per_sample;
    if (status.ok() && step == step_ && std::string(job_.inputs[field].name) == "y" && first <= sample_ &&
        sample_ < first + samples) {
      static_cast<float*>(out)[(sample_ - first) * width] = 3e38f;
    }
    return status;
  }

 private:
  std::unique_ptr<runtime::BatchSource> inner_;
  const runtime::Job& job_;
  int64_t sample_;
  uint64_t step_;
};

// Runs `compiled` with sample 13 poisoned in step `step`; the refusal, and the steps that were done.
runtime::Status RunPoisoned(const Compiled& compiled, uint64_t step, runtime::LocalOptions options,
                            uint64_t* done) {
  options.steps = 4;
  options.bodies = runtime::MakeInterpreter;
  options.source = [step](const runtime::Job& job, uint32_t) -> std::unique_ptr<runtime::BatchSource> {
    runtime::Result<std::unique_ptr<runtime::BatchSource>> opened =
        runtime::OpenData(job, "", job.seed, false);
    if (!opened.ok()) return nullptr;
    return std::make_unique<Poisoned>(std::move(*opened), job, 13, step);
  };
  *done = 0;
  runtime::LocalHooks hooks;
  hooks.step_done = [&](const runtime::RankView&, uint64_t at, const runtime::StepOutcome&) {
    *done = at + 1;
  };
  return runtime::RunLocal(compiled.job(), options, hooks).status();
}

TEST_F(PipelineTraining, AValueThatIsNotFiniteIsNamed) {
  for (const char* clip : {"  clip 1.0\n", ""}) {
    TrainText text = Clipped("one_f_one_b", 2, 1, 2, 4);
    text.model = "skip";
    text.train = clip;
    std::unique_ptr<Compiled> compiled = Compile(text.Text());
    ASSERT_TRUE(compiled->ok()) << compiled->Messages();
    // 16 samples, 2 replicas, 4 microbatches: sample 13 is in microbatch 2 of replica 1. The head is on the
    // second stage, whose ranks are 2 and 3.
    uint64_t done = 0;
    runtime::Status status = RunPoisoned(*compiled, 1, {}, &done);
    EXPECT_EQ(status.code(), runtime::kExitInput);
    EXPECT_EQ(done, 1u);
    const std::string& message = status.message();
    EXPECT_NE(message.find("step 1"), std::string::npos) << message;
    EXPECT_NE(message.find("rank 3"), std::string::npos) << message;
    EXPECT_NE(message.find("microbatch 2"), std::string::npos) << message;
    EXPECT_NE(message.find("head"), std::string::npos) << message;
    EXPECT_NE(message.find("operation '"), std::string::npos) << message;
    // What the bad value went into is nobody's first fault.
    EXPECT_EQ(message.find("also"), std::string::npos) << message;
  }
}

// Without clipping nobody waits for the others before an update, so some parameters may have moved when a
// rank learns of it. No such state is ever saved: the newest checkpoint is that of the step before, and going
// on from it is going on from there.
TEST_F(PipelineTraining, AStepThatIsNotFiniteLeavesTheCheckpointBeforeIt) {
  TrainText text = Clipped("one_f_one_b", 2, 1, 2, 4);
  text.model = "skip";
  text.train = "";
  std::unique_ptr<Compiled> compiled = Compile(text.Text());
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  RunResult whole = RunJob(compiled->job(), 4);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const std::string run = directory_ + "/" + std::to_string(seed);
    runtime::LocalOptions options;
    options.checkpoint_directory = run;
    options.checkpoint_every = 1;
    options.execution.delay_microseconds = 200;
    options.execution.delay_seed = seed + 1;
    uint64_t done = 0;
    runtime::Status status = RunPoisoned(*compiled, 2, options, &done);
    EXPECT_EQ(status.code(), runtime::kExitInput) << status.message();
    EXPECT_EQ(done, 2u);
    std::set<std::string> left;
    for (const auto& entry : std::filesystem::directory_iterator(run)) left.insert(entry.path().filename());
    EXPECT_EQ(left, (std::set<std::string>{"step-1", "step-2"}));
    runtime::LocalOptions again;
    again.steps = 4;
    again.resume = run + "/step-2";
    RunResult rest = RunJob(compiled->job(), again);
    EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
    EXPECT_EQ(rest.parameters, whole.parameters);
  }
}

// Finite gradients, and a step so long that the parameters are not: the loss only shows it a step later.
TEST_F(PipelineTraining, ParametersThatAreNotFiniteAreNotSaved) {
  TrainText text = Clipped("one_f_one_b", 2, 1, 1, 4);
  text.optimizer = "optimizer sgd(lr = 1e39)";
  text.train = "";
  std::unique_ptr<Compiled> compiled = Compile(text.Text());
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  runtime::LocalOptions options;
  options.steps = 1;
  options.checkpoint_directory = directory_ + "/run";
  options.bodies = runtime::MakeInterpreter;
  runtime::Result<runtime::LocalResult> run = runtime::RunLocal(compiled->job(), options);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.status().code(), runtime::kExitInput);
  EXPECT_NE(run.status().message().find("no checkpoint is written"), std::string::npos)
      << run.status().message();
  EXPECT_TRUE(std::filesystem::is_empty(directory_ + "/run"));
}

}  // namespace
}  // namespace piper::testing
