#include "kernels/embedding.h"

#include "kernels/simd.h"

namespace piper::kernels::PIPER_ISA {

template <typename T>
void embedding_forward(const int32_t* tokens, const T* table, T* y, int64_t rows, int64_t vocab,
                       int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    int64_t token = tokens[r];
    T* out = y + r * cols;
    if (token < 0 || token >= vocab) {
      for (int64_t c = 0; c < cols; ++c) out[c] = static_cast<T>(__builtin_nan(""));
    } else {
      const T* in = table + token * cols;
      for (int64_t c = 0; c < cols; ++c) out[c] = in[c];
    }
  }
}

template <typename T>
void embedding_backward(const int32_t* tokens, const T* dy, T* dtable, int64_t rows, int64_t vocab,
                        int64_t cols) {
  for (int64_t i = 0; i < vocab * cols; ++i) dtable[i] = T(0);
  for (int64_t r = 0; r < rows; ++r) {
    int64_t token = tokens[r];
    if (token < 0 || token >= vocab) continue;
    T* out = dtable + token * cols;
    MapLanes(
        cols, out, [](auto u, auto v) { return u + v; }, static_cast<const T*>(out), dy + r * cols);
  }
}

PIPER_EXPORT_KERNEL(embedding_forward)
PIPER_EXPORT_KERNEL(embedding_backward)

}  // namespace piper::kernels::PIPER_ISA
