#include "ir/lower/select.h"

#include <algorithm>

namespace piper::ir {
namespace {

// `ep.*` names every inserted node of that prefix.
bool NameMatches(NameId pattern, NameId name) {
  if (pattern == name) return true;
  const std::string& text = NameText(pattern);
  if (text.size() < 2 || !text.ends_with(".*")) return false;
  return NameText(name).starts_with(std::string_view(text).substr(0, text.size() - 1));
}

bool Matches(const SelectorTerm& term, const TagPath& tags, const std::vector<NameId>& names) {
  for (NameId name : names) {
    if (!term.has_range && NameMatches(term.name, name)) return true;
  }
  for (const TagInstance& tag : tags) {
    if (InternName(tag.name) == term.name && (!term.has_range || term.Contains(tag.index))) return true;
  }
  return false;
}

}  // namespace

bool MatchesTags(const SelectorClause& clause, const TagPath& tags, const std::vector<NameId>& names,
                 const std::vector<NameId>& split_names) {
  for (const SelectorTerm& term : clause.terms) {
    if (std::find(split_names.begin(), split_names.end(), term.name) != split_names.end()) continue;
    if (Matches(term, tags, names) == term.negated) return false;
  }
  return true;
}

bool MatchesTemplate(const Selector& selector, const NodeTemplate& node,
                     const std::vector<NameId>& split_names) {
  for (const SelectorClause& clause : selector.any_of) {
    if (clause.passes != 0 && (node.pass == Pass::kNone || (clause.passes & PassBit(node.pass)) == 0))
      continue;
    if (MatchesTags(clause, node.tags, node.names, split_names)) return true;
  }
  return false;
}

}  // namespace piper::ir
