// What a plan computes, against definitions rather than against another run of the same plan: evaluation
// against training, updates against the optimizer's formula, the slices' sums against the whole batch in f64.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "ir/model/reference.h"
#include "runtime/data.h"
#include "tests/pipeline_support.h"
#include "tools/reference_run.h"

namespace piper::testing {
namespace {

constexpr char kImports[] = R"(import std.gpt
import std.llama
import std.schedules
import std.strategies
import std.topologies
)";
constexpr char kGpt[] = "model net = gpt.GPT(layers = 4, embed = 16, heads = 2, vocab = 256, seq = 8)\n";
constexpr char kLlama[] =
    "model net = llama.Llama(layers = 4, embed = 16, heads = 4, kv_heads = 2, hidden = 24, vocab = 256, seq "
    "= 8)\n";
constexpr char kPipelineAndReplicas[] =
    "  on topologies.local(ranks = 4)\n  using strategies.pipeline_data_parallel(p = 2, dp = 2, m = 4)\n";

std::unique_ptr<Compiled> CompileOrFail(const std::string& text) {
  std::unique_ptr<Compiled> compiled = Compile(text);
  if (!compiled->ok()) ADD_FAILURE() << compiled->Messages() << "\n" << text;
  return compiled;
}

// The parameters that training starts from, as the reference makes them from the model.
std::map<std::string, std::vector<float>> Initial(const Compiled& compiled) {
  std::map<std::string, std::vector<float>> initial;
  auto data = runtime::OpenData(compiled.job(), "", compiled.job().seed, false);
  EXPECT_TRUE(data.ok());
  const auto reference = tools::ReferenceRun::Create(*compiled.program, *compiled.plan, std::move(*data));
  EXPECT_TRUE(reference.ok());
  for (size_t p = 0; p < compiled.program->model.parameters.size(); ++p) {
    initial[compiled.program->model.parameters[p].name] = (*reference)->initial()[p].f32;
  }
  return initial;
}

std::map<std::string, std::vector<float>> ByName(
    const std::vector<std::pair<std::string, std::vector<float>>>& tensors) {
  return {tensors.begin(), tensors.end()};
}

// A file of exactly one batch, unshuffled, is every step's batch and the evaluation's: the evaluation after a
// step has the bits of the next step's loss.
TEST(PipelineNumerics, EvaluationHasTheBitsOfTheNextTrainingLoss) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("piper-one-batch-" + std::to_string(::getpid()) + ".txt");
  constexpr int kBatch = 16, kSequence = 8;
  {
    std::ofstream file(path, std::ios::binary);
    for (int i = 0; i < kBatch * kSequence + 1; ++i) file.put(static_cast<char>('a' + i * i % 23));
  }
  for (const char* model : {kGpt, kLlama}) {
    const std::unique_ptr<Compiled> compiled = CompileOrFail(
        std::string(kImports) + model + "train {\n  model net\n  data text(\"" + path.string() +
        "\", validation = \"" + path.string() + "\", shuffle = false)\n" +
        "  global_batch 16\n  steps 4\n  optimizer sgd(lr = 0.5)\n  eval_every 1\n  eval_batches 1\n" +
        kPipelineAndReplicas + "}\n");
    if (!compiled->ok()) continue;
    runtime::LocalOptions options;
    options.steps = 4;
    options.evaluate = true;
    const RunResult run = RunJob(compiled->job(), options);
    ASSERT_EQ(run.losses.size(), 4u);
    ASSERT_GE(run.eval_losses.size(), 3u);
    for (size_t step = 0; step + 1 < 4; ++step) {
      EXPECT_EQ(run.eval_losses[step], run.losses[step + 1]) << "after step " << step;
      EXPECT_NE(run.losses[step], run.losses[step + 1]) << "nothing was learned";
    }
  }
  std::filesystem::remove(path);
}

// Frozen below, and frozen in the middle, where cotangents still pass: those tensors keep their bits and have
// neither gradient nor state; all others move.
TEST(PipelineNumerics, FrozenTensorsKeepTheirBits) {
  struct Case {
    const char* lines;
    std::vector<std::string> frozen;  // prefixes of names
  };
  for (const Case& c : {Case{"freeze [embed]\n  freeze [layer = 0..2]", {"blocks.0.", "blocks.1.", "wte"}},
                        Case{"freeze [layer = 2]", {"blocks.2."}}}) {
    SCOPED_TRACE(c.lines);
    const std::unique_ptr<Compiled> compiled = CompileOrFail(
        std::string(kImports) + kLlama +
        "strategy tune {\n  use strategies.pipeline_data_parallel(p = 2, dp = 2, m = 2)\n  " + c.lines +
        "\n}\ntrain {\n  model net\n  data random(256)\n  global_batch 16\n  steps 2\n"
        "  optimizer adamw(lr = 1e-2, weight_decay = 0.1)\n  clip 1.0\n  seed 3\n"
        "  on topologies.local(ranks = 4)\n  using tune\n}\n");
    if (!compiled->ok()) continue;
    const auto frozen = [&](const std::string& name) {
      return std::any_of(c.frozen.begin(), c.frozen.end(),
                         [&](const std::string& prefix) { return name.find(prefix) != std::string::npos; });
    };
    const RunResult run = RunJob(compiled->job(), 2);
    const auto initial_values = Initial(*compiled), trained = ByName(run.parameters),
               gradients = ByName(run.gradients);
    size_t kept = 0;
    for (const auto& [name, initial] : initial_values) {
      const bool same = trained.at(name) == initial;
      EXPECT_EQ(same, frozen(name)) << name;
      EXPECT_EQ(gradients.count(name), frozen(name) ? 0u : 1u) << name;
      kept += same ? 1 : 0;
    }
    EXPECT_GT(kept, 0u);
    EXPECT_LT(kept, initial_values.size());
    for (const runtime::RankProgram& role : compiled->job().train) {
      for (const runtime::Parameter& p : role.parameters) {
        EXPECT_EQ(p.state[0] == runtime::kNone, frozen(p.name)) << p.name;
      }
    }
    ExpectEqualToReference(*compiled, 2, c.lines);
  }
}

// The last optimizer that fits a parameter gives its rate and decay: one step of SGD from the gradient that
// was seen.
TEST(PipelineNumerics, EachOptimizerUpdatesItsOwnPart) {
  const std::unique_ptr<Compiled> compiled =
      CompileOrFail(std::string(kImports) + kLlama +
                    "train {\n  model net\n  data random(256)\n  global_batch 16\n  steps 1\n"
                    "  optimizer sgd(lr = 0.25, weight_decay = 0.5)\n"
                    "  optimizer sgd(lr = 0.75, weight_decay = 0.125, matrices_only = true) where [layer]\n"
                    "  optimizer sgd(lr = 0.0625) where [layer = 3]\n  seed 5\n" +
                    kPipelineAndReplicas + "}\n");
  ASSERT_TRUE(compiled->ok());
  const RunResult run = RunJob(compiled->job(), 1);
  const auto gradients = ByName(run.gradients);
  const auto trained = ByName(run.parameters), initial_values = Initial(*compiled);
  std::set<float> rates;
  int vectors = 0;
  for (const auto& [name, before] : initial_values) {
    float rate = 0.25f, decay = 0.5f;
    if (name.find("blocks.3.") != std::string::npos) {
      rate = 0.0625f, decay = 0;
    } else if (name.find("blocks.") != std::string::npos) {
      // The norms' gains, the only vectors, do not decay; neither do they in the group without decay.
      const bool vector = name.find("gamma") != std::string::npos;
      vectors += vector ? 1 : 0;
      rate = 0.75f, decay = vector ? 0 : 0.125f;
    }
    rates.insert(rate);
    const std::vector<float>& gradient = gradients.at(name);
    const std::vector<float>& after = trained.at(name);
    int64_t different = 0;
    double largest = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      // p - lr * (g + wd * p), in two fused operations.
      const float expected = std::fma(-rate, std::fma(decay, before[i], gradient[i]), before[i]);
      different += after[i] != expected ? 1 : 0;
      const double exact =
          before[i] - static_cast<double>(rate) * (gradient[i] + static_cast<double>(decay) * before[i]);
      largest = std::max(largest, std::abs(after[i] - exact));
    }
    EXPECT_EQ(different, 0) << name;
    EXPECT_LT(largest, 1e-7) << name;
  }
  EXPECT_EQ(rates.size(), 3u);
  EXPECT_EQ(vectors, 6);
}

// The folds over eight slices, in f32, against one sum over the whole batch, in f64.
// Clipping needs the norm before the update; without it every rank adds up what it updates, and the sum
// travels with the step's report. Each parameter counts once, wherever it stands.
TEST(PipelineNumerics, TheGradientNormIsReportedWithAndWithoutClipping) {
  const std::string base = std::string(kImports) + kGpt +
                           "train {\n  model net\n  data random()\n  global_batch 16\n  steps 2\n  optimizer "
                           "sgd(lr = 0)\n";
  std::vector<std::string> layouts = {"  on topologies.local(ranks = 1)\n  using strategies.single(m = 4)\n",
                                      kPipelineAndReplicas};
  std::vector<double> seen;
  for (const std::string& layout : layouts) {
    for (const char* clip : {"", "  clip 1000000.0\n"}) {
      std::unique_ptr<Compiled> compiled = CompileOrFail(base + clip + layout + "}\n");
      if (!compiled->ok()) return;
      EXPECT_EQ(compiled->job().clip > 0, *clip != 0);
      runtime::LocalOptions options;
      options.steps = 2;
      RunResult run = RunJob(compiled->job(), options);
      ASSERT_EQ(run.norms.size(), 2u);
      EXPECT_NEAR(run.norms[1], GradientNorm(run), 1e-9 * run.norms[1]);
      seen.push_back(run.norms[1]);
    }
  }
  // The same tensors' sums in another order; a microbatch of another size rounds differently.
  EXPECT_NEAR(seen[0], seen[1], 1e-14 * seen[0]);
  EXPECT_NEAR(seen[2], seen[3], 1e-14 * seen[2]);
  EXPECT_NEAR(seen[0], seen[2], 1e-5 * seen[0]);
}

TEST(PipelineNumerics, SlicesSumToTheWholeBatchInDouble) {
  for (const char* model : {kGpt, kLlama}) {
    SCOPED_TRACE(model);
    const std::unique_ptr<Compiled> compiled =
        CompileOrFail(std::string(kImports) + model +
                      "train {\n  model net\n  data random(256)\n  global_batch 16\n  steps 1\n"
                      "  optimizer sgd(lr = 0.1)\n  seed 11\n" +
                      kPipelineAndReplicas + "}\n");
    if (!compiled->ok()) continue;
    const runtime::Job& job = compiled->job();
    ASSERT_EQ(job.replicas * job.microbatches, 8);
    const auto open = [&] {
      auto opened = runtime::OpenData(job, "", job.seed, false);
      EXPECT_TRUE(opened.ok());
      return std::move(*opened);
    };
    auto reference = tools::ReferenceRun::Create(*compiled->program, *compiled->plan, open());
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    const ir::ReferenceResult& sliced = (*reference)->At(0).result;

    const ir::RegionGraph regions = ir::BuildRegions(compiled->program->model);
    const std::unique_ptr<runtime::BatchSource> data = open();
    std::vector<ir::HostTensor> parameters;
    for (const ir::HostTensor& tensor : (*reference)->initial()) {
      parameters.push_back(tensor.As(ir::DType::kF64));
    }
    ir::ReferenceOptions options;
    options.seed = job.seed;
    options.dtype = ir::DType::kF64;
    const ir::ReferenceResult whole = ir::RunReferenceStep(
        regions, options, parameters, [&](ir::InputId input, int64_t first, int64_t samples, void* out) {
          for (uint32_t field = 0; field < job.inputs.size(); ++field) {
            if (job.inputs[field].name != regions.graph.inputs[input].name) continue;
            EXPECT_TRUE(data->Fill(field, 0, first, samples, out).ok());
          }
        });

    const RunResult run = RunJob(compiled->job(), 1);
    const auto gradients = ByName(run.gradients);
    ASSERT_EQ(run.losses.size(), 1u);
    EXPECT_NEAR(sliced.loss, whole.loss, 1e-5 * std::abs(whole.loss));
    EXPECT_NEAR(run.losses[0], whole.loss, 1e-5 * std::abs(whole.loss));
    EXPECT_EQ(sliced.count, whole.count);
    ASSERT_EQ(sliced.gradients.size(), whole.gradients.size());
    for (size_t p = 0; p < whole.gradients.size(); ++p) {
      const ir::HostTensor& expected = whole.gradients[p];
      const std::string& name = regions.graph.parameters[p].name;
      const std::vector<float>& ran = gradients.at(name);
      ASSERT_GT(expected.size(), 0) << name;
      ASSERT_EQ(sliced.gradients[p].size(), expected.size()) << name;
      ASSERT_EQ(static_cast<int64_t>(ran.size()), expected.size()) << name;
      double scale = 0, largest = 0;
      for (int64_t i = 0; i < expected.size(); ++i) {
        scale = std::max(scale, std::abs(expected.at(i)));
        largest = std::max({largest, std::abs(sliced.gradients[p].at(i) - expected.at(i)),
                            std::abs(ran[static_cast<size_t>(i)] - expected.at(i))});
      }
      EXPECT_LE(largest, std::max(1e-5 * scale, 1e-7)) << name << ", whose largest gradient is " << scale;
      EXPECT_GT(scale, 0) << name;
    }
  }
}

}  // namespace
}  // namespace piper::testing
