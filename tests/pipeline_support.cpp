#include "tests/pipeline_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

#include "ir/dag/dag_text.h"
#include "ir/dag/verifier.h"
#include "ir/lower/memory.h"
#include "runtime/interpreter.h"

namespace piper::testing {

bool Compiled::Has(ir::DiagKind kind) const {
  return std::any_of(diag.diagnostics().begin(), diag.diagnostics().end(),
                     [&](const ir::Diagnostic& d) { return d.kind == kind; });
}

std::unique_ptr<Compiled> Compile(const std::string& text, std::vector<std::string> overrides) {
  auto compiled = std::make_unique<Compiled>();
  frontend::LoadOptions options;
  options.text = text;
  options.overrides = std::move(overrides);
  compiled->program = frontend::LoadProgram("study.piper", options, compiled->sources, compiled->diag);
  if (compiled->program) compiled->plan = ir::BuildPlan(*compiled->program, compiled->diag);
  return compiled;
}

std::string Declarations() {
  return R"(import std.gpt
import std.llama
import std.schedules
import std.topologies

module Half(width: dim, inner: dim) {
  param up:   [width, inner] = normal(0.3)
  param down: [inner, width] = normal(0.3)
  param bias: [width] = zeros
  forward(x: [batch, width]) -> [batch, width] { tanh(x @ up) @ down + bias }
}
// The embedding's output is read by every third layer and by the head; the middle has a loss of its own; `shared` is used
// in three regions; a split leaves a piece unused.
module Skip(layers: int, width: dim, inner: dim) {
  param into: [features = 6, width] = normal(0.5)
  param shared: [width] = ones
  halves = [Half(width, inner) for i in 0..layers]
  param out: [width, outputs = 3] = normal(0.5)
  forward(x: [batch, features = 6], y: [batch, outputs = 3]) -> (loss, loss) {
    let start = tag embed { tanh(x @ into) * shared }
    var h = start
    var middle = start
    for i in 0..layers {
      h = tag layer {
        let z = h + halves[i](h)
        if i % 3 == 2 { z * start } else { z }
      }
      if i == div(layers, 2) { middle = h }
    }
    let aux = tag aux {
      let (a, b) = split(middle, width, [2, 6])
      mean_loss(square(a) * 0.25)
    }
    let main = tag head { mse((h * shared + start) @ out, y) + 0.5 * mean_loss(square(h * shared)) }
    return (main, aux)
  }
}
model gpt_net = gpt.GPT(layers = 6, embed = 16, heads = 2, vocab = 32, seq = 8)
model gpt_dropout_net = gpt.GPT(layers = 6, embed = 16, heads = 2, vocab = 32, seq = 8, dropout_rate = 0.2)
model llama_net = llama.Llama(layers = 6, embed = 16, heads = 4, kv_heads = 2, hidden = 24, vocab = 32, seq = 8)
model skip_net = Skip(layers = 6, width = 8, inner = 12)
)";
}

std::string TrainText::Text() const {
  std::ostringstream out;
  int64_t stages = p * v;
  std::string units = model == "skip" ? "embed, layer, aux, head" : "embed, layer, head";
  out << Declarations() << "strategy study {\n  mesh (pp = " << p << ", dp = " << dp << ")\n";
  if (stages > 1 || !schedule.empty()) {
    out << "  cut " << units << " into " << (cut.empty() ? std::to_string(stages) : cut) << " as stage\n";
    if (place.empty()) {
      out << "  for s in 0.." << stages << " { place [stage = s] on pp[s % " << p << "] }\n";
    } else {
      out << place;
    }
  }
  if (split.empty()) {
    out << "  split batch into " << m << " as mb\n";
  } else {
    out << split;
  }
  if (dp > 1) out << "  shard batch over dp\n";
  if (!zero.empty()) out << "  " << zero << "\n";
  if (!schedule.empty()) {
    out << "  for r in 0.." << p << " { order on pp[r] { schedules." << schedule << "(r, " << p << ", ";
    if (schedule == "interleaved") out << v << ", ";
    out << m << ") } }\n";
  }
  if (!directives.empty()) out << directives << "\n";
  out << "}\ntrain {\n  model " << model << "_net\n  data random(" << (model == "skip" ? "" : "32")
      << ")\n  global_batch " << batch << "\n  steps " << steps << "\n  seed " << seed << "\n  " << optimizer
      << "\n  on topologies.local(ranks = " << p * dp << ")\n  using study\n"
      << train << "\n}\n";
  return out.str();
}

TrainText Layout(const std::string& model, const std::string& schedule, int64_t p, int64_t v, int64_t dp,
                 int64_t m) {
  TrainText text;
  text.model = model;
  text.schedule = schedule;
  text.p = p;
  text.v = v;
  text.dp = dp;
  text.m = m;
  return text;
}

std::string TrainText::Name() const {
  std::ostringstream out;
  out << model << " " << (schedule.empty() ? "unordered" : schedule) << " pp=" << p << " v=" << v
      << " dp=" << dp << " m=" << m << (cut.empty() ? "" : " cut " + cut) << (zero.empty() ? "" : " " + zero);
  return out.str();
}

void ExpectEqualToReference(const Compiled& compiled, int64_t steps, const std::string& what) {
  tools::VerifyOptions options;
  options.steps = steps;
  runtime::Result<tools::VerifyReport> report = tools::Verify(*compiled.program, *compiled.plan, options);
  ASSERT_TRUE(report.ok()) << what << ": " << report.status().message();
  EXPECT_TRUE(report->equal()) << what << "\n" << report->ToString();
  EXPECT_GT(report->tensors, 0);
  EXPECT_TRUE(std::isfinite(report->last_loss)) << what;
}

void ExpectEqualToReference(const TrainText& text) {
  std::unique_ptr<Compiled> compiled = Compile(text.Text());
  ASSERT_TRUE(compiled->ok()) << text.Name() << "\n" << compiled->Messages();
  ExpectEqualToReference(*compiled, text.steps, text.Name());
}

RunResult RunJob(const runtime::Job& job, runtime::LocalOptions options) {
  RunResult result;
  if (!options.bodies) options.bodies = runtime::MakeInterpreter;
  std::map<std::string, std::vector<float>> gradients, parameters;
  auto keep = [](std::map<std::string, std::vector<float>>* into, const std::string& name,
                 const std::byte* data, int64_t elements, bool replace) {
    std::vector<float> values(static_cast<size_t>(elements));
    std::memcpy(values.data(), data, values.size() * sizeof(float));
    auto [it, fresh] = into->try_emplace(name, values);
    if (fresh) return;
    if (replace) {
      it->second = std::move(values);
    } else {
      EXPECT_EQ(0, std::memcmp(it->second.data(), values.data(), values.size() * sizeof(float)))
          << name << " differs from rank to rank";
    }
  };
  auto last = static_cast<uint64_t>((options.steps >= 0 ? options.steps : job.steps) - 1);
  runtime::LocalHooks hooks;
  hooks.gradients = [&](const runtime::RankView& view, uint64_t step) {
    if (step != last) return;
    for (const runtime::Parameter& p : view.program->parameters) {
      if (view.gradient(p) != nullptr) keep(&gradients, p.name, view.gradient(p), p.elements, false);
    }
  };
  hooks.step_done = [&](const runtime::RankView& view, uint64_t step, const runtime::StepOutcome&) {
    if (step != last) return;
    for (const runtime::Parameter& p : view.program->parameters) {
      keep(&parameters, p.name, view.value(p), p.elements, false);
    }
  };
  runtime::Result<runtime::LocalResult> run = runtime::RunLocal(job, options, hooks);
  if (!run.ok()) {
    ADD_FAILURE() << run.status().message();
    return result;
  }
  result.losses = run->losses;
  result.norms = run->gradient_norms;
  result.eval_losses = run->eval_losses;
  result.ranks = run->ranks;
  result.gradients.assign(gradients.begin(), gradients.end());
  result.parameters.assign(parameters.begin(), parameters.end());
  return result;
}

RunResult RunJob(const runtime::Job& job, int64_t steps) {
  runtime::LocalOptions options;
  options.steps = steps;
  return RunJob(job, options);
}

std::unique_ptr<Compiled> MustCompile(const std::string& text) {
  std::unique_ptr<Compiled> compiled = Compile(text);
  EXPECT_TRUE(compiled->ok()) << compiled->Messages() << text;
  return compiled;
}

void ExpectSameBits(const Compiled& with, const Compiled& without, const std::string& what) {
  ASSERT_TRUE(with.ok() && without.ok()) << what;
  RunResult plain = RunJob(without.job(), 2);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    runtime::LocalOptions options;
    options.steps = 2;
    options.execution.poison = true;
    options.execution.delay_microseconds = seed == 0 ? 0 : 40;
    options.execution.delay_seed = seed;
    options.execution.stall_seconds = 60;
    RunResult run = RunJob(with.job(), options);
    EXPECT_EQ(run.losses, plain.losses) << what;
    ASSERT_EQ(run.gradients.size(), plain.gradients.size()) << what;
    for (size_t i = 0; i < run.gradients.size(); ++i) {
      const auto& [name, values] = run.gradients[i];
      ASSERT_EQ(name, plain.gradients[i].first) << what;
      EXPECT_EQ(0,
                std::memcmp(values.data(), plain.gradients[i].second.data(), values.size() * sizeof(float)))
          << what << ": " << name;
    }
    EXPECT_EQ(run.parameters, plain.parameters) << what;
    for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
      const runtime::RankProgram& program = with.job().train[with.job().rank_role[rank]];
      EXPECT_EQ(run.ranks[rank].high_water_bytes, program.arena_bytes) << what;
      EXPECT_EQ(run.ranks[rank].host_bytes, program.host_bytes) << what;
      EXPECT_EQ(run.ranks[rank].host_high_water_bytes, program.host_bytes) << what;
    }
  }
}

// Poison, delays, rendezvous: the bits of a plain run; and the memory that was planned.
static void ExpectSteady(const Compiled& compiled, const std::string& what) {
  const runtime::Job& job = compiled.job();
  runtime::LocalOptions options;
  options.steps = 2;
  options.execution.stall_seconds = 60;
  const RunResult plain = RunJob(job, options);
  ASSERT_FALSE(plain.losses.empty()) << what;
  for (uint64_t seed = 0; seed < (Soak() ? 20u : 2u); ++seed) {
    options.rendezvous = seed % 2 == 0;
    options.execution.delay_microseconds = seed == 0 ? 0 : 50;
    options.execution.delay_seed = seed;
    options.execution.poison = true;
    const RunResult run = RunJob(job, options);
    EXPECT_EQ(run.losses, plain.losses) << what;
    EXPECT_EQ(run.gradients, plain.gradients) << what;
    EXPECT_EQ(run.parameters, plain.parameters) << what;
    for (uint32_t rank = 0; rank < job.rank_count; ++rank) {
      const runtime::RankProgram& program = job.train[job.rank_role[rank]];
      EXPECT_EQ(run.ranks[rank].arena_bytes, program.arena_bytes) << what;
      EXPECT_EQ(run.ranks[rank].high_water_bytes, program.arena_bytes) << what;
      EXPECT_EQ(ir::VerifyMemory(program), "") << what;
    }
  }
}

void ExpectSound(const Compiled& compiled, const std::string& what) {
  const std::string printed = ir::DagToText(compiled.plan->dag);
  EXPECT_TRUE(ir::VerifyDag(compiled.plan->dag).empty()) << what;
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  const auto parsed = ir::ParseDag(sources.Add("plan.ir", printed), diag);
  ASSERT_TRUE(parsed) << what;
  EXPECT_EQ(ir::DagToText(*parsed), printed) << what;
  ExpectEqualToReference(compiled, 2, what);
  ExpectSteady(compiled, what);
}

double GradientNorm(const RunResult& result) {
  double sum = 0;
  for (const auto& [name, values] : result.gradients) {
    for (float value : values) sum += static_cast<double>(value) * value;
  }
  return std::sqrt(sum);
}

bool Soak() {
  const char* soak = std::getenv("PIPER_SOAK");
  return soak != nullptr && soak[0] != '\0' && soak[0] != '0';
}

}  // namespace piper::testing
