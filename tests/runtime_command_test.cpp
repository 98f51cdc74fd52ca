// The command line, the environment of launchers, metrics lines and the choice of tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/identity.h"
#include "runtime/metrics.h"
#include "runtime/options.h"
#include "runtime/sampler.h"

namespace piper::runtime {
namespace {

Result<RunOptions> Parse(std::vector<std::string> words) {
  words.insert(words.begin(), "train");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return ParseOptions(static_cast<int>(argv.size()), argv.data());
}

TEST(RuntimeCommand, OptionsParse) {
  Result<RunOptions> options = Parse({"--steps", "20", "--out=run", "--resume", "--data", "a", "--data", "b*",
                                      "--temperature", "0", "--check-finite", "--prompt", "to be"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->steps, 20);
  EXPECT_EQ(options->out, "run");
  EXPECT_TRUE(options->resumes);
  EXPECT_EQ(options->resume, "auto");
  EXPECT_EQ(options->data, "a\nb*");
  EXPECT_EQ(options->temperature, 0);
  EXPECT_TRUE(options->check_finite);
  EXPECT_EQ(options->prompt, "to be");
  EXPECT_EQ(Parse({"--resume", "x/step-3"})->resume, "x/step-3");
  EXPECT_EQ(Parse({"--steps", "many"}).status().message(), "--steps takes a whole number, not 'many'");
  EXPECT_EQ(Parse({"--steps"}).status().message(), "--steps needs a value");
  EXPECT_EQ(Parse({"--quiet=1"}).status().message(), "--quiet takes no value");
  EXPECT_EQ(Parse({"--temperature", "nan"}).status().code(), kExitUsage);
  EXPECT_EQ(Parse({"file"}).status().message(), "unexpected argument 'file' (see --help)");
  EXPECT_EQ(Parse({"--throughput", "x"}).status().message(), "unknown option --throughput (see --help)");
  EXPECT_EQ(Parse({"--otu", "x"}).status().message(), "unknown option --otu; did you mean --out?");
}

Result<RankIdentity> Detect(std::map<std::string, std::string> variables) {
  return DetectIdentity([variables](const char* name) -> const char* {
    auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

TEST(RuntimeCommand, IdentityOfEveryLauncher) {
  EXPECT_EQ(Detect({})->launcher, Launcher::kBare);
  Result<RankIdentity> torchrun = Detect({{"RANK", "5"},
                                          {"WORLD_SIZE", "8"},
                                          {"LOCAL_RANK", "1"},
                                          {"LOCAL_WORLD_SIZE", "4"},
                                          {"MASTER_PORT", "29500"}});
  ASSERT_TRUE(torchrun.ok());
  EXPECT_EQ(torchrun->launcher, Launcher::kTorchrun);
  EXPECT_EQ(torchrun->rank, 5u);
  EXPECT_EQ(torchrun->size, 8u);
  EXPECT_EQ(torchrun->local_rank, 1u);
  EXPECT_EQ(torchrun->local_size, 4u);
  EXPECT_EQ(torchrun->job_key, "torchrun-29500..");
  EXPECT_EQ(
      Detect({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "1"}})->launcher,
      Launcher::kOpenMpi);
  EXPECT_EQ(Detect({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}})->local_rank, 1u);
  Result<RankIdentity> slurm = Detect({{"SLURM_PROCID", "3"},
                                       {"SLURM_NTASKS", "8"},
                                       {"SLURM_LOCALID", "3"},
                                       {"SLURM_NNODES", "2"},
                                       {"SLURM_JOB_ID", "77"},
                                       {"SLURM_STEP_ID", "0"}});
  ASSERT_TRUE(slurm.ok());
  EXPECT_EQ(slurm->local_size, 4u);
  EXPECT_EQ(slurm->job_key, "job-77.0");
  // MPICH under Slurm: both say the same.
  EXPECT_TRUE(
      Detect({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}).ok());
}

TEST(RuntimeCommand, ContradictionsNameBothVariables) {
  EXPECT_NE(Detect({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}})
                .status()
                .message()
                .find("WORLD_SIZE=4 and SLURM_NTASKS=2 contradict"),
            std::string::npos);
  EXPECT_NE(Detect({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "0"}})
                .status()
                .message()
                .find("OMPI_COMM_WORLD_RANK=1 and PMIX_RANK=0 contradict"),
            std::string::npos);
  EXPECT_EQ(Detect({{"RANK", "0"}}).status().message(),
            "environment variable RANK is set, but WORLD_SIZE is not: a launcher sets both");
  EXPECT_EQ(Detect({{"RANK", "4"}, {"WORLD_SIZE", "4"}}).status().message(),
            "RANK=4 is not below WORLD_SIZE=4");
  EXPECT_EQ(Detect({{"RANK", "-1"}, {"WORLD_SIZE", "4"}}).status().message(),
            "environment variable RANK='-1' is no number");
}

TEST(RuntimeCommand, MetricsLine) {
  StepMetrics metrics;
  metrics.step = 3;
  metrics.loss_known = true;
  metrics.loss = 0.1f;
  metrics.learning_rate = 1e-3;
  metrics.tokens_per_second = 1234.56;
  metrics.step_milliseconds = 7.5;
  metrics.peak_memory = 4096;
  char line[512];
  int length = FormatMetrics(metrics, line, sizeof line);
  EXPECT_EQ(
      std::string(line, static_cast<size_t>(length)),
      "{\"step\":3,\"loss\":0.10000000149011612,\"lr\":0.001,\"grad_norm\":null,\"tokens_per_s\":1234.6,"
      "\"step_ms\":7.500,\"mfu\":null,\"peak_memory\":4096}\n");
  metrics.norm_known = true;
  metrics.gradient_norm = 0.5;
  metrics.mfu = 0.41237;
  length = FormatMetrics(metrics, line, sizeof line);
  EXPECT_NE(std::string(line, static_cast<size_t>(length)).find("\"grad_norm\":0.5,"), std::string::npos);
  EXPECT_NE(std::string(line, static_cast<size_t>(length)).find("\"mfu\":0.4124,"), std::string::npos);
}

TEST(RuntimeCommand, TokensAreChosenByWeight) {
  float logits[4] = {0, 2, 1, -5};
  EXPECT_EQ(ChooseToken(logits, 4, 0, 0, 0.99), 1);
  EXPECT_EQ(ChooseToken(logits, 4, 1, 1, 0.99), 1);  // top 1
  int count[4] = {};
  for (int i = 0; i < 10000; ++i) ++count[ChooseToken(logits, 4, 1, 2, i / 10000.0)];
  EXPECT_EQ(count[0] + count[3], 0);
  EXPECT_NEAR(count[1] / 10000.0, 1 / (1 + std::exp(-1.0)), 1e-3);
  logits[3] = -INFINITY;  // never chosen
  EXPECT_EQ(ChooseToken(logits, 4, 1, 0, 0.9999), 0);
  logits[2] = INFINITY;
  EXPECT_EQ(ChooseToken(logits, 4, 1, 0, 0.5), -1);
  logits[2] = NAN;
  EXPECT_EQ(ChooseToken(logits, 4, 1, 0, 0.5), -1);
  std::fill_n(logits, 4, -INFINITY);
  EXPECT_EQ(ChooseToken(logits, 4, 0, 0, 0.5), -1);
}

}  // namespace
}  // namespace piper::runtime
