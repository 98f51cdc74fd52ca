// PyTorch's numbers in f64 for a GPT-2 and a Llama block stack: the loss, every gradient, and the parameters
// after three steps of each recipe. Per tensor max|difference| <= 1e-5 max|reference|, with a floor of 1e-7
// for analytic zeros; in f64 far less is needed, in f32 the same holds with the tolerance that f32 has.
#include <gtest/gtest.h>

#include "tests/golden_file.h"
#include "tests/model_test_support.h"

namespace piper::ir {
namespace {

using Names = std::vector<std::string>;

const Dim kBatch{"batch", 4}, kSeq{"seq", 6}, kEmbed{"embed", 8}, kHeads{"heads", 4}, kKvHeads{"kv_heads", 2};
const Dim kHeadDim{"head_dim", 4}, kVocab{"vocab", 13}, kHidden{"hidden", 20};
constexpr int kLayers = 2;

Graph Gpt2() {
  TestModel m;
  ValueId tokens = m.Input("tokens", {kBatch, kSeq}, DType::kI32);
  ValueId targets = m.Input("targets", {kBatch, kSeq}, DType::kI32);
  Dim qkv{"qkv", 3};
  ValueId wte = m.Param("wte", {kVocab, kEmbed});
  m.Tag({{"embed", 0}});
  ValueId x = m.Op("add", {m.Op("embedding", {wte, tokens}), m.Param("wpe", {kSeq, kEmbed})});
  for (int i = 0; i < kLayers; ++i) {
    std::string b = "blocks." + std::to_string(i) + ".";
    m.Tag({{"layer", i}, {"attn", 0}});
    ValueId h =
        m.Op("layer_norm", {x, m.Param(b + "ln1.gamma", {kEmbed}), m.Param(b + "ln1.beta", {kEmbed})});
    h = m.Op("add", {m.Op("matmul", {h, m.Param(b + "wqkv", {kEmbed, qkv, kHeads, kHeadDim})}),
                     m.Param(b + "bqkv", {qkv, kHeads, kHeadDim})});
    h = m.Op("attention", m.All("unstack", {h}, {{"dim", std::string("qkv")}}));
    h = m.Op("add", {m.Op("matmul", {h, m.Param(b + "wo", {kHeads, kHeadDim, kEmbed})}),
                     m.Param(b + "bo", {kEmbed})});
    m.Tag({{"layer", i}});
    x = m.Op("add", {x, h});
    m.Tag({{"layer", i}, {"mlp", 0}});
    h = m.Op("layer_norm", {x, m.Param(b + "ln2.gamma", {kEmbed}), m.Param(b + "ln2.beta", {kEmbed})});
    h = m.Op("add",
             {m.Op("matmul", {h, m.Param(b + "w1", {kEmbed, kHidden})}), m.Param(b + "b1", {kHidden})});
    h = m.Op("matmul", {m.Op("gelu", {h}), m.Param(b + "w2", {kHidden, kEmbed})});
    h = m.Op("add", {h, m.Param(b + "b2", {kEmbed})});
    m.Tag({{"layer", i}});
    x = m.Op("add", {x, h});
  }
  m.Tag({{"head", 0}});
  x = m.Op("layer_norm", {x, m.Param("lnf.gamma", {kEmbed}), m.Param("lnf.beta", {kEmbed})});
  m.Loss(m.Op("cross_entropy", {m.Op("matmul", {x, m.Op("transpose", {wte})}), targets}));
  return m.graph();
}

Graph Llama() {
  TestModel m;
  ValueId tokens = m.Input("tokens", {kBatch, kSeq}, DType::kI32);
  ValueId targets = m.Input("targets", {kBatch, kSeq}, DType::kI32);
  m.Tag({{"embed", 0}});
  ValueId x = m.Op("embedding", {m.Param("embed", {kVocab, kEmbed}), tokens});
  for (int i = 0; i < kLayers; ++i) {
    std::string l = "layers." + std::to_string(i) + ".";
    m.Tag({{"layer", i}, {"attn", 0}});
    ValueId h = m.Op("rms_norm", {x, m.Param(l + "norm1.gamma", {kEmbed})});
    ValueId q = m.Op("rope", {m.Op("matmul", {h, m.Param(l + "wq", {kEmbed, kHeads, kHeadDim})})});
    ValueId k = m.Op("rope", {m.Op("matmul", {h, m.Param(l + "wk", {kEmbed, kKvHeads, kHeadDim})})});
    ValueId v = m.Op("matmul", {h, m.Param(l + "wv", {kEmbed, kKvHeads, kHeadDim})});
    h = m.Op("matmul", {m.Op("attention", {q, k, v}), m.Param(l + "wo", {kHeads, kHeadDim, kEmbed})});
    m.Tag({{"layer", i}});
    x = m.Op("add", {x, h});
    m.Tag({{"layer", i}, {"mlp", 0}});
    h = m.Op("rms_norm", {x, m.Param(l + "norm2.gamma", {kEmbed})});
    ValueId gate = m.Op("matmul", {h, m.Param(l + "gate", {kEmbed, kHidden})});
    ValueId up = m.Op("matmul", {h, m.Param(l + "up", {kEmbed, kHidden})});
    h = m.Op("matmul", {m.Op("swiglu", {gate, up}), m.Param(l + "down", {kHidden, kEmbed})});
    m.Tag({{"layer", i}});
    x = m.Op("add", {x, h});
  }
  m.Tag({{"head", 0}});
  x = m.Op("rms_norm", {x, m.Param("norm.gamma", {kEmbed})});
  m.Loss(m.Op("cross_entropy", {m.Op("matmul", {x, m.Param("head", {kEmbed, kVocab})}), targets}));
  return m.graph();
}

class Golden {
 public:
  Golden(Graph graph, const std::string& file, int64_t replicas = 1, int64_t microbatches = 1)
      : graph_(std::move(graph)),
        tensors_(ReadGolden("tests/golden/" + file)),
        replicas_(replicas),
        microbatches_(microbatches),
        regions_(BuildRegions(graph_.WithDim("batch", kBatch.size / (replicas * microbatches)))) {}

  const Graph& graph() const { return graph_; }
  const GoldenTensor& At(const std::string& name) {
    EXPECT_TRUE(tensors_.count(name) > 0) << name;
    return tensors_[name];
  }
  std::vector<HostTensor> Parameters(DType dtype) {
    std::vector<HostTensor> parameters;
    for (const Parameter& parameter : graph_.parameters) {
      HostTensor tensor = HostTensor::Zeros(DType::kF64, parameter.type.elements());
      tensor.f64 = At("param." + parameter.name).values;
      EXPECT_EQ(tensor.size(), parameter.type.elements()) << parameter.name;
      parameters.push_back(tensor.As(dtype));
    }
    return parameters;
  }
  ReferenceResult Step(const std::vector<HostTensor>& parameters) {
    ReferenceOptions options;
    options.dtype = parameters[0].dtype;
    options.replicas = replicas_;
    options.microbatches = microbatches_;
    return RunReferenceStep(
        regions_, options, parameters, [&](InputId input, int64_t first, int64_t samples, void* out) {
          const GoldenTensor& field = At("batch." + graph_.inputs[input].name);
          for (int64_t i = 0; i < samples * kSeq.size; ++i) {
            static_cast<int32_t*>(out)[i] =
                static_cast<int32_t>(field.values[static_cast<size_t>(first * kSeq.size + i)]);
          }
        });
  }
  void Expect(const HostTensor& actual, const std::string& name, double relative, double floor) {
    const GoldenTensor& golden = At(name);
    HostTensor reference = HostTensor::Zeros(DType::kF64, 0);
    reference.f64 = golden.values;
    EXPECT_LE(MaxDifference(actual.As(DType::kF64), reference), std::max(relative * MaxAbs(reference), floor))
        << name;
  }

 private:
  Graph graph_;
  std::map<std::string, GoldenTensor> tensors_;
  int64_t replicas_, microbatches_;
  RegionGraph regions_;
};

void ExpectLossAndGradients(Golden& golden, DType dtype, double relative, double floor) {
  ReferenceResult result = golden.Step(golden.Parameters(dtype));
  EXPECT_EQ(result.count, 22);
  EXPECT_NEAR(result.loss, golden.At("loss").values[0], relative * golden.At("loss").values[0]);
  for (size_t p = 0; p < golden.graph().parameters.size(); ++p) {
    golden.Expect(result.gradients[p], "grad." + golden.graph().parameters[p].name, relative, floor);
  }
}

UpdateRule Rule(const std::string& recipe, const Parameter& parameter) {
  UpdateRule rule;
  if (recipe.rfind("sgd", 0) == 0) {
    rule.kind = UpdateRule::Kind::kSgd;
    rule.momentum = recipe == "sgd" ? 0 : 0.9;
    rule.nesterov = recipe == "sgd_nesterov";
    rule.weight_decay = recipe == "sgd_momentum" ? 0.01 : 0;
    return rule;
  }
  rule.beta2 = 0.95;
  rule.eps = 1e-3;
  rule.weight_decay = recipe == "adamw_groups" && parameter.type.dims.size() < 2 ? 0 : 0.1;
  return rule;
}

void ExpectRecipe(Golden& golden, const std::string& recipe, double clip, DType dtype, double relative,
                  double floor) {
  std::vector<HostTensor> parameters = golden.Parameters(dtype);
  std::vector<UpdateState> states;
  for (int64_t step = 0; step < 3; ++step) {
    ReferenceResult result = golden.Step(parameters);
    auto s = static_cast<size_t>(step);
    EXPECT_NEAR(result.loss, golden.At(recipe + ".losses").values[s], relative * 10)
        << recipe << " step " << step;
    double norm = golden.At(recipe + ".norms").values[s];
    EXPECT_NEAR(GlobalNorm(result.gradients), norm, relative * norm) << recipe << " step " << step;
    std::vector<UpdateRule> rules;
    for (const Parameter& parameter : golden.graph().parameters) {
      rules.push_back(Rule(recipe, parameter));
      rules.back().lr = golden.At(recipe + ".lr").values[s];
    }
    ReferenceUpdate(&parameters, &result.gradients, &states, rules, clip, step);
  }
  for (size_t p = 0; p < parameters.size(); ++p) {
    golden.Expect(parameters[p], recipe + "." + golden.graph().parameters[p].name, relative, floor);
  }
}

constexpr double kRelative = 1e-5, kFloor = 1e-7;

TEST(PyTorch, Gpt2LossAndGradients) {
  Golden golden(Gpt2(), "gpt2.safetensors");
  ExpectLossAndGradients(golden, DType::kF64, 1e-12, 1e-15);
  ExpectLossAndGradients(golden, DType::kF32, kRelative, kFloor);
}

TEST(PyTorch, LlamaLossAndGradients) {
  Golden golden(Llama(), "llama.safetensors");
  ExpectLossAndGradients(golden, DType::kF64, 1e-12, 1e-15);
  ExpectLossAndGradients(golden, DType::kF32, kRelative, kFloor);
}

TEST(PyTorch, SlicesOfTheBatchGiveTheSame) {
  Golden gpt(Gpt2(), "gpt2.safetensors", 2, 2);
  ExpectLossAndGradients(gpt, DType::kF64, 1e-12, 1e-15);
  Golden llama(Llama(), "llama.safetensors", 1, 4);
  ExpectLossAndGradients(llama, DType::kF32, kRelative, kFloor);
}

TEST(PyTorch, ParametersAfterThreeSteps) {
  Golden gpt(Gpt2(), "gpt2.safetensors");
  for (const auto& [recipe, clip] : std::map<std::string, double>{{"adamw", 0},
                                                                  {"adamw_groups", 0},
                                                                  {"adamw_clip_warmup", 0.5},
                                                                  {"adamw_cosine", 0},
                                                                  {"sgd", 0},
                                                                  {"sgd_momentum", 0},
                                                                  {"sgd_nesterov", 0.5}}) {
    ExpectRecipe(gpt, recipe, clip, DType::kF64, 1e-12, 1e-14);
    ExpectRecipe(gpt, recipe, clip, DType::kF32, kRelative, kFloor);
  }
  Golden llama(Llama(), "llama.safetensors");
  ExpectRecipe(llama, "adamw", 0, DType::kF64, 1e-12, 1e-14);
}

}  // namespace
}  // namespace piper::ir
