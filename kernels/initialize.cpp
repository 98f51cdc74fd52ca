#include "kernels/initialize.h"

#include "kernels/random.h"
#include "kernels/vector_math.h"

namespace piper::kernels::PIPER_ISA {

namespace {

// Calls emit(i, numbers) for every block of elements that meets [first, first + n); i is the index in y
// of the block's first element and may be negative.
template <typename Emit>
void ForBlocks(int64_t n, int64_t first, const RandomKey& key, Emit emit) {
  uint64_t stream = StreamOf(key);
  uint32_t numbers[kRandomBlock];
  for (int64_t e = first / kRandomBlock * kRandomBlock; e < first + n; e += kRandomBlock) {
    RandomNumbers(stream, 0, static_cast<uint64_t>(e / kRandomBlock), numbers);
    emit(e - first, numbers);
  }
}

}  // namespace

// Values are computed in f32 for double too: a reference then starts from the very same parameters.
template <typename T>
void normal_fill(T* y, int64_t n, int64_t first_element, double mean, double stddev, const RandomKey& key) {
  using V = Vec<float>;
  ForBlocks(n, first_element, key, [&](int64_t start, const uint32_t* numbers) {
    // Box-Muller: of every 32 numbers the first sixteen give radii, the others angles; of the 32 values the
    // first sixteen are the cosines, the others the sines.
    for (int64_t half = 0; half < kRandomBlock; half += 2 * kLanes) {
      float radius[kLanes], turn[kLanes], values[2 * kLanes];
      for (int64_t i = 0; i < kLanes; ++i) {
        // (0, 1] for the logarithm, [0, 1) for the angle, both exact with 24 bits.
        radius[i] = static_cast<float>(static_cast<int32_t>(numbers[half + i] >> 8) + 1) * 0x1p-24f;
        turn[i] = static_cast<float>(static_cast<int32_t>(numbers[half + kLanes + i] >> 8)) * 0x1p-24f;
      }
      V r = Sqrt(Max(V::Zero(), Log(V::Load(radius)) * V::Broadcast(-2.0f)));
      V sine, cosine;
      SinCosTurns(V::Load(turn), &sine, &cosine);
      V center = V::Broadcast(static_cast<float>(mean)), spread = V::Broadcast(static_cast<float>(stddev));
      Fma(spread, r * cosine, center).Store(values);
      Fma(spread, r * sine, center).Store(values + kLanes);
      for (int64_t i = 0; i < 2 * kLanes; ++i) {
        int64_t at = start + half + i;
        if (at >= 0 && at < n) y[at] = static_cast<T>(values[i]);
      }
    }
  });
}

template <typename T>
void uniform_fill(T* y, int64_t n, int64_t first_element, double low, double high, const RandomKey& key) {
  float base = static_cast<float>(low);
  float width = static_cast<float>(high - low);
  ForBlocks(n, first_element, key, [&](int64_t start, const uint32_t* numbers) {
    for (int64_t i = 0; i < kRandomBlock; ++i) {
      int64_t at = start + i;
      if (at < 0 || at >= n) continue;
      float unit = static_cast<float>(static_cast<int32_t>(numbers[i] >> 8)) * 0x1p-24f;
      float value = FusedMultiplyAdd(unit, width, base);
      // Rounding may reach `high` itself; the interval is half open.
      y[at] = static_cast<T>(value < static_cast<float>(high) || width <= 0 ? value : base);
    }
  });
}

PIPER_EXPORT_KERNEL(normal_fill)
PIPER_EXPORT_KERNEL(uniform_fill)

}  // namespace piper::kernels::PIPER_ISA
