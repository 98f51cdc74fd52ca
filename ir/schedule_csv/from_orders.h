// The orders that a program states -> Table, without a DAG: what its `order` directives list, where each step
// names one stage, pass and microbatch. Serves to recognise a schedule that the library has.
#pragma once

#include <optional>

#include "ir/program/program.h"
#include "ir/schedule_csv/table.h"

namespace piper::ir::schedule_csv {

// A row an `order` directive, in their order. nullopt: a step that is not of that form.
std::optional<Table> FromOrders(const Program& program);

}  // namespace piper::ir::schedule_csv
