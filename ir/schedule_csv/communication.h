// A compute-only table -> the same with its messages and reductions, as PyTorch lists them: ranks take turns,
// in rank order; a rank whose inputs are there lists its next step and the sends of its results, and each
// receive stands in the receiving rank's row from that moment on. Between stages of one rank there is no
// message. A stage's REDUCE_GRAD follows its last backward.
#pragma once

#include <vector>

#include "ir/schedule_csv/table.h"

namespace piper::ir::schedule_csv {

struct Communication {
  std::vector<bool> reduced;  // per stage: with a REDUCE_GRAD
  // Also the WAIT_SEND_F (behind the backward of the same microbatch), WAIT_SEND_B (at the end of the row)
  // and WAIT_REDUCE_GRAD that PyTorch wants from 2.12 on.
  bool waits = false;
  // Not 0: also UNSHARD and RESHARD, with so many stages of a rank gathered at a time (unshard.h).
  size_t active_stages = 0;
};

// What PyTorch's runtime gathers at a time if it is told nothing.
constexpr size_t kActiveStages = 3;

// `table` must not be stuck (unit_time.h), nor hold idle cells.
Table WithCommunication(const Table& table, const Extent& extent, const Communication& communication);

}  // namespace piper::ir::schedule_csv
