// Local search over orders: simulated annealing whose moves are made along the critical path. Internal to
// ir/search.
#pragma once

#include <cstdint>

#include "ir/search/list_schedule.h"

namespace piper::ir {

// Improves `best` (not stuck; timed by the same model) in place, until `bound` is reached or `budget`
// operations are timed. Orders stay within the caps.
void ImproveOrder(const ListProblem& problem, Picoseconds bound, uint64_t budget, ListOrder* best);

}  // namespace piper::ir
