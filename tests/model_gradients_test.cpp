// Every operation of the table, both passes, against central differences in f64, through the bodies that
// BuildRegions makes: this tests derivative rules and lowerings at once. An operation without a case fails.
#include <gtest/gtest.h>

#include <set>

#include "tests/model_test_support.h"

namespace piper::ir {
namespace {

const Dim kBatch{"batch", 3}, kSeq{"seq", 4}, kEmbed{"embed", 6}, kHidden{"hidden", 5}, kVocab{"vocab", 7};
const Dim kHeads{"heads", 4}, kKvHeads{"kv_heads", 2}, kHeadDim{"head_dim", 6};

struct Case {
  std::string operation;
  std::vector<std::vector<Dim>> operands;  // of parameters; integers come from `integers`
  std::vector<Attribute> attributes;
  bool positive = false;
  std::vector<Dim> integers;  // dims of an integer input, appended as the last operand
  std::string note;
};

std::vector<Case> Cases() {
  using Names = std::vector<std::string>;
  using Ints = std::vector<int64_t>;
  std::vector<Dim> x = {kBatch, kSeq, kEmbed}, q = {kBatch, kSeq, kHeads, kHeadDim},
                   k = {kBatch, kSeq, kKvHeads, kHeadDim};
  Dim stacked{"part", 3};
  std::vector<Case> cases;
  auto add = [&](std::string operation, std::vector<std::vector<Dim>> operands,
                 std::vector<Attribute> attributes = {}, bool positive = false,
                 std::vector<Dim> integers = {}) {
    cases.push_back({operation, std::move(operands), std::move(attributes), positive, std::move(integers),
                     std::to_string(cases.size())});
  };
  for (const char* binary : {"add", "sub", "mul", "div"}) {
    bool positive = std::string(binary) == "div";
    add(binary, {x, x}, {}, positive);
    add(binary, {x, {kEmbed}}, {}, positive);
    add(binary, {x, {kSeq, kEmbed}}, {}, positive);
    add(binary, {{kEmbed}, x}, {}, positive);
    add(binary, {x, {kBatch, kSeq}}, {}, positive);
    add(binary, {x, {kSeq}}, {}, positive);
    add(binary, {x, {kEmbed, kBatch}}, {}, positive);
    add(binary, {x, {kEmbed, kSeq, kBatch}}, {}, positive);
    add(binary, {x, {}}, {}, positive);
    add(binary, {{}, {}}, {}, positive);
  }
  add("affine", {x}, {{"scale", -2.5}, {"offset", 0.75}});
  add("affine", {x}, {{"scale", 3.0}});
  add("attention", {q, q, q});
  add("attention", {q, k, k}, {{"causal", false}});
  add("attention", {q, k, k}, {{"scale", 0.3}});
  add("cast", {x}, {{"dtype", std::string("f32")}});
  add("concat", {x, {kBatch, {"seq", 2}, kEmbed}}, {{"dim", std::string("seq")}});
  add("concat", {x, x, x}, {{"dim", std::string("embed")}});
  add("constant", {}, {{"value", 2.0}, {"dims", Names{"batch", "n=3"}}});
  add("contract", {{kBatch, kSeq, kHeads}, {kBatch, kSeq, kEmbed}}, {{"over", Names{"seq"}}});
  add("contract", {{kBatch, kHeads, kSeq}, {kBatch, kHeads, {"keys", 5}, kSeq}}, {{"over", Names{"seq"}}});
  add("contract", {{kSeq, kHeads, kBatch}, {kEmbed, kSeq, kBatch, kHeads}},
      {{"over", Names{"heads", "seq"}}});
  add("contract", {{kEmbed}, {kHidden}}, {{"over", Names{}}});
  add("cross_entropy", {{kBatch, kSeq, kVocab}}, {}, false, {kBatch, kSeq});
  add("dropout", {x}, {{"p", 0.4}});
  add("dropout", {x}, {{"p", 0.0}});
  add("embedding", {{kVocab, kEmbed}}, {}, false, {kBatch, kSeq});
  add("embedding", {{kVocab, kHeads, kHeadDim}}, {}, false, {kBatch, kSeq});
  for (const char* unary : {"exp", "neg", "relu", "sigmoid", "silu", "square", "tanh"}) add(unary, {x});
  for (const char* unary : {"log", "rsqrt", "sqrt"}) add(unary, {x}, {}, true);
  add("gelu", {x});
  add("gelu", {x}, {{"approximate", std::string("none")}});
  add("layer_norm", {x, {kEmbed}, {kEmbed}});
  add("matmul", {x, {kEmbed, kHidden}});
  add("matmul", {x, {kEmbed, {"qkv", 3}, kHeads, kHeadDim}});
  add("matmul", {{kBatch, kSeq, kHeads, kHeadDim}, {kHeads, kHeadDim, kEmbed}});
  add("matmul", {x, {kHidden, kEmbed}}, {{"transpose_b", true}});
  add("matmul", {{kEmbed}, {kEmbed}});
  add("max", {x});
  add("max", {x}, {{"dims", Names{"embed"}}});
  add("max", {x}, {{"dims", Names{"seq"}}});
  add("max", {x}, {{"dims", Names{"batch", "seq"}}});
  add("mean", {x});
  add("mean", {x}, {{"dims", Names{"seq"}}});
  add("mean", {x}, {{"dims", Names{"embed", "batch"}}});
  add("mean_loss", {x});
  add("mse", {x, x});
  add("permute", {x}, {{"dims", Names{"embed", "batch", "seq"}}});
  add("permute", {q}, {{"dims", Names{"batch", "heads", "seq", "head_dim"}}});
  add("rename", {x}, {{"from", std::string("seq")}, {"to", std::string("keys")}});
  add("reshape", {x}, {{"dims", Names{"rows", "embed"}}});
  add("reshape", {x}, {{"dims", Names{"batch", "seq", "pairs=3", "two"}}});
  add("rms_norm", {x, {kEmbed}});
  add("rope", {q});
  add("rope", {q}, {{"theta", 100.0}});
  add("slice", {x}, {{"dim", std::string("seq")}, {"begin", int64_t{1}}, {"end", int64_t{3}}});
  add("softmax", {x}, {{"dim", std::string("embed")}});
  add("softmax", {x}, {{"dim", std::string("seq")}});
  add("split", {x}, {{"dim", std::string("embed")}, {"sizes", Ints{1, 3, 2}}});
  add("stack", {x, x}, {{"dim", std::string("two")}, {"axis", int64_t{1}}});
  add("stack", {x}, {{"dim", std::string("one")}});
  add("stop_gradient", {x});
  add("sum", {x});
  add("sum", {x}, {{"dims", Names{"batch"}}});
  add("sum", {x}, {{"dims", Names{"batch", "embed"}}});
  add("sum", {x}, {{"dims", Names{"seq", "embed"}}});
  add("swiglu", {x, x});
  add("transpose", {{kSeq, kEmbed}});
  add("unstack", {{kBatch, kSeq, stacked, kEmbed}}, {{"dim", std::string("part")}});
  return cases;
}

// The operation alone in its region, on values (not parameters) from a region before it; what it yields is
// weighted, summed and averaged in a region behind it. `skip_results` leaves every second result unused.
Graph CaseGraph(const Case& c, bool direct, bool skip_results) {
  TestModel model;
  model.Input("ids", {kBatch, kSeq}, DType::kI32);
  std::vector<ValueId> operands;
  model.Tag({{"before", 0}});
  for (size_t i = 0; i < c.operands.size(); ++i) {
    ValueId p = model.Param("p" + std::to_string(i), c.operands[i]);
    operands.push_back(direct ? p : model.Op("affine", {p}, {{"scale", 1.25}, {"offset", 0.0625}}));
  }
  if (!c.integers.empty()) operands.push_back(model.graph().InputValue(0));
  model.Tag({{"op", 0}});
  std::vector<ValueId> results = model.All(c.operation, operands, c.attributes);
  model.Tag({{"after", 0}});
  bool scaled = c.operation == "cross_entropy" || c.operation == "mse" || c.operation == "mean_loss";
  if (scaled) {
    model.Loss(model.Op("affine", {results[0]}, {{"scale", 2.0}}));
    return model.graph();
  }
  ValueId total = kNone;
  for (size_t r = 0; r < results.size(); r += skip_results ? 2 : 1) {
    ValueId w = model.Param("w" + std::to_string(r), model.graph().Type(results[r]).dims, true);
    ValueId term = model.Op("mean_loss", {model.Op("mul", {model.Op("square", {results[r]}), w})});
    total = total == kNone ? term : model.Op("add", {total, term});
  }
  model.Loss(total);
  return model.graph();
}

class OperationGradient : public testing::TestWithParam<Case> {};

TEST_P(OperationGradient, MatchesCentralDifferences) {
  const Case& c = GetParam();
  for (bool direct : {false, true}) {
    Graph graph = CaseGraph(c, direct, false);
    BatchProvider batch = RandomBatch(graph, {{"ids", {0, kVocab.size}}});
    std::vector<HostTensor> parameters = RandomParameters(graph, 3, 1, c.positive);
    if (c.operation == "stop_gradient" || c.operation == "constant") {
      RegionGraph regions = BuildRegions(graph);
      for (const Region& region : regions.regions) {
        EXPECT_TRUE(region.backward_input.empty());
        EXPECT_TRUE(region.backward_weight.empty());
      }
      continue;
    }
    CheckGradients(graph, parameters, batch);
    if (graph.losses.size() == 1 && (c.operation == "split" || c.operation == "unstack")) {
      Graph partly = CaseGraph(c, direct, true);
      CheckGradients(partly, RandomParameters(partly, 4), RandomBatch(partly, {{"ids", {0, kVocab.size}}}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OperationGradient, testing::ValuesIn(Cases()),
                         [](const testing::TestParamInfo<Case>& info) {
                           return info.param.operation + "_" + info.param.note;
                         });

TEST(OperationTable, EveryVisibleOperationHasACase) {
  std::set<std::string> covered;
  for (const Case& c : Cases()) covered.insert(c.operation);
  for (const OperationRule* rule : AllOperations()) {
    if (rule->user_visible()) {
      EXPECT_TRUE(covered.count(std::string(rule->name())) > 0) << rule->name();
    }
  }
}

TEST(OperationTable, CrossEntropyIgnoresNegativeTargets) {
  TestModel model;
  ValueId targets = model.Input("targets", {kBatch, kSeq}, DType::kI32);
  model.Loss(model.Op("cross_entropy", {model.Param("logits", {kBatch, kSeq, kVocab}), targets}));
  // About a third of the targets are negative; they count neither in the sum nor in N.
  BatchProvider batch = RandomBatch(model.graph(), {{"targets", {-3, kVocab.size}}});
  CheckGradients(model.graph(), RandomParameters(model.graph(), 8), batch);
  ReferenceOptions options;
  options.dtype = DType::kF64;
  ReferenceResult result =
      RunReferenceStep(BuildRegions(model.graph()), options, RandomParameters(model.graph(), 8), batch);
  EXPECT_LT(result.count, kBatch.size * kSeq.size);
  EXPECT_GT(result.count, 0);
}

}  // namespace
}  // namespace piper::ir
