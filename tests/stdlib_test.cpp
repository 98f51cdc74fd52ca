// The standard library: its models have the parameters that they should, its strategies become plans.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "frontend/embedded_stdlib.h"
#include "ir/pipeline.h"
#include "tests/elab_support.h"

namespace piper::frontend {
namespace {

std::string Train(const std::string& model, const std::string& topology, const std::string& strategy) {
  return "import std.gpt\nimport std.llama\nimport std.mlp\nimport std.schedules\nimport std.strategies\n"
         "import std.topologies\n"
         "train {\n  model " +
         model + "\n  global_batch 16\n  optimizer sgd(0.1)\n  on " + topology + "\n  using " + strategy +
         "\n}\n";
}

int64_t Parameters(const ir::Graph& graph) {
  int64_t count = 0;
  for (const ir::Parameter& parameter : graph.parameters) count += parameter.type.elements();
  return count;
}

TEST(Stdlib, EveryModuleChecks) {
  ASSERT_EQ(EmbeddedStdlib().size(), 6u);
  for (const EmbeddedFile& file : EmbeddedStdlib()) {
    auto loaded = CheckText("import std." + std::string(file.module) + "\n");
    EXPECT_FALSE(loaded->diag.HasErrors()) << file.module << "\n" << loaded->Errors();
  }
}

// A schedule is a page at most.
TEST(Stdlib, SchedulesAreShort) {
  for (const EmbeddedFile& file : EmbeddedStdlib()) {
    if (file.module != "schedules") continue;
    std::istringstream text{std::string(file.text)};
    std::string name;
    int functions = 0, lines = 0;
    for (std::string line; std::getline(text, line);) {
      if (line.rfind("fn ", 0) == 0) {
        name = line.substr(3, line.find('(') - 3);
        lines = 0;
        ++functions;
      }
      EXPECT_LE(++lines, 60) << name;
      if (line == "}") lines = 0;
    }
    EXPECT_GE(functions, 12);
  }
}

TEST(Stdlib, GptHasItsParameters) {
  auto loaded = LoadText(Train("gpt.GPT(layers = 3, embed = 32, heads = 4, vocab = 64, seq = 16)",
                               "topologies.local", "strategies.single"));
  ASSERT_TRUE(loaded->program) << loaded->Errors();
  constexpr int64_t kEmbed = 32;
  int64_t block = 12 * kEmbed * kEmbed + 13 * kEmbed;  // GPT-2's count
  EXPECT_EQ(Parameters(loaded->program->model), (64 + 16) * kEmbed + 3 * block + 2 * kEmbed);
  const auto& parameters = loaded->program->model.parameters;
  auto named = [&](const std::string& name) {
    return std::find_if(parameters.begin(), parameters.end(),
                        [&](const ir::Parameter& p) { return p.name == name; });
  };
  ASSERT_NE(named("blocks.2.attn.wqkv"), parameters.end());
  EXPECT_EQ(named("blocks.2.attn.wqkv")->type.ToString(), "f32[embed=32, qkv=3, heads=4, head_dim=8]");
  EXPECT_DOUBLE_EQ(named("blocks.2.attn.wo")->init.a, 0.02 / std::sqrt(6.0));
}

TEST(Stdlib, DropoutIsThereOnlyWhenAskedFor) {
  for (const char* rate : {"0.0", "0.1"}) {
    auto loaded =
        LoadText(Train(std::string("gpt.GPT(layers = 2, embed = 16, heads = 2, vocab = 32, seq = 8, "
                                   "dropout_rate = ") +
                           rate + ")",
                       "topologies.local", "strategies.single"));
    ASSERT_TRUE(loaded->program) << loaded->Errors();
    const auto& ops = loaded->program->model.operations;
    auto dropouts =
        std::count_if(ops.begin(), ops.end(), [](const ir::Operation& op) { return op.kind == "dropout"; });
    EXPECT_EQ(dropouts, std::string(rate) == "0.0" ? 0 : 1 + 2 * 2);
  }
}

TEST(Stdlib, LlamaHasItsParameters) {
  for (bool tied : {false, true}) {
    auto loaded = LoadText(
        Train(std::string("llama.Llama(layers = 2, embed = 32, heads = 4, kv_heads = 2, hidden = 88, "
                          "vocab = 64, seq = 16, tied = ") +
                  (tied ? "true)" : "false)"),
              "topologies.local", "strategies.single(m = 4)"));
    ASSERT_TRUE(loaded->program) << loaded->Errors();
    int64_t block = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 88 + 2 * 32;
    EXPECT_EQ(Parameters(loaded->program->model), (tied ? 1 : 2) * 64 * 32 + 2 * block + 32);
  }
}

TEST(Stdlib, StrategiesBecomePlans) {
  const std::string model = "gpt.GPT(layers = 6, embed = 16, heads = 2, vocab = 32, seq = 8)";
  for (const char* strategy :
       {"strategies.single", "strategies.single(m = 4)", "strategies.data_parallel(dp = 4, m = 2)",
        "strategies.gpipe(p = 4, m = 8)", "strategies.one_f_one_b(p = 4, m = 4)",
        "strategies.one_f_one_b(p = 4, m = 1)", "strategies.interleaved(p = 2, v = 2, m = 8)",
        "strategies.interleaved(p = 4, v = 2, m = 4)", "strategies.interleaved(p = 2, v = 4, m = 2)",
        "strategies.interleaved_zb(p = 2, v = 2, m = 4)",
        "strategies.pipeline_data_parallel(p = 2, dp = 2, m = 4)",
        "strategies.pipeline_by(schedules.gpipe, 4, 4)",
        "strategies.pipeline_data_parallel(2, 2, 2, schedule = schedules.gpipe)"}) {
    SCOPED_TRACE(strategy);
    auto loaded = LoadText(Train(model, "topologies.local(ranks = 4)", strategy));
    ASSERT_TRUE(loaded->program) << loaded->Errors();
    EXPECT_TRUE(ir::BuildPlan(*loaded->program, loaded->diag)) << loaded->Errors();
  }
}

TEST(Stdlib, TopologiesHaveTheirDevices) {
  struct Case {
    const char* text;
    int64_t devices;
    size_t levels;
  };
  for (const Case& c : {Case{"topologies.local(ranks = 3)", 3, 1}, Case{"topologies.ideal(ranks = 5)", 5, 1},
                        Case{"topologies.dgx_h100(nodes = 2)", 16, 2}, Case{"topologies.dgx_a100", 8, 2},
                        Case{"topologies.frontier(nodes = 9408)", 75264, 2}}) {
    auto loaded = LoadText(
        Train("mlp.MLP(layers = 2, inputs = 4, width = 8, outputs = 2)", c.text, "strategies.single"));
    ASSERT_TRUE(loaded->program) << c.text << loaded->Errors();
    EXPECT_EQ(loaded->program->topology.devices(), c.devices) << c.text;
    EXPECT_EQ(loaded->program->topology.levels.size(), c.levels) << c.text;
  }
}

}  // namespace
}  // namespace piper::frontend
