#include "kernels/rope.h"

#include "kernels/vector_math.h"

namespace piper::kernels::PIPER_ISA {

namespace {

// Turns the pairs (i, i + half) of every head by sign * angle.
template <typename T>
void Rotate(const T* x, T* y, int64_t batch, int64_t seq, int64_t heads, int64_t head_dim,
            int64_t first_position, double theta, double sign) {
  int64_t half = head_dim / 2;
  double frequency[kRopeMaxPairs];
  T cosines[kRopeMaxPairs];
  T sines[kRopeMaxPairs];
  for (int64_t i = 0; i < half; ++i) {
    frequency[i] = PowerOf(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
  }
  for (int64_t s = 0; s < seq; ++s) {
    for (int64_t i = 0; i < half; ++i) {
      double sine, cosine;
      SinCos(static_cast<double>(first_position + s) * frequency[i], &sine, &cosine);
      cosines[i] = static_cast<T>(cosine);
      sines[i] = static_cast<T>(sign * sine);
    }
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        int64_t base = ((b * seq + s) * heads + h) * head_dim;
        for (int64_t i = 0; i < half; i += kLanes) {
          int64_t width = MinInt(kLanes, half - i);
          auto low = Vec<T>::LoadPartial(x + base + i, width);
          auto high = Vec<T>::LoadPartial(x + base + half + i, width);
          auto c = Vec<T>::LoadPartial(cosines + i, width);
          auto n = Vec<T>::LoadPartial(sines + i, width);
          Fma(low, c, -(high * n)).StorePartial(y + base + i, width);
          Fma(high, c, low * n).StorePartial(y + base + half + i, width);
        }
      }
    }
  }
}

}  // namespace

template <typename T>
void rope_forward(const T* x, T* y, int64_t batch, int64_t seq, int64_t heads, int64_t head_dim,
                  int64_t first_position, double theta) {
  Rotate(x, y, batch, seq, heads, head_dim, first_position, theta, 1.0);
}

template <typename T>
void rope_backward(const T* dy, T* dx, int64_t batch, int64_t seq, int64_t heads, int64_t head_dim,
                   int64_t first_position, double theta) {
  Rotate(dy, dx, batch, seq, heads, head_dim, first_position, theta, -1.0);
}

PIPER_EXPORT_KERNEL(rope_forward)
PIPER_EXPORT_KERNEL(rope_backward)

}  // namespace piper::kernels::PIPER_ISA
