// Softmax attention without the matrix of scores in memory: blocks of queries against blocks of keys with a
// running maximum and sum (Dao et al., arXiv:2205.14135). q, o are [batch, seq, heads, head_dim], k, v are
// [batch, seq, kv_heads, head_dim]; query head h reads key head h / (heads / kv_heads). lse is [batch, heads,
// seq], the log of the sum of exp(scale q.k). With causal != 0 a query sees keys at its own and earlier
// positions, and blocks that are wholly masked are skipped. head_dim is at most kAttentionMaxHeadDim.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

inline constexpr int64_t kAttentionMaxHeadDim = 256;

PIPER_KERNEL(attention_forward, const T* q, const T* k, const T* v, T* o, T* lse, int64_t batch, int64_t seq,
             int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t causal, double scale);

// Gradients of all three inputs; recomputes the scores from q, k and lse. dk and dv of a key head sum over
// its query heads in ascending order.
PIPER_KERNEL(attention_backward, const T* q, const T* k, const T* v, const T* o, const T* lse, const T* dout,
             T* dq, T* dk, T* dv, int64_t batch, int64_t seq, int64_t heads, int64_t kv_heads,
             int64_t head_dim, int64_t causal, double scale);

}  // namespace piper::kernels
