// Sums down the columns of a matrix, and the largest value of a row: shared by several kernels.
#pragma once

#include "kernels/reduce.h"
#include "kernels/simd.h"

namespace piper::kernels::PIPER_ISA {

// For each of kOutputs arrays of `cols`: the sum over rows, in ascending order within blocks of kReduceBlock
// rows from zero, block sums added in order. step(sum, r, c, width) adds row r's terms of columns [c, c +
// width) to sum[0..kOutputs). Four vectors of columns advance together, so that additions of one chain do not
// wait for each other and rows are read in long pieces; this does not touch the order within a column.
template <typename T, int kOutputs, typename Step>
inline void SumColumns(int64_t rows, int64_t cols, T* const (&sums)[kOutputs], Step step) {
  constexpr int64_t kGroup = 4;
  if (rows == 0) {
    for (T* sum : sums) {
      for (int64_t c = 0; c < cols; ++c) sum[c] = T(0);
    }
  }
  for (int64_t r0 = 0; r0 < rows; r0 += kReduceBlock) {
    int64_t r1 = MinInt(r0 + kReduceBlock, rows);
    auto add = [&](const Vec<T>& block, T* total, int64_t width) {
      Vec<T> result = r0 == 0 ? block : Vec<T>::LoadPartial(total, width) + block;
      result.StorePartial(total, width);
    };
    int64_t c = 0;
    for (; c + kGroup * kLanes <= cols; c += kGroup * kLanes) {
      Vec<T> sum[kGroup][kOutputs];
      for (auto& group : sum) {
        for (Vec<T>& s : group) s = Vec<T>::Zero();
      }
      for (int64_t r = r0; r < r1; ++r) {
        for (int64_t g = 0; g < kGroup; ++g) step(sum[g], r, c + g * kLanes, kLanes);
      }
      for (int64_t g = 0; g < kGroup; ++g) {
        for (int o = 0; o < kOutputs; ++o) add(sum[g][o], sums[o] + c + g * kLanes, kLanes);
      }
    }
    for (; c < cols; c += kLanes) {
      int64_t width = MinInt(kLanes, cols - c);
      Vec<T> sum[kOutputs];
      for (Vec<T>& s : sum) s = Vec<T>::Zero();
      for (int64_t r = r0; r < r1; ++r) step(sum, r, c, width);
      for (int o = 0; o < kOutputs; ++o) add(sum[o], sums[o] + c, width);
    }
  }
}

// The largest of x[0..cols); minus infinity if there is none. NaNs may be passed over: an exponential of the
// row then yields NaN all the same.
template <typename T>
inline T RowMax(const T* x, int64_t cols) {
  auto largest = Vec<T>::Broadcast(-static_cast<T>(__builtin_inf()));
  int64_t c = 0;
  for (; c + kLanes <= cols; c += kLanes) largest = Max(Vec<T>::Load(x + c), largest);
  T result = ReduceMax(largest);
  for (; c < cols; ++c) result = x[c] > result ? x[c] : result;
  return result;
}

}  // namespace piper::kernels::PIPER_ISA
