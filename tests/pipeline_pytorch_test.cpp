// PyTorch's numbers in f64 again (tests/golden/, made by pytorch_goldens.py), now from `.piper` text through
// the whole pipeline: a GPT-2 and a Llama block stack under pipelines with data parallelism, run in-process.
// Loss, every gradient, and the parameters after three steps: per tensor max|difference| <= 1e-5
// max|reference|, with a floor of 1e-7.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <sstream>

#include "runtime/interpreter.h"
#include "tests/golden_file.h"
#include "tests/pipeline_support.h"

namespace piper::testing {
namespace {

constexpr double kRelative = 1e-5, kFloor = 1e-7;

const char kModels[] = R"(import std.schedules
import std.topologies
module LayerNorm(embed: dim) {
  param gamma: [embed] = ones
  param beta:  [embed] = zeros
  forward(x: [batch, seq, embed]) -> [batch, seq, embed] { layer_norm(x, gamma, beta) }
}
module Gpt2Block(embed: dim, heads: dim, head_dim: dim, hidden: dim) {
  ln1 = LayerNorm(embed)
  param wqkv: [embed, qkv = 3, heads, head_dim] = zeros
  param bqkv: [qkv, heads, head_dim] = zeros
  param wo: [heads, head_dim, embed] = zeros
  param bo: [embed] = zeros
  ln2 = LayerNorm(embed)
  param w1: [embed, hidden] = zeros
  param b1: [hidden] = zeros
  param w2: [hidden, embed] = zeros
  param b2: [embed] = zeros
  fn attend(x) {
    let (q, k, v) = unstack(ln1(x) @ wqkv + bqkv, qkv)
    return attention(q, k, v) @ wo + bo
  }
  fn feed(x) { gelu(ln2(x) @ w1 + b1) @ w2 + b2 }
}
module Gpt2(layers: int, embed: dim, heads: dim, head_dim: dim, hidden: dim, vocab: dim, seq: dim) {
  param wte: [vocab, embed] = zeros
  param wpe: [seq, embed] = zeros
  blocks = [Gpt2Block(embed, heads, head_dim, hidden) for i in 0..layers]
  lnf = LayerNorm(embed)
  forward(tokens: [batch, seq] i32, targets: [batch, seq] i32) -> loss {
    var x = tag embed { embedding(wte, tokens) + wpe }
    for b in blocks { x = tag layer { let y = x + tag attn { b.attend(x) }; y + tag mlp { b.feed(y) } } }
    return tag head { cross_entropy(lnf(x) @ wte.T, targets) }
  }
}
module RMSNorm(embed: dim) {
  param gamma: [embed] = ones
  forward(x: [batch, seq, embed]) -> [batch, seq, embed] { rms_norm(x, gamma) }
}
module LlamaLayer(embed: dim, heads: dim, kv_heads: dim, head_dim: dim, hidden: dim) {
  norm1 = RMSNorm(embed)
  param wq: [embed, heads, head_dim] = zeros
  param wk: [embed, kv_heads, head_dim] = zeros
  param wv: [embed, kv_heads, head_dim] = zeros
  param wo: [heads, head_dim, embed] = zeros
  norm2 = RMSNorm(embed)
  param gate: [embed, hidden] = zeros
  param up: [embed, hidden] = zeros
  param down: [hidden, embed] = zeros
  fn attend(x) {
    let h = norm1(x)
    return attention(rope(h @ wq), rope(h @ wk), h @ wv) @ wo
  }
  fn feed(x) {
    let h = norm2(x)
    return swiglu(h @ gate, h @ up) @ down
  }
}
module Llama(count: int, embed: dim, heads: dim, kv_heads: dim, head_dim: dim, hidden: dim, vocab: dim, seq: dim) {
  param table: [vocab, embed] = zeros
  layers = [LlamaLayer(embed, heads, kv_heads, head_dim, hidden) for i in 0..count]
  norm = RMSNorm(embed)
  param head: [embed, vocab] = zeros
  forward(tokens: [batch, seq] i32, targets: [batch, seq] i32) -> loss {
    var x = tag embed { embedding(table, tokens) }
    for l in layers { x = tag layer { let y = x + tag attn { l.attend(x) }; y + tag mlp { l.feed(y) } } }
    return tag head { cross_entropy(norm(x) @ head, targets) }
  }
}
model gpt2 = Gpt2(layers = 2, embed = 8, heads = 4, head_dim = 4, hidden = 20, vocab = 13, seq = 6)
model llama = Llama(count = 2, embed = 8, heads = 4, kv_heads = 2, head_dim = 4, hidden = 20, vocab = 13, seq = 6)
)";

struct Layout {
  int64_t p, dp, m;
};

std::string Program(const std::string& model, const Layout& layout, const std::string& train) {
  std::ostringstream out;
  out << kModels << "strategy study {\n  mesh (pp = " << layout.p << ", dp = " << layout.dp << ")\n";
  if (layout.p > 1) {
    out << "  cut embed, layer, head into " << layout.p << " as stage\n  for s in 0.." << layout.p
        << " {\n    place [stage = s] on pp[s]\n    order on pp[s] { schedules.one_f_one_b(s, " << layout.p
        << ", " << layout.m << ") }\n  }\n";
  }
  if (layout.dp > 1) out << "  shard batch over dp\n  zero 0 [*] as dp { bucket 1 KiB }\n";
  out << "  split batch into " << layout.m << " as mb\n}\ntrain {\n  model " << model
      << "\n  data random(13)\n  global_batch 4\n  steps 3\n  on topologies.local(ranks = "
      << layout.p * layout.dp << ")\n  using study\n"
      << train << "\n}\n";
  return out.str();
}

// The golden batch, the same every step.
class GoldenBatch : public runtime::BatchSource {
 public:
  GoldenBatch(const runtime::Job& job, const std::map<std::string, ir::GoldenTensor>& tensors)
      : job_(job), tensors_(tensors) {}
  runtime::Status Fill(uint32_t field, uint64_t, int64_t first, int64_t samples, void* out) override {
    const runtime::InputField& input = job_.inputs[field];
    const ir::GoldenTensor& tensor = tensors_.at(std::string("batch.") + input.name);
    for (int64_t i = 0; i < samples * input.elements_per_sample; ++i) {
      static_cast<int32_t*>(out)[i] =
          static_cast<int32_t>(tensor.values[static_cast<size_t>(first * input.elements_per_sample + i)]);
    }
    return {};
  }

 private:
  const runtime::Job& job_;
  const std::map<std::string, ir::GoldenTensor>& tensors_;
};

class Golden {
 public:
  explicit Golden(const std::string& model)
      : model_(model), tensors_(ir::ReadGolden("tests/golden/" + model + ".safetensors")) {}

  const ir::GoldenTensor& At(const std::string& name) {
    EXPECT_TRUE(tensors_.contains(name)) << name;
    return tensors_[name];
  }
  // `embed` is a dimension of the program's module and so no parameter's name there.
  static std::string Key(const std::string& parameter) { return parameter == "table" ? "embed" : parameter; }

  void Near(const float* actual, int64_t elements, const std::string& key) {
    const std::vector<double>& expected = At(key).values;
    ASSERT_EQ(static_cast<size_t>(elements), expected.size()) << key;
    double largest = 0, difference = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::fabs(expected[i]));
      difference = std::max(difference, std::fabs(actual[i] - expected[i]));
    }
    EXPECT_LE(difference, std::max(kRelative * largest, kFloor)) << key;
  }

  void Check(const Layout& layout, const std::string& recipe, const std::string& train) {
    SCOPED_TRACE(model_ + " " + recipe + " pp=" + std::to_string(layout.p) +
                 " dp=" + std::to_string(layout.dp) + " m=" + std::to_string(layout.m));
    std::unique_ptr<Compiled> compiled = Compile(Program(model_, layout, train));
    ASSERT_TRUE(compiled->ok()) << compiled->Messages();
    size_t parameters = compiled->program->model.parameters.size();
    runtime::LocalOptions options;
    options.steps = 3;
    options.bodies = runtime::MakeInterpreter;
    options.source = [&](const runtime::Job& job, uint32_t) {
      return std::make_unique<GoldenBatch>(job, tensors_);
    };
    std::map<std::string, int> gradients, updated;
    runtime::LocalHooks hooks;
    hooks.initialized = [&](const runtime::RankView& view) {
      for (const runtime::Parameter& p : view.program->parameters) {
        const std::vector<double>& values = At("param." + Key(p.name)).values;
        ASSERT_EQ(values.size(), static_cast<size_t>(p.elements)) << p.name;
        auto* to = reinterpret_cast<float*>(view.value(p));
        std::transform(values.begin(), values.end(), to, [](double x) { return static_cast<float>(x); });
      }
    };
    hooks.gradients = [&](const runtime::RankView& view, uint64_t step) {
      if (step != 0) return;
      for (const runtime::Parameter& p : view.program->parameters) {
        Near(reinterpret_cast<const float*>(view.gradient(p)), p.elements, "grad." + Key(p.name));
        ++gradients[p.name];
      }
    };
    hooks.step_done = [&](const runtime::RankView& view, uint64_t step, const runtime::StepOutcome&) {
      if (step != 2) return;
      for (const runtime::Parameter& p : view.program->parameters) {
        Near(reinterpret_cast<const float*>(view.value(p)), p.elements, recipe + "." + Key(p.name));
        ++updated[p.name];
      }
    };
    runtime::Result<runtime::LocalResult> result = runtime::RunLocal(compiled->job(), options, hooks);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(gradients.size(), parameters);
    EXPECT_EQ(updated.size(), parameters);
    ASSERT_EQ(result->losses.size(), 3u);
    EXPECT_NEAR(result->losses[0], At("loss").values[0], kRelative * At("loss").values[0]);
    for (size_t step = 0; step < 3; ++step) {
      double loss = At(recipe + ".losses").values[step];
      EXPECT_NEAR(result->losses[step], loss, kRelative * loss) << step;
      if (!result->gradient_norms.empty()) {
        double norm = At(recipe + ".norms").values[step];
        EXPECT_NEAR(result->gradient_norms[step], norm, kRelative * norm) << step;
      }
    }
  }

 private:
  std::string model_;
  std::map<std::string, ir::GoldenTensor> tensors_;
};

const char kAdamW[] = "optimizer adamw(lr = 1e-2, weight_decay = 0.1, beta2 = 0.95, eps = 1e-3)";

TEST(PipelinePyTorch, Gpt2UnderEveryLayout) {
  Golden golden("gpt2");
  for (Layout layout :
       {Layout{1, 1, 1}, Layout{2, 2, 2}, Layout{2, 1, 4}, Layout{4, 2, 1}, Layout{1, 4, 1}}) {
    golden.Check(layout, "adamw", kAdamW);
  }
}

TEST(PipelinePyTorch, LlamaUnderEveryLayout) {
  Golden golden("llama");
  for (Layout layout : {Layout{2, 2, 2}, Layout{1, 1, 4}, Layout{4, 1, 2}})
    golden.Check(layout, "adamw", kAdamW);
}

// Weight-decay groups, clipping, learning-rate schedules and SGD, all from the text of a train block.
TEST(PipelinePyTorch, EveryRecipe) {
  Golden golden("gpt2");
  Layout layout{2, 2, 2};
  golden.Check(
      layout, "adamw_groups",
      "  optimizer adamw(lr = 1e-2, weight_decay = 0.1, beta2 = 0.95, eps = 1e-3, matrices_only = true)");
  golden.Check(
      layout, "adamw_clip_warmup",
      "  optimizer adamw(lr = warmup(2, 1e-2), weight_decay = 0.1, beta2 = 0.95, eps = 1e-3)\n  clip 0.5");
  golden.Check(
      layout, "adamw_cosine",
      "  optimizer adamw(lr = cosine(1e-2, total = 4, warmup = 1, floor = 1e-3), weight_decay = 0.1, "
      "beta2 = 0.95, eps = 1e-3)");
  golden.Check(layout, "sgd", "  optimizer sgd(lr = 0.1)");
  golden.Check(layout, "sgd_momentum", "  optimizer sgd(lr = 0.1, momentum = 0.9, weight_decay = 0.01)");
  golden.Check(layout, "sgd_nesterov",
               "  optimizer sgd(lr = 0.1, momentum = 0.9, nesterov = true)\n  clip 0.5");
}

}  // namespace
}  // namespace piper::testing
