// The stage copies of a DAG: a stage that is placed on two groups is two. Tasks of a RankProgram refer to
// them by number (runtime::Task::key); pictures and exports name them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/dag/dag.h"
#include "ir/program/program.h"

namespace piper::ir {

struct StageCopy {
  int64_t stage = -1;  // -1: the model is not cut
  uint32_t copy = 0;
  friend bool operator==(const StageCopy&, const StageCopy&) = default;
};

// The tag that `cut` gives to its parts, "stage" where nothing is cut.
std::string StageTag(const Program& program);

// In the order of the first template of each. `key_of`, unless null: per template the position of its stage
// copy in the result, kNone for what is not compute.
std::vector<StageCopy> ListStageCopies(const Dag& dag, const Program& program,
                                       std::vector<uint32_t>* key_of = nullptr);

}  // namespace piper::ir
