#include "ir/support/divisors.h"

#include <algorithm>

namespace piper::ir {

std::vector<int64_t> NearestDivisors(int64_t n, int64_t wanted) {
  constexpr int64_t kSteps = 100'000;
  std::vector<int64_t> nearest;
  if (n < 1) return nearest;
  if (wanted > n) {
    nearest.push_back(n);
    return nearest;
  }
  for (int64_t d = wanted - 1; d >= 1 && d > wanted - kSteps; --d) {
    if (n % d != 0) continue;
    nearest.push_back(d);
    break;
  }
  // No divisor lies between half of n and n.
  for (int64_t d = std::max<int64_t>(wanted, 0) + 1, steps = 0; d <= n && steps < kSteps; ++d, ++steps) {
    if (d > n / 2) d = n;
    if (n % d != 0) continue;
    nearest.push_back(d);
    break;
  }
  return nearest;
}

std::string DescribeNearestDivisors(int64_t n, int64_t wanted) {
  std::string text;
  for (int64_t d : NearestDivisors(n, wanted)) text += (text.empty() ? "" : " or ") + std::to_string(d);
  return text;
}

}  // namespace piper::ir
