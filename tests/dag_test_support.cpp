#include "tests/dag_test_support.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace piper::ir {

Graph ChainModel(const ModelSpec& spec) {
  SourceManager sources;
  DiagnosticEngine diag(sources);
  Graph graph;
  GraphBuilder builder(&graph, &diag);
  auto one = [&](std::string_view kind, const std::vector<ValueId>& operands,
                 std::vector<Attribute> attributes = {}) {
    std::vector<ValueId> results = builder.Add(kind, operands, std::move(attributes), {});
    if (results.empty()) {
      ADD_FAILURE() << diag.Render(DiagnosticEngine::Format::kHuman, false);
      std::abort();
    }
    return results[0];
  };
  Dim batch{"batch", spec.batch}, in{"in", spec.width}, model{"model", spec.width},
      hidden{"hidden", 2 * spec.width};
  auto parameter = [&](std::string name, std::vector<Dim> dims) {
    Parameter p;
    p.name = std::move(name);
    p.type = {DType::kF32, std::move(dims)};
    return graph.AddParameter(std::move(p));
  };
  ValueId x = graph.AddInput({"x", {DType::kF32, {batch, in}}, {}});
  ValueId wte = parameter("wte", {in, model});
  builder.SetTags(graph.InternTags({{"embed", 0}}));
  builder.SetPath("embed");
  ValueId embedded = one("tanh", {one("matmul", {x, wte})});
  ValueId h = embedded;
  for (int64_t i = 0; i < spec.layers; ++i) {
    builder.SetTags(graph.InternTags({{"layer", i}}));
    builder.SetPath("layer" + std::to_string(i));
    ValueId w1 = parameter("layers." + std::to_string(i) + ".w1", {model, hidden});
    ValueId w2 = parameter("layers." + std::to_string(i) + ".w2", {hidden, model});
    h = one("add", {h, one("matmul", {one("tanh", {one("matmul", {h, w1})}), w2})});
    if (spec.untagged) {
      builder.SetTags(0);
      h = one("tanh", {h});
    }
  }
  builder.SetTags(graph.InternTags({{"head", 0}}));
  builder.SetPath("head");
  if (spec.skip) h = one("add", {h, embedded});
  ValueId logits;
  if (spec.tied) {
    logits = one("matmul", {h, wte}, {{"transpose_b", true}});
  } else {
    logits = one("matmul", {h, parameter("wh", {model, {"out", spec.width}})});
  }
  ValueId loss = one("mean_loss", {one("square", {logits})});
  graph.losses.push_back({loss, "loss", {}});
  return graph;
}

TestProgram::TestProgram(const ModelSpec& spec, int64_t devices)
    : sources_(std::make_unique<SourceManager>()), diag_(std::make_unique<DiagnosticEngine>(*sources_)) {
  program.model = ChainModel(spec);
  program.topology.name = "test";
  program.topology.kinds.push_back({"cpu", 0, 0, {{"f32", 1e12}}, {}});
  program.topology.device_kind.assign(static_cast<size_t>(devices), 0);
  program.topology.levels.push_back({"node", {{0, static_cast<uint32_t>(devices), {}}}});
  program.train.global_batch = spec.batch;
  program.train.range = Line("train { .. }");
}

SourceRange TestProgram::Line(std::string text) {
  auto size = static_cast<uint32_t>(text.size());
  FileId file = sources_->Add("test.piper", std::move(text));
  return {file, 0, size};
}

Directive& TestProgram::Add(std::string text, DirectiveBody body) {
  Directive directive;
  directive.body = std::move(body);
  directive.range = Line(std::move(text));
  program.directives.push_back(std::move(directive));
  return program.directives.back();
}

void TestProgram::Mesh(std::vector<std::pair<std::string, int64_t>> axes) {
  MeshDirective mesh;
  std::string text = "mesh (";
  for (const auto& [name, size] : axes) {
    mesh.axes.push_back({name, size, "", {}});
    text += (text.back() == '(' ? "" : ", ") + name + " = " + (size < 0 ? "all" : std::to_string(size));
  }
  Add(text + ")", mesh);
}

void TestProgram::Cut(int64_t parts) {
  CutDirective cut;
  for (const char* tag : {"embed", "layer", "head"}) cut.tags.push_back({tag, {}});
  cut.parts = parts;
  Add("cut embed, layer, head into " + std::to_string(parts) + " as stage", cut);
}

void TestProgram::Split(int64_t m) {
  SplitDirective split;
  split.dim = "batch";
  split.parts.push_back({m, "mb"});
  Add("split batch into " + std::to_string(m) + " as mb", split);
}

void TestProgram::ShardBatch(std::vector<std::string> axes) {
  ShardDirective shard;
  shard.dims = {"batch"};
  shard.axes = std::move(axes);
  std::string text = "shard batch over ";
  for (size_t i = 0; i < shard.axes.size(); ++i) text += (i ? " * " : "") + shard.axes[i];
  Add(text, shard);
}

GroupExpr TestProgram::At(const std::string& axis, int64_t at) {
  GroupExpr group;
  group.slices.push_back({axis, at, at + 1, {}});
  return group;
}

void TestProgram::Place(int64_t stage, const std::string& axis, int64_t at) {
  PlaceDirective place{Sel(0, {{"stage", stage}}), At(axis, at)};
  Add("place [stage = " + std::to_string(stage) + "] on " + axis + "[" + std::to_string(at) + "]", place);
}

void TestProgram::Pipeline(int64_t p, int64_t m, int64_t dp) {
  if (dp > 1) {
    Mesh({{"pp", p}, {"dp", dp}});
    ShardBatch({"dp"});
  } else {
    Mesh({{"pp", p}});
  }
  Cut(p);
  Split(m);
  for (int64_t s = 0; s < p; ++s) Place(s, "pp", s);
}

Step TestProgram::Do(Selector select) {
  Step step;
  step.range = Line(select.ToString());
  step.select = std::move(select);
  return step;
}

Step TestProgram::Fused(std::vector<Selector> parts) {
  Step step;
  step.kind = Step::Kind::kFused;
  std::string text = "fused(";
  for (size_t i = 0; i < parts.size(); ++i) text += (i ? ", " : "") + parts[i].ToString();
  step.range = Line(text + ")");
  step.fused = std::move(parts);
  return step;
}

void TestProgram::Order(const std::string& axis, int64_t at, std::vector<Step> steps) {
  OrderDirective order;
  order.group = At(axis, at);
  order.streams.push_back({InternName("compute"), Schedule{std::move(steps)}});
  Add("order on " + axis + "[" + std::to_string(at) + "] { .. }", order);
}

void TestProgram::OneForwardOneBackward(int64_t p, int64_t m) {
  for (int64_t s = 0; s < p; ++s) {
    SourceRange f = Line("F[stage = s, mb = i]"), b = Line("B[stage = s, mb = i]");
    int64_t warm = std::min(m, p - s - 1);
    std::vector<Step> steps;
    auto push = [&](bool forward, int64_t mb) {
      Step step;
      step.range = forward ? f : b;
      step.select = forward ? F(s, mb) : B(s, mb);
      steps.push_back(std::move(step));
    };
    for (int64_t i = 0; i < warm; ++i) push(true, i);
    for (int64_t i = 0; i < m - warm; ++i) {
      push(true, warm + i);
      push(false, i);
    }
    for (int64_t i = m - warm; i < m; ++i) push(false, i);
    Order("pp", s, std::move(steps));
  }
}

std::optional<BuiltDag> TestProgram::Build(bool forward_only) {
  return BuildDag(program, forward_only, *diag_);
}

BuiltDag TestProgram::MustBuild() {
  std::optional<BuiltDag> built = Build();
  if (!built) {
    ADD_FAILURE() << Diagnostics();
    std::abort();
  }
  for (const DagProblem& problem : VerifyDag(built->dag)) ADD_FAILURE() << problem.message;
  EXPECT_TRUE(CheckOrder(built->dag, *diag_)) << Diagnostics();
  EXPECT_TRUE(CheckGradients(built->dag, built->regions, *diag_)) << Diagnostics();
  return *std::move(built);
}

std::string TestProgram::Refusal() {
  std::optional<BuiltDag> built = Build();
  if (built && CheckOrder(built->dag, *diag_)) CheckGradients(built->dag, built->regions, *diag_);
  EXPECT_TRUE(diag_->HasErrors());
  return Diagnostics();
}

TestProgram Bidirectional(int64_t dp) {
  TestProgram test({2, 16, 4, true}, 2 * dp);
  test.Mesh({{"pp", 2}, {"dp", dp}});
  if (dp > 1) test.ShardBatch({"dp"});
  test.Cut(2);
  SplitDirective split;
  split.dim = "batch";
  split.parts = {{2, "dir"}, {2, "mb"}};
  test.Add("split batch into 2 as dir, 2 as mb", split);
  for (int64_t s = 0; s < 2; ++s) {
    for (int64_t dir = 0; dir < 2; ++dir) {
      PlaceDirective place{Sel(0, {{"stage", s}, {"dir", dir}}), test.At("pp", dir == 0 ? s : 1 - s)};
      test.Add("place [stage = s, dir = d] on pp[..]", place);
    }
  }
  return test;
}

std::string LinesWith(const std::string& text, const std::vector<std::string>& words) {
  std::istringstream in(text);
  std::string line, out;
  while (std::getline(in, line)) {
    for (const std::string& word : words) {
      if (line.find(word) == std::string::npos) continue;
      out += line + "\n";
      break;
    }
  }
  return out;
}

void ExpectGolden(const std::string& name, const std::string& text) {
  std::string path = "tests/goldens/" + name;
  if (std::getenv("PIPER_UPDATE_GOLDENS") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path << " is missing; run with PIPER_UPDATE_GOLDENS=1";
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str()) << path;
}

}  // namespace piper::ir
