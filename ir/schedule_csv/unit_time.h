// The time steps of a table if each cell takes one: a rank does its cells in order, each as soon as its
// inputs were made in an earlier time step. This is how PyTorch's own listings space their cells; it also
// finds orders that no rank can go on with.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/schedule_csv/table.h"

namespace piper::ir::schedule_csv {

struct UnitTimes {
  std::vector<std::vector<int64_t>> start;  // per rank and cell; -1: never reached
  // Ranks that cannot go on, and the cell that they stand at; empty if all cells were reached.
  struct Stuck {
    uint32_t rank = 0;
    size_t cell = 0;
    Step step, awaited;  // what of the cell waits, for what
  };
  std::vector<Stuck> stuck;
};

// `table` holds compute steps only (cells of communication count as nothing) and one step of each kind.
UnitTimes ScheduleInUnitTime(const Table& table, const Extent& extent);

// The table with an empty cell for each time step in which a rank waits.
Table WithIdleCells(const Table& table, const Extent& extent);

}  // namespace piper::ir::schedule_csv
