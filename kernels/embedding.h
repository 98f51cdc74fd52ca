// Row look-up in a table, and the sum of the rows' gradients.
#pragma once

#include "kernels/kernel.h"

namespace piper::kernels {

// y [rows, cols]: y[r] = table[tokens[r]], table [vocab, cols]. A token outside [0, vocab) gives a row of
// NaN.
PIPER_KERNEL(embedding_forward, const int32_t* tokens, const T* table, T* y, int64_t rows, int64_t vocab,
             int64_t cols);

// dtable [vocab, cols]: the sum of dy [rows, cols] over the rows of each token, in row order; rows whose
// token lies outside [0, vocab) do not count.
PIPER_KERNEL(embedding_backward, const int32_t* tokens, const T* dy, T* dtable, int64_t rows, int64_t vocab,
             int64_t cols);

}  // namespace piper::kernels
