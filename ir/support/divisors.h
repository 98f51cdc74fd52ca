// The nearest legal choice where a number must divide another: for hints. Bounded work, whatever the numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace piper::ir {

// The largest divisor of `n` below `wanted` and the smallest above it, ascending; either is left out where
// there is none, or none within 100,000 steps. Empty for n < 1.
std::vector<int64_t> NearestDivisors(int64_t n, int64_t wanted);

// Those as "4 or 8"; empty if there are none.
std::string DescribeNearestDivisors(int64_t n, int64_t wanted);

}  // namespace piper::ir
