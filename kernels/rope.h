// Rotary position embedding (Su et al., arXiv:2104.09864) on x [batch, seq, heads, head_dim] in the "rotate
// half" convention of Llama's published weights in the Hugging Face layout: element i < head_dim / 2 pairs
// with element i + head_dim / 2 and turns by the angle position * theta^(-2 i / head_dim). The position of
// row s is first_position + s. head_dim is even and at most 2 * kRopeMaxPairs. The output may be the same
// array as the input.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

inline constexpr int64_t kRopeMaxPairs = 512;

PIPER_KERNEL(rope_forward, const T* x, T* y, int64_t batch, int64_t seq, int64_t heads, int64_t head_dim,
             int64_t first_position, double theta);
// The inverse rotation of dy.
PIPER_KERNEL(rope_backward, const T* dy, T* dx, int64_t batch, int64_t seq, int64_t heads, int64_t head_dim,
             int64_t first_position, double theta);

}  // namespace piper::kernels
