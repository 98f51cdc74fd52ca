// From `.piper` text to proved plans: time by phase and bytes a node, for schedules of the library at growing
// sizes. Prints a row a size; the growth shows whether every pass is linear. Memory is what the heap gained
// while the plan is alive.
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

struct Case {
  const char*
      schedule;  // in std.schedules; stages lie in a V for those that begin with 'v', 'zbv' and 'dualpipev'
  int v;         // stages a rank
  int p, m;
};

bool InV(const Case& c) {
  const std::string name = c.schedule;
  return name[0] == 'v' || name == "zbv" || name == "dualpipev";
}

std::string Text(const Case& c) {
  const std::string p = std::to_string(c.p), m = std::to_string(c.m), stages = std::to_string(c.p * c.v);
  const bool looped = c.v > 1 && !InV(c);
  return "import std.schedules\n"
         "topology machine(ranks: int) {\n  device unit { compute f32 = 1 TFLOP/s }\n  level all = ranks of "
         "unit\n}\n"
         "module Layer(width: dim) {\n  param w: [width] = ones\n"
         "  forward(x: [batch, width]) -> [batch, width] { x * w }\n}\n"
         "module Chain(n: int, width: dim) {\n  layers = [Layer(width) for i in 0..n]\n"
         "  forward(x: [batch, width], y: [batch, width]) -> loss {\n    var h = x\n"
         "    for i in 0..n - 1 { h = tag layer { layers[i](h) } }\n"
         "    return tag layer { mse(layers[n - 1](h), y) }\n  }\n}\n"
         "model net = Chain(n = " +
         stages +
         ", width = 1)\n"
         "strategy study(p: int, m: int) {\n  mesh (pp = p)\n  cut layer into " +
         stages +
         " as stage\n"
         "  split batch into m as mb\n"
         "  for s in 0.." +
         stages + " { place [stage = s] on pp[" + (InV(c) ? "min(s, 2 * p - 1 - s)" : "s % p") +
         "] }\n"
         "  for r in 0..p { order on pp[r] { schedules." +
         c.schedule + "(r, p, " + (looped ? std::to_string(c.v) + ", " : std::string()) +
         "m) } }\n}\n"
         "train {\n  model net\n  data random()\n  global_batch " +
         m + "\n  steps 1\n  optimizer sgd(lr = 0.1)\n  on machine(" + p + ")\n  using study(p = " + p +
         ", m = " + m + ")\n}\n";
}

double Ms(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

}  // namespace

int main() {
  std::printf("%12s %2s %8s %10s | %9s %9s %9s | %9s %10s\n", "schedule", "v", "p x m", "nodes", "text ms",
              "plan ms", "total ms", "bytes/node", "ns/node");
  for (const Case& c : {Case{"one_f_one_b", 1, 64, 128},
                        {"one_f_one_b", 1, 64, 256},
                        {"one_f_one_b", 1, 64, 512},
                        {"one_f_one_b", 1, 64, 1024},
                        {"one_f_one_b", 1, 32, 1024},
                        {"interleaved", 2, 64, 256},
                        {"interleaved", 2, 64, 512},
                        {"interleaved", 2, 64, 1024},
                        {"zb1p", 1, 32, 64},
                        {"zb1p", 1, 32, 128},
                        {"zb1p", 1, 32, 256},
                        {"zbv", 2, 32, 64},
                        {"zbv", 2, 32, 128},
                        {"zbv", 2, 32, 256},
                        {"v_half", 2, 32, 256},
                        {"dualpipev", 2, 32, 256}}) {
    double best_text = 1e30, best_plan = 1e30;
    double bytes = 0;
    size_t nodes = 0;
    for (int repeat = 0; repeat < 3; ++repeat) {
      piper::ir::SourceManager sources;
      piper::ir::DiagnosticEngine diag(sources);
      piper::frontend::LoadOptions options;
      options.text = Text(c);
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
    std::printf("%12s %2d %3d x %-4d %9zu | %9.1f %9.1f %9.1f | %9.1f %10.0f\n", c.schedule, c.v, c.p, c.m,
                nodes, best_text, best_plan, best_text + best_plan, bytes / static_cast<double>(nodes),
                (best_text + best_plan) * 1e6 / static_cast<double>(nodes));
  }
  return 0;
}
