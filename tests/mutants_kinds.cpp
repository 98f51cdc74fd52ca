// The kinds of mutants: what is done to a schedule's lists of steps, and more of a schedule written down.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "tests/mutants_text.h"

namespace piper::mutants {
namespace {

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
    if (part.pass == "R") continue;
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
  // Several: a report of up to three says which.
  std::set<std::tuple<int, int, int>> gone;
  for (int more = random.Chance(4) ? random.Between(2, 6) : 0; more > 0 && steps.size() > 1; --more) {
    const int at = random.Below(steps.size());
    const Part part = steps[at].parts[0];
    if (steps[at].parts.size() > 1 || part.pass == "R") continue;
    if (!gone.insert({part.stage, part.dir, 2 * part.mb + (part.pass == "F")}).second) continue;
    mutant->dropped.push_back(steps[at].Text());
    steps.erase(steps.begin() + at);
  }
  if (!gone.empty()) return;
  const int at = random.Below(steps.size());
  Listed& step = steps[at];
  const Part part = step.parts[random.Below(step.parts.size())];
  if (step.parts.size() == 1 && part.pass == "B" && random.Chance(2)) {
    // Half of a whole B. Stage 0 has a unit with a BI, so both halves are there.
    const bool input = random.Chance(2);
    step.parts[0].pass = input ? "BW" : "BI";
    step.touched = true;
    Listed half{{part}, "", false};
    half.parts[0].pass = input ? "BI" : "BW";
    mutant->dropped = {half.Text()};
    return;
  }
  mutant->dropped = {Listed{{part}, "", false}.Text()};
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

void AddEdges(Mutant* mutant, const std::map<std::string, int>& moment, Random& random) {
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
      // Into the next step the way back is open.
      if (study.overlapped && random.Chance(2)) {
        study.edges.back().distance = random.Chance(8) ? 2 : 1;
        if (random.Chance(2)) std::swap(study.edges.back().from, study.edges.back().to);
      }
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

// ---- more of the order is written down

bool Claims(const std::string& selector, int stage) {
  return selector.find("0..2") == std::string::npos || stage < 2;
}

// A stage's R before the first step that needs it.
void ListReplays(Study* study) {
  for (RankOrder& order : study->orders) {
    std::vector<Listed> steps;
    std::set<std::tuple<int, int, int>> seen;
    for (const Listed& step : order.compute()) {
      for (const Part& part : step.parts) {
        if (part.pass == "F" || !Claims(study->recompute, part.stage)) continue;
        if (!seen.insert({part.stage, part.dir, part.mb}).second) continue;
        steps.push_back({{part}, "", false});
        steps.back().parts[0].pass = "R";
      }
      steps.push_back(step);
    }
    order.compute() = steps;
  }
}

// The copies of each stage: out as it has been done, in as it is read again. On a stream of each, or on one.
void ListCopies(Study* study, bool together) {
  if (together) study->streams.push_back({"offload.*", "copies"});
  for (RankOrder& order : study->orders) {
    std::vector<Listed> out, in, both;
    std::set<std::tuple<int, int, int>> seen;
    const auto fetch = [&](const Part& part, int stage) {
      if (!Claims(study->offload, stage) || !seen.insert({stage, part.dir, part.mb}).second) return;
      in.push_back({{{"", stage, part.dir, part.mb}}, "offload.in", false});
      both.push_back(in.back());
    };
    for (const Listed& step : order.compute()) {
      for (const Part& part : step.parts) {
        if (part.pass == "F") {
          if (!Claims(study->offload, part.stage)) continue;
          out.push_back({{{"", part.stage, part.dir, part.mb}}, "offload.out", false});
          both.push_back(out.back());
          continue;
        }
        fetch(part, part.stage);
        // The gradient of parameters reads what the stage before has made, too.
        const bool beside = part.stage > 0 && study->RankOf(part.stage - 1, part.dir) == order.rank;
        if (part.pass != "BI" && beside) fetch(part, part.stage - 1);
      }
    }
    if (together) {
      order.streams.push_back({"copies", both});
    } else {
      order.streams.push_back({"offload", out});
      order.streams.push_back({"prefetch", in});
    }
  }
}

// A rank's steps in up to four blocks, with the messages about them: `receives` in the order of their
// readers.
void CutIntoBlocks(const Study& study, RankOrder* order, const std::string& sends,
                   const std::string& receives, bool barriers, Random& random) {
  const std::vector<Listed> steps = order->compute();
  std::vector<size_t> cuts = {0, steps.size()};
  for (int more = random.Between(barriers, 3); more > 0; --more)
    cuts.push_back(static_cast<size_t>(random.Below(steps.size())));
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  for (size_t b = 0; b + 1 < cuts.size(); ++b) {
    Block block;
    block.barrier = barriers && b > 0;
    block.lanes = {{"compute", {}}};
    const auto lane = [&](const std::string& name) -> std::vector<Listed>& {
      for (Stream& stream : block.lanes) {
        if (stream.name == name) return stream.steps;
      }
      return block.lanes.emplace_back(Stream{name, {}}).steps;
    };
    for (size_t i = cuts[b]; i < cuts[b + 1]; ++i) {
      std::vector<Listed> before, after;
      MessagesOf(study, steps[i], &before, &after);
      for (const Listed& receive : before) {
        if (!receives.empty()) lane(receives).push_back(receive);
      }
      lane("compute").push_back(steps[i]);
      for (const Listed& send : after) {
        if (!sends.empty()) lane(sends).push_back(send);
      }
    }
    order->blocks.push_back(block);
  }
}

// All ranks list what has a stream of its own there; else some of them list what they like.
void WriteBlocks(Study* study, bool barriers, Random& random) {
  const bool named = !barriers && random.Chance(3);
  const int which = random.Below(3);
  const bool sends = which != 1, receives = which == 1 || (which == 2 && random.Chance(2));
  if (named && sends) study->streams.push_back({"send", "wire"});
  if (named && receives) study->streams.push_back({"recv", "wire"});
  const int all = random.Below(3);  // ranks: one, some, all
  const int one = AnyRank(*study, random);
  for (size_t r = 0; r < study->orders.size(); ++r) {
    if (!named && (all == 0 ? static_cast<int>(r) != one : all == 1 && random.Chance(2))) continue;
    CutIntoBlocks(*study, &study->orders[r],
                  !sends  ? ""
                  : named ? "wire"
                          : "send",
                  !receives ? ""
                  : named   ? "wire"
                            : "recv",
                  barriers, random);
  }
}

// A step changes its place within its lane, in its block or in another one.
void MoveInLane(Study* study, Random& random) {
  std::vector<RankOrder*> blocked;
  for (RankOrder& order : study->orders) {
    if (!order.blocks.empty()) blocked.push_back(&order);
  }
  if (blocked.empty()) return;
  RankOrder& order = *blocked[static_cast<size_t>(random.Below(blocked.size()))];
  Block& from = order.blocks[static_cast<size_t>(random.Below(order.blocks.size()))];
  Stream& lane = from.lanes[static_cast<size_t>(random.Below(from.lanes.size()))];
  if (lane.steps.empty()) return;
  const int at = random.Below(lane.steps.size());
  Listed step = lane.steps[static_cast<size_t>(at)];
  step.touched = true;
  lane.steps.erase(lane.steps.begin() + at);
  const std::string name = lane.name;
  Block& to = random.Chance(2) ? from : order.blocks[static_cast<size_t>(random.Below(order.blocks.size()))];
  for (Stream& other : to.lanes) {
    if (other.name != name) continue;
    other.steps.insert(other.steps.begin() + random.Below(other.steps.size() + 1), step);
    return;
  }
  to.lanes.push_back({name, {step}});
}

// The most that live at once on a rank: microbatches, or units of a stage times microbatches.
int MostAlive(const Study& study, int stage) {
  int most = 0;
  for (RankOrder order : study.orders) {
    std::map<std::tuple<int, int, int>, int> ends;  // the last backward step of each life
    const auto key = [&](const Part& part) {
      return std::tuple(stage < 0 ? 0 : part.stage, part.dir, part.mb);
    };
    const std::vector<Listed>& steps = order.compute();
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const Part& part : steps[i].parts) ends[key(part)] = static_cast<int>(i);
    }
    std::set<std::tuple<int, int, int>> alive;
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const Part& part : steps[i].parts) {
        if (part.pass == "F" && (stage < 0 || part.stage == stage)) alive.insert(key(part));
      }
      most = std::max(most, static_cast<int>(alive.size()) * (stage < 0 ? 1 : study.units[stage]));
      for (const Part& part : steps[i].parts) {
        if (ends[key(part)] == static_cast<int>(i)) alive.erase(key(part));
      }
    }
  }
  return most;
}

void AddLimits(Study* study, int low, int high, Random& random) {
  for (int limits = random.Between(1, 2); limits > 0; --limits) {
    Limit limit;
    limit.stage = random.Chance(2) ? -1 : random.Below(study->units.size());
    limit.count = std::max(1, MostAlive(*study, limit.stage) + random.Between(low, high));
    study->limits.push_back(limit);
  }
}

// One of `steps` that `is` (any, if none is) is swapped, moved, dropped, doubled, or fused with the one after
// it.
void Disturb(std::vector<Listed>* steps, const std::function<bool(const Listed&)>& is, bool may_drop,
             Random& random) {
  std::vector<int> found;
  for (size_t i = 0; i < steps->size(); ++i) {
    if (is((*steps)[i])) found.push_back(static_cast<int>(i));
  }
  if (found.empty() || steps->size() < 2) return;
  const int at = found[static_cast<size_t>(random.Below(found.size()))];
  const int what = random.Below(8);
  Listed step = (*steps)[static_cast<size_t>(at)];
  step.touched = true;
  if (what == 0) {
    (*steps)[static_cast<size_t>(at)].touched = true;
    steps->insert(steps->begin() + random.Below(steps->size() + 1), step);
  } else if (what == 1 && may_drop && step.parts.size() == 1) {
    steps->erase(steps->begin() + at);
  } else if (what == 2 && may_drop && at + 1 < static_cast<int>(steps->size())) {
    const std::vector<Part> next = (*steps)[static_cast<size_t>(at) + 1].parts;
    step.parts.insert(random.Chance(4) ? step.parts.begin() : step.parts.end(), next.begin(), next.end());
    (*steps)[static_cast<size_t>(at)] = step;
    steps->erase(steps->begin() + at + 1);
  } else if (what < 5) {
    SwapTouched(steps, at,
                at > 0 && random.Chance(2)                 ? at - 1
                : at + 1 < static_cast<int>(steps->size()) ? at + 1
                                                           : at - 1);
  } else {
    steps->erase(steps->begin() + at);
    steps->insert(steps->begin() + random.Below(steps->size() + 1), step);
  }
}

// Every BW on a stream of its own, in the order of the backward steps; what is left of a fused step stays
// one.
void PutBeside(Study* study) {
  study->streams.push_back({"BW", "side"});
  for (RankOrder& order : study->orders) {
    std::vector<Listed> kept, beside;
    for (Listed step : order.compute()) {
      std::vector<Part> parts;
      for (Part part : step.parts) {
        if (part.pass == "B" || part.pass == "BW") {
          beside.push_back({{{"BW", part.stage, part.dir, part.mb}}, "", false});
          if (part.pass == "BW") continue;
          part.pass = "BI";
        }
        parts.push_back(part);
      }
      step.parts = parts;
      if (!parts.empty()) kept.push_back(step);
    }
    order.compute() = kept;
    order.streams.push_back({"side", beside});
  }
}

// All collectives of each rank in one order that the ranks share, on the stream of theirs; those of gradients
// perhaps on another one, or among the steps. One kind may be left out everywhere: it stands where it can.
void ListCollectives(Study* study, Random& random) {
  const int where = random.Below(4);
  if (where == 2) study->streams.push_back({"dp.reduce", "sums"});
  if (where == 3) study->streams.push_back({"dp.reduce", "compute"});
  static const char* const kLeftOut[] = {"loss.reduce", "tie.reduce", "clip.norm", "", "", ""};
  const std::string left_out = kLeftOut[random.Below(std::size(kLeftOut))];
  std::map<int, std::set<int>> ranks_of;
  for (const Placed& place : study->places) ranks_of[place.stage].insert(place.rank);
  const auto listed = [](const char* name, int stage) { return Listed{{{"", stage, -1, -1}}, name, false}; };
  for (RankOrder& order : study->orders) {
    Stream reduce{"reduce", {listed("loss.reduce", -1)}}, sums{"sums", {}};
    for (int stage = study->stages() - 1; stage >= 0; --stage) {
      const std::set<int>& ranks = ranks_of[stage];
      if (!ranks.count(order.rank) || study->dp * static_cast<int>(ranks.size()) == 1) continue;
      std::vector<Listed>& steps = where == 2 ? sums.steps : where == 3 ? order.compute() : reduce.steps;
      steps.push_back(listed("dp.reduce", stage));
    }
    const std::set<int>&first = ranks_of[0], &last = ranks_of[study->stages() - 1];
    if (first != last && (first.count(order.rank) || last.count(order.rank)))
      reduce.steps.push_back(listed("tie.reduce", -1));
    if (study->clip && !study->overlapped) reduce.steps.push_back(listed("clip.norm", -1));
    std::erase_if(reduce.steps, [&](const Listed& step) { return step.end == left_out; });
    order.streams.push_back(reduce);
    if (!sums.steps.empty()) order.streams.push_back(sums);
  }
}

const char* const kRecomputed[] = {"[unit]", "[stage]", "[*]", "[stage = 0..2]"};

}  // namespace

Study Decorate(const Study& good, Kind kind, Random& random) {
  Study study = good;
  if (kind == Kind::kReplay) {
    study.recompute = kRecomputed[random.Below(std::size(kRecomputed))];
    ListReplays(&study);
  } else if (kind == Kind::kOffload) {
    study.recompute.clear();
    // By single units the copies of a stage come back in another order than a step lists them, so one ahead
    // at least.
    study.offload = kRecomputed[random.Below(std::size(kRecomputed))];
    const bool by_stage = study.offload.find("stage") != std::string::npos;
    study.offload += " to host { prefetch " + std::to_string(random.Between(by_stage ? 0 : 1, 3)) + " }";
    ListCopies(&study, random.Chance(4));
  } else if (kind == Kind::kSide) {
    PutBeside(&study);
  } else if (kind == Kind::kCollectives) {
    if (study.p <= 4 && random.Chance(2)) study.dp = 2;
    ListCollectives(&study, random);
  } else if (kind == Kind::kLimit) {
    AddLimits(&study, 0, 1, random);
  } else if (kind == Kind::kLanes || kind == Kind::kBarrier) {
    WriteBlocks(&study, kind == Kind::kBarrier, random);
  }
  return study;
}

const char* KindName(Kind kind) {
  static const char* const names[] = {"neighbours swapped",
                                      "distant steps swapped",
                                      "dropped",
                                      "duplicated",
                                      "moved",
                                      "size changed",
                                      "split or shifted",
                                      "fused",
                                      "edges added",
                                      "streams merged",
                                      "messages swapped",
                                      "limits",
                                      "lanes",
                                      "barriers",
                                      "recompute listed",
                                      "offload listed",
                                      "BW beside",
                                      "collectives listed"};
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
      AddEdges(&mutant, moment, random);
      break;
    case Kind::kMerge:
      Merge(&mutant, random);
      break;
    case Kind::kMessages:
      Messages(&mutant, random);
      break;
    case Kind::kLimit: {
      AddLimits(&mutant.study, -1, 1, random);
      if (random.Chance(2)) SwapSome(&mutant.study.orders[AnyRank(good, random)].compute(), true, random);
      break;
    }
    case Kind::kLanes:
    case Kind::kBarrier:
      mutant.study = Decorate(good, kind, random);
      for (int moves = random.Below(3); moves > 0; --moves) MoveInLane(&mutant.study, random);
      break;
    case Kind::kReplay:
      mutant.study = Decorate(good, kind, random);
      for (int times = random.Between(1, 2); times > 0; --times) {
        Disturb(
            &mutant.study.orders[AnyRank(good, random)].compute(),
            [](const Listed& step) { return step.parts[0].pass == "R"; }, true, random);
      }
      break;
    case Kind::kOffload:
      mutant.study = Decorate(good, kind, random);
      for (int times = random.Between(1, 2); times > 0; --times) {
        RankOrder& order = mutant.study.orders[AnyRank(good, random)];
        const auto any = [](const Listed&) { return true; };
        const auto stream =
            static_cast<size_t>(random.Between(1, static_cast<int>(order.streams.size()) - 1));
        Disturb(&order.streams[stream].steps, any, false, random);
      }
      break;
    case Kind::kSide:
      mutant.study = Decorate(good, kind, random);
      for (int times = random.Between(1, 2); times > 0; --times) {
        RankOrder& order = mutant.study.orders[AnyRank(good, random)];
        const auto any = [](const Listed&) { return true; };
        std::vector<Listed>& from = order.streams[static_cast<size_t>(random.Below(2))].steps;
        if (!random.Chance(5)) {
          Disturb(&from, any, false, random);
          continue;
        }
        // To the other stream.
        std::vector<Listed>& to = order.streams[&from == &order.compute() ? 1 : 0].steps;
        const int at = random.Below(from.size());
        from[static_cast<size_t>(at)].touched = true;
        to.insert(to.begin() + random.Below(to.size() + 1), from[static_cast<size_t>(at)]);
        from.erase(from.begin() + at);
      }
      break;
    case Kind::kCollectives:
      mutant.study = Decorate(good, kind, random);
      for (int times = random.Between(1, 2); times > 0; --times) {
        RankOrder& order = mutant.study.orders[AnyRank(good, random)];
        const auto collective = [](const Listed& step) { return !step.end.empty(); };
        Disturb(&order.streams[static_cast<size_t>(random.Below(order.streams.size()))].steps, collective,
                false, random);
      }
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
