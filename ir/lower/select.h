// Whether a template of the Dag (or a region of the model) is what a selector clause names. Indices of split
// dimensions
// (`mb = 3`) are left out: whole templates are meant.
#pragma once

#include <vector>

#include "ir/dag/dag.h"
#include "ir/program/program.h"

namespace piper::ir {

bool MatchesTags(const SelectorClause& clause, const TagPath& tags, const std::vector<NameId>& names,
                 const std::vector<NameId>& split_names);
bool MatchesTemplate(const Selector& selector, const NodeTemplate& node,
                     const std::vector<NameId>& split_names);

}  // namespace piper::ir
