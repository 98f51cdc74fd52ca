// The list problem (ir/search) of a training DAG's greedy orders: what the passes of each stage cost, wait
// for and hold. Internal to greedy.cpp.
#pragma once

#include <vector>

#include "ir/directives/context.h"
#include "ir/search/list_schedule.h"

namespace piper::ir {

struct GreedyProblem {
  ListProblem list;                                     // hosts as in BuildContext::hosts
  std::vector<std::vector<TemplateId>> pass_templates;  // per queue: what one operation runs, in order
  // Per host: bytes of `memory` that are kept free for values on their way to host memory and back; the caps
  // in `list` are less by so much.
  std::vector<int64_t> reserve;
};

// Reads compute, messages, costs, given orders and `edge` lines. Figures are scaled down where their sum
// would overflow.
GreedyProblem BuildGreedyProblem(const BuildContext& context);

// The backward passes of these orders stay whole: no priority names BW alone.
bool KeepsBackwardWhole(const GreedySpec& spec);

}  // namespace piper::ir
