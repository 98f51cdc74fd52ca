// A compute-only table -> the same with its messages and reductions, as PyTorch lists them: ranks take turns,
// in rank order; a rank whose inputs are there lists its next step and the sends of its results, and each
// receive stands in the receiving rank's row from that moment on. Between stages of one rank there is no
// message. A stage's REDUCE_GRAD follows its last backward.
#pragma once

#include "ir/schedule_csv/table.h"

namespace piper::ir::schedule_csv {

// `table` must not be stuck (unit_time.h), nor hold idle cells. `reduced`: the stages with a REDUCE_GRAD.
// `waits`: also the WAIT_SEND_F (behind the backward of the same microbatch), WAIT_SEND_B (at the end of the
// row) and WAIT_REDUCE_GRAD that PyTorch wants from 2.12 on.
Table WithCommunication(const Table& table, const Extent& extent, const std::vector<bool>& reduced,
                        bool waits);

}  // namespace piper::ir::schedule_csv
