// Accepted plans on the real executor with hashes for values: a body writes into each of its results a hash
// of what it was given, so that a wrong microbatch, a stale or overwritten slot, a dropped or doubled message
// shows where it is read, and all the way to the final gradients and the loss. What must stand where is
// computed from the definition of the chain alone.
//
// A hash fills a buffer with finite floats of many magnitudes. The executor's own accumulates and reductions
// add them, so that a gradient is the fold of its slices' hashes, and a dropped or doubled slice or another
// order of folding changes the bits.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/pipeline.h"
#include "runtime/local_runner.h"
#include "tests/mutants_chain.h"

namespace piper::mutants {

// [unit][copy]: microbatches in the order in which a gradient's slices are folded.
using FoldOrders = std::vector<std::vector<std::vector<int>>>;

// What a run over `steps` steps must leave, by the definition alone.
class Expectation {
 public:
  // `folds` is of a replica; all do the same, each with its own microbatches.
  Expectation(const Chain& chain, const FoldOrders& folds, int replicas, int steps);

  struct Step {
    std::map<std::string, std::vector<float>> before, gradients;  // by parameter
    float loss = 0;
    std::vector<std::vector<uint64_t>> values;  // [unit][microbatch], those of a replica in a row
    std::vector<std::vector<uint64_t>> inner;   // what BI leaves for BW, likewise
    std::map<std::pair<int, int>, std::vector<uint64_t>> cotangents;  // (of, from unit): [microbatch]
  };
  const Chain& chain() const { return chain_; }
  int steps() const { return static_cast<int>(steps_.size()) - 1; }
  // Entry `steps()` has the parameters after the last step, and nothing else.
  const Step& at(int step) const { return steps_[static_cast<size_t>(step)]; }

  // A unit's gradient of a parameter for a microbatch.
  uint64_t Gradient(int step, int unit, const std::string& parameter, int microbatch) const;
  static uint64_t Data(uint32_t field, uint64_t step, int64_t sample);

 private:
  const Chain chain_;
  std::vector<Step> steps_;
};

// Mixes `value` into `hash`.
uint64_t Mix(uint64_t hash, uint64_t value);
// The floats that stand for `hash` in a buffer; `salt` tells buffers of one hash apart.
void Fill(uint64_t hash, uint64_t salt, float* out, int64_t elements);

struct HashRun {
  uint64_t delay_seed = 0;
  uint32_t delay_microseconds = 0, delay_one_in = 1;  // runtime/executor.h
  bool rendezvous = false;
};
// Runs all steps of `expected` and compares everything that is read or left. Empty: all as expected; else the
// first fault. May be called from several threads at a time.
std::string RunWithHashes(const ir::Plan& plan, const Expectation& expected, const HashRun& run);

}  // namespace piper::mutants
