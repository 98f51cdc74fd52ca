// BuildRegions: where graphs are cut, which cotangents, gradients and saved values the bodies have, and that
// no cut changes what is computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ir/model/interpret.h"
#include "tests/model_test_support.h"

namespace piper::ir {
namespace {

const Dim kBatch{"batch", 4}, kSeq{"seq", 5}, kEmbed{"embed", 8}, kHeads{"heads", 2}, kHeadDim{"head_dim", 4};
const Dim kVocab{"vocab", 11}, kMlp{"mlp", 16};

const Region& Find(const RegionGraph& regions, const std::string& name) {
  for (const Region& region : regions.regions) {
    if (region.name == name) return region;
  }
  ADD_FAILURE() << "no region " << name;
  return regions.regions.front();
}

std::vector<const Formal*> Formals(const Body& body, FormalKind kind) {
  std::vector<const Formal*> found;
  for (const Formal& formal : body.formals) {
    if (formal.kind == kind) found.push_back(&formal);
  }
  return found;
}

// A GPT with tied embeddings; tags as std.gpt places them, or none.
struct GptOptions {
  int64_t layers = 2;
  bool tags = true;
  bool inner_tags = true;
  double dropout = 0;
};
Graph Gpt(const GptOptions& options) {
  TestModel m;
  ValueId tokens = m.Input("tokens", {kBatch, kSeq}, DType::kI32),
          targets = m.Input("targets", {kBatch, kSeq}, DType::kI32);
  ValueId wte = m.Param("wte", {kVocab, kEmbed}), wpe = m.Param("wpe", {kSeq, kEmbed});
  auto tag = [&](TagPath path) {
    if (options.tags) m.Tag(path);
  };
  tag({{"embed", 0}});
  ValueId x = m.Op("add", {m.Op("embedding", {wte, tokens}), wpe});
  if (options.dropout > 0) x = m.Op("dropout", {x}, {{"p", options.dropout}});
  for (int64_t i = 0; i < options.layers; ++i) {
    std::string path = "blocks." + std::to_string(i);
    m.Path(path);
    TagPath layer = {{"layer", i}}, attn = layer, mlp = layer;
    if (options.inner_tags) {
      attn.push_back({"attn", 0});
      mlp.push_back({"mlp", 0});
    }
    tag(attn);
    ValueId h =
        m.Op("layer_norm", {x, m.Param(path + ".ln1.g", {kEmbed}), m.Param(path + ".ln1.b", {kEmbed})});
    std::vector<ValueId> qkv = m.All(
        "unstack", {m.Op("matmul", {h, m.Param(path + ".wqkv", {kEmbed, {"qkv", 3}, kHeads, kHeadDim})})},
        {{"dim", std::string("qkv")}});
    ValueId o = m.Op("matmul", {m.Op("attention", qkv), m.Param(path + ".wo", {kHeads, kHeadDim, kEmbed})});
    if (options.dropout > 0) o = m.Op("dropout", {o}, {{"p", options.dropout}});
    tag(layer);
    x = m.Op("add", {x, o});
    tag(mlp);
    h = m.Op("layer_norm", {x, m.Param(path + ".ln2.g", {kEmbed}), m.Param(path + ".ln2.b", {kEmbed})});
    h = m.Op("gelu", {m.Op("add", {m.Op("matmul", {h, m.Param(path + ".w1", {kEmbed, kMlp})}),
                                   m.Param(path + ".b1", {kMlp})})});
    h = m.Op("add",
             {m.Op("matmul", {h, m.Param(path + ".w2", {kMlp, kEmbed})}), m.Param(path + ".b2", {kEmbed})});
    tag(layer);
    x = m.Op("add", {x, h});
  }
  m.Path("head");
  tag({{"head", 0}});
  ValueId h = m.Op("layer_norm", {x, m.Param("lnf.g", {kEmbed}), m.Param("lnf.b", {kEmbed})});
  ValueId logits = m.Op("matmul", {h, m.Op("transpose", {wte})});
  m.Loss(m.Op("cross_entropy", {logits, targets}));
  return m.graph();
}

BatchProvider GptBatch(const Graph& graph) {
  return RandomBatch(graph, {{"tokens", {0, kVocab.size}}, {"targets", {-2, kVocab.size}}});
}

ReferenceResult RunStep(const Graph& graph, DType dtype = DType::kF64, int64_t replicas = 1,
                        int64_t microbatches = 1) {
  ReferenceOptions options;
  options.dtype = dtype;
  options.replicas = replicas;
  options.microbatches = microbatches;
  options.seed = 9;
  std::vector<HostTensor> parameters = RandomParameters(graph, 2, 0.5);
  for (HostTensor& p : parameters) p = p.As(dtype);
  return RunReferenceStep(BuildRegions(graph), options, parameters, GptBatch(graph));
}

TEST(Regions, RunsOfOneTagSet) {
  RegionGraph regions = BuildRegions(Gpt({}));
  std::vector<std::string> names;
  for (const Region& region : regions.regions) names.push_back(region.name);
  EXPECT_EQ(names, (std::vector<std::string>{"embed", "layer0.attn", "layer0", "layer0.mlp", "layer0_2",
                                             "layer1.attn", "layer1", "layer1.mlp", "layer1_2", "head"}));
  OpId next = 0;
  for (const Region& region : regions.regions) {
    EXPECT_EQ(region.first, next);
    next = region.last;
  }
  EXPECT_EQ(next, regions.graph.operations.size());
}

TEST(Regions, GptGradientsMatchCentralDifferences) {
  GptOptions options;
  options.dropout = 0.2;
  Graph graph = Gpt(options);
  CheckGradients(graph, RandomParameters(graph, 6, 0.5), GptBatch(graph), 1e-6, 6);
}

TEST(Regions, FirstRegionHasOnlyWeightGradients) {
  RegionGraph regions = BuildRegions(Gpt({}));
  const Region& embed = Find(regions, "embed");
  EXPECT_TRUE(embed.backward_input.empty());
  EXPECT_EQ(Formals(embed.backward_weight, FormalKind::kGradient).size(), 2u);
  EXPECT_EQ(embed.model_inputs, (std::vector<InputId>{0}));
}

TEST(Regions, TiedWeightHasAGradientInEachUsingRegion) {
  RegionGraph regions = BuildRegions(Gpt({}));
  int with_wte = 0;
  for (const Region& region : regions.regions) {
    for (const Formal* formal : Formals(region.backward_weight, FormalKind::kGradient)) {
      if (formal->parameter == 0) ++with_wte;
    }
  }
  EXPECT_EQ(with_wte, 2);
}

TEST(Regions, EqualLayersHaveEqualKeys) {
  GptOptions options;
  options.dropout = 0.1;
  options.layers = 3;  // the last add has one consumer, the others have two
  RegionGraph regions = BuildRegions(Gpt(options));
  for (const char* part : {".attn", "", ".mlp", "_2"}) {
    const Region& a = Find(regions, std::string("layer0") + part);
    const Region& b = Find(regions, std::string("layer1") + part);
    EXPECT_EQ(BodyKey(a.forward), BodyKey(b.forward)) << part;
    EXPECT_EQ(BodyKey(a.backward_input), BodyKey(b.backward_input)) << part;
    EXPECT_EQ(BodyKey(a.backward_weight), BodyKey(b.backward_weight)) << part;
  }
  EXPECT_NE(BodyKey(Find(regions, "layer0.attn").forward), BodyKey(Find(regions, "layer0.mlp").forward));
}

TEST(Regions, ResidualAddForwardsItsCotangent) {
  RegionGraph regions = BuildRegions(Gpt({}));
  const Region& add = Find(regions, "layer0");
  // Its sum of two partial cotangents is one buffer; both operands' partials are those bytes.
  std::vector<const Formal*> sent = Formals(add.backward_input, FormalKind::kInputCotangent);
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0]->alias_of, kNone);
  EXPECT_NE(sent[1]->alias_of, kNone);
  EXPECT_EQ(add.backward_input.calls.size(), 1u);
  EXPECT_TRUE(add.backward_weight.empty());
  // The last one has one consumer: nothing is computed at all.
  const Region& last = Find(regions, "layer1_2");
  EXPECT_TRUE(last.backward_input.calls.empty());
  for (const Formal* formal : Formals(last.backward_input, FormalKind::kInputCotangent)) {
    EXPECT_EQ(last.backward_input.formals[formal->alias_of].kind, FormalKind::kCotangent);
  }
}

TEST(Regions, SavesExactlyWhatTheBackwardPassesRead) {
  RegionGraph regions = BuildRegions(Gpt({}));
  for (const Region& region : regions.regions) {
    std::set<uint32_t> written, read;
    for (const Body* body : {&region.forward, &region.backward_input, &region.backward_weight}) {
      std::set<uint32_t> used;
      for (const KernelCall& call : body->calls) {
        for (OperandRef operand : call.operands) {
          if (operand.kind == OperandRef::Kind::kFormal) used.insert(operand.index);
        }
      }
      for (uint32_t i = 0; i < body->formals.size(); ++i) {
        const Formal& formal = body->formals[i];
        // Every formal is mentioned by a call, aliases another, or is aliased.
        bool aliased = std::any_of(body->formals.begin(), body->formals.end(),
                                   [&](const Formal& f) { return f.alias_of == i; });
        EXPECT_TRUE(used.count(i) > 0 || formal.alias_of != kNone || aliased)
            << region.name << " " << formal.name;
        EXPECT_TRUE(formal.alias_of == kNone || used.count(i) == 0) << region.name << " " << formal.name;
        if (formal.kind != FormalKind::kSaved) continue;
        (formal.written ? written : read).insert(formal.saved);
        if (formal.value == kNone) continue;
        for (const RegionOutput& output : region.outputs)
          EXPECT_NE(output.value, formal.value) << formal.name;
      }
    }
    EXPECT_EQ(written, read) << region.name;
  }
  // GELU's derivative reads its input, the products' their left operands, the norm's its statistics; nothing
  // reads what the products yield, nor the region's own input again under another name.
  const Region& mlp = Find(regions, "layer0.mlp");
  std::vector<std::string> saved;
  for (const Formal* formal : Formals(mlp.forward, FormalKind::kSaved)) saved.push_back(formal->name);
  EXPECT_EQ(saved,
            (std::vector<std::string>{"layer_norm", "layer_norm_mean", "layer_norm_rstd", "add", "gelu"}));
}

TEST(Regions, CutsChangeNoGradient) {
  GptOptions fine, coarse, none;
  coarse.inner_tags = false;
  none.tags = false;
  ReferenceResult a = RunStep(Gpt(fine)), b = RunStep(Gpt(coarse)), c = RunStep(Gpt(none));
  EXPECT_NEAR(a.loss, b.loss, 1e-14);
  EXPECT_NEAR(a.loss, c.loss, 1e-14);
  for (size_t p = 0; p < a.gradients.size(); ++p) {
    EXPECT_LE(MaxDifference(a.gradients[p], b.gradients[p]), 1e-14);
    EXPECT_LE(MaxDifference(a.gradients[p], c.gradients[p]), 1e-14);
  }
}

TEST(Regions, SameTagsSameBits) {
  Graph graph = Gpt({});
  RegionGraph a = BuildRegions(graph), b = BuildRegions(graph);
  for (size_t r = 0; r < a.regions.size(); ++r) {
    EXPECT_EQ(BodyText(a.regions[r].forward), BodyText(b.regions[r].forward));
    EXPECT_EQ(BodyText(a.regions[r].backward_input), BodyText(b.regions[r].backward_input));
    EXPECT_EQ(BodyText(a.regions[r].backward_weight), BodyText(b.regions[r].backward_weight));
  }
  ReferenceResult x = RunStep(graph, DType::kF32), y = RunStep(graph, DType::kF32);
  EXPECT_EQ(x.loss, y.loss);
  for (size_t p = 0; p < x.gradients.size(); ++p) EXPECT_EQ(x.gradients[p].f32, y.gradients[p].f32);
}

TEST(Reference, SlicesAddUpToTheWholeBatch) {
  GptOptions options;
  options.dropout = 0.3;  // masks are keyed by global sample, so slices draw what the whole draws
  Graph whole = Gpt(options);
  ReferenceResult one = RunStep(whole);
  Graph slice = whole.WithDim("batch", 1);
  EXPECT_EQ(slice.Samples(), 1);
  ReferenceResult four = RunStep(slice, DType::kF64, 2, 2);
  EXPECT_EQ(one.count, four.count);
  EXPECT_NEAR(one.loss, four.loss, 1e-13);
  for (size_t p = 0; p < one.gradients.size(); ++p) {
    EXPECT_LE(MaxDifference(one.gradients[p], four.gradients[p]), 1e-13);
  }
}

TEST(Reference, FoldsAreTheStatedExpression) {
  Graph slice = Gpt({}).WithDim("batch", 1);
  RegionGraph regions = BuildRegions(slice);
  std::vector<HostTensor> parameters = RandomParameters(slice, 2, 0.5);
  for (HostTensor& p : parameters) p = p.As(DType::kF32);
  BatchProvider batch = GptBatch(slice);
  ReferenceOptions options;
  options.replicas = 2;
  options.microbatches = 2;
  ReferenceResult canonical = RunReferenceStep(regions, options, parameters, batch);
  ReferenceOptions explicit_order = options;
  FoldOrder order = {{{0, 0}, {0, 1}}, {{1, 0}, {1, 1}}};
  explicit_order.gradient_orders.assign(regions.regions.size(), order);
  explicit_order.loss_orders = {order};
  ReferenceResult same = RunReferenceStep(regions, explicit_order, parameters, batch);
  EXPECT_EQ(canonical.loss, same.loss);
  for (size_t p = 0; p < parameters.size(); ++p) EXPECT_EQ(canonical.gradients[p].f32, same.gradients[p].f32);
  // The inner folds swapped, once by the option, once spelled out.
  options.reduce_per_microbatch = true;
  ReferenceResult swapped = RunReferenceStep(regions, options, parameters, batch);
  explicit_order.gradient_orders.assign(regions.regions.size(), {{{0, 0}, {1, 0}}, {{0, 1}, {1, 1}}});
  same = RunReferenceStep(regions, explicit_order, parameters, batch);
  bool differs = false;
  for (size_t p = 0; p < parameters.size(); ++p) {
    EXPECT_EQ(swapped.gradients[p].f32, same.gradients[p].f32);
    differs = differs || swapped.gradients[p].f32 != canonical.gradients[p].f32;
    EXPECT_LE(MaxDifference(swapped.gradients[p], canonical.gradients[p]), 1e-6);
  }
  EXPECT_TRUE(differs);
}

TEST(Regions, FrozenParametersPruneThePassesBelow) {
  Graph graph = Gpt({});
  for (Parameter& parameter : graph.parameters) {
    bool upper = parameter.name.rfind("blocks.1", 0) == 0 || parameter.name.rfind("lnf", 0) == 0;
    parameter.frozen = !upper;
  }
  RegionGraph regions = BuildRegions(graph);
  for (const Region& region : regions.regions) {
    bool lower = region.name == "embed" || region.name.rfind("layer0", 0) == 0;
    EXPECT_EQ(region.backward_weight.empty(), lower || region.name == "layer1" || region.name == "layer1_2")
        << region.name;
    // The lowest trainable region sends nothing down.
    EXPECT_EQ(region.backward_input.empty(), lower || region.name == "layer1.attn") << region.name;
    if (lower) {
      EXPECT_TRUE(Formals(region.forward, FormalKind::kSaved).empty()) << region.name;
    }
  }
  // What remains agrees with the full gradient.
  ReferenceResult full = RunStep(Gpt({})), part = RunStep(graph);
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    if (graph.parameters[p].frozen) {
      EXPECT_EQ(part.gradients[p].size(), 0);
    } else {
      EXPECT_LE(MaxDifference(full.gradients[p], part.gradients[p]), 1e-15) << graph.parameters[p].name;
    }
  }
}

TEST(Regions, SkipsBranchesAndTwoLosses) {
  TestModel m;
  m.Input("x", {kBatch, kEmbed});
  ValueId x = m.graph().InputValue(0), target = m.Input("y", {kBatch, kEmbed});
  Dim out{"out", 8};
  auto square = [&](const std::string& name) { return m.Param(name, {kEmbed, out}); };
  auto layer = [&](ValueId in, const std::string& name) {
    return m.Op("rename", {m.Op("tanh", {m.Op("matmul", {in, square(name)})})},
                {{"from", std::string("out")}, {"to", std::string("embed")}});
  };
  m.Tag({{"a", 0}});
  ValueId a = layer(x, "wa");
  m.Tag({{"b", 0}});
  ValueId b = layer(a, "wb");
  m.Tag({{"c", 0}});
  ValueId c = layer(b, "wc");
  ValueId unused = m.Op("exp", {c});
  (void)unused;
  m.Tag({{"d", 0}});
  // `a` skips two regions; it is also used twice here.
  ValueId d = m.Op("add", {m.Op("mul", {a, c}), m.Op("mul", {a, a})});
  m.Tag({{"loss1", 0}});
  ValueId first = m.Op("mse", {d, target});
  m.Tag({{"loss2", 0}});
  ValueId second = m.Op("mse", {b, target});
  m.Loss(m.Op("add", {first, m.Op("affine", {second}, {{"scale", 0.1}})}), "main");
  m.Loss(second, "auxiliary");
  const Graph& graph = m.graph();
  CheckGradients(graph, RandomParameters(graph, 1), RandomBatch(graph, {}));

  RegionGraph regions = BuildRegions(graph);
  const Region& region_a = Find(regions, "a");
  ASSERT_EQ(region_a.outputs.size(), 1u);
  RegionId b_id = Find(regions, "b").id, d_id = Find(regions, "d").id;
  EXPECT_EQ(region_a.outputs[0].consumers, (std::vector<RegionId>{b_id, d_id}));
  EXPECT_EQ(region_a.outputs[0].differentiable_consumers, (std::vector<RegionId>{b_id, d_id}));
  // Two partials arrive, named after where they come from.
  std::vector<const Formal*> partials = Formals(region_a.backward_weight, FormalKind::kCotangent);
  ASSERT_EQ(partials.size(), 2u);
  EXPECT_EQ(partials[0]->consumer, b_id);
  EXPECT_EQ(partials[0]->name, "d_out_from_b");
  EXPECT_EQ(partials[1]->consumer, d_id);
  // The unused exp is not computed.
  for (const KernelCall& call : Find(regions, "c").forward.calls) EXPECT_NE(call.kernel, "exp_forward");
  // The second loss is folded and read by nobody else than the first.
  EXPECT_EQ(Find(regions, "loss2").losses, (std::vector<uint32_t>{0, 1}));

  ReferenceOptions options;
  options.dtype = DType::kF64;
  ReferenceResult result =
      RunReferenceStep(regions, options, RandomParameters(graph, 1), RandomBatch(graph, {}));
  EXPECT_DOUBLE_EQ(result.loss, result.losses[0] + result.losses[1]);
  EXPECT_EQ(result.count, kBatch.size);
}

TEST(Regions, ParameterUsedTwiceInOneRegionHasOneGradient) {
  TestModel m;
  ValueId x = m.Input("x", {kBatch, kEmbed});
  ValueId w = m.Param("w", {kEmbed});
  m.Tag({{"only", 0}});
  ValueId y = m.Op("mul", {m.Op("mul", {x, w}), w});
  m.Loss(m.Op("mean_loss", {m.Op("square", {y})}));
  RegionGraph regions = BuildRegions(m.graph());
  ASSERT_EQ(regions.regions.size(), 1u);
  EXPECT_EQ(Formals(regions.regions[0].backward_weight, FormalKind::kGradient).size(), 1u);
  CheckGradients(m.graph(), RandomParameters(m.graph(), 1), RandomBatch(m.graph(), {}));
}

TEST(Regions, StopGradientSendsNothingBack) {
  TestModel m;
  ValueId x = m.Input("x", {kBatch, kEmbed});
  m.Tag({{"a", 0}});
  ValueId a = m.Op("mul", {x, m.Param("wa", {kEmbed})});
  m.Tag({{"b", 0}});
  ValueId b = m.Op("mul", {m.Op("stop_gradient", {a}), m.Param("wb", {kEmbed})});
  m.Loss(m.Op("mean_loss", {b}));
  RegionGraph regions = BuildRegions(m.graph());
  EXPECT_TRUE(Find(regions, "a").backward_weight.empty());
  EXPECT_TRUE(Find(regions, "b").backward_input.empty());
  EXPECT_EQ(Find(regions, "a").outputs[0].consumers.size(), 1u);
  EXPECT_TRUE(Find(regions, "a").outputs[0].differentiable_consumers.empty());
}

TEST(Regions, AliasesForwardBuffers) {
  TestModel m;
  ValueId x = m.Input("x", {kBatch, kEmbed});
  m.Tag({{"a", 0}});
  ValueId a = m.Op("mul", {x, m.Param("wa", {kEmbed})});
  m.Tag({{"view", 0}});
  ValueId v = m.Op("reshape", {a}, {{"dims", std::vector<std::string>{"batch", "half=4", "two"}}});
  m.Tag({{"b", 0}});
  m.Loss(m.Op("mean_loss", {m.Op("mul", {m.Op("square", {v}), m.Param("wb", {{"half", 4}, {"two", 2}})})}));
  CheckGradients(m.graph(), RandomParameters(m.graph(), 1), RandomBatch(m.graph(), {}));
  RegionGraph regions = BuildRegions(m.graph());
  const Region& view = Find(regions, "view");
  EXPECT_TRUE(view.forward.calls.empty());
  EXPECT_EQ(view.forward.scratch_bytes, 0);
  ASSERT_EQ(Formals(view.forward, FormalKind::kOutput).size(), 1u);
  EXPECT_EQ(view.forward.formals[Formals(view.forward, FormalKind::kOutput)[0]->alias_of].kind,
            FormalKind::kValue);
  EXPECT_TRUE(view.backward_input.calls.empty());
}

TEST(Regions, SharedCotangentsGetBuffersOfTheirOwnAsGradients) {
  TestModel m;
  ValueId x = m.Input("x", {kBatch, kEmbed});
  m.Tag({{"a", 0}});
  ValueId p = m.Param("p", {kEmbed}), q = m.Param("q", {kEmbed});
  ValueId sum = m.Op("add", {p, q});  // both gradients are the cotangent itself
  m.Tag({{"b", 0}});
  m.Loss(m.Op("mean_loss", {m.Op("square", {m.Op("mul", {x, sum})})}));
  RegionGraph regions = BuildRegions(m.graph());
  for (const Formal* formal : Formals(Find(regions, "a").backward_weight, FormalKind::kGradient)) {
    EXPECT_EQ(formal->alias_of, kNone);
  }
  CheckGradients(m.graph(), RandomParameters(m.graph(), 1), RandomBatch(m.graph(), {}));
}

TEST(Regions, BiasAtTheFrontReadsTheCotangentThatWasSent) {
  TestModel m;
  ValueId x = m.Input("x", {kBatch, kEmbed});
  m.Tag({{"a", 0}});
  ValueId a = m.Op("mul", {x, m.Param("w", {kEmbed})});
  m.Tag({{"b", 0}});
  ValueId b = m.Op("tanh", {m.Op("add", {a, m.Param("bias", {kEmbed})})});
  m.Tag({{"c", 0}});
  m.Loss(m.Op("mean_loss", {m.Op("square", {b})}));
  CheckGradients(m.graph(), RandomParameters(m.graph(), 1), RandomBatch(m.graph(), {}));
  RegionGraph regions = BuildRegions(m.graph());
  const Region& region = Find(regions, "b");
  ASSERT_EQ(Formals(region.backward_weight, FormalKind::kInputCotangent).size(), 1u);
  EXPECT_FALSE(Formals(region.backward_weight, FormalKind::kInputCotangent)[0]->written);
  // tanh's output is the region's output: read again, not saved.
  EXPECT_TRUE(Formals(region.forward, FormalKind::kSaved).empty());
  EXPECT_EQ(Formals(region.backward_input, FormalKind::kOutput).size(), 1u);
}

TEST(Regions, ScratchHoldsLocalsThatLiveAtOnce) {
  RegionGraph regions = BuildRegions(Gpt({}));
  for (const Region& region : regions.regions) {
    for (const Body* body : {&region.forward, &region.backward_input, &region.backward_weight}) {
      std::vector<std::pair<size_t, size_t>> lives(body->locals.size(), {SIZE_MAX, 0});
      int64_t total = 0;
      for (size_t c = 0; c < body->calls.size(); ++c) {
        for (OperandRef operand : body->calls[c].operands) {
          if (operand.kind != OperandRef::Kind::kLocal) continue;
          auto& [first, last] = lives[operand.index];
          first = std::min(first, c);
          last = c;
        }
      }
      for (size_t i = 0; i < lives.size(); ++i) {
        const Local& a = body->locals[i];
        total += (a.type.bytes() + 63) / 64 * 64;
        EXPECT_EQ(a.offset % 64, 0);
        EXPECT_LE(a.offset + a.type.bytes(), body->scratch_bytes);
        for (size_t j = 0; j < i; ++j) {
          const Local& b = body->locals[j];
          bool together = lives[i].first <= lives[j].second && lives[j].first <= lives[i].second;
          bool overlap = a.offset < b.offset + b.type.bytes() && b.offset < a.offset + a.type.bytes();
          EXPECT_FALSE(together && overlap) << region.name << " " << a.name << " " << b.name;
        }
      }
      EXPECT_LE(body->scratch_bytes, total);
      if (!body->calls.empty()) {
        EXPECT_GT(body->bytes_moved, 0);
      }
    }
  }
}

TEST(Regions, EvaluationWithoutDropoutAndWithoutLosses) {
  GptOptions options;
  options.dropout = 0.5;
  Graph with = Gpt(options), without = WithoutDropout(with);
  ReferenceResult plain = RunStep(Gpt({}));
  EXPECT_NE(RunStep(with).loss, plain.loss);
  EXPECT_EQ(RunStep(without).loss, plain.loss);
  // A graph for inference: the logits are its output.
  Graph infer = Gpt({});
  ValueId logits = infer.operations[infer.values[infer.losses[0].value].index].operands[0];
  infer.losses.clear();
  infer.outputs = {logits};
  RegionGraph regions = BuildRegions(infer);
  const Region& head = regions.regions.back();
  ASSERT_EQ(head.outputs.size(), 1u);
  EXPECT_EQ(head.outputs[0].value, logits);
  EXPECT_TRUE(head.backward_weight.empty());
}

TEST(Regions, DropoutRateAndIndependence) {
  TestModel m;
  Dim wide{"wide", 20000};
  ValueId x = m.Input("x", {{"batch", 2}, wide});
  (void)x;
  ValueId w = m.Param("w", {{"batch", 2}, wide});
  m.Path("a");
  ValueId a = m.Op("dropout", {w}, {{"p", 0.25}});
  m.Path("b");
  ValueId b = m.Op("dropout", {w}, {{"p", 0.25}});
  m.Loss(m.Op("add", {m.Op("mean_loss", {a}), m.Op("affine", {m.Op("mean_loss", {b})}, {{"scale", 4.0}})}));
  std::vector<HostTensor> ones = {HostTensor::Zeros(DType::kF64, 2 * wide.size)};
  std::fill(ones[0].f64.begin(), ones[0].f64.end(), 1.0);
  ReferenceOptions options;
  options.dtype = DType::kF64;
  RegionGraph regions = BuildRegions(m.graph());
  BatchProvider batch = RandomBatch(m.graph(), {});
  ReferenceResult result = RunReferenceStep(regions, options, ones, batch);
  // The gradient shows both masks: 0, 1, 4 or 5 times a constant.
  double unit = 1 / 0.75 / (2.0 * static_cast<double>(wide.size));
  std::map<int64_t, double> share;
  for (double g : result.gradients[0].f64)
    share[std::llround(g / unit)] += 1 / (2.0 * static_cast<double>(wide.size));
  EXPECT_EQ(share.size(), 4u);
  EXPECT_NEAR(share[0], 0.25 * 0.25, 0.01);
  EXPECT_NEAR(share[1], 0.75 * 0.25, 0.01);
  EXPECT_NEAR(share[4], 0.25 * 0.75, 0.01);
  EXPECT_NEAR(share[5], 0.75 * 0.75, 0.01);
  options.step = 1;
  EXPECT_NE(RunReferenceStep(regions, options, ones, batch).gradients[0].f64, result.gradients[0].f64);
}

}  // namespace
}  // namespace piper::ir
