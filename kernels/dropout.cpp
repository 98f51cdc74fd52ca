#include "kernels/dropout.h"

#include "kernels/random.h"
#include "kernels/simd.h"

namespace piper::kernels::PIPER_ISA {

namespace {

template <typename T>
void ApplyMask(const T* x, T* y, int64_t n, int64_t elements_per_sample, double rate, const RandomKey& key) {
  uint64_t stream = StreamOf(key);
  T factor = rate < 1.0 ? static_cast<T>(1.0 / (1.0 - rate)) : T(0);
  // A 32-bit number at or below `last_dropped` drops its element; rate 0 keeps all.
  int64_t dropped = static_cast<int64_t>(rate * 4294967296.0);
  uint32_t last_dropped = static_cast<uint32_t>(MinInt(dropped, int64_t{1} << 32) - 1);
  for (int64_t start = 0; start < n; start += elements_per_sample) {
    uint64_t local = static_cast<uint64_t>(start / elements_per_sample);
    uint64_t sample = key.first_sample + local * key.sample_stride;
    int64_t count = MinInt(elements_per_sample, n - start);
    for (int64_t e = 0; e < count; e += kRandomBlock) {
      uint32_t numbers[kRandomBlock];
      RandomNumbers(stream, sample, static_cast<uint64_t>(e / kRandomBlock), numbers);
      int64_t width = MinInt(kRandomBlock, count - e);
      const T* in = x + start + e;
      T* out = y + start + e;
      if (dropped <= 0) {
        for (int64_t i = 0; i < width; ++i) out[i] = in[i] * factor;
      } else {
        for (int64_t i = 0; i < width; ++i) out[i] = numbers[i] <= last_dropped ? T(0) : in[i] * factor;
      }
    }
  }
}

}  // namespace

template <typename T>
void dropout_forward(const T* x, T* y, int64_t n, int64_t elements_per_sample, double rate,
                     const RandomKey& key) {
  ApplyMask(x, y, n, elements_per_sample, rate, key);
}

template <typename T>
void dropout_backward(const T* dy, T* dx, int64_t n, int64_t elements_per_sample, double rate,
                      const RandomKey& key) {
  ApplyMask(dy, dx, n, elements_per_sample, rate, key);
}

PIPER_EXPORT_KERNEL(dropout_forward)
PIPER_EXPORT_KERNEL(dropout_backward)

}  // namespace piper::kernels::PIPER_ISA
