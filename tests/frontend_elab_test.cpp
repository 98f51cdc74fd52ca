// The elaborator: values of the language, modules, strategies, topologies, train blocks, bounds.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "frontend/test_runner.h"
#include "tests/elab_support.h"

namespace piper::frontend {
namespace {

double Milliseconds(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// Tests in Piper itself need no plans here.
class NoPlans : public PlanService {
 public:
  std::optional<Figures> Plan(const ir::Program& program, ir::DiagnosticEngine&) override {
    return Figures{{"directives", {static_cast<double>(program.directives.size()), ir::UnitKind::kNone}}};
  }
  std::optional<bool> Learns(const ir::Program&, const ir::Program&, std::string*,
                             ir::DiagnosticEngine&) override {
    return true;
  }
};

// Every `expect` of the text holds.
void ExpectHolds(const std::string& text) {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  LoadOptions options;
  options.text = text;
  NoPlans plans;
  auto results = RunTests("test.piper", options, "", plans, sources, diag);
  EXPECT_TRUE(results) << diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
  if (!results) return;
  EXPECT_FALSE(results->empty());
  for (const TestResult& result : *results) EXPECT_TRUE(result.passed) << result.name;
  EXPECT_FALSE(diag.HasErrors()) << diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
}

template <typename T>
std::vector<const T*> Bodies(const ir::Program& program) {
  std::vector<const T*> result;
  for (const ir::Directive& directive : program.directives) {
    if (const T* body = std::get_if<T>(&directive.body)) result.push_back(body);
  }
  return result;
}

std::string StepsText(const ir::Schedule& schedule) {
  std::string text;
  for (const ir::Step& step : schedule.steps) {
    if (!text.empty()) text += " ";
    if (step.kind == ir::Step::Kind::kBarrier) text += "barrier";
    if (step.kind == ir::Step::Kind::kSelect) text += step.select.ToString();
    if (step.kind == ir::Step::Kind::kFused) {
      for (size_t i = 0; i < step.fused.size(); ++i) text += (i ? " & " : "") + step.fused[i].ToString();
    }
    if (step.kind == ir::Step::Kind::kLanes) {
      for (const auto& [stream, steps] : step.lanes)
        text += ir::NameText(stream) + ":" + StepsText({steps}) + ";";
    }
  }
  return text;
}

// ---- values

TEST(Values, Arithmetic) {
  ExpectHolds(R"(
test "ints" {
  expect 7 - 2 * 3 == 1
  expect -7 % 3 == 2 and div(-7, 3) == -3
  expect 6 / 3 == 2
  expect 3 divides 9 and not (2 divides 9)
  expect min(3, 1, 2) == 1 and max([4, 9]) == 9 and abs(-3) == 3
  expect 7.0 / 2 == 3.5 and floor(3.7) == 3 and ceil(3.2) == 4
  expect (1 + 2) * 3 == 9
}
test "quantities" {
  expect 2 GiB + 1 MiB > 2 GiB
  expect 8 GB / (4 GB/s) == 2 s
  expect 2 * 3 us == 6 us
}
)");
}

TEST(Values, Lists) {
  ExpectHolds(R"(
fn squares(n: int) -> [int] { var xs = [0]; for i in 1..n { xs.push(i * i) }; xs }
fn first(xs: [int]) -> int { var ys = xs; ys[0] = 100; ys[0] - 100 + xs[0] }
test "lists" {
  expect squares(4) == [0, 1, 4, 9]
  expect first([7, 8]) == 7
  expect [x + y for x in 0..2, y in [10, 20] if x + y > 10] == [20, 11, 21]
  expect sum([1, 2, 3]) == 6 and len(0..5) == 5 and len([]) == 0
  expect sorted([3, 1, 2], fn(x: int) -> int { -x }) == [3, 2, 1]
  expect reversed(0..3) == [2, 1, 0]
  expect zip([1, 2, 3], [4, 5]) == [(1, 4), (2, 5)]
  expect [1, 2, 3, 4][1..3] == [2, 3]
  expect [1] + [2] == [1, 2]
  let (a, b) = (1, [2, 3])
  expect a + b[1] == 4
}
test "queues" {
  var q = queue[int]
  for i in 0..100 { q.push(i) }
  var seen = 0
  for i in 0..90 { seen += q.pop() }
  expect seen == 4005 and len(q) == 10 and q.pop() == 90
}
)");
}

TEST(Values, Functions) {
  ExpectHolds(R"(
fn twice(f: fn, x: int) -> int { f(f(x)) }
fn adder(n: int) -> fn { fn(x: int) -> int { x + n } }
fn fact(n: int) -> int { if n <= 1 { 1 } else { n * fact(n - 1) } }
fn with_default(a: int, b: int = 2 * a, c: string = "c") -> int { a + b }
fn early(xs: [int]) -> int { for x in xs { if x > 2 { return x } }; return -1 }
fn local(n: int) -> int {
  fn down(k: int) -> int { if k == 0 { n } else { down(k - 1) } }
  down(5)
}
test "functions" {
  expect twice(adder(3), 1) == 7
  expect fact(10) == 3628800
  expect with_default(1) == 3 and with_default(1, b = 5) == 6 and with_default(b = 1, a = 1) == 2
  expect early([1, 2, 3, 4]) == 3 and early([]) == -1
  expect local(9) == 9
  expect (if 1 < 2 { "yes" } else { "no" }) == "yes"
}
)");
}

TEST(Values, OrderOfDefinitionsDoesNotMatter) {
  ExpectHolds("let a = b + 1\nlet b = c()\nfn c() -> int { 41 }\ntest \"x\" { expect a == 42 }\n");
}

// ---- selectors and schedules

TEST(Schedules, SelectorsReadAsWritten) {
  ExpectHolds(R"(
fn narrow(x: sel) -> sel { x[attn, BI] }
test "selectors" {
  expect F[stage = 1, mb = 2] == F[stage = 1][mb = 2]
  expect narrow([layer = 3]) == BI[layer = 3, attn]
  expect ([attn] or [mlp])[F] == (F[attn] or F[mlp])
  expect [not attn, layer = 0..2] == [not attn][layer = 0..2]
  expect [layer = [0, 2..4]] == [layer = [0, 2..4]]
}
)");
}

TEST(Schedules, AFunctionYieldsItsSteps) {
  auto loaded = LoadText(WithStrategy(R"(
fn mine(s: int) -> schedule {
  for i in 0..2 { F[stage = s, mb = i] }
  barrier
  fused(B[stage = s, mb = 0], F[stage = s, mb = 2])
  lanes { compute: B[stage = s, mb = 1]; send: [send] }
}
strategy s {
  mesh (pp = 4)
  cut embed, layer, head into 4 as stage
  split batch into 4 as mb
  order on pp[1] { mine(1); B[stage = 1, mb = 3] }
}
)"));
  ASSERT_TRUE(loaded->program) << loaded->Errors();
  auto orders = Bodies<ir::OrderDirective>(*loaded->program);
  ASSERT_EQ(orders.size(), 1u);
  ASSERT_EQ(orders[0]->group.slices.size(), 1u);
  EXPECT_EQ(orders[0]->group.slices[0].axis, "pp");
  EXPECT_EQ(orders[0]->group.slices[0].begin, 1);
  EXPECT_EQ(StepsText(orders[0]->streams[0].second),
            "F[stage = 1, mb = 0] F[stage = 1, mb = 1] barrier B[stage = 1, mb = 0] & F[stage = 1, mb = 2] "
            "compute:B[stage = 1, mb = 1];send:[send]; B[stage = 1, mb = 3]");
}

TEST(Schedules, ARunLengthLiteralIsTheLoop) {
  auto text = [](const std::string& order) {
    auto loaded =
        LoadText(WithStrategy("strategy s {\n  mesh (pp = 2) on devices[0..2]\n"
                              "  cut embed, layer, head into 2 as stage\n  split batch into 4 as mb\n"
                              "  for s in 0..2 { place [stage = s] on pp[s] }\n  order on pp[0] { " +
                              order + " }\n}\n"));
    EXPECT_TRUE(loaded->program) << loaded->Errors();
    return loaded->program ? StepsText(Bodies<ir::OrderDirective>(*loaded->program)[0]->streams[0].second)
                           : "";
  };
  std::string loop = text("schedules.one_f_one_b(0, 2, 4)");
  EXPECT_EQ(loop, text("steps \"F 3*(F B) B\""));
  EXPECT_EQ(loop, text("steps \"0F0 (F 0B)\"; steps \"2*(F B) B\""));
  EXPECT_EQ(text("steps \"F2 B2\" [stage = 0]"), "F[stage = 0, mb = 2] B[stage = 0, mb = 2]");
}

TEST(Schedules, ACopyUnderAnotherNameIsTheSame) {
  std::string body = R"({
  let warm = min(m, p - s - 1)
  for i in 0..warm { F[stage = s, mb = i] }
  for i in 0..m - warm { F[stage = s, mb = warm + i]; B[stage = s, mb = i] }
  for i in m - warm..m { B[stage = s, mb = i] }
}
)";
  auto strategy = [](const std::string& order) {
    return "strategy s {\n  mesh (pp = 4)\n  cut embed, layer, head into 4 as stage\n  split batch into 8 as "
           "mb\n"
           "  for s in 0..4 { place [stage = s] on pp[s]; order on pp[s] { " +
           order + " } }\n}\n";
  };
  auto a = LoadText(WithStrategy(strategy("schedules.one_f_one_b(s, 4, 8)")));
  auto b = LoadText(
      WithStrategy("fn other(s: int, p: int, m: int) -> schedule " + body + strategy("other(s, 4, 8)")));
  ASSERT_TRUE(a->program && b->program) << a->Errors() << b->Errors();
  auto left = Bodies<ir::OrderDirective>(*a->program), right = Bodies<ir::OrderDirective>(*b->program);
  ASSERT_EQ(left.size(), 4u);
  for (size_t s = 0; s < 4; ++s) {
    EXPECT_EQ(StepsText(left[s]->streams[0].second), StepsText(right[s]->streams[0].second));
    EXPECT_EQ(left[s]->streams[0].second.steps.size(), 16u);
  }
}

TEST(Schedules, ByAndZip) {
  auto loaded = LoadText(WithStrategy(R"(
strategy s {
  mesh (pp = 4)
  order on pp[0] {
    for (x, y) in zip(F[mb = 0] by layer, BI[mb = 1, layer = 0..3] by -layer, pad) { x[attn]; y }
  }
}
)"));
  ASSERT_TRUE(loaded->program) << loaded->Errors();
  EXPECT_EQ(StepsText(Bodies<ir::OrderDirective>(*loaded->program)[0]->streams[0].second),
            "F[mb = 0, layer = 0, attn] BI[mb = 1, layer = 0..3, layer = 2] "
            "F[mb = 0, layer = 1, attn] BI[mb = 1, layer = 0..3, layer = 1] "
            "F[mb = 0, layer = 2, attn] BI[mb = 1, layer = 0..3, layer = 0] "
            "F[mb = 0, layer = 3, attn]");
}

// ---- models

TEST(Models, PathsTagsAndTies) {
  auto loaded = LoadText(WithStrategy("strategy s { mesh (dp = 4) }\n"));
  ASSERT_TRUE(loaded->program) << loaded->Errors();
  const ir::Graph& graph = loaded->program->model;
  EXPECT_EQ(graph.parameters[0].name, "wte.weight");
  EXPECT_EQ(graph.parameters[2].name, "blocks.0.attn.norm.gamma");
  EXPECT_EQ(graph.inputs[0].type.ToString(), "i32[batch=16, seq=8]");
  ASSERT_EQ(graph.losses.size(), 1u);
  EXPECT_EQ(graph.losses[0].name, "loss");
  // Instances count within their parent's: every layer has attn 0 and mlp 0.
  bool found = false;
  for (const ir::TagPath& path : graph.tag_paths) {
    found = found || path == ir::TagPath{{"layer", 3}, {"mlp", 0}};
    if (path.size() == 2) {
      EXPECT_EQ(path[1].index, 0);
    }
  }
  EXPECT_TRUE(found);
  // The tied weight is one parameter with two using operations.
  int uses = 0;
  for (const ir::Operation& op : graph.operations) {
    if (op.kind == "transpose") continue;  // folded into the product
    for (ir::ValueId operand : op.operands) uses += operand == graph.ParameterValue(0) ? 1 : 0;
  }
  EXPECT_EQ(uses, 2);
  // Operation paths name the module.
  EXPECT_EQ(graph.operations.back().path.rfind("cross_entropy", 0), 0u);
}

TEST(Models, SharedModulesAndSeveralLosses) {
  auto loaded = LoadText(R"(
import std.topologies
import std.strategies
module Layer(width: dim) {
  param weight: [width, out = width] = normal(0.1)
  forward(x: [batch, width]) -> [batch, width] { rename(tanh(x @ weight), out, width) }
}
module Twice(width: dim) {
  shared = Layer(width)
  pair = [shared, shared]
  let scale = 1 / 2.0
  fn mean_of(a: [batch, width], b: [batch, width]) -> [batch, width] { scale * (a + b) }
  forward(x: [batch, width], y: [batch, width]) -> (loss, loss) {
    var h = x
    for layer in pair { h = layer(h) }
    let near = mse(mean_of(h, x), y)
    let far = mse(2.0 / (3 + 1 - h * h), y)
    return (near, far)
  }
}
model net = Twice(width = 4)
train { model net; global_batch 6; optimizer sgd(0.1); on topologies.local(); using strategies.single(m = 2) }
)");
  ASSERT_TRUE(loaded->program) << loaded->Errors();
  const ir::Graph& graph = loaded->program->model;
  ASSERT_EQ(graph.parameters.size(), 1u);
  EXPECT_EQ(graph.parameters[0].name, "shared.weight");
  ASSERT_EQ(graph.losses.size(), 2u);
  EXPECT_EQ(graph.losses[0].name, "near");
  EXPECT_EQ(graph.losses[1].name, "far");
}

TEST(Models, EveryExampleElaborates) {
  for (const char* name :
       {"tiny", "gpt_1f1b", "gpt_dp", "gpt_interleaved", "llama_pp_dp", "llama_frozen", "two_losses"}) {
    auto loaded = LoadPath(std::string("examples/") + name + ".piper");
    EXPECT_TRUE(loaded->program) << name << "\n" << loaded->Errors();
    if (loaded->program) {
      EXPECT_EQ(loaded->program->name, name);
    }
  }
}

// ---- strategies

TEST(Strategies, DirectivesKeepOrderAndOrigin) {
  auto loaded = LoadText(WithStrategy(R"(
strategy inner(n: int, part: sel = [*]) requires n divides size(heads) {
  shard batch over dp
  zero 0 [part] as dp { bucket 1 MiB; reduce per step }
}
strategy s(dp: int = 2) {
  mesh (pp = 2, dp = dp)
  cut embed, layer, head into [embed + 2 * layer, 2 * layer + head] as stage
  split batch into 2 as dir, 4 / 2 as mb
  use inner(dp.size, [layer])
  edge F[mb = 0] -> F[mb = 1] distance 1
  limit 3 live F per mb
  stream [send] on wire
  cost F[layer] = 3 us
  cost [send] = 1 MiB
  cost fused(F[layer], B[layer]) = 5 us
  slowdown compute with wire = 1.5
  assert exposed([send]) < 5 %
  assert bytes(dp) < 1 GiB
  run ready hint [B, F, W]
  numerics fast
  override place [stage = 0] on pp[0]
}
)"));
  ASSERT_TRUE(loaded->program) << loaded->Errors();
  const ir::Program& program = *loaded->program;
  ASSERT_EQ(program.directives.size(), 17u);
  const auto& mesh = std::get<ir::MeshDirective>(program.directives[0].body);
  EXPECT_EQ(mesh.axes[1].size, 2);
  const auto& cut = std::get<ir::CutDirective>(program.directives[1].body);
  ASSERT_EQ(cut.explicit_parts.size(), 2u);
  EXPECT_EQ(cut.explicit_parts[0][1].count, 2);
  const auto& split = std::get<ir::SplitDirective>(program.directives[2].body);
  ASSERT_EQ(split.parts.size(), 2u);
  EXPECT_EQ(split.parts[1].as, "mb");
  EXPECT_EQ(program.directives[3].used_from.size(), 2u);
  EXPECT_EQ(loaded->sources.Text(program.directives[3].used_from[0]), "inner(dp.size, [layer])");
  const auto& zero = std::get<ir::ZeroDirective>(program.directives[4].body);
  EXPECT_EQ(zero.bucket_bytes, 1 << 20);
  EXPECT_EQ(zero.select.ToString(), "[layer]");
  EXPECT_EQ(std::get<ir::EdgeDirective>(program.directives[5].body).distance, 1);
  EXPECT_EQ(std::get<ir::LimitDirective>(program.directives[6].body).per, "mb");
  EXPECT_EQ(std::get<ir::CostDirective>(program.directives[9].body).figure.kind, ir::UnitKind::kBytes);
  EXPECT_EQ(std::get<ir::CostDirective>(program.directives[10].body).fused.size(), 2u);
  EXPECT_TRUE(program.directives[16].overrides);
}

TEST(Strategies, OverridesReachArgumentsLetsAndFields) {
  std::string text = WithStrategy(R"(
let width = 2
strategy s(m: int = 4) {
  mesh (pp = width)
  split batch into m as mb
}
)");
  auto loaded = LoadText(text, {"m=8", "width=4", "global_batch=32"});
  ASSERT_TRUE(loaded->program) << loaded->Errors();
  EXPECT_EQ(Bodies<ir::SplitDirective>(*loaded->program)[0]->parts[0].count, 8);
  EXPECT_EQ(Bodies<ir::MeshDirective>(*loaded->program)[0]->axes[0].size, 4);
  EXPECT_EQ(loaded->program->train.global_batch, 32);
  EXPECT_EQ(loaded->program->model.inputs[0].type.dims[0].size, 32);
  auto wrong = LoadText(text, {"witdh=4"});
  EXPECT_FALSE(wrong->program);
  EXPECT_TRUE(wrong->Has(ir::DiagKind::kBadOverride)) << wrong->Errors();
}

TEST(Strategies, RefusedValuesNameTheNearestLegalOnes) {
  // The refused numbers of microbatches of DualPipe: all that 1..10 offer for p = 2 and 4.
  std::string refused;
  for (int p = 2; p <= 4; p += 2) {
    for (int m = 1; m <= 10; ++m) {
      auto loaded = CheckText("import std.schedules\nlet x = schedules.dualpipe(0, " + std::to_string(p) +
                              ", " + std::to_string(m) + ")\n");
      if (!loaded->diag.HasErrors()) continue;
      const ir::Diagnostic& error = loaded->diag.diagnostics()[0];
      EXPECT_EQ(error.kind, ir::DiagKind::kRequiresFailed);
      std::string hint = error.notes.back().message;
      size_t begin = hint.find(": m = ");
      refused +=
          std::to_string(p) + "x" + std::to_string(m) + hint.substr(begin, hint.find(';') - begin) + "\n";
    }
  }
  EXPECT_EQ(
      refused,
      "2x1: m = 4\n2x2: m = 4\n2x3: m = 4\n2x5: m = 4 or m = 6\n2x7: m = 6 or m = 8\n2x9: m = 8 or m = 10\n"
      "4x1: m = 8\n4x2: m = 8\n4x3: m = 8\n4x4: m = 8\n4x5: m = 8\n4x6: m = 8\n4x7: m = 8\n4x9: m = 8 or m = "
      "10\n");
}

// ---- topologies, train blocks

TEST(Topologies, LevelsAndKinds) {
  auto loaded = LoadText(R"(
import std.mlp
import std.strategies
import std.topologies
train {
  model mlp.MLP(layers = 1, inputs = 2, width = 4, outputs = 1)
  global_batch 2
  optimizer sgd(0.1)
  on topologies.mixed(a100_nodes = 1, h100_nodes = 2)
  using strategies.single
}
)");
  ASSERT_TRUE(loaded->program) << loaded->Errors();
  const ir::Topology& topology = loaded->program->topology;
  EXPECT_EQ(topology.devices(), 24);
  ASSERT_EQ(topology.levels.size(), 2u);
  EXPECT_EQ(topology.levels[0].name, "a100_node|h100_node");
  ASSERT_EQ(topology.levels[0].groups.size(), 3u);
  EXPECT_EQ(topology.levels[0].groups[1].first, 8u);
  EXPECT_EQ(topology.Kind(7).name, "a100");
  EXPECT_EQ(topology.Kind(8).name, "h100");
  EXPECT_EQ(topology.kinds.size(), 2u);
  EXPECT_EQ(topology.Between(0, 1).bandwidth, 300e9);
  EXPECT_EQ(topology.Between(0, 8).nics, 8);
}

TEST(Train, FieldsBecomeTheSpec) {
  auto loaded = LoadText(R"(
import std.mlp
import std.strategies
import std.topologies
train {
  model mlp.MLP(layers = 1, inputs = 2, width = 4, outputs = 1)
  data text("a.txt", validation = 10 %, shuffle = false)
  global_batch 2
  steps 30
  optimizer adamw(lr = cosine(1e-3, total = 30, warmup = 3, floor = 1e-5), weight_decay = 0.1, matrices_only = true)
  optimizer sgd(0.5, momentum = 0.9, nesterov = true) where [head]
  optimizer sgd(0.1, names = "*.bias")
  clip 1
  seed 42
  checkpoint_every 10
  on topologies.local
  using strategies.single
}
eval { every 5; batches 2 }
)");
  ASSERT_TRUE(loaded->program) << loaded->Errors();
  const ir::TrainSpec& train = loaded->program->train;
  EXPECT_EQ(train.data.path, "a.txt");
  EXPECT_DOUBLE_EQ(train.data.validation, 0.1);
  EXPECT_FALSE(train.data.shuffle);
  EXPECT_EQ(train.steps, 30);
  ASSERT_EQ(train.optimizers.size(), 3u);
  EXPECT_EQ(train.optimizers[0].lr.kind, ir::LearningRate::Kind::kCosine);
  EXPECT_EQ(train.optimizers[0].lr.warmup, 3);
  EXPECT_TRUE(train.optimizers[0].matrices_only);
  ASSERT_TRUE(train.optimizers[1].select);
  EXPECT_EQ(train.optimizers[1].select->ToString(), "[head]");
  EXPECT_EQ(train.optimizers[2].parameter_names, std::vector<std::string>{"*.bias"});
  EXPECT_EQ(train.clip, 1);
  EXPECT_EQ(train.seed, 42u);
  EXPECT_EQ(train.checkpoint_every, 10);
  EXPECT_EQ(train.eval_every, 5);
  EXPECT_EQ(train.eval_batches, 2);
}

// ---- bounds

TEST(Bounds, BombsAreRefusedWithinASecond) {
  std::string nested = "0";
  for (int i = 0; i < 200; ++i) nested = "(" + nested + " + 1)";
  std::string chain = "let a = 0";
  for (int i = 0; i < 100000; ++i) chain += " + 1";
  struct Bomb {
    std::string text;
    bool refused = true;
  };
  for (const Bomb& bomb : std::vector<Bomb>{
           {"let a = [0 for i in 0..1000000000]"},
           {"fn f(n: int) -> int { f(n + 1) }\nlet a = f(0)"},
           {"fn f(n: int) -> int { g(n + 1) }\nfn g(n: int) -> int { f(n + 1) }\nlet a = f(0)"},
           {"fn f(n: int) -> int { f(n - 1) + f(n - 1) }\nlet a = f(400)"},
           {"fn f() -> int { var n = 0; for i in 0..100000 { for j in 0..100000 { n += 1 } }; n }\nlet a = "
            "f()"},
           {"fn f() -> int { var x = [1]; for i in 0..64 { x = x + x }; len(x) }\nlet a = f()"},
           {"fn f() -> string { var x = \"abc\"; for i in 0..64 { x = x + x }; x }\nlet a = f()"},
           {"fn f() -> schedule { for i in 0..1000000000 { F[mb = i] } }\nlet a = f()"},
           {"fn f() -> schedule { for i in 0..10000 { for j in 0..10000 { F[mb = i] } } }\nlet a = f()"},
           {"let a = sorted([x % 7 for x in 0..100000000])"},
           {"let a = range(0, 9000000000000000000, 2)"},
           {"let a = len(0..9000000000000000000)"},
           {"import std.topologies\nlet a = topologies.local(1000000000)"},
           {"import std.topologies\nlet a = topologies.frontier(9000000000000000000)"},
           {"module M() { a = M() }\nmodel m = M()"},
           {"import std.gpt\nmodel m = gpt.GPT(layers = 1000000000, embed = 8, heads = 2, vocab = 8, seq = "
            "8)"},
           {"fn f(x: sel) -> sel { f(x[attn]) }\nlet a = f([layer])"},
           {"fn f() -> sel { var x = [a or b]; for i in 0..40 { x = x[c or d or e] and [f or g] }; not x "
            "}\nlet a = f()"},
           {"let a = " + nested, false},
           {chain, false},
           {"let a = 1 / 3 + 99999999999 * 99999999999 * 99999999999"},
       }) {
    auto begin = std::chrono::steady_clock::now();
    auto loaded = CheckText(bomb.text + "\n");
    double ms = Milliseconds(begin);
    EXPECT_EQ(loaded->diag.HasErrors(), bomb.refused) << bomb.text.substr(0, 100) << loaded->Errors();
    EXPECT_LT(ms, 5000) << bomb.text.substr(0, 100);  // generous: sanitizers, loaded machines
    if (ms > 500) std::printf("%.0f ms: %s\n", ms, bomb.text.substr(0, 80).c_str());
  }
}

TEST(Bounds, ALongPipelineIsQuick) {
  auto begin = std::chrono::steady_clock::now();
  auto loaded = LoadText(R"(
import std.gpt
import std.strategies
import std.topologies
model net = gpt.GPT(layers = 62, embed = 8, heads = 2, vocab = 16, seq = 4)
train {
  model net
  global_batch 1024
  optimizer sgd(0.1)
  on topologies.ideal(ranks = 64)
  using strategies.one_f_one_b(p = 64, m = 1024)
}
)");
  std::printf("64 stages x 1024 microbatches, 131072 steps: %.1f ms\n", Milliseconds(begin));
  ASSERT_TRUE(loaded->program) << loaded->Errors();
  size_t steps = 0;
  for (const ir::OrderDirective* order : Bodies<ir::OrderDirective>(*loaded->program)) {
    steps += order->streams[0].second.steps.size();
  }
  EXPECT_EQ(steps, 131072u);
  begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(LoadPath("examples/gpt_1f1b.piper")->program);
  std::printf("examples/gpt_1f1b.piper: %.1f ms\n", Milliseconds(begin));
}

// Whatever the text, the answer is a program or diagnostics. PIPER_FUZZ_ROUNDS makes it a soak.
TEST(Bounds, MangledProgramsNeverCrash) {
  std::vector<std::string> texts;
  for (const char* name : {"examples/two_losses.piper", "examples/gpt_interleaved.piper",
                           "examples/llama_pp_dp.piper", "tests/syntax/directives.piper"}) {
    std::ifstream file(name);
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    ASSERT_FALSE(texts.back().empty()) << name;
  }
  const char* const kPieces[] = {"0",
                                 "-1",
                                 "[*]",
                                 "pp",
                                 "F",
                                 "net",
                                 "1 us",
                                 "\"x\"",
                                 "()",
                                 "stage",
                                 "x",
                                 "3",
                                 ".T",
                                 "[0]",
                                 "* 2",
                                 "@ wte",
                                 "not ",
                                 "batch",
                                 "if true { 1 }",
                                 "9000000000000000000",
                                 "by layer",
                                 "?"};
  std::mt19937 random(20240501);
  int refused = 0;
  const char* wanted = std::getenv("PIPER_FUZZ_ROUNDS");
  int rounds = wanted != nullptr ? std::atoi(wanted) : 400;
  for (int round = 0; round < rounds; ++round) {
    std::string text = texts[random() % texts.size()];
    for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
      // Replace, delete or insert a word.
      size_t begin = random() % text.size();
      while (begin > 0 && std::isalnum(static_cast<unsigned char>(text[begin - 1]))) --begin;
      size_t end = begin;
      while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end]))) ++end;
      std::string piece = kPieces[random() % std::size(kPieces)];
      switch (random() % 4) {
        case 0:
          text.replace(begin, end - begin, piece);
          break;
        case 1:
          text.erase(begin, std::max<size_t>(end - begin, 1));
          break;
        case 2:
          text.insert(begin, piece + " ");
          break;
        default: {
          size_t from = random() % text.size();
          text.insert(begin, text.substr(from, random() % 40));
        }
      }
    }
    auto begun = std::chrono::steady_clock::now();
    auto loaded = LoadText(text);
    if (Milliseconds(begun) > 1000) std::printf("%.0f ms\n%s\n", Milliseconds(begun), text.c_str());
    EXPECT_NE(loaded->program.has_value(), loaded->diag.HasErrors());
    refused += loaded->diag.HasErrors() ? 1 : 0;
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace piper::frontend
