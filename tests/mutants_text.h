// Schedules of the library as explicit lists of steps, their mutants, and the programs that say them, one
// directive or step a line, so that a refusal's line can be compared with the lines that a mutation touched.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/mutants_chain.h"

namespace piper::testing {
struct Compiled;
}

namespace piper::mutants {

// Steele et al., SplitMix: a seed means the same mutant everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int Below(size_t n) { return n == 0 ? 0 : static_cast<int>((Next() >> 11) % n); }
  int Between(int low, int high) { return low + Below(static_cast<size_t>(high - low + 1)); }
  bool Chance(int n) { return Below(static_cast<size_t>(n)) == 0; }

 private:
  uint64_t state_;
};

// One selector of a step.
struct Part {
  std::string pass;  // F, B, BI, BW, R; empty where `Listed::end` says all
  int stage = 0, dir = -1, mb = 0;
  friend bool operator==(const Part&, const Part&) = default;
};
struct Listed {
  std::vector<Part> parts;  // several: fused
  // "send", "recv": the message that goes with the part; "offload.out", "offload.in": a stage's copies to the
  // host and back; else empty.
  std::string end;
  bool touched = false;  // by the mutation
  std::string Text() const;
};
struct Stream {
  std::string name;
  std::vector<Listed> steps;
};
// `lanes { .. }`, perhaps behind a `barrier`.
struct Block {
  bool barrier = false;
  std::vector<Stream> lanes;
};
struct RankOrder {
  int rank = 0;
  std::vector<Stream> streams;  // compute first
  std::vector<Block> blocks;    // if any: these, one after the other, and not `streams`
  std::vector<Listed>& compute() { return streams[0].steps; }
};
struct Placed {
  int stage = 0, dir = -1, rank = 0;
  bool touched = false;
};
struct Edge {
  Listed from, to;
  int distance = 0;
};
// `limit count live F per mb`, or of a stage: `limit count live F[stage = s]`.
struct Limit {
  int count = 1, stage = -1;
};
struct Study {
  std::string schedule;  // in std.schedules; "greedy", "zb2p_overlapped"
  int p = 1, v = 1, m = 1;
  int directions = 1;  // 2: two copies of every stage
  int dp = 1;          // replicas of the whole
  Chain chain;
  std::vector<int> units;  // of the chain, a stage
  std::vector<Placed> places;
  std::vector<std::pair<std::string, std::string>>
      streams;  // "send", "recv", "offload.*", "BW" -> the stream that all of them are on
  std::vector<RankOrder> orders;
  std::string recompute;    // "[unit]": what a `recompute` line names; empty: none
  std::string offload;      // "[unit] to host { prefetch 1 }"; empty: none
  bool clip = false;        // by a bound that nothing exceeds
  bool overlapped = false;  // updates are validated in the next step
  std::vector<Edge> edges;  // added by a mutation
  std::vector<Limit> limits;

  int stages() const { return static_cast<int>(units.size()); }
  int RankOf(int stage, int dir) const;
  std::string Name() const;
};

struct Written {
  std::string text;
  std::set<int> touched;  // lines, from 1
};
Written Write(const Study& study);

// The schedules that are mutated: those of std.schedules, an order that `greedy` has found for stages of
// unequal cost, and ZB-H2 with steps that overlap.
const std::vector<std::string>& ScheduleNames();

// A schedule as the library lists it, with sizes chosen by the seed: p in 2..8 (even where it must be), m
// from the smallest legal on. With `skips` values also jump two units.
Study ChooseStudy(const std::string& schedule, uint64_t seed, bool skips);

// A `greedy` strategy for the chain of a study, as the order of all ranks: as text, and as it was resolved.
struct GreedyChoice {
  std::vector<int> forward, input, weight;  // a stage's costs
  int latency = 0, in_flight = 0;           // 0: no bound
  std::string priority = "[B, F, W]";
  // The lines of the strategy that say so.
  std::string Costs() const;
  std::string Order() const;
};
GreedyChoice ChooseGreedy(const Study& study, Random& random);
// The order of each rank's computation in a plan, a step a stage and microbatch. No `fused` steps.
std::vector<RankOrder> OrdersOf(testing::Compiled& compiled);
std::vector<RankOrder> GreedyOrders(const Study& study, const GreedyChoice& choice);
// A study's program with one `greedy` order in place of its orders; the line of that order.
std::pair<std::string, int> WriteGreedy(const Study& study, const GreedyChoice& choice);

enum class Kind {
  kSwapNeighbours,  // two steps of a rank that follow each other
  kSwapDistant,     // any two steps of a rank
  kDrop,            // a step, a pass of it, or a part of a fused one
  kDuplicate,       // a step again somewhere, or in place of one for another microbatch
  kMove,            // a step to another rank; or a stage with its place and all of its steps
  kSize,            // of one end of a message: in the plan's text, the program stays as it is
  kSplit,           // a B in two, its BW elsewhere; or a pass elsewhere
  kFuse,            // two steps as one, one as two, the parts of one in the other order
  kEdge,            // up to three `edge` lines between steps of any ranks, or steps and messages of a rank
  kMerge,           // all sends, receives or both of a rank on one stream, or on compute
  kMessages,        // the order of a rank's messages
  kLimit,           // `limit` lines, around what the order keeps
  kLanes,        // orders in blocks of lanes, with messages; steps change places in their lane, across blocks
  kBarrier,      // such blocks with barriers between them
  kReplay,       // R steps listed, then swapped, moved, dropped, doubled, fused
  kOffload,      // the copies of `offload` listed, then likewise
  kSide,         // BW on a stream beside the rest, then likewise; or a step on the other stream
  kCollectives,  // reductions of gradients, of tied sums, of losses and of the norm listed, then likewise
};
constexpr int kKinds = 18;
const char* KindName(Kind kind);

struct Mutant {
  Study study;
  Written written;
  std::vector<std::string> dropped;  // kDrop: the steps that have gone, as text
};
// `executed`: lines of `good`'s text in an order in which they can be done (Verdict::executed).
Mutant Mutate(const Study& good, Kind kind, const std::vector<int>& executed, uint64_t seed);

// The same schedule with more of it written down, as a kind from kLimit on mutates it: limits that hold,
// lanes, barriers, R steps, copies.
Study Decorate(const Study& good, Kind kind, Random& random);

// One side's size changed in a plan's text; the line that was changed.
std::pair<std::string, int> MutateSize(const std::string& dag_text, uint64_t seed);

}  // namespace piper::mutants
