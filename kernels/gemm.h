// Matrix products. Every element of C is one chain of fused multiply-adds over k in ascending order within
// blocks of kGemmBlockK, and block sums are added in ascending order, so the bits do not depend on tiles,
// instruction set or on how the rows or columns of a product are divided.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

inline constexpr int64_t kGemmBlockK = 256;

// Bytes of thread-local scratch that products and attention take at first use, per thread and element type
// f32.
inline constexpr int64_t kGemmScratchBytes = int64_t{8} << 20;

// C = op(A) op(B) with op(A) [m, k], op(B) [k, n], C [m, n]. A is stored [m, k], or [k, m] if trans_a; B is
// stored [k, n], or [n, k] if trans_b.
PIPER_KERNEL(gemm, const T* a, const T* b, T* c, int64_t m, int64_t n, int64_t k, int64_t trans_a,
             int64_t trans_b);

// The same for `batch` independent products whose operands follow one another without gaps.
PIPER_KERNEL(gemm_batched, const T* a, const T* b, T* c, int64_t batch, int64_t m, int64_t n, int64_t k,
             int64_t trans_a, int64_t trans_b);

}  // namespace piper::kernels
