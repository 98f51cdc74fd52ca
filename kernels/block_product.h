// The product of one block, at most kGemmBlockK deep, on which matrix products and attention are built. Every
// element of the result is one chain of fused multiply-adds in ascending k that starts at zero, then stored
// or added to C: the register tiles below choose only which chains run side by side.
#pragma once

#include "kernels/gemm.h"
#include "kernels/simd.h"
#include "kernels/transpose.h"

namespace piper::kernels::PIPER_ISA {

// The register tile: kTileRows x (kTileVectors * 16) accumulators. 14 x 32 fills AVX-512's 32 registers with
// 28 accumulators, two of B, one broadcast of A; 6 x 16 fills AVX2's 16 with 12.
#if PIPER_ISA_LEVEL == 4
inline constexpr int kTileRows = 14;
inline constexpr int kTileVectors = 2;
#elif PIPER_ISA_LEVEL == 3
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = 1;
#else
inline constexpr int kTileRows = 4;
inline constexpr int kTileVectors = 1;
#endif
inline constexpr int64_t kPanelColumns = kTileVectors * kLanes;

// A left operand in place: element (i, p) is at data[i * stride + p], or at data[p * stride + i] if
// `columns`.
template <typename T>
struct LeftOperand {
  const T* data;
  int64_t stride;
  bool columns;

  LeftOperand Row(int64_t i) const { return {data + (columns ? i : i * stride), stride, columns}; }
};

// A right operand [k, n] as panels of kPanelColumns columns: column j, row p is at
// data[(j / kPanelColumns) * panel_stride + p * row_stride + j % kPanelColumns]. Whole vectors are read: a
// matrix in place needs n to be a multiple of kLanes; PackRight pads with zeros.
template <typename T>
struct RightOperand {
  const T* data;
  int64_t row_stride;
  int64_t panel_stride;

  // Without the first `rows` rows.
  RightOperand Skip(int64_t rows) const { return {data + rows * row_stride, row_stride, panel_stride}; }
};

template <typename T>
inline RightOperand<T> RightInPlace(const T* data, int64_t row_stride) {
  return {data, row_stride, kPanelColumns};
}
template <typename T>
inline RightOperand<T> RightPacked(const T* data, int64_t k) {
  return {data, kPanelColumns, kPanelColumns * k};
}

inline int64_t PackedColumns(int64_t n) { return (n + kPanelColumns - 1) / kPanelColumns * kPanelColumns; }

// Copies B [k, n], stored with row stride `stride` (or transposed, [n, k]), into panels of PackedColumns(n) *
// k.
template <typename T>
inline void PackRight(const T* b, int64_t stride, bool transposed, int64_t k, int64_t n, T* packed) {
  for (int64_t j = 0; j < n; j += kPanelColumns, packed += k * kPanelColumns) {
    int64_t width = MinInt(kPanelColumns, n - j);
    if (!transposed) {
      for (int64_t p = 0; p < k; ++p) {
        const T* row = b + p * stride + j;
        T* out = packed + p * kPanelColumns;
        for (int64_t c = 0; c < kPanelColumns; c += kLanes) {
          int64_t count = MinInt(kLanes, MaxInt(0, width - c));
          Vec<T>::LoadPartial(row + c, count).Store(out + c);
        }
      }
    } else {
      TransposeBlock(b + j * stride, stride, width, k, packed, kPanelColumns);
      for (int64_t p = 0; width < kPanelColumns && p < k; ++p) {
        for (int64_t c = width; c < kPanelColumns; ++c) packed[p * kPanelColumns + c] = T(0);
      }
    }
  }
}

template <int kRows, int kVectors, bool kColumns>
inline void ComputeTile(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t k,
                        float* c, int64_t c_stride, int64_t width, bool add) {
  using V = Vec<float>;
  V sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = V::Zero();
  }
  for (int64_t p = 0; p < k; ++p) {
    V right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) right[v] = V::Load(b + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      V left = V::Broadcast(kColumns ? a[i] : a[i * a_stride]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[i][v] = Fma(left, right[v], sum[i][v]);
    }
    a += kColumns ? a_stride : 1;
    b += b_stride;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    float* row = c + i * c_stride;
    if (width == kVectors * kLanes) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        V result = add ? V::Load(row + v * kLanes) + sum[i][v] : sum[i][v];
        result.Store(row + v * kLanes);
      }
    } else {
      for (int v = 0; v < kVectors; ++v) {
        int64_t count = MinInt(kLanes, width - v * kLanes);
        if (count <= 0) break;
        V result = add ? V::LoadPartial(row + v * kLanes, count) + sum[i][v] : sum[i][v];
        result.StorePartial(row + v * kLanes, count);
      }
    }
  }
}

using TileFunction = void (*)(const float*, int64_t, const float*, int64_t, int64_t, float*, int64_t, int64_t,
                              bool);

// The tile for `rows` (1..kTileRows) rows and one or all vectors of a panel.
TileFunction FindTile(int64_t rows, int64_t vectors, bool columns);

// C [m, n] = or += A B with k <= kGemmBlockK, f32: tiles of registers.
inline void BlockProduct(LeftOperand<float> a, RightOperand<float> b, int64_t m, int64_t n, int64_t k,
                         float* c, int64_t c_stride, bool add) {
  // Tiles of nearly equal heights: 16 rows as 8 + 8, not 14 + 2, which would wait on the latency of its few
  // chains.
  int64_t tiles = (m + kTileRows - 1) / kTileRows;
  for (int64_t j = 0; j < n; j += kPanelColumns, b.data += b.panel_stride) {
    int64_t width = MinInt(kPanelColumns, n - j);
    int64_t vectors = width <= kLanes ? 1 : kTileVectors;
    int64_t i = 0;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      int64_t rows = (m - i) / (tiles - tile);
      FindTile(rows, vectors, a.columns)(a.Row(i).data, a.stride, b.data, b.row_stride, k,
                                         c + i * c_stride + j, c_stride, width, add);
      i += rows;
    }
  }
}

// The same in f64: plain loops, row by row.
inline void BlockProduct(LeftOperand<double> a, RightOperand<double> b, int64_t m, int64_t n, int64_t k,
                         double* c, int64_t c_stride, bool add) {
  for (int64_t j = 0; j < n; j += kPanelColumns, b.data += b.panel_stride) {
    int64_t width = MinInt(kPanelColumns, n - j);
    for (int64_t i = 0; i < m; ++i) {
      double sum[kPanelColumns] = {};
      LeftOperand<double> row = a.Row(i);
      for (int64_t p = 0; p < k; ++p) {
        double left = row.data[a.columns ? p * a.stride : p];
        const double* right = b.data + p * b.row_stride;
        for (int64_t q = 0; q < kPanelColumns; ++q) sum[q] = __builtin_fma(left, right[q], sum[q]);
      }
      double* out = c + i * c_stride + j;
      for (int64_t q = 0; q < width; ++q) out[q] = add ? out[q] + sum[q] : sum[q];
    }
  }
}

}  // namespace piper::kernels::PIPER_ISA
