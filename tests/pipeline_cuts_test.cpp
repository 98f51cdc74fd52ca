// Where stages begin and end: explicit cuts that are uneven.
#include <memory>
#include <set>
#include <string>
#include <vector>

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

}  // namespace
}  // namespace piper::testing
