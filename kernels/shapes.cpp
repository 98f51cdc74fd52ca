#include "kernels/shapes.h"

#include <initializer_list>

namespace piper::kernels {
namespace {

// What a transcendental function counts as.
constexpr double kFunction = 10;

KernelShape Shape(std::initializer_list<int64_t> elements, double flops) {
  KernelShape shape{};
  for (int64_t count : elements) shape.elements[shape.count++] = count;
  shape.flops = flops;
  return shape;
}

double Real(int64_t n) { return static_cast<double>(n); }

// Shape of n results from `inputs` arrays of n, at `cost` operations each.
KernelShape Pointwise(int64_t n, int arrays, double cost) {
  KernelShape shape{};
  for (int i = 0; i < arrays; ++i) shape.elements[shape.count++] = n;
  shape.flops = cost * Real(n);
  return shape;
}

// One more than the largest offset that a strided copy reads.
int64_t StridedExtent(const int64_t* size, const int64_t* stride) {
  int64_t last = 0;
  for (int d = 0; d < 6; ++d) {
    if (size[d] == 0) return 0;
    last += (size[d] - 1) * stride[d];
  }
  return last + 1;
}

}  // namespace

KernelShape gemm_shape(const int64_t* ints) {
  const int64_t m = ints[0], n = ints[1], k = ints[2];
  return Shape({m * k, k * n, m * n}, 2 * Real(m) * Real(n) * Real(k));
}

KernelShape gemm_batched_shape(const int64_t* ints) {
  const int64_t batch = ints[0], m = ints[1], n = ints[2], k = ints[3];
  return Shape({batch * m * k, batch * k * n, batch * m * n}, 2 * Real(batch) * Real(m) * Real(n) * Real(k));
}

KernelShape embedding_forward_shape(const int64_t* ints) {
  const int64_t rows = ints[0], vocab = ints[1], cols = ints[2];
  return Shape({rows, vocab * cols, rows * cols}, 0);
}

KernelShape embedding_backward_shape(const int64_t* ints) {
  const int64_t rows = ints[0], vocab = ints[1], cols = ints[2];
  return Shape({rows, rows * cols, vocab * cols}, Real(rows * cols));
}

KernelShape add_shape(const int64_t* ints) { return Pointwise(ints[0], 3, 1); }

KernelShape sub_shape(const int64_t* ints) { return Pointwise(ints[0], 3, 1); }

KernelShape mul_shape(const int64_t* ints) { return Pointwise(ints[0], 3, 1); }

KernelShape div_shape(const int64_t* ints) { return Pointwise(ints[0], 3, 1); }

KernelShape affine_shape(const int64_t* ints) { return Pointwise(ints[0], 2, 2); }

KernelShape scale_shape(const int64_t* ints) { return Pointwise(ints[0], 2, 1); }

KernelShape scale_by_shape(const int64_t* ints) {
  const int64_t n = ints[0];
  return Shape({n, 1, n}, Real(n));
}

KernelShape accumulate_shape(const int64_t* ints) { return Pointwise(ints[0], 2, 1); }

KernelShape fill_shape(const int64_t* ints) { return Pointwise(ints[0], 1, 0); }

KernelShape add_bias_shape(const int64_t* ints) {
  const int64_t rows = ints[0], cols = ints[1];
  return Shape({rows * cols, cols, rows * cols}, Real(rows * cols));
}

KernelShape mul_rows_shape(const int64_t* ints) {
  const int64_t rows = ints[0], cols = ints[1];
  return Shape({rows * cols, cols, rows * cols}, Real(rows * cols));
}

KernelShape sum_rows_shape(const int64_t* ints) {
  const int64_t rows = ints[0], cols = ints[1];
  return Shape({rows * cols, cols}, Real(rows * cols));
}

KernelShape broadcast_copy_shape(const int64_t* ints) {
  int64_t count = 1;
  for (int d = 0; d < 6; ++d) count *= ints[d];
  return Shape({StridedExtent(ints, ints + 6), count}, 0);
}

KernelShape permute_copy_shape(const int64_t* ints) {
  int64_t count = 1;
  for (int d = 0; d < 6; ++d) count *= ints[d];
  return Shape({StridedExtent(ints, ints + 6), count}, 0);
}

KernelShape copy_2d_shape(const int64_t* ints) {
  const int64_t rows = ints[0], cols = ints[1];
  if (rows == 0 || cols == 0) return Shape({0, 0}, 0);
  return Shape({ints[2] + (rows - 1) * ints[3] + cols, ints[4] + (rows - 1) * ints[5] + cols}, 0);
}

KernelShape reduce_sum_shape(const int64_t* ints) {
  const int64_t outer = ints[0], reduced = ints[1], inner = ints[2];
  return Shape({outer * reduced * inner, outer * inner}, Real(outer * reduced * inner));
}

KernelShape reduce_mean_shape(const int64_t* ints) {
  const int64_t outer = ints[0], reduced = ints[1], inner = ints[2];
  return Shape({outer * reduced * inner, outer * inner}, Real(outer * reduced * inner));
}

KernelShape reduce_max_shape(const int64_t* ints) {
  const int64_t outer = ints[0], reduced = ints[1], inner = ints[2];
  return Shape({outer * reduced * inner, outer * inner}, Real(outer * reduced * inner));
}

KernelShape reduce_max_backward_shape(const int64_t* ints) {
  const int64_t outer = ints[0], reduced = ints[1], inner = ints[2];
  return Shape({outer * reduced * inner, outer * inner, outer * inner, outer * reduced * inner},
               2 * Real(outer * reduced * inner));
}

KernelShape neg_forward_shape(const int64_t* ints) { return Pointwise(ints[0], 2, 1); }

KernelShape exp_forward_shape(const int64_t* ints) { return Pointwise(ints[0], 2, kFunction); }

KernelShape exp_backward_shape(const int64_t* ints) { return Pointwise(ints[0], 3, 1); }

KernelShape log_forward_shape(const int64_t* ints) { return Pointwise(ints[0], 2, kFunction); }

KernelShape log_backward_shape(const int64_t* ints) { return Pointwise(ints[0], 3, 1); }

KernelShape sqrt_forward_shape(const int64_t* ints) { return Pointwise(ints[0], 2, 1); }

KernelShape sqrt_backward_shape(const int64_t* ints) { return Pointwise(ints[0], 3, 2); }

KernelShape rsqrt_forward_shape(const int64_t* ints) { return Pointwise(ints[0], 2, 2); }

KernelShape rsqrt_backward_shape(const int64_t* ints) { return Pointwise(ints[0], 3, 4); }

KernelShape square_forward_shape(const int64_t* ints) { return Pointwise(ints[0], 2, 1); }

KernelShape square_backward_shape(const int64_t* ints) { return Pointwise(ints[0], 3, 2); }

KernelShape tanh_forward_shape(const int64_t* ints) { return Pointwise(ints[0], 2, kFunction); }

KernelShape tanh_backward_shape(const int64_t* ints) { return Pointwise(ints[0], 3, 2); }

KernelShape sigmoid_forward_shape(const int64_t* ints) { return Pointwise(ints[0], 2, kFunction); }

KernelShape sigmoid_backward_shape(const int64_t* ints) { return Pointwise(ints[0], 3, 2); }

KernelShape relu_forward_shape(const int64_t* ints) { return Pointwise(ints[0], 2, 1); }

KernelShape relu_backward_shape(const int64_t* ints) { return Pointwise(ints[0], 3, 1); }

KernelShape gelu_forward_shape(const int64_t* ints) { return Pointwise(ints[0], 2, kFunction + 5); }

KernelShape gelu_backward_shape(const int64_t* ints) { return Pointwise(ints[0], 3, kFunction + 12); }

KernelShape gelu_erf_forward_shape(const int64_t* ints) { return Pointwise(ints[0], 2, kFunction + 4); }

KernelShape gelu_erf_backward_shape(const int64_t* ints) { return Pointwise(ints[0], 3, 2 * kFunction + 6); }

KernelShape silu_forward_shape(const int64_t* ints) { return Pointwise(ints[0], 2, kFunction + 1); }

KernelShape silu_backward_shape(const int64_t* ints) { return Pointwise(ints[0], 3, kFunction + 5); }

KernelShape swiglu_forward_shape(const int64_t* ints) { return Pointwise(ints[0], 3, kFunction + 2); }

KernelShape swiglu_backward_shape(const int64_t* ints) { return Pointwise(ints[0], 5, kFunction + 8); }

KernelShape softmax_forward_shape(const int64_t* ints) {
  const int64_t rows = ints[0], cols = ints[1];
  return Shape({rows * cols, rows * cols}, (kFunction + 4) * Real(rows * cols));
}

KernelShape softmax_backward_shape(const int64_t* ints) {
  const int64_t rows = ints[0], cols = ints[1];
  return Shape({rows * cols, rows * cols, rows * cols}, 4 * Real(rows * cols));
}

KernelShape layer_norm_forward_shape(const int64_t* ints) {
  const int64_t rows = ints[0], cols = ints[1];
  return Shape({rows * cols, cols, cols, rows * cols, rows, rows}, 8 * Real(rows * cols));
}

KernelShape layer_norm_backward_input_shape(const int64_t* ints) {
  const int64_t rows = ints[0], cols = ints[1];
  return Shape({rows * cols, cols, rows, rows, rows * cols, rows * cols}, 13 * Real(rows * cols));
}

KernelShape layer_norm_backward_params_shape(const int64_t* ints) {
  const int64_t rows = ints[0], cols = ints[1];
  return Shape({rows * cols, rows, rows, rows * cols, cols, cols}, 5 * Real(rows * cols));
}

KernelShape rms_norm_forward_shape(const int64_t* ints) {
  const int64_t rows = ints[0], cols = ints[1];
  return Shape({rows * cols, cols, rows * cols, rows}, 4 * Real(rows * cols));
}

KernelShape rms_norm_backward_input_shape(const int64_t* ints) {
  const int64_t rows = ints[0], cols = ints[1];
  return Shape({rows * cols, cols, rows, rows * cols, rows * cols}, 9 * Real(rows * cols));
}

KernelShape rms_norm_backward_weight_shape(const int64_t* ints) {
  const int64_t rows = ints[0], cols = ints[1];
  return Shape({rows * cols, rows, rows * cols, cols}, 3 * Real(rows * cols));
}

namespace {

// Pairs of a query and a key that it sees, over all heads.
double AttentionPairs(const int64_t* ints) {
  double seq = Real(ints[1]);
  double pairs = ints[5] != 0 ? seq * (seq + 1) / 2 : seq * seq;
  return Real(ints[0]) * Real(ints[2]) * pairs;
}

}  // namespace

KernelShape attention_forward_shape(const int64_t* ints) {
  const int64_t rows = ints[0] * ints[1], queries = rows * ints[2] * ints[4], keys = rows * ints[3] * ints[4];
  return Shape({queries, keys, keys, queries, rows * ints[2]},
               AttentionPairs(ints) * (4 * Real(ints[4]) + kFunction + 4));
}

KernelShape attention_backward_shape(const int64_t* ints) {
  const int64_t rows = ints[0] * ints[1], queries = rows * ints[2] * ints[4], keys = rows * ints[3] * ints[4];
  return Shape({queries, keys, keys, queries, rows * ints[2], queries, queries, keys, keys},
               AttentionPairs(ints) * (10 * Real(ints[4]) + kFunction + 5));
}

KernelShape rope_forward_shape(const int64_t* ints) {
  const int64_t batch = ints[0], seq = ints[1], heads = ints[2], head_dim = ints[3];
  return Shape({batch * seq * heads * head_dim, batch * seq * heads * head_dim},
               3 * Real(batch * seq * heads * head_dim) + 2 * kFunction * Real(seq * head_dim));
}

KernelShape rope_backward_shape(const int64_t* ints) {
  const int64_t batch = ints[0], seq = ints[1], heads = ints[2], head_dim = ints[3];
  return Shape({batch * seq * heads * head_dim, batch * seq * heads * head_dim},
               3 * Real(batch * seq * heads * head_dim) + 2 * kFunction * Real(seq * head_dim));
}

KernelShape dropout_forward_shape(const int64_t* ints) { return Pointwise(ints[0], 2, kFunction); }

KernelShape dropout_backward_shape(const int64_t* ints) { return Pointwise(ints[0], 2, kFunction); }

KernelShape cross_entropy_forward_shape(const int64_t* ints) {
  const int64_t rows = ints[0], vocab = ints[1];
  return Shape({rows * vocab, rows, 1, 1, rows}, (kFunction + 2) * Real(rows * vocab));
}

KernelShape cross_entropy_backward_shape(const int64_t* ints) {
  const int64_t rows = ints[0], vocab = ints[1];
  return Shape({rows * vocab, rows, rows, 1, 1, rows * vocab}, (kFunction + 2) * Real(rows * vocab));
}

KernelShape sum_of_squares_shape(const int64_t* ints) {
  const int64_t n = ints[0];
  return Shape({n, 1}, 2 * Real(n));
}

KernelShape clip_factor_shape(const int64_t* ints) {
  const int64_t count = ints[0];
  return Shape({count, 1}, Real(count));
}

KernelShape sgd_update_shape(const int64_t* ints) { return Pointwise(ints[0], 3, 6); }

KernelShape adamw_update_shape(const int64_t* ints) { return Pointwise(ints[0], 4, 15); }

KernelShape normal_fill_shape(const int64_t* ints) { return Pointwise(ints[0], 1, 3 * kFunction); }

KernelShape uniform_fill_shape(const int64_t* ints) { return Pointwise(ints[0], 1, kFunction); }

}  // namespace piper::kernels
