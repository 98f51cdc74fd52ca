// From `.piper` text to proved plans: time by phase and bytes a node, for 1F1B pipelines of growing size. Prints a row
// a size; the growth shows whether every pass is linear. Memory is what the heap gained while the plan is alive.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "frontend/frontend.h"
#include "ir/pipeline.h"

namespace {

using Clock = std::chrono::steady_clock;

std::string Text(int p, int m) {
  std::string text =
      "import std.schedules\n"
      "topology machine(ranks: int) {\n  device unit { compute f32 = 1 TFLOP/s }\n  level all = ranks of unit\n}\n"
      "module Layer(width: dim) {\n  param w: [width] = ones\n"
      "  forward(x: [batch, width]) -> [batch, width] { x * w }\n}\n"
      "module Chain(n: int, width: dim) {\n  layers = [Layer(width) for i in 0..n]\n"
      "  forward(x: [batch, width], y: [batch, width]) -> loss {\n    var h = x\n"
      "    for i in 0..n - 1 { h = tag layer { layers[i](h) } }\n"
      "    return tag layer { mse(layers[n - 1](h), y) }\n  }\n}\n"
      "model net = Chain(n = P, width = 1)\n"
      "strategy study {\n  mesh (pp = P)\n  cut layer into P as stage\n  split batch into M as mb\n"
      "  for s in 0..P {\n    place [stage = s] on pp[s]\n    order on pp[s] { schedules.one_f_one_b(s, P, M) }\n  }\n}\n"
      "train {\n  model net\n  data random()\n  global_batch M\n  steps 1\n  optimizer sgd(lr = 0.1)\n  on machine(P)\n"
      "  using study\n}\n";
  auto replace = [&](const std::string& what, const std::string& with) {
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
      bool word = (at == 0 || !isalnum(text[at - 1])) && !isalnum(text[at + 1]);
      if (word) text.replace(at, 1, with);
      else at += 1 - with.size();
    }
  };
  replace("P", std::to_string(p));
  replace("M", std::to_string(m));
  return text;
}

double Ms(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

}  // namespace

int main() {
  std::printf("%8s %10s | %9s %9s %9s | %9s %10s\n", "p x m", "nodes", "text ms", "plan ms", "total ms", "bytes/node",
              "ns/node");
  for (auto [p, m] : {std::pair{64, 128}, {64, 256}, {64, 512}, {64, 1024}, {32, 1024}}) {
    double best_text = 1e30, best_plan = 1e30;
    double bytes = 0;
    size_t nodes = 0;
    for (int repeat = 0; repeat < 3; ++repeat) {
      piper::ir::SourceManager sources;
      piper::ir::DiagnosticEngine diag(sources);
      piper::frontend::LoadOptions options;
      options.text = Text(p, m);
      auto start = Clock::now();
      auto program = piper::frontend::LoadProgram("study.piper", options, sources, diag);
      auto loaded = Clock::now();
      size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
      std::optional<piper::ir::Plan> plan;
      if (program) plan = piper::ir::BuildPlan(*program, diag);
      auto planned = Clock::now();
      if (!plan) {
        std::fputs(diag.Render(piper::ir::DiagnosticEngine::Format::kHuman, false).c_str(), stderr);
        return 1;
      }
      bytes = static_cast<double>(mallinfo2().uordblks + mallinfo2().hblkhd - before);
      nodes = plan->dag.node_count();
      best_text = std::min(best_text, Ms(loaded - start));
      best_plan = std::min(best_plan, Ms(planned - loaded));
    }
    std::printf("%3d x %-4d %9zu | %9.1f %9.1f %9.1f | %9.1f %10.0f\n", p, m, nodes, best_text, best_plan,
                best_text + best_plan, bytes / static_cast<double>(nodes), (best_text + best_plan) * 1e6 / static_cast<double>(nodes));
  }
  return 0;
}
