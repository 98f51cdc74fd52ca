// Random graphs, cut at random, with random parts frozen: the bodies compute what the uncut graph computes.
// Buffers are handed out full of NaN, so a value that is read without having been written, or after its last
// reader gave it back, shows in the numbers.
#include <gtest/gtest.h>

#include "tests/model_test_support.h"

namespace piper::ir {
namespace {

const Dim kBatch{"batch", 2}, kEmbed{"embed", 4};

uint64_t Below(TestRandom& random, uint64_t bound) { return random.Next() % bound; }

// Values of type [batch, embed] or its view [batch, two = 2, half = 2], combined at random; branches, skips,
// repeated and unused values all occur, and parameters are used again and again.
Graph RandomGraph(uint64_t seed) {
  TestRandom random(seed);
  TestModel m;
  std::vector<ValueId> values = {m.Input("x", {kBatch, kEmbed}), m.Input("y", {kBatch, kEmbed})};
  std::vector<ValueId> vectors, matrices;
  for (int i = 0; i < 3; ++i) {
    vectors.push_back(m.Param("v" + std::to_string(i), {kEmbed}, Below(random, 4) == 0));
    matrices.push_back(m.Param("m" + std::to_string(i), {kEmbed, {"out", 4}}, Below(random, 4) == 0));
  }
  auto pick = [&](const std::vector<ValueId>& from) {
    // Recent values more often.
    uint64_t a = Below(random, from.size()), b = Below(random, from.size());
    return from[std::max(a, b)];
  };
  uint64_t operations = 6 + Below(random, 14);
  for (uint64_t i = 0; i < operations; ++i) {
    ValueId a = pick(values);
    switch (Below(random, 12)) {
      case 0:
        values.push_back(m.Op("add", {a, pick(values)}));
        break;
      case 1:
        values.push_back(m.Op("mul", {a, pick(values)}));
        break;
      case 2:
        values.push_back(m.Op("tanh", {a}));
        break;
      case 3:
        values.push_back(m.Op("rename", {m.Op("matmul", {a, pick(matrices)})},
                              {{"from", std::string("out")}, {"to", std::string("embed")}}));
        break;
      case 4:
        values.push_back(m.Op("add", {a, pick(vectors)}));
        break;
      case 5:
        values.push_back(m.Op("mul", {pick(vectors), a}));
        break;
      case 6: {
        // Through a view, and a softmax in it.
        ValueId view = m.Op("reshape", {a}, {{"dims", std::vector<std::string>{"batch", "two=2", "half=2"}}});
        if (Below(random, 2) == 0) view = m.Op("softmax", {view}, {{"dim", std::string("two")}});
        values.push_back(m.Op("reshape", {view}, {{"dims", std::vector<std::string>{"batch", "embed"}}}));
        break;
      }
      case 7: {
        std::vector<ValueId> parts =
            m.All("split", {a}, {{"dim", std::string("embed")}, {"sizes", std::vector<int64_t>{1, 3}}});
        values.push_back(m.Op("concat", {parts[1], parts[0]}, {{"dim", std::string("embed")}}));
        break;
      }
      case 8:
        values.push_back(m.Op("rms_norm", {a, pick(vectors)}));
        break;
      case 9:
        values.push_back(m.Op("dropout", {a}, {{"p", Below(random, 2) == 0 ? 0.0 : 0.3}}));
        break;
      case 10:
        values.push_back(Below(random, 3) == 0 ? m.Op("stop_gradient", {a})
                                               : m.Op("affine", {a}, {{"scale", 0.5}}));
        break;
      default:
        values.push_back(m.Op("sub", {a, m.Op("add", {pick(vectors), pick(vectors)})}));
        break;
    }
  }
  uint64_t losses = 1 + Below(random, 3);
  for (uint64_t l = 0; l < losses; ++l) {
    ValueId loss =
        Below(random, 2) == 0 ? m.Op("mean_loss", {pick(values)}) : m.Op("mse", {pick(values), values[1]});
    if (Below(random, 2) == 0) loss = m.Op("affine", {loss}, {{"scale", 0.25}});
    m.Loss(loss, "loss" + std::to_string(l));
  }
  return m.graph();
}

// The same operations, with boundaries at random.
Graph RandomCuts(Graph graph, uint64_t seed) {
  TestRandom random(seed);
  TagPathId tags = 0;
  int64_t next = 0;
  for (Operation& op : graph.operations) {
    if (Below(random, 3) == 0) tags = graph.InternTags({{"part", next++}});
    op.tags = tags;
  }
  return graph;
}

TEST(Fuzz, CutsNeverChangeWhatIsComputed) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Graph graph = RandomGraph(seed);
    std::vector<HostTensor> parameters = RandomParameters(graph, seed);
    BatchProvider batch = RandomBatch(graph, {});
    ReferenceOptions options;
    options.dtype = DType::kF64;
    ReferenceResult whole = RunReferenceStep(BuildRegions(graph), options, parameters, batch);
    ASSERT_TRUE(std::isfinite(whole.loss)) << graph.ToText();
    for (uint64_t cuts = 0; cuts < 3; ++cuts) {
      Graph parts = RandomCuts(graph, seed * 10 + cuts);
      ReferenceResult cut = RunReferenceStep(BuildRegions(parts), options, parameters, batch);
      EXPECT_NEAR(whole.loss, cut.loss, 1e-12 * std::max(1.0, std::abs(whole.loss))) << parts.ToText();
      for (size_t p = 0; p < parameters.size(); ++p) {
        ASSERT_EQ(whole.gradients[p].size(), cut.gradients[p].size()) << parts.ToText();
        ASSERT_LE(MaxDifference(whole.gradients[p], cut.gradients[p]),
                  1e-12 * std::max(1.0, MaxAbs(whole.gradients[p])))
            << graph.parameters[p].name << "\n"
            << parts.ToText();
      }
      // Differences see through stop_gradient, so graphs with one are left out.
      bool stops = std::any_of(parts.operations.begin(), parts.operations.end(),
                               [](const Operation& op) { return op.kind == "stop_gradient"; });
      if (seed % 4 == 0 && cuts == 0 && !stops) CheckGradients(parts, parameters, batch, 1e-6, 4);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace piper::ir
