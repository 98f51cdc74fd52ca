#include "kernels/cross_entropy.h"

#include "kernels/column_sums.h"
#include "kernels/vector_math.h"

namespace piper::kernels::PIPER_ISA {

namespace {

template <typename T>
T LogSumExp(const T* x, int64_t cols) {
  T largest = RowMax(x, cols);
  auto shift = Vec<T>::Broadcast(largest);
  auto sum = Vec<T>::Zero();
  int64_t c = 0;
  for (; c + kLanes <= cols; c += kLanes) sum = sum + Exp(Vec<T>::Load(x + c) - shift);
  if (c < cols) {
    T lanes[kLanes];
    Exp(Vec<T>::LoadPartial(x + c, cols - c) - shift).Store(lanes);
    sum = sum + Vec<T>::LoadPartial(lanes, cols - c);
  }
  return largest + ScalarLog(ReduceAdd(sum));
}

}  // namespace

template <typename T>
void cross_entropy_forward(const T* logits, const int32_t* targets, const T* scale, T* loss, T* lse,
                           int64_t rows, int64_t vocab) {
  double total = 0.0;
  double factor = static_cast<double>(scale[0]);
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = logits + r * vocab;
    lse[r] = LogSumExp(row, vocab);
    int64_t target = targets[r];
    if (target < 0) continue;
    double logit = target < vocab ? static_cast<double>(row[target]) : __builtin_nan("");
    total += (static_cast<double>(lse[r]) - logit) * factor;
  }
  loss[0] = static_cast<T>(total);
}

template <typename T>
void cross_entropy_backward(const T* logits, const int32_t* targets, const T* lse, const T* scale,
                            const T* dloss, T* dlogits, int64_t rows, int64_t vocab) {
  T factor = dloss[0] * scale[0];
  for (int64_t r = 0; r < rows; ++r) {
    T* out = dlogits + r * vocab;
    int64_t target = targets[r];
    if (target < 0) {
      for (int64_t c = 0; c < vocab; ++c) out[c] = T(0);
      continue;
    }
    auto shift = Vec<T>::Broadcast(lse[r]);
    auto weight = Vec<T>::Broadcast(target < vocab ? factor : static_cast<T>(__builtin_nan("")));
    MapLanes(
        vocab, out, [&](auto u) { return weight * Exp(u - shift); }, logits + r * vocab);
    if (target < vocab) {
      // Recomputed unscaled: factor * (p - 1) keeps the digits that factor * p - factor would lose.
      out[target] = factor * (ScalarExp(logits[r * vocab + target] - lse[r]) - T(1));
    }
  }
}

PIPER_EXPORT_KERNEL(cross_entropy_forward)
PIPER_EXPORT_KERNEL(cross_entropy_backward)

}  // namespace piper::kernels::PIPER_ISA
