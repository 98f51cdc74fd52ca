// Studies of schedules: chains of one-region stages whose figures all come from `cost` lines, from `.piper`
// text through the whole pipeline.
#pragma once

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "frontend/frontend.h"
#include "ir/pipeline.h"

namespace piper {

// How stages lie on ranks.
enum class Shape { kLooped, kV, kTwoWays };

struct Schedule {
  std::string name;  // in std.schedules
  Shape shape = Shape::kLooped;
  int v = 1;               // stages a rank
  bool takes_v = false;    // as an argument
  std::string order = {};  // what stands in `order on pp[r] { }` instead of the name
};

// A name of std.schedules; `_v3` behind it says how many stages a rank has.
inline Schedule Find(const std::string& name) {
  const size_t at = name.rfind("_v");
  if (at != std::string::npos && at + 2 < name.size() && name[at + 2] >= '1' && name[at + 2] <= '9')
    return {name.substr(0, at), Shape::kLooped, std::stoi(name.substr(at + 2)), true};
  if (name == "dualpipe") return {name, Shape::kTwoWays, 1};
  if (name == "dualpipev" || name == "zbv" || name == "v_half" || name == "v_min")
    return {name, Shape::kV, 2};
  return {name, Shape::kLooped, 1};
}

// A chain of one-region stages whose figures all come from `cost` lines. `body` holds them. A region that
// costs nothing stands before the first, so that the first stage has a BI as well.
inline std::string ChainProgram(const Schedule& schedule, int p, int m, const std::string& body,
                                const std::string& topology) {
  const int stages = p * schedule.v;
  std::ostringstream text;
  text << "import std.schedules\nimport std.topologies\n"
       << "module Layer(width: dim) {\n  param w: [width] = ones\n"
       << "  forward(x: [batch, width]) -> [batch, width] { x * w }\n}\n"
       << "module Chain(n: int, width: dim) {\n  ramp = Layer(width)\n  layers = [Layer(width) for i in "
          "0..n]\n"
       << "  forward(x: [batch, width], y: [batch, width]) -> loss {\n    var h = tag ramp { ramp(x) }\n"
       << "    for i in 0..n - 1 { h = tag layer { layers[i](h) } }\n"
       << "    return tag layer { mse(layers[n - 1](h), y) }\n  }\n}\n"
       << "model net = Chain(n = " << stages << ", width = 1)\n"
       << topology << "strategy study(p: int, m: int) {\n  mesh (pp = p)\n  cut layer into " << stages
       << " as stage\n";
  if (schedule.shape == Shape::kTwoWays) {
    text << "  split batch into 2 as dir, div(m, 2) as mb\n"
         << "  for s in 0..p {\n    place [stage = s, dir = 0] on pp[s]\n"
         << "    place [stage = s, dir = 1] on pp[p - 1 - s]\n  }\n";
  } else {
    text << "  split batch into m as mb\n  for s in 0.." << stages << " { place [stage = s] on pp["
         << (schedule.shape == Shape::kV ? "if s < p { s } else { 2 * p - 1 - s }" : "s % p") << "] }\n";
  }
  if (schedule.order.empty()) {
    text << "  for r in 0..p { order on pp[r] { schedules." << schedule.name << "(r, p, "
         << (schedule.takes_v ? std::to_string(schedule.v) + ", " : "") << "m) } }\n";
  } else {
    text << "  for r in 0..p { order on pp[r] { " << schedule.order << " } }\n";
  }
  text << body
       << "  cost F[ramp] = 0 us\n  cost B[ramp] = 0 us\n  cost [accumulate] = 0 us\n  cost [update] = 0 "
          "us\n  cost [loss.fold] = 0 us\n"
       << "  cost [loss.reduce] = 0 us\n"
       << (schedule.shape == Shape::kTwoWays ? "  cost [dp.reduce] = 0 us\n" : "") << "}\n"
       << "train {\n  model net\n  data random()\n  global_batch " << m
       << "\n  steps 1\n  optimizer sgd(lr = 0.1)\n"
       << "  on machine(" << p << ")\n  using study(p = " << p << ", m = " << m << ")\n}\n";
  return text.str();
}

inline constexpr char kIdealMachine[] =
    "topology machine(ranks: int) {\n  device unit { compute f32 = 1 TFLOP/s }\n  level all = ranks of "
    "unit\n}\n";

inline std::optional<ir::Plan> PlanText(const std::string& text, std::string* errors) {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  frontend::LoadOptions options;
  options.text = text;
  std::optional<ir::Program> program = frontend::LoadProgram("study.piper", options, sources, diag);
  std::optional<ir::Plan> plan;
  if (program) plan = ir::BuildPlan(*program, diag);
  *errors = diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
  return plan;
}

struct Row {
  std::string schedule;
  int p = 0, m = 0;
  int64_t f = 0, bi = 0, bw = 0, fused = -1, latency = 0, makespan = 0;  // fused: -1: F + BI + BW
  std::vector<int64_t> idle, peak;
};

inline std::string Costs(const Row& row) {
  std::ostringstream out;
  out << "  cost F[layer] = " << row.f << " us\n  cost BI[layer] = " << row.bi
      << " us\n  cost BW[layer] = " << row.bw << " us\n";
  if (row.fused >= 0) out << "  cost fused(F[stage], B[stage]) = " << row.fused << " us\n";
  if (row.p > 1) out << "  cost [send]? = " << row.latency << " us\n";
  return out.str();
}

inline std::optional<ir::Plan> PlanRow(const Row& row) {
  const Schedule schedule = Find(row.schedule);
  std::string text = ChainProgram(schedule, row.p, row.m, Costs(row), kIdealMachine);
  std::string errors;
  std::optional<ir::Plan> plan = PlanText(text, &errors);
  EXPECT_TRUE(plan) << row.schedule << " p=" << row.p << " m=" << row.m << "\n" << errors << text;
  return plan;
}

}  // namespace piper
