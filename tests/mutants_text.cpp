#include "tests/mutants_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>
#include <tuple>

#include "frontend/frontend.h"
#include "ir/program/program.h"
#include "ir/schedule_csv/from_dag.h"
#include "ir/support/diagnostics.h"
#include "tests/pipeline_support.h"

namespace piper::mutants {
namespace {

enum class Shape { kLooped, kV, kTwoWays };

Shape ShapeOf(const std::string& schedule) {
  if (schedule == "dualpipe") return Shape::kTwoWays;
  const bool v = schedule == "zbv" || schedule == "v_half" || schedule == "v_min" || schedule == "dualpipev";
  return v ? Shape::kV : Shape::kLooped;
}

// v stages a rank.
bool TakesChunks(const std::string& schedule) {
  return schedule == "interleaved" || schedule == "looped_bfs" || schedule == "interleaved_zb";
}

// ---- from the library

Part PartOf(const ir::Selector& selector) {
  Part part;
  const ir::SelectorClause& clause = selector.any_of.at(0);
  const auto has = [&](ir::Pass pass) { return (clause.passes & ir::PassBit(pass)) != 0; };
  part.pass = has(ir::Pass::kF) ? "F" : !has(ir::Pass::kBW) ? "BI" : has(ir::Pass::kBI) ? "B" : "BW";
  for (const ir::SelectorTerm& term : clause.terms) {
    const std::string& name = ir::NameText(term.name);
    (name == "stage" ? part.stage : name == "dir" ? part.dir : part.mb) = static_cast<int>(term.begin);
  }
  return part;
}

std::vector<RankOrder> LibraryOrders(const Study& study, const std::string& schedule) {
  const bool takes_v = TakesChunks(schedule);
  std::ostringstream text;
  text
      << "import std.schedules\nimport std.topologies\nmodule One() {\n  param w: [width = 2] = ones\n"
      << "  forward(x: [batch, width = 2], y: [batch, width = 2]) -> loss { tag unit { mse(x * w, y) } }\n}\n"
      << "model net = One()\nstrategy study {\n  mesh (pp = " << study.p << ")\n";
  for (int rank = 0; rank < study.p; ++rank) {
    text << "  order on pp[" << rank << "] { schedules." << schedule << "(" << rank << ", " << study.p
         << ", ";
    if (takes_v) text << study.v << ", ";
    text << study.m << ") }\n";
  }
  text << "}\ntrain {\n  model net\n  data random()\n  global_batch 1\n  steps 1\n  optimizer sgd(lr = 0.1)\n"
       << "  on topologies.local(ranks = " << study.p << ")\n  using study\n}\n";
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  frontend::LoadOptions options;
  options.text = text.str();
  std::optional<ir::Program> program = frontend::LoadProgram("library.piper", options, sources, diag);
  std::vector<RankOrder> orders;
  if (!program) {
    ADD_FAILURE() << study.Name() << "\n" << diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
    return orders;
  }
  for (const ir::Directive& directive : program->directives) {
    const auto* order = std::get_if<ir::OrderDirective>(&directive.body);
    if (order == nullptr) continue;
    RankOrder& rank = orders.emplace_back();
    rank.rank = static_cast<int>(order->group.slices.at(0).begin);
    rank.streams.push_back({"compute", {}});
    for (const ir::Step& step : order->streams.at(0).second.steps) {
      Listed& listed = rank.compute().emplace_back();
      if (step.kind == ir::Step::Kind::kSelect) {
        listed.parts.push_back(PartOf(step.select));
      } else {
        EXPECT_EQ(step.kind, ir::Step::Kind::kFused) << study.Name();
        for (const ir::Selector& part : step.fused) listed.parts.push_back(PartOf(part));
      }
    }
  }
  return orders;
}

}  // namespace

std::string Listed::Text() const {
  std::string text;
  for (const Part& part : parts) {
    if (!text.empty()) text += ", ";
    text += part.pass + "[" + end;
    const auto index = [&](const char* name, int value) {
      if (value >= 0)
        text += std::string(text.back() == '[' ? "" : ", ") + name + " = " + std::to_string(value);
    };
    index("stage", part.stage);
    index("dir", part.dir);
    index("mb", part.mb);
    text += "]";
  }
  return parts.size() > 1 ? "fused(" + text + ")" : text;
}

int Study::RankOf(int stage, int dir) const {
  for (const Placed& place : places) {
    if (place.stage == stage && (place.dir < 0 || place.dir == dir)) return place.rank;
  }
  ADD_FAILURE() << Name() << ": stage " << stage << " is nowhere";
  return 0;
}

std::string GreedyChoice::Costs() const {
  std::ostringstream out;
  for (size_t s = 0; s < forward.size(); ++s) {
    out << "  cost F[stage = " << s << "] = " << forward[s] << " us\n  cost BI[stage = " << s
        << "] = " << input[s] << " us\n  cost BW[stage = " << s << "] = " << weight[s] << " us\n";
  }
  out << "  cost [send] = " << latency << " us\n";
  return out.str();
}

std::string GreedyChoice::Order() const {
  return "  order on pp { greedy(priority = " + priority +
         (in_flight > 0 ? ", in_flight = " + std::to_string(in_flight) : "") + ") }";
}

GreedyChoice ChooseGreedy(const Study& study, Random& random) {
  GreedyChoice choice;
  for (int s = 0; s < study.stages(); ++s) {
    choice.forward.push_back(random.Between(1, 6));
    choice.input.push_back(random.Between(1, 6));
    choice.weight.push_back(random.Between(1, 6));
  }
  choice.latency = random.Below(3);
  if (random.Chance(2)) choice.in_flight = random.Between(study.v, study.v + study.p);
  static const char* const kPriorities[] = {"[B, F, W]", "[F, B, W]", "[B, W, F]",
                                            "[B, F]",    "[W, B, F]", "[F[stage = 0], B, F, W]"};
  choice.priority = kPriorities[random.Below(std::size(kPriorities))];
  return choice;
}

std::pair<std::string, int> WriteGreedy(const Study& study, const GreedyChoice& choice) {
  Study without = study;
  without.orders.clear();
  std::string text = Write(without).text;
  const size_t at = text.find("\n}\ntrain {") + 1;
  const std::string lines = choice.Costs() + choice.Order() + "\n";
  text.insert(at, lines);
  const std::string until = text.substr(0, at + lines.size());
  return {text, static_cast<int>(std::count(until.begin(), until.end(), '\n'))};
}

std::string Study::Name() const {
  return schedule + " p = " + std::to_string(p) + (v > 1 ? ", v = " + std::to_string(v) : "") +
         ", m = " + std::to_string(m) + (dp > 1 ? ", dp = " + std::to_string(dp) : "") +
         (recompute.empty() ? "" : ", recompute " + recompute) +
         (offload.empty() ? "" : ", offload " + offload);
}

std::vector<RankOrder> GreedyOrders(const Study& study, const GreedyChoice& choice) {
  const std::string text = WriteGreedy(study, choice).first;
  std::unique_ptr<testing::Compiled> compiled = testing::Compile(text);
  EXPECT_TRUE(compiled->ok()) << study.Name() << "\n" << compiled->Messages() << text;
  return compiled->ok() ? OrdersOf(*compiled) : std::vector<RankOrder>();
}

std::vector<RankOrder> OrdersOf(testing::Compiled& compiled) {
  namespace csv = ir::schedule_csv;
  std::vector<RankOrder> orders;
  std::optional<csv::Export> found = csv::FromDag(compiled.plan->dag, *compiled.program, compiled.diag);
  if (!found) {
    ADD_FAILURE() << compiled.Messages();
    return orders;
  }
  for (const std::vector<csv::Cell>& row : found->table.ranks) {
    RankOrder& rank = orders.emplace_back();
    rank.rank = static_cast<int>(orders.size()) - 1;
    rank.streams.push_back({"compute", {}});
    for (const csv::Cell& cell : row) {
      for (const csv::Step& step : cell) {
        const char* pass = step.action == csv::Action::kForward          ? "F"
                           : step.action == csv::Action::kBackwardInput  ? "BI"
                           : step.action == csv::Action::kBackwardWeight ? "BW"
                                                                         : "B";
        rank.compute().push_back({{{pass, step.stage, -1, step.microbatch}}, "", false});
      }
    }
  }
  return orders;
}

Written Write(const Study& study) {
  Written written;
  std::string& text = written.text;
  int line = 1;
  const auto put = [&](const std::string& what, bool touched = false) {
    if (touched) written.touched.insert(line);
    line += 1 + static_cast<int>(std::count(what.begin(), what.end(), '\n'));
    text += what + "\n";
  };
  std::string model = ModelText(study.chain);
  model.pop_back();
  put(model);
  put("topology machine(ranks: int) {\n  device core { compute f32 = 1 TFLOP/s }\n  level all = ranks of "
      "core\n}");
  put("strategy study {");
  put("  mesh (pp = " + std::to_string(study.p) + (study.dp > 1 ? ", dp = " + std::to_string(study.dp) : "") +
      ")");
  std::string cut;
  for (size_t stage = 0; stage < study.units.size(); ++stage) {
    const int count = study.units[stage] - (stage == 0);
    cut += std::string(stage == 0 ? "ramp + " : ", ") + (count == 1 ? "" : std::to_string(count) + " * ") +
           "unit";
  }
  put("  cut ramp, unit into [" + cut + "] as stage");
  if (study.directions > 1) {
    put("  split batch into 2 as dir, " + std::to_string(study.m / 2) + " as mb");
  } else {
    put("  split batch into " + std::to_string(study.m) + " as mb");
  }
  if (study.dp > 1) put("  shard batch over dp");
  for (const Placed& place : study.places) {
    put("  place [stage = " + std::to_string(place.stage) +
            (place.dir < 0 ? "" : ", dir = " + std::to_string(place.dir)) + "] on pp[" +
            std::to_string(place.rank) + "]",
        place.touched);
  }
  if (!study.recompute.empty()) put("  recompute " + study.recompute);
  if (!study.offload.empty()) put("  offload " + study.offload);
  if (study.overlapped) put("  optimizer post_validation\n  edge [update.validate] -> BW distance 1");
  for (const auto& [end, stream] : study.streams)
    put("  stream " + (end == "BW" ? end : "[" + end + "]") + " on " + stream, true);
  for (const RankOrder& order : study.orders) {
    put("  order on pp[" + std::to_string(order.rank) + "] {");
    const auto streams = [&](const std::vector<Stream>& all, bool named) {
      for (const Stream& stream : all) {
        if (named && stream.steps.empty()) continue;
        if (named) put("    " + stream.name + ":");
        for (const Listed& step : stream.steps) put("      " + step.Text(), step.touched);
      }
    };
    for (const Block& block : order.blocks) {
      if (block.barrier) put("      barrier", true);
      put("    lanes {");
      streams(block.lanes, true);
      put("    }");
    }
    if (order.blocks.empty()) streams(order.streams, order.streams.size() > 1);
    put("  }");
  }
  for (const Edge& edge : study.edges) {
    put("  edge " + edge.from.Text() + " -> " + edge.to.Text() +
            (edge.distance > 0 ? " distance " + std::to_string(edge.distance) : ""),
        true);
  }
  for (const Limit& limit : study.limits) {
    put("  limit " + std::to_string(limit.count) + " live F" +
            (limit.stage < 0 ? " per mb" : "[stage = " + std::to_string(limit.stage) + "]"),
        true);
  }
  put("}\ntrain {\n  model net\n  data random()\n  global_batch " + std::to_string(study.m * study.dp) +
      "\n  steps 1\n  optimizer sgd(lr = 0.0009765625)\n" + (study.clip ? "  clip 1e30\n" : "") +
      "  seed 5\n  on machine(ranks = " + std::to_string(study.p * study.dp) + ")\n  using study\n}");
  return written;
}

const std::vector<std::string>& ScheduleNames() {
  static const std::vector<std::string> names = {
      "gpipe",  "one_f_one_b", "eager_1f1b", "zb1p",      "zb2p",   "looped_bfs",      "interleaved",   "zbv",
      "v_half", "v_min",       "dualpipe",   "dualpipev", "greedy", "zb2p_overlapped", "interleaved_zb"};
  return names;
}

Study ChooseStudy(const std::string& schedule, uint64_t seed, bool skips) {
  Random random(seed);
  Study study;
  study.schedule = schedule;
  Shape shape = ShapeOf(schedule);
  study.p = random.Between(2, 8);
  if (schedule == "greedy" && random.Chance(2)) shape = Shape::kV;
  if (shape == Shape::kTwoWays) study.p = 2 * random.Between(1, 4);
  if (shape == Shape::kV) study.v = 2;
  if (TakesChunks(schedule)) study.v = study.p <= 4 ? random.Between(2, 3) : 2;
  study.directions = shape == Shape::kTwoWays ? 2 : 1;
  study.m = random.Between(2, study.p + 3);
  if (schedule == "zbv") study.m = 2 * study.p - 1 + random.Below(3);
  if (schedule == "dualpipev") study.m = 2 * study.p + random.Below(3);
  if (schedule == "dualpipe") study.m = 2 * study.p + 2 * random.Below(2);
  if (study.p <= 4 && random.Chance(4)) study.dp = 2;
  static const char* const kReplayed[] = {"[unit]", "[stage]", "[*]", "[stage = 0..2]"};
  if (random.Chance(3)) study.recompute = kReplayed[random.Below(std::size(kReplayed))];
  const int stages = study.p * study.v;
  int units = 0;
  for (int stage = 0; stage < stages; ++stage) {
    study.units.push_back(stage == 0 ? 2 : stages <= 8 && random.Chance(4) ? 2 : 1);
    units += study.units.back();
  }
  study.chain = MakeChain(units, skips);
  for (int stage = 0; stage < stages; ++stage) {
    const int rank = shape == Shape::kV && stage >= study.p ? 2 * study.p - 1 - stage : stage % study.p;
    if (shape == Shape::kTwoWays) {
      study.places.push_back({stage, 0, stage});
      study.places.push_back({stage, 1, study.p - 1 - stage});
    } else {
      study.places.push_back({stage, -1, rank});
    }
  }
  study.overlapped = schedule == "zb2p_overlapped";
  study.clip = random.Chance(3);
  study.orders = schedule == "greedy" ? GreedyOrders(study, ChooseGreedy(study, random))
                                      : LibraryOrders(study, study.overlapped ? "zb2p" : schedule);
  return study;
}

}  // namespace piper::mutants
