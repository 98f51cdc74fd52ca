#include "ir/support/nearest.h"

#include <algorithm>
#include <cstdint>

namespace piper::ir {

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
  size_t best_distance = SIZE_MAX;
  if (name.size() > kLongest) return best;
  for (const std::string& candidate : candidates) {
    if (candidate.empty() || candidate.size() > kLongest) continue;
    size_t distance = EditDistance(name, candidate);
    size_t allowed = std::max<size_t>(1, std::max(name.size(), candidate.size()) / 3);
    if (distance <= allowed && distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace piper::ir
