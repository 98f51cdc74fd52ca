#include "tests/mutants_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>
#include <tuple>

#include "frontend/frontend.h"
#include "ir/program/program.h"
#include "ir/support/diagnostics.h"

namespace piper::mutants {
namespace {

enum class Shape { kLooped, kV, kTwoWays };

Shape ShapeOf(const std::string& schedule) {
  if (schedule == "dualpipe") return Shape::kTwoWays;
  const bool v = schedule == "zbv" || schedule == "v_half" || schedule == "v_min" || schedule == "dualpipev";
  return v ? Shape::kV : Shape::kLooped;
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

std::vector<RankOrder> LibraryOrders(const Study& study) {
  const bool takes_v = study.schedule == "interleaved" || study.schedule == "looped_bfs";
  std::ostringstream text;
  text
      << "import std.schedules\nimport std.topologies\nmodule One() {\n  param w: [width = 2] = ones\n"
      << "  forward(x: [batch, width = 2], y: [batch, width = 2]) -> loss { tag unit { mse(x * w, y) } }\n}\n"
      << "model net = One()\nstrategy study {\n  mesh (pp = " << study.p << ")\n";
  for (int rank = 0; rank < study.p; ++rank) {
    text << "  order on pp[" << rank << "] { schedules." << study.schedule << "(" << rank << ", " << study.p
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

// ---- messages

Listed MessageStep(const std::string& pass, const std::string& end, const Part& part) {
  Listed listed;
  listed.parts = {{pass, part.stage, part.dir, part.mb}};
  listed.end = end;
  return listed;
}

// The messages that must have come before a step, and those that can go after it. Chains without skips only.
void MessagesOf(const Study& study, const Listed& step, std::vector<Listed>* before,
                std::vector<Listed>* after) {
  for (const Part& part : step.parts) {
    const int here = study.RankOf(part.stage, part.dir);
    const auto apart = [&](int stage) {
      return stage >= 0 && stage < study.stages() && study.RankOf(stage, part.dir) != here;
    };
    if (part.pass == "F") {
      if (apart(part.stage - 1)) before->push_back(MessageStep("F", "recv", part));
      if (apart(part.stage + 1)) after->push_back(MessageStep("F", "send", part));
    } else if (part.pass != "BW") {
      if (apart(part.stage + 1)) before->push_back(MessageStep("BI", "recv", part));
      if (apart(part.stage - 1)) after->push_back(MessageStep("BI", "send", part));
    }
  }
}

// The other end of a message step, and the rank that it is on.
std::pair<Listed, int> OtherEnd(const Study& study, const Listed& message) {
  Listed other = message;
  Part& part = other.parts[0];
  const int step = (part.pass == "F") == (message.end == "send") ? 1 : -1;
  part.stage += step;
  other.end = message.end == "send" ? "recv" : "send";
  return {other, study.RankOf(part.stage, part.dir)};
}

// The rank's sends in the order of its steps, or its receives: pair by pair, in the order of the sends.
std::vector<Listed> DefaultMessages(const Study& study, int rank, const std::string& end) {
  std::vector<Listed> found;
  for (const RankOrder& order : study.orders) {
    if ((order.rank == rank) != (end == "send")) continue;
    for (const Listed& step : order.streams[0].steps) {
      std::vector<Listed> before, after;
      MessagesOf(study, step, &before, &after);
      for (const Listed& send : after) {
        auto [receive, peer] = OtherEnd(study, send);
        if (end == "send") found.push_back(send);
        if (end == "recv" && peer == rank) found.push_back(receive);
      }
    }
  }
  return found;
}

int AnyRank(const Study& study, Random& random) { return random.Below(study.orders.size()); }

void SwapTouched(std::vector<Listed>* steps, int a, int b) {
  std::swap((*steps)[a], (*steps)[b]);
  (*steps)[a].touched = (*steps)[b].touched = true;
}

// Two that follow each other, or any two.
void SwapSome(std::vector<Listed>* steps, bool neighbours, Random& random) {
  const int size = static_cast<int>(steps->size());
  if (size < 2) return;
  int a = random.Below(static_cast<size_t>(size - 1)), b = a + 1;
  if (!neighbours) {
    b = random.Below(static_cast<size_t>(size - 1));
    if (b >= a) ++b;
  }
  SwapTouched(steps, a, b);
}

// ---- the kinds

void Drop(Mutant* mutant, Random& random) {
  std::vector<Listed>& steps = mutant->study.orders[AnyRank(mutant->study, random)].compute();
  const int at = random.Below(steps.size());
  Listed& step = steps[at];
  const Part part = step.parts[random.Below(step.parts.size())];
  if (step.parts.size() == 1 && part.pass == "B" && random.Chance(2)) {
    // Half of a whole B. Stage 0 has a unit with a BI, so both halves are there.
    const bool input = random.Chance(2);
    step.parts[0].pass = input ? "BW" : "BI";
    step.touched = true;
    Listed gone{{part}, "", false};
    gone.parts[0].pass = input ? "BI" : "BW";
    mutant->dropped = gone.Text();
    return;
  }
  mutant->dropped = Listed{{part}, "", false}.Text();
  step.parts.erase(std::find(step.parts.begin(), step.parts.end(), part));
  step.touched = true;
  if (step.parts.empty()) steps.erase(steps.begin() + at);
}

void Duplicate(Mutant* mutant, Random& random) {
  Study& study = mutant->study;
  std::vector<Listed>& steps = study.orders[AnyRank(study, random)].compute();
  Listed& step = steps[random.Below(steps.size())];
  const int microbatches = study.m / study.directions;
  if (microbatches > 1 && random.Chance(3)) {
    // The same pass for another microbatch: that one stands twice, its own not at all.
    Part& part = step.parts[random.Below(step.parts.size())];
    part.mb = (part.mb + 1 + random.Below(static_cast<size_t>(microbatches - 1))) % microbatches;
    step.touched = true;
    return;
  }
  step.touched = true;
  Listed again = step;
  const int part = random.Below(again.parts.size());
  again.parts = {again.parts[part]};
  if (again.parts[0].pass == "B" && random.Chance(3)) again.parts[0].pass = random.Chance(2) ? "BI" : "BW";
  steps.insert(steps.begin() + random.Below(steps.size() + 1), again);
}

void MoveStep(Mutant* mutant, Random& random) {
  Study& study = mutant->study;
  const int from = AnyRank(study, random);
  const int to = (from + 1 + random.Below(study.orders.size() - 1)) % static_cast<int>(study.orders.size());
  std::vector<Listed>& steps = study.orders[from].compute();
  const int at = random.Below(steps.size());
  Listed step = steps[at];
  step.touched = true;
  steps.erase(steps.begin() + at);
  std::vector<Listed>& others = study.orders[to].compute();
  others.insert(others.begin() + random.Below(others.size() + 1), step);
}

// A copy of a stage goes to another rank with all of its steps. There they stand among the others as in one
// execution of the whole step, which is always possible; half of the time two of them change places.
void MoveStage(Mutant* mutant, const std::map<std::string, int>& moment, Random& random) {
  Study& study = mutant->study;
  Placed& place = study.places[random.Below(study.places.size())];
  const int from = place.rank;
  int to = random.Below(static_cast<size_t>(study.p - 1));
  if (to >= from) ++to;
  place.rank = to;
  place.touched = true;
  const auto order_of = [&](int rank) {
    return std::find_if(study.orders.begin(), study.orders.end(),
                        [&](const RankOrder& o) { return o.rank == rank; });
  };
  std::vector<Listed> kept, moved;
  const auto goes = [&](const Part& part) { return part.stage == place.stage && part.dir == place.dir; };
  const auto at = [&](const Listed& step) { return moment.at(step.Text()); };
  std::vector<std::pair<int, Listed>> merged;
  for (const Listed& step : order_of(from)->compute()) {
    std::vector<Part> stay, go;
    for (const Part& part : step.parts) (goes(part) ? go : stay).push_back(part);
    if (!go.empty()) merged.push_back({at(step), {go, "", true}});
    if (!stay.empty()) kept.push_back({stay, "", step.touched});
  }
  for (const Listed& step : order_of(to)->compute()) merged.push_back({at(step), step});
  std::stable_sort(merged.begin(), merged.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Listed>& there = order_of(to)->compute();
  there.clear();
  for (auto& [when, step] : merged) there.push_back(step);
  order_of(from)->compute() = kept;
  if (kept.empty()) study.orders.erase(order_of(from));
  if (random.Chance(2)) SwapSome(&there, random.Chance(2), random);
}

void Split(Mutant* mutant, Random& random) {
  Study& study = mutant->study;
  std::vector<Listed>& steps = study.orders[AnyRank(study, random)].compute();
  const int at = random.Below(steps.size());
  Listed& step = steps[at];
  const int part = random.Below(step.parts.size());
  Listed moved{{step.parts[part]}, "", true};
  step.touched = true;
  int first = 0;
  if (moved.parts[0].pass == "B") {
    step.parts[part].pass = "BI";
    moved.parts[0].pass = "BW";
    if (!random.Chance(4)) first = at + 1;
  } else {
    step.parts.erase(step.parts.begin() + part);
    if (step.parts.empty()) steps.erase(steps.begin() + at);
  }
  const auto room = static_cast<size_t>(static_cast<int>(steps.size()) + 1 - first);
  steps.insert(steps.begin() + first + random.Below(room), moved);
}

void Fuse(Mutant* mutant, Random& random) {
  Study& study = mutant->study;
  std::vector<Listed>& steps = study.orders[AnyRank(study, random)].compute();
  const int at = random.Below(steps.size() - 1);
  Listed& step = steps[at];
  step.touched = true;
  if (step.parts.size() > 1 && random.Chance(2)) {
    if (random.Chance(2)) {
      std::swap(step.parts[0], step.parts[1]);
      return;
    }
    Listed rest{{step.parts[1]}, "", true};
    step.parts.pop_back();
    steps.insert(steps.begin() + at + 1, rest);
    return;
  }
  // With the next one, or with a later one.
  int other = at + 1;
  if (random.Chance(3)) other += random.Below(steps.size() - static_cast<size_t>(other));
  std::vector<Part> parts = steps[other].parts;
  if (random.Chance(4)) std::swap(parts, step.parts);
  step.parts.insert(step.parts.end(), parts.begin(), parts.end());
  steps.erase(steps.begin() + other);
}

void Edge(Mutant* mutant, const std::map<std::string, int>& moment, Random& random) {
  Study& study = mutant->study;
  for (int edges = random.Between(1, 3); edges > 0; --edges) {
    if (random.Chance(2)) {
      // Steps of any two ranks, mostly in the order in which one execution does them.
      std::vector<Listed>& some = study.orders[AnyRank(study, random)].compute();
      std::vector<Listed>& others = study.orders[AnyRank(study, random)].compute();
      Listed from = some[random.Below(some.size())], to = others[random.Below(others.size())];
      const bool back = moment.at(from.Text()) > moment.at(to.Text());
      from.parts.resize(1);
      to.parts.resize(1);
      if (from.parts == to.parts) continue;
      if (back && !random.Chance(4)) std::swap(from, to);
      study.edges.push_back({from, to});
      continue;
    }
    // The steps of a rank with their messages about them, so that most edges lead forward in time.
    std::vector<Listed> all;
    for (const Listed& step : study.orders[AnyRank(study, random)].compute()) {
      std::vector<Listed> before, after;
      MessagesOf(study, step, &before, &after);
      all.insert(all.end(), before.begin(), before.end());
      for (const Part& part : step.parts) all.push_back({{part}, "", false});
      all.insert(all.end(), after.begin(), after.end());
    }
    int from = random.Below(all.size()), to = random.Below(all.size());
    if (from > to && !random.Chance(4)) std::swap(from, to);
    if (all[from].parts == all[to].parts && all[from].end == all[to].end) continue;
    all[from].touched = true;
    study.edges.push_back({all[from], all[to]});
  }
}

void Merge(Mutant* mutant, Random& random) {
  Study& study = mutant->study;
  const std::string stream = random.Chance(3) ? "compute" : "wire";
  const int which = random.Below(3);
  const bool sends = which != 1, receives = which != 0;
  if (sends) study.streams.push_back({"send", stream});
  if (receives) study.streams.push_back({"recv", stream});
  for (RankOrder& order : study.orders) {
    std::vector<Listed> merged;
    for (const Listed& step : order.compute()) {
      std::vector<Listed> before, after;
      MessagesOf(study, step, &before, &after);
      if (receives) merged.insert(merged.end(), before.begin(), before.end());
      if (stream == "compute") merged.push_back(step);
      if (sends) merged.insert(merged.end(), after.begin(), after.end());
    }
    if (stream == "compute") {
      order.compute() = merged;
    } else if (!merged.empty()) {
      order.streams.push_back({stream, merged});
    }
  }
  // Where messages meet is what a merge is about, so mostly it goes with a change of their order.
  for (int swaps = random.Below(3); swaps > 0; --swaps) {
    RankOrder& order = study.orders[AnyRank(study, random)];
    SwapSome(&order.streams.back().steps, !random.Chance(3), random);
  }
}

void Messages(Mutant* mutant, Random& random) {
  Study& study = mutant->study;
  const int which = random.Below(3);
  RankOrder& order = study.orders[AnyRank(study, random)];
  std::vector<Listed> steps = DefaultMessages(study, order.rank, which == 1 ? "recv" : "send");
  SwapSome(&steps, random.Chance(2), random);
  order.streams.push_back({which == 1 ? "recv" : "send", steps});
  if (which != 2) return;
  // The same messages in the same order at the other ends.
  std::map<int, std::vector<Listed>> theirs;
  for (const Listed& send : steps) {
    auto [receive, peer] = OtherEnd(study, send);
    theirs[peer].push_back(receive);
  }
  for (RankOrder& other : study.orders) {
    auto found = theirs.find(other.rank);
    if (found == theirs.end()) continue;
    // Receives from other ranks stay as they are.
    std::vector<Listed> all = found->second;
    for (const Listed& receive : DefaultMessages(study, other.rank, "recv")) {
      if (OtherEnd(study, receive).second != order.rank) all.push_back(receive);
    }
    other.streams.push_back({"recv", all});
  }
}

}  // namespace

std::string Listed::Text() const {
  std::string text;
  for (const Part& part : parts) {
    if (!text.empty()) text += ", ";
    text += part.pass + "[" + (end.empty() ? "" : end + ", ") + "stage = " + std::to_string(part.stage);
    if (part.dir >= 0) text += ", dir = " + std::to_string(part.dir);
    text += ", mb = " + std::to_string(part.mb) + "]";
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

std::string Study::Name() const {
  return schedule + " p = " + std::to_string(p) + (v > 1 ? ", v = " + std::to_string(v) : "") +
         ", m = " + std::to_string(m) + (dp > 1 ? ", dp = " + std::to_string(dp) : "") +
         (recompute.empty() ? "" : ", recompute " + recompute);
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
  for (const auto& [end, stream] : study.streams) put("  stream [" + end + "] on " + stream, true);
  for (const RankOrder& order : study.orders) {
    put("  order on pp[" + std::to_string(order.rank) + "] {");
    for (const Stream& stream : order.streams) {
      if (order.streams.size() > 1) put("    " + stream.name + ":");
      for (const Listed& step : stream.steps) put("      " + step.Text(), step.touched);
    }
    put("  }");
  }
  for (const auto& [from, to] : study.edges) put("  edge " + from.Text() + " -> " + to.Text(), true);
  put("}\ntrain {\n  model net\n  data random()\n  global_batch " + std::to_string(study.m * study.dp) +
      "\n  steps 1\n  optimizer sgd(lr = 0.0009765625)\n  seed 5\n  on machine(ranks = " +
      std::to_string(study.p * study.dp) + ")\n  using study\n}");
  return written;
}

const std::vector<std::string>& ScheduleNames() {
  static const std::vector<std::string> names = {"gpipe",  "one_f_one_b", "eager_1f1b",  "zb1p",
                                                 "zb2p",   "looped_bfs",  "interleaved", "zbv",
                                                 "v_half", "v_min",       "dualpipe",    "dualpipev"};
  return names;
}

Study ChooseStudy(const std::string& schedule, uint64_t seed, bool skips) {
  Random random(seed);
  Study study;
  study.schedule = schedule;
  const Shape shape = ShapeOf(schedule);
  study.p = random.Between(2, 8);
  if (shape == Shape::kTwoWays) study.p = 2 * random.Between(1, 4);
  if (shape == Shape::kV) study.v = 2;
  if (schedule == "interleaved" || schedule == "looped_bfs")
    study.v = study.p <= 4 ? random.Between(2, 3) : 2;
  study.directions = shape == Shape::kTwoWays ? 2 : 1;
  study.m = random.Between(2, study.p + 3);
  if (schedule == "zbv") study.m = 2 * study.p - 1 + random.Below(3);
  if (schedule == "dualpipev") study.m = 2 * study.p + random.Below(3);
  if (schedule == "dualpipe") study.m = 2 * study.p + 2 * random.Below(2);
  if (study.p <= 4 && random.Chance(4)) study.dp = 2;
  static const char* const kRecomputed[] = {"[unit]", "[stage]", "[*]", "[stage = 0..2]"};
  if (random.Chance(3)) study.recompute = kRecomputed[random.Below(std::size(kRecomputed))];
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
  study.orders = LibraryOrders(study);
  return study;
}

const char* KindName(Kind kind) {
  static const char* const names[] = {
      "neighbours swapped", "distant steps swapped", "dropped", "duplicated",  "moved",
      "size changed",       "split or shifted",      "fused",   "edges added", "streams merged",
      "messages swapped"};
  return names[static_cast<int>(kind)];
}

Mutant Mutate(const Study& good, Kind kind, const std::vector<int>& executed, uint64_t seed) {
  Random random(seed);
  Mutant mutant;
  mutant.study = good;
  std::map<std::string, int> moment;  // of a step, in the execution
  std::istringstream text(Write(good).text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);)
    lines.push_back(line.substr(std::min(line.size(), size_t{6})));
  for (int line : executed) moment.emplace(lines[line - 1], static_cast<int>(moment.size()));
  switch (kind) {
    case Kind::kSwapNeighbours:
    case Kind::kSwapDistant: {
      RankOrder& order = mutant.study.orders[AnyRank(good, random)];
      // Also the parts of a fused step: first the backward, then the forward.
      Listed& step = order.compute()[random.Below(order.compute().size())];
      if (step.parts.size() > 1 && random.Chance(8)) {
        std::swap(step.parts[0], step.parts[1]);
        step.touched = true;
        break;
      }
      SwapSome(&order.compute(), kind == Kind::kSwapNeighbours, random);
      break;
    }
    case Kind::kDrop:
      Drop(&mutant, random);
      break;
    case Kind::kDuplicate:
      Duplicate(&mutant, random);
      break;
    case Kind::kMove:
      if (random.Chance(2)) {
        MoveStep(&mutant, random);
      } else {
        MoveStage(&mutant, moment, random);
      }
      break;
    case Kind::kSize:
      break;
    case Kind::kSplit:
      Split(&mutant, random);
      break;
    case Kind::kFuse:
      Fuse(&mutant, random);
      break;
    case Kind::kEdge:
      Edge(&mutant, moment, random);
      break;
    case Kind::kMerge:
      Merge(&mutant, random);
      break;
    case Kind::kMessages:
      Messages(&mutant, random);
      break;
  }
  mutant.written = Write(mutant.study);
  return mutant;
}

std::pair<std::string, int> MutateSize(const std::string& dag_text, uint64_t seed) {
  Random random(seed);
  std::vector<std::string> lines;
  std::istringstream text(dag_text);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  std::vector<int> messages;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].rfind("node \"send ", 0) == 0 || lines[i].rfind("node \"recv ", 0) == 0) {
      messages.push_back(static_cast<int>(i));
    }
  }
  std::string result;
  if (messages.empty()) return {dag_text, 0};
  const int at = messages[random.Below(messages.size())];
  std::string& line = lines[at];
  const size_t begin = line.rfind(" bytes ") + 7;
  const size_t end = std::min(line.find(' ', begin), line.size());
  const int64_t bytes = std::stoll(line.substr(begin, end - begin));
  const int64_t others[] = {0, bytes - 4, bytes + 4, 2 * bytes, bytes / 2, bytes + 1, 4, int64_t{1} << 40};
  int64_t other = others[random.Below(std::size(others))];
  if (other == bytes) other += 8;
  line.replace(begin, end - begin, std::to_string(other));
  for (const std::string& l : lines) result += l + "\n";
  return {result, at + 1};
}

}  // namespace piper::mutants
