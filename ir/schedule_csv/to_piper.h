// Table -> readable `.piper` text: what `piper import csv` writes. The orders are run-length literals (`steps
// "3*F 5*(F B) 3*B"`), the placement is that of the rows; the strategy can be imported by another file, and a
// train block on a stand-in model makes the file run as it is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/dag/dag.h"
#include "ir/schedule_csv/from_dag.h"
#include "ir/schedule_csv/table.h"

namespace piper::ir::schedule_csv {

// `table` is checked (check.h); its steps of communication are left to the compiler, which derives them.
// `stem`: the name of the CSV without its directory and ending, for comments. `closed_form`: a call that
// lists the steps of `rank`, in terms of `ranks` and `microbatches`, such as one of std.schedules, instead of
// the literals; empty: none is known.
std::string ToPiper(const Table& table, const Extent& extent, std::string_view stem,
                    std::string_view closed_form);

// A row as the text of a run-length literal: microbatches are left out where they are the next ones of their
// stage and pass, stages where the rank has only one.
std::string StepsLiteral(const std::vector<Cell>& row, bool one_stage);

// The orders of a DAG, a line a host: `order on pp[0] { steps "3*F 5*(F B) 3*B" }`.
std::string OrdersText(const Export& exported, const Dag& dag);

// Repeats of neighbouring words folded, in several rounds: "F B F B F B" is "3*(F B)". What decodes to the
// same words.
std::string FoldRepeats(const std::vector<std::string>& words);

}  // namespace piper::ir::schedule_csv
