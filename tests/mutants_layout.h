// What the brute-force model (tests/mutants_model.h) knows of a strategy before it plays it: where units are,
// what a step stands for, and what the definition of the chain says that a pass reads.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/mutants_chain.h"
#include "tests/mutants_items.h"
#include "tests/mutants_program.h"

namespace piper::mutants {

class Layout {
 public:
  Layout(const Strategy& strategy, const Chain& chain) : strategy_(strategy), chain_(chain) {
    for (size_t stage = 0; stage < strategy.units_of_stage.size(); ++stage) {
      stage_of_.insert(stage_of_.end(), static_cast<size_t>(strategy.units_of_stage[stage]),
                       static_cast<int>(stage));
    }
  }
  // The cut is one of the whole chain.
  bool covers() const { return static_cast<int>(stage_of_.size()) == chain_.size(); }

  const Place* PlaceOf(int stage, int mb) const {
    for (const Place& place : strategy_.places) {
      if (place.stage == stage && (place.dir < 0 || place.dir == mb / strategy_.microbatches_a_direction))
        return &place;
    }
    return nullptr;
  }
  int RankOf(int unit, int mb) const { return PlaceOf(stage_of_[unit], mb)->rank; }
  bool HasInputPass(int unit) const { return !chain_.units[unit].inputs.empty(); }
  std::string Name(const Operation& o) const {
    return std::string(kPassNames[o.pass]) + " " + chain_.units[o.unit].region + " mb " +
           std::to_string(o.mb);
  }

  bool Names(const Claimed& claimed, int unit) const {
    if (claimed.line == 0 || (claimed.units_only && chain_.units[unit].region == "ramp")) return false;
    return stage_of_[unit] >= claimed.begin && stage_of_[unit] < claimed.end;
  }
  static bool IsCopy(const Selected& s) { return s.end == "offload.out" || s.end == "offload.in"; }

  static bool IsMessage(const Selected& s) { return s.end == "send" || s.end == "recv"; }
  static bool IsCollective(const Selected& s) { return !s.end.empty() && !IsMessage(s) && !IsCopy(s); }

  // The collectives of a step. A stage's gradients are reduced over its copies and replicas; what the first
  // and the last unit share is summed between ranks where not every rank of either has both; losses meet on
  // all ranks, and the norm where something is clipped (a norm that is carried into the next step is none of
  // this step's).
  std::vector<Meeting> Collectives() const {
    std::vector<Meeting> all;
    std::map<int, std::set<int>> ranks_of;  // a stage
    std::set<int> every;
    for (const Place& place : strategy_.places) {
      ranks_of[place.stage].insert(place.rank);
      every.insert(place.rank);
    }
    const auto needs = [&](int pass, int unit, Meeting* meeting) {
      for (int mb = 0; mb < strategy_.microbatches(); ++mb) meeting->needs.push_back({pass, unit, mb});
    };
    std::map<int, int> reduce_of;  // a stage
    for (const auto& [stage, ranks] : ranks_of) {
      if (strategy_.replicas * static_cast<int>(ranks.size()) == 1) continue;
      Meeting reduce{"dp.reduce", stage, ranks, {}, {}, {}, false};
      for (int unit = 0; unit < chain_.size(); ++unit) {
        if (stage_of_[unit] == stage) needs(kWeight, unit, &reduce);
      }
      reduce_of[stage] = static_cast<int>(all.size());
      all.push_back(reduce);
    }
    const int last = chain_.size() - 1;
    if (ranks_of[stage_of_[0]] != ranks_of[stage_of_[last]]) {
      Meeting tie{"tie.reduce", -1, ranks_of[stage_of_[0]], {}, {}, {}, false};
      tie.ranks.insert(ranks_of[stage_of_[last]].begin(), ranks_of[stage_of_[last]].end());
      for (int unit : {0, last}) {
        needs(kWeight, unit, &tie);
        if (reduce_of.count(stage_of_[unit])) tie.after.push_back(reduce_of[stage_of_[unit]]);
      }
      all.push_back(tie);
    }
    Meeting norm{"clip.norm", -1, every, {}, {}, {}, false};
    for (size_t i = 0; i < all.size(); ++i) norm.after.push_back(static_cast<int>(i));
    for (int unit = 0; unit < chain_.size(); ++unit) needs(kWeight, unit, &norm);
    Meeting loss{"loss.reduce", -1, every, {}, {}, {}, false};
    needs(kForward, last, &loss);
    if (strategy_.replicas * static_cast<int>(every.size()) == 1) return all;
    all.push_back(loss);
    if (strategy_.clips && !strategy_.carried) all.push_back(norm);
    return all;
  }
  std::string CollectivesOn(const Meeting& meeting) const {
    auto moved = strategy_.streams.find(meeting.name);
    return moved == strategy_.streams.end() ? "reduce" : moved->second.first;
  }

  // The operations of one selector, in the order in which a step does them: F up the chain, B down it, a
  // unit's BI and BW of a whole B as one.
  std::vector<std::vector<Operation>> Expand(const Selected& s) const {
    std::vector<std::vector<Operation>> groups;
    const int mb = s.dir * strategy_.microbatches_a_direction + s.mb;
    for (int i = 0; i < chain_.size(); ++i) {
      const bool down = s.pass == "B" || s.pass == "BI" || s.pass == "BW";
      const int unit = down ? chain_.size() - 1 - i : i;
      if (stage_of_[unit] != s.stage) continue;
      std::vector<Operation> group;
      if (s.pass == "F") group.push_back({kForward, unit, mb});
      if ((s.pass == "B" || s.pass == "BI") && HasInputPass(unit)) group.push_back({kInput, unit, mb});
      if (s.pass == "B" || s.pass == "BW") group.push_back({kWeight, unit, mb});
      if (s.pass == "R" && Names(strategy_.recompute, unit)) group.push_back({kReplay, unit, mb});
      if (s.end == "offload.out" && Names(strategy_.offload, unit)) group.push_back({kOut, unit, mb});
      if (s.end == "offload.in" && Names(strategy_.offload, unit)) group.push_back({kIn, unit, mb});
      if (!group.empty()) groups.push_back(group);
    }
    return groups;
  }

  std::string ComputesOn(int pass) const {
    auto moved = strategy_.streams.find("BW");
    return pass == kWeight && moved != strategy_.streams.end() ? moved->second.first : "compute";
  }

  // What must be back from the host before a backward pass: what the unit's own F left, and for the gradient
  // of parameters the unit's inputs, if they were made on the rank. What has arrived in a message stays.
  std::vector<Operation> Fetched(const Operation& o) const {
    std::vector<Operation> fetched;
    if (o.pass != kInput && o.pass != kWeight) return fetched;
    if (Names(strategy_.offload, o.unit)) fetched.push_back({kIn, o.unit, o.mb});
    const int factor = FactorOf(o);
    if (factor >= 0 && Names(strategy_.offload, factor)) fetched.push_back({kIn, factor, o.mb});
    return fetched;
  }
  // The units whose F left on the rank what a backward pass reads: its own, and for the gradient of
  // parameters the one that made its factor, unless a replay of the stage makes that again.
  std::vector<int> ReadBy(const Operation& o) const {
    std::vector<int> units;
    if (o.pass != kInput && o.pass != kWeight) return units;
    units.push_back(o.unit);
    const int factor = FactorOf(o);
    const bool replayed = factor >= 0 && strategy_.recompute.whole_stages &&
                          stage_of_[factor] == stage_of_[o.unit] && Names(strategy_.recompute, factor);
    if (factor >= 0 && !replayed) units.push_back(factor);
    return units;
  }
  // The gradient of a unit's parameters is its cotangent times what it multiplies them by: the unit that made
  // that, if it is on the rank; else -1.
  int FactorOf(const Operation& o) const {
    if (o.pass != kWeight || !HasInputPass(o.unit)) return -1;
    const int factor = chain_.units[o.unit].inputs.back();
    return RankOf(factor, o.mb) == RankOf(o.unit, o.mb) ? factor : -1;
  }

 protected:
  const Strategy& strategy_;
  const Chain& chain_;
  std::vector<int> stage_of_;  // a unit
};

}  // namespace piper::mutants
