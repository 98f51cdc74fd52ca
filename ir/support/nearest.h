// Hints: the name that a misspelt one most likely meant.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace piper::ir {

// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other (optimal
// string alignment). Bytes, not characters.
size_t EditDistance(std::string_view a, std::string_view b);

// The candidate with the smallest distance within a third of the longer length (and one edit), of several one
// of the same letters, then the first; empty if none, or nothing but case is common. Words above 64 bytes are
// nobody's misspelling.
std::string NearestName(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace piper::ir
