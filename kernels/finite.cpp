#include "kernels/finite.h"

#include <bit>

namespace piper::kernels {
namespace {

// Infinities and NaNs have all exponent bits set. A block is tested as a whole first.
template <typename T, typename Bits>
int64_t FirstNonFinite(const T* x, int64_t n, Bits exponent) {
  constexpr int64_t kBlock = 256;
  for (int64_t start = 0; start < n; start += kBlock) {
    int64_t end = start + kBlock < n ? start + kBlock : n;
    Bits found = 0;
    for (int64_t i = start; i < end; ++i) {
      found |= (std::bit_cast<Bits>(x[i]) & exponent) == exponent ? Bits{1} : Bits{0};
    }
    if (found == 0) continue;
    for (int64_t i = start; i < end; ++i) {
      if ((std::bit_cast<Bits>(x[i]) & exponent) == exponent) return i;
    }
  }
  return -1;
}

}  // namespace

int64_t first_non_finite(const float* x, int64_t n) {
  return FirstNonFinite<float, uint32_t>(x, n, 0x7f800000u);
}

int64_t first_non_finite(const double* x, int64_t n) {
  return FirstNonFinite<double, uint64_t>(x, n, 0x7ff0000000000000ull);
}

}  // namespace piper::kernels
