// One run of list scheduling under one rule. Internal to ir/search.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/search/list_schedule.h"

namespace piper::ir {

struct ListRule {
  // Which pass first: 0 is served first. Not used where `given`: then ListProblem::priority rules.
  uint8_t rank_of_pass[3] = {1, 0, 2};
  bool given = true;
  // Wait for something of a higher rank that arrives within this many per cent of what would be run instead.
  int patience = 0;
  // Microbatches in flight on a host beyond what its round trip takes at the pace of the slowest host; -1: as
  // many as the caps allow.
  int slack = -1;
  bool deep_first = true;  // of equals, what is further along; else what stands earlier in the model
};

// Appends to nothing: `out` is overwritten. `stuck` where some operation never became ready within the caps.
void RunList(const ListProblem& problem, const ListRule& rule, ListOrder* out);

}  // namespace piper::ir
