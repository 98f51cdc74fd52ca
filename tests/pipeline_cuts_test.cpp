// Where stages begin and end: explicit cuts that are uneven, and balanced ones on machines whose devices
// differ.
#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/pipeline_support.h"

namespace piper::testing {
namespace {

// Distinct layers whose parameters device `rank` holds.
std::set<std::string> LayersOf(const Compiled& compiled, uint32_t rank) {
  std::set<std::string> layers;
  const runtime::Job& job = compiled.job();
  for (const runtime::Parameter& p : job.train[job.rank_role[rank]].parameters) {
    const std::string name = p.name;
    const size_t begin = name.find("blocks.");
    if (begin == std::string::npos) continue;
    const size_t number = begin + 7;
    layers.insert(name.substr(number, name.find('.', number) - number));
  }
  return layers;
}

TEST(PipelineCuts, UnevenCutsAreBitwiseEqualToTheReference) {
  struct Case {
    int stages;
    const char* cut;
    std::vector<size_t> layers;  // a stage
  };
  for (const Case& c :
       {Case{2, "[embed + 3 * layer, layer + head]", {3, 1}}, Case{2, "[embed, 4 * layer + head]", {0, 4}},
        Case{3, "[embed + layer, 3 * layer, head]", {1, 3, 0}},
        Case{4, "[embed, layer, 2 * layer, layer + head]", {0, 1, 2, 1}}}) {
    SCOPED_TRACE(c.cut);
    for (const char* model :
         {"gpt.GPT(layers = 4, embed = 16, heads = 2, vocab = 32, seq = 8)",
          "llama.Llama(layers = 4, embed = 16, heads = 4, kv_heads = 2, hidden = 24, vocab = 32, "
          "seq = 8)"}) {
      const std::string p = std::to_string(c.stages);
      const std::unique_ptr<Compiled> compiled = Compile(
          std::string(
              "import std.gpt\nimport std.llama\nimport std.schedules\nimport std.topologies\nmodel net = ") +
          model + "\nstrategy uneven {\n  mesh (pp = " + p + ")\n  cut embed, layer, head into " + c.cut +
          " as stage\n  split batch into 4 as mb\n  for s in 0.." + p +
          " {\n    place [stage = s] on pp[s]\n    order on pp[s] { schedules.one_f_one_b(s, " + p +
          ", 4) }\n  }\n}\ntrain {\n  model net\n  data random(32)\n  global_batch 8\n  steps 2\n"
          "  optimizer adamw(lr = 1e-2, weight_decay = 0.1)\n  clip 1.0\n  seed 9\n  on "
          "topologies.local(ranks = " +
          p + ")\n  using uneven\n}\n");
      ASSERT_TRUE(compiled->ok()) << compiled->Messages();
      for (size_t s = 0; s < c.layers.size(); ++s) {
        EXPECT_EQ(LayersOf(*compiled, static_cast<uint32_t>(s)).size(), c.layers[s]) << "stage " << s;
      }
      ExpectEqualToReference(*compiled, 2, c.cut);
    }
  }
}

struct Machine {
  std::string mixed, slow, fast;  // topologies; in `mixed` the slow devices come first
  int replicas;
  std::string model, batch;
};
const Machine kPair = {
    "pair(1)", "pair(2)", "pair(0)", 1, "layers = 12, embed = 32, heads = 2, vocab = 64, seq = 16", "8"};
// Large enough for arithmetic to be what a step takes: the balance is of that.
const Machine kNodes = {"topologies.mixed(1, 1)",
                        "topologies.dgx_a100(2)",
                        "topologies.dgx_h100(2)",
                        8,
                        "layers = 12, embed = 1024, heads = 16, vocab = 1024, seq = 512",
                        "128"};

// Two stages in twelve layers, stage 0 on pp[first].
std::unique_ptr<Compiled> CompileOn(const Machine& machine, const std::string& topology, int first) {
  const std::string group = "pp[(s + " + std::to_string(first) + ") % 2]";
  return Compile(R"(import std.gpt
import std.schedules
import std.topologies
topology pair(count: int) {
  device slow { memory = 4 GiB; memory_bandwidth = 10 GB/s; compute f32 = 50 GFLOP/s }
  device fast { memory = 4 GiB; memory_bandwidth = 30 GB/s; compute f32 = 150 GFLOP/s }
  level slow_node = 1 of slow
  level fast_node = 1 of fast
  level host = [slow_node for i in 0..count] + [fast_node for i in 0..2 - count]
      joined by { bandwidth = 5 GB/s; latency = 5 us }
}
model net = gpt.GPT()" +
                 machine.model +
                 R"()
strategy study {
  mesh (pp = 2, dp = )" +
                 std::to_string(machine.replicas) + R"()
  cut embed, layer, head into 2 as stage
  split batch into 4 as mb
  shard batch over dp
  zero 0 [*] as dp { bucket 25 MiB }
  for s in 0..2 {
    place [stage = s] on )" +
                 group + "\n    order on " + group + R"( { schedules.one_f_one_b(s, 2, 4) }
  }
}
train {
  model net
  data random(64)
  steps 1
  optimizer adamw(lr = 1e-3)
  seed 1
  using study
  global_batch )" +
                 machine.batch + "\n  on " + topology + "\n}\n");
}

TEST(PipelineCuts, ABalancedCutGivesTheFasterDevicesMoreLayers) {
  for (const Machine& machine : {kPair, kNodes}) {
    const auto first_of_fast = static_cast<uint32_t>(machine.replicas);
    SCOPED_TRACE(machine.mixed);
    // Stage 0 on the slow devices, and on the fast ones.
    for (int first : {0, 1}) {
      const std::unique_ptr<Compiled> compiled = CompileOn(machine, machine.mixed, first);
      ASSERT_TRUE(compiled->ok()) << compiled->Messages();
      const size_t slow = LayersOf(*compiled, 0).size(), fast = LayersOf(*compiled, first_of_fast).size();
      EXPECT_EQ(slow + fast, 12u);
      EXPECT_GE(fast, slow + 3) << "stage 0 on pp[" << first << "]";
    }
    const std::unique_ptr<Compiled> mixed = CompileOn(machine, machine.mixed, 0),
                                    slow = CompileOn(machine, machine.slow, 0),
                                    fast = CompileOn(machine, machine.fast, 0);
    for (const auto* compiled : {&slow, &fast}) {
      ASSERT_TRUE((*compiled)->ok()) << (*compiled)->Messages();
      const size_t a = LayersOf(**compiled, 0).size(), b = LayersOf(**compiled, first_of_fast).size();
      EXPECT_LE(std::max(a, b) - std::min(a, b), 2u) << "equal devices, equal shares";
    }
    EXPECT_LT(mixed->plan->simulation.makespan, slow->plan->simulation.makespan);
    EXPECT_GT(mixed->plan->simulation.makespan, fast->plan->simulation.makespan);
  }
}

// The numbers do not depend on the machine's figures, nor on who has which layers.
TEST(PipelineCuts, ABalancedCutOnUnequalDevicesIsBitwiseEqualToTheReference) {
  const std::unique_ptr<Compiled> compiled = CompileOn(kPair, kPair.mixed, 1);
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  ExpectEqualToReference(*compiled, 1, "balanced over unequal devices");
}

}  // namespace
}  // namespace piper::testing
