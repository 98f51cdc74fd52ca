#include "ir/support/nearest.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <llvm/ADT/StringRef.h>

namespace piper::ir {

namespace {

bool SameButForCase(std::string_view a, std::string_view b) {
  return llvm::StringRef(a.data(), a.size()).equals_insensitive(llvm::StringRef(b.data(), b.size()));
}

// Sorted: equal for words that differ by the order of their letters only.
std::string Letters(std::string_view word) {
  std::string letters(word);
  std::sort(letters.begin(), letters.end());
  return letters;
}

}  // namespace

size_t EditDistance(std::string_view a, std::string_view b) {
  // Three rows of the table: a swap of neighbours looks back two.
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t substituted = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substituted});
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string NearestName(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 64;
  std::string best;
  std::pair<size_t, bool> best_rank{SIZE_MAX, true};
  if (name.size() > kLongest) return best;
  const std::string letters = Letters(name);
  for (const std::string& candidate : candidates) {
    if (candidate.empty() || candidate.size() > kLongest) continue;
    size_t distance = EditDistance(name, candidate);
    if (distance >= std::max(name.size(), candidate.size()) && !SameButForCase(name, candidate)) continue;
    size_t allowed = std::max<size_t>(1, std::max(name.size(), candidate.size()) / 3);
    const std::pair<size_t, bool> rank{distance, Letters(candidate) != letters};
    if (distance <= allowed && rank < best_rank) {
      best_rank = rank;
      best = candidate;
    }
  }
  return best;
}

}  // namespace piper::ir
