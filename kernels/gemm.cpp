#include "kernels/gemm.h"

#include "kernels/block_product.h"
#include "kernels/scratch.h"
#include "kernels/simd.h"

namespace piper::kernels::PIPER_ISA {
namespace {

// One block of B is kGemmBlockK x kBlockN (4 MiB in f32), one of A kBlockM x kGemmBlockK (at most 448 KiB):
// A's stays in the second-level cache while a panel of B (32 KiB) goes through the first.
constexpr int64_t kBlockN = 4096;
constexpr int64_t kBlockM = kTileRows * 32;
static_assert((kGemmBlockK * kBlockN + kGemmBlockK * kBlockM) * 4 <= kGemmScratchBytes);

float* Scratch(const float*) { return ScratchF32(); }
double* Scratch(const double*) { return ScratchF64(); }

// Copies rows [0, m) of op(A), k deep, to tiles of `height` rows: element (i, p) of a tile is at p * height +
// i.
template <typename T>
void PackLeft(LeftOperand<T> a, int64_t m, int64_t k, int64_t height, T* packed) {
  for (int64_t i = 0; i < m; i += height, packed += height * k) {
    int64_t rows = MinInt(height, m - i);
    LeftOperand<T> tile = a.Row(i);
    if (tile.columns) {
      for (int64_t p = 0; p < k; ++p) {
        for (int64_t r = 0; r < rows; ++r) packed[p * height + r] = tile.data[p * tile.stride + r];
      }
    } else {
      TransposeBlock(tile.data, tile.stride, rows, k, packed, height);
    }
  }
}

// Rows that lie a multiple of 2 KiB apart fall into one or two sets of the first-level cache and evict each
// other.
template <typename T>
bool ReadableInPlace(const LeftOperand<T>& a) {
  return !a.columns && (a.stride * static_cast<int64_t>(sizeof(T))) % 2048 != 0;
}

template <typename T>
void Multiply(const T* a, const T* b, T* c, int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b) {
  if (k == 0) {
    for (int64_t i = 0; i < m * n; ++i) c[i] = T(0);
    return;
  }
  LeftOperand<T> left{a, trans_a ? m : k, trans_a};
  T* packed_b = Scratch(a);
  T* packed_a = packed_b + kGemmBlockK * kBlockN;
  for (int64_t j0 = 0; j0 < n; j0 += kBlockN) {
    int64_t nb = MinInt(kBlockN, n - j0);
    for (int64_t k0 = 0; k0 < k; k0 += kGemmBlockK) {
      int64_t kb = MinInt(kGemmBlockK, k - k0);
      PackRight(trans_b ? b + j0 * k + k0 : b + k0 * n + j0, trans_b ? k : n, trans_b, kb, nb, packed_b);
      RightOperand<T> right = RightPacked(packed_b, kb);
      for (int64_t i0 = 0; i0 < m; i0 += kBlockM) {
        int64_t mb = MinInt(kBlockM, m - i0);
        LeftOperand<T> block{left.Row(i0).data + (trans_a ? k0 * m : k0), left.stride, trans_a};
        T* out = c + i0 * n + j0;
        if (ReadableInPlace(block)) {
          BlockProduct(block, right, mb, nb, kb, out, n, k0 != 0);
          continue;
        }
        // Tiles of nearly equal heights, for the reason given in BlockProduct.
        int64_t tiles = (mb + kTileRows - 1) / kTileRows;
        int64_t height = (mb + tiles - 1) / tiles;
        PackLeft(block, mb, kb, height, packed_a);
        for (int64_t j = 0; j < nb; j += kPanelColumns) {
          RightOperand<T> panel{right.data + j / kPanelColumns * right.panel_stride, right.row_stride, 0};
          for (int64_t i = 0; i < mb; i += height) {
            LeftOperand<T> tile{packed_a + i * kb, height, true};
            BlockProduct(tile, panel, MinInt(height, mb - i), MinInt(kPanelColumns, nb - j), kb,
                         out + i * n + j, n, k0 != 0);
          }
        }
      }
    }
  }
}

}  // namespace

template <typename T>
void gemm(const T* a, const T* b, T* c, int64_t m, int64_t n, int64_t k, int64_t trans_a, int64_t trans_b) {
  Multiply(a, b, c, m, n, k, trans_a != 0, trans_b != 0);
}

template <typename T>
void gemm_batched(const T* a, const T* b, T* c, int64_t batch, int64_t m, int64_t n, int64_t k,
                  int64_t trans_a, int64_t trans_b) {
  for (int64_t i = 0; i < batch; ++i) {
    Multiply(a + i * m * k, b + i * k * n, c + i * m * n, m, n, k, trans_a != 0, trans_b != 0);
  }
}

PIPER_EXPORT_KERNEL(gemm)
PIPER_EXPORT_KERNEL(gemm_batched)

}  // namespace piper::kernels::PIPER_ISA
