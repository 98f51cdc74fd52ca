#include "kernels/attention.h"

#include "kernels/block_product.h"
#include "kernels/scratch.h"
#include "kernels/vector_math.h"

namespace piper::kernels::PIPER_ISA {
namespace {

// Queries and keys are taken in blocks of 64 on every instruction set: the order of the running sums, and
// with it the bits, hang on it.
constexpr int64_t kBlock = 64;
static_assert(kBlock % kPanelColumns == 0 && kAttentionMaxHeadDim <= kGemmBlockK);

// Packed keys and values of one head are kept for the whole head up to this many elements each.
constexpr int64_t kHeadElements = int64_t{3} << 18;

constexpr int64_t kTileElements = kBlock * kAttentionMaxHeadDim;
static_assert((2 * kHeadElements + kBlock * kBlock + kTileElements + 2 * kBlock) * 4 <= kGemmScratchBytes);
static_assert((7 * kTileElements + 2 * kBlock * kBlock + kBlock) * 4 <= kGemmScratchBytes);

float* Scratch(const float*) { return ScratchF32(); }
double* Scratch(const double*) { return ScratchF64(); }

struct Shape {
  int64_t batch, seq, heads, kv_heads, head_dim;
  bool causal;

  int64_t group() const { return heads / kv_heads; }
  int64_t query_stride() const { return heads * head_dim; }
  int64_t key_stride() const { return kv_heads * head_dim; }
  int64_t query_at(int64_t b, int64_t s, int64_t h) const { return ((b * seq + s) * heads + h) * head_dim; }
  int64_t key_at(int64_t b, int64_t s, int64_t h) const { return ((b * seq + s) * kv_heads + h) * head_dim; }
};

// Keys of [j0, j0 + cols) that query i sees.
int64_t Visible(const Shape& shape, int64_t i, int64_t j0, int64_t cols) {
  return shape.causal ? MaxInt(0, MinInt(cols, i + 1 - j0)) : cols;
}

// In a block on the diagonal of causal attention, bands of 16 queries see 16, 32, .. keys: calls f(first row,
// rows, columns) for each, or once for a block that is seen whole. The height of a band is part of the
// result's bits.
constexpr int64_t kBand = 16;

template <typename F>
void ForBands(int64_t rows, int64_t cols, bool diagonal, F f) {
  if (!diagonal) {
    f(int64_t{0}, rows, cols);
    return;
  }
  for (int64_t r = 0; r < rows; r += kBand) f(r, MinInt(kBand, rows - r), MinInt(cols, r + kBand));
}

// The largest of scale * row[0..visible).
template <typename T>
T ScaledMax(const T* row, int64_t visible, Vec<T> scale) {
  auto largest = Vec<T>::Broadcast(-static_cast<T>(__builtin_inf()));
  int64_t c = 0;
  for (; c + kLanes <= visible; c += kLanes) largest = Max(Vec<T>::Load(row + c) * scale, largest);
  if (c < visible) {
    T lanes[kLanes];
    largest.Store(lanes);
    Max(Vec<T>::LoadPartial(row + c, visible - c) * scale, largest).StorePartial(lanes, visible - c);
    largest = Vec<T>::Load(lanes);
  }
  return ReduceMax(largest);
}

// The row becomes exp(scale * row - shift), zero beyond `visible`; returns its sum.
template <typename T>
T Exponentiate(T* row, int64_t visible, int64_t cols, Vec<T> scale, T shift) {
  auto minus = Vec<T>::Broadcast(-shift);
  auto total = Vec<T>::Zero();
  int64_t c = 0;
  for (; c + kLanes <= visible; c += kLanes) {
    auto e = Exp(Fma(Vec<T>::Load(row + c), scale, minus));
    total = total + e;
    e.Store(row + c);
  }
  if (c < visible) {
    int64_t width = visible - c;
    Exp(Fma(Vec<T>::LoadPartial(row + c, width), scale, minus)).StorePartial(row + c, width);
    total = total + Vec<T>::LoadPartial(row + c, width);
    c = visible;
  }
  for (; c < cols; ++c) row[c] = T(0);
  return ReduceAdd(total);
}

// The running state of a block of queries: the sums of weighted values [kBlock, head_dim], and for each query
// the largest score so far and the sum of exponentials relative to it.
template <typename T>
struct RunningRows {
  T* sums;
  T* maximum;
  T* total;
};

// Up to sixteen rows of scores, from r0 on, become exponentials relative to the renewed maxima; what was
// summed under the old maxima is scaled down. Query r sees `visible(r)` of the `cols` keys.
template <typename T, typename VisibleOf>
void RenewRows(T* scores, int64_t r0, int64_t count, int64_t cols, int64_t d, Vec<T> scale, bool first,
               const RunningRows<T>& state, VisibleOf visible) {
  T values[kLanes] = {};
  for (int64_t r = 0; r < count; ++r)
    values[r] = ScaledMax(scores + (r0 + r) * kBlock, visible(r0 + r), scale);
  auto before = Vec<T>::Load(state.maximum + r0);
  auto renewed = Max(Vec<T>::Load(values), before);
  renewed.Store(state.maximum + r0);
  auto keep = Exp(before - renewed);  // zero at first: the maximum before is minus infinity
  for (int64_t r = 0; r < count; ++r) {
    values[r] = Exponentiate(scores + (r0 + r) * kBlock, visible(r0 + r), cols, scale, state.maximum[r0 + r]);
  }
  Fma(Vec<T>::Load(state.total + r0), keep, Vec<T>::Load(values)).Store(state.total + r0);
  if (first) return;
  keep.Store(values);
  for (int64_t r = 0; r < count; ++r) {
    if (values[r] == T(1)) continue;
    auto factor = Vec<T>::Broadcast(values[r]);
    T* row = state.sums + (r0 + r) * d;
    MapLanes(
        d, row, [&](auto u) { return u * factor; }, static_cast<const T*>(row));
  }
}

// Packed blocks of the keys (transposed) and values of one key head.
template <typename T>
struct HeadBlocks {
  const T* k;
  const T* v;
  T* packed_k;
  T* packed_v;
  bool whole;  // packed once for all; otherwise each block when it is used, in the first place

  void Pack(const Shape& shape, int64_t b, int64_t h, int64_t block) const {
    int64_t j0 = block * kBlock;
    int64_t cols = MinInt(kBlock, shape.seq - j0);
    int64_t at = shape.key_at(b, j0, h);
    PackRight(k + at, shape.key_stride(), true, shape.head_dim, cols, packed_k + KeyOffset(shape, block));
    PackRight(v + at, shape.key_stride(), false, cols, shape.head_dim, packed_v + ValueOffset(shape, block));
  }
  int64_t KeyOffset(const Shape& shape, int64_t block) const {
    return whole ? block * kBlock * shape.head_dim : 0;
  }
  int64_t ValueOffset(const Shape& shape, int64_t block) const {
    return whole ? block * kBlock * PackedColumns(shape.head_dim) : 0;
  }
};

// One block of queries against all its keys.
template <typename T>
void ForwardBlock(const Shape& shape, const HeadBlocks<T>& blocks, const T* q, T* o, T* lse, int64_t b,
                  int64_t h, int64_t i0, T* work, double scale) {
  int64_t d = shape.head_dim;
  int64_t rows = MinInt(kBlock, shape.seq - i0);
  int64_t end = shape.causal ? i0 + rows : shape.seq;
  T* scores = work;
  RunningRows<T> state{scores + kBlock * kBlock, scores + kBlock * kBlock + kTileElements,
                       scores + kBlock * kBlock + kTileElements + kBlock};
  for (int64_t r = 0; r < kBlock; ++r) {
    state.maximum[r] = -static_cast<T>(__builtin_inf());
    state.total[r] = T(0);
  }
  auto factor = Vec<T>::Broadcast(static_cast<T>(scale));
  LeftOperand<T> queries{q + shape.query_at(b, i0, h), shape.query_stride(), false};
  for (int64_t j0 = 0; j0 < end; j0 += kBlock) {
    int64_t block = j0 / kBlock;
    if (!blocks.whole) blocks.Pack(shape, b, h / shape.group(), block);
    RightOperand<T> keys = RightPacked<T>(blocks.packed_k + blocks.KeyOffset(shape, block), d);
    // The values of a block are packed with the depth of the whole block, which may be more than is visible.
    RightOperand<T> values =
        RightPacked<T>(blocks.packed_v + blocks.ValueOffset(shape, block), MinInt(kBlock, shape.seq - j0));
    bool first = j0 == 0;
    ForBands(rows, MinInt(kBlock, end - j0), shape.causal && j0 == i0,
             [&](int64_t band, int64_t count, int64_t cols) {
               BlockProduct(queries.Row(band), keys, count, cols, d, scores + band * kBlock, kBlock, false);
               auto visible = [&](int64_t r) { return Visible(shape, i0 + r, j0, cols); };
               for (int64_t r = band; r < band + count; r += kLanes) {
                 RenewRows(scores, r, MinInt(kLanes, band + count - r), cols, d, factor, first, state,
                           visible);
               }
               BlockProduct(LeftOperand<T>{scores + band * kBlock, kBlock, false}, values, count, d, cols,
                            state.sums + band * d, d, !first);
             });
  }
  for (int64_t r0 = 0; r0 < rows; r0 += kLanes) {
    int64_t count = MinInt(kLanes, rows - r0);
    auto log_sum = Vec<T>::Load(state.maximum + r0) + Log(Vec<T>::Load(state.total + r0));
    log_sum.StorePartial(lse + (b * shape.heads + h) * shape.seq + i0 + r0, count);
  }
  for (int64_t r = 0; r < rows; ++r) {
    auto divisor = Vec<T>::Broadcast(state.total[r]);
    MapLanes(
        d, o + shape.query_at(b, i0 + r, h), [&](auto u) { return u / divisor; },
        static_cast<const T*>(state.sums + r * d));
  }
}

// What the backward pass needs of one block of keys, packed, and the sums of its gradients.
template <typename T>
struct BackwardWork {
  T* keys_transposed;    // [head_dim, kBlock]
  T* values_transposed;  // [head_dim, kBlock]
  T* keys;               // [kBlock, head_dim]
  T* queries;            // [kBlock, head_dim]
  T* douts;              // [kBlock, head_dim]
  T* key_sums;           // [kBlock, head_dim]
  T* value_sums;         // [kBlock, head_dim]
  T* probabilities;      // [kBlock, kBlock]
  T* products;           // [kBlock, kBlock]
};

template <typename T>
struct Gradients {
  const T* q;
  const T* k;
  const T* v;
  const T* o;
  const T* lse;
  const T* dout;
  T* dq;
  T* dk;
  T* dv;
};

// One row of scores and of dout v^T becomes the probabilities p and the gradient of the scores, p (dout v^T -
// delta) scale; zero beyond `visible`.
template <typename T>
void BackwardRow(T* p, T* g, int64_t visible, int64_t cols, Vec<T> delta, Vec<T> shift, Vec<T> scale) {
  int64_t c = 0;
  for (; c + kLanes <= visible; c += kLanes) {
    auto e = Exp(Fma(Vec<T>::Load(p + c), scale, shift));
    e.Store(p + c);
    (e * (Vec<T>::Load(g + c) - delta) * scale).Store(g + c);
  }
  if (c < visible) {
    int64_t width = visible - c;
    auto e = Exp(Fma(Vec<T>::LoadPartial(p + c, width), scale, shift));
    e.StorePartial(p + c, width);
    (e * (Vec<T>::LoadPartial(g + c, width) - delta) * scale).StorePartial(g + c, width);
    c = visible;
  }
  for (; c < cols; ++c) p[c] = g[c] = T(0);
}

// Queries [i0, ..) of head h against keys [j0, ..): adds to dq and to the sums for dk and dv.
template <typename T>
void BackwardBlock(const Shape& shape, const Gradients<T>& t, const BackwardWork<T>& work, int64_t b,
                   int64_t h, int64_t i0, int64_t j0, bool first, double scale) {
  int64_t d = shape.head_dim;
  int64_t stride = shape.query_stride();
  int64_t rows = MinInt(kBlock, shape.seq - i0);
  int64_t cols = MinInt(kBlock, shape.seq - j0);
  int64_t at = shape.query_at(b, i0, h);
  bool diagonal = shape.causal && i0 == j0;
  LeftOperand<T> queries{t.q + at, stride, false};
  LeftOperand<T> douts{t.dout + at, stride, false};
  auto factor = Vec<T>::Broadcast(static_cast<T>(scale));
  ForBands(rows, cols, diagonal, [&](int64_t r0, int64_t count, int64_t width) {
    T* scores = work.probabilities + r0 * kBlock;
    T* products = work.products + r0 * kBlock;
    BlockProduct(queries.Row(r0), RightPacked<T>(work.keys_transposed, d), count, width, d, scores, kBlock,
                 false);
    BlockProduct(douts.Row(r0), RightPacked<T>(work.values_transposed, d), count, width, d, products, kBlock,
                 false);
    for (int64_t r = 0; r < count; ++r) {
      const T* out = t.o + at + (r0 + r) * stride;
      const T* gradient = t.dout + at + (r0 + r) * stride;
      auto delta = Vec<T>::Broadcast(SumLanes<T>(
          d, [](auto u, auto v) { return u * v; }, out, gradient));
      int64_t i = i0 + r0 + r;
      auto shift = Vec<T>::Broadcast(-t.lse[(b * shape.heads + h) * shape.seq + i]);
      BackwardRow(scores + r * kBlock, products + r * kBlock, Visible(shape, i, j0, width), width, delta,
                  shift, factor);
    }
    BlockProduct(LeftOperand<T>{products, kBlock, false}, RightPacked<T>(work.keys, cols), count, d, width,
                 t.dq + at + r0 * stride, stride, j0 != 0);
  });
  PackRight(t.q + at, stride, false, rows, d, work.queries);
  PackRight(t.dout + at, stride, false, rows, d, work.douts);
  // Keys as rows: on the diagonal, a band of keys is seen by the queries from its first key on.
  for (int64_t c0 = 0; c0 < cols; c0 += diagonal ? kBand : cols) {
    int64_t count = diagonal ? MinInt(kBand, cols - c0) : cols;
    int64_t skip = diagonal ? c0 : 0;
    LeftOperand<T> probabilities{work.probabilities + skip * kBlock + c0, kBlock, true};
    LeftOperand<T> products{work.products + skip * kBlock + c0, kBlock, true};
    BlockProduct(probabilities, RightPacked<T>(work.douts, rows).Skip(skip), count, d, rows - skip,
                 work.value_sums + c0 * d, d, !first);
    BlockProduct(products, RightPacked<T>(work.queries, rows).Skip(skip), count, d, rows - skip,
                 work.key_sums + c0 * d, d, !first);
  }
}

}  // namespace

template <typename T>
void attention_forward(const T* q, const T* k, const T* v, T* o, T* lse, int64_t batch, int64_t seq,
                       int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t causal, double scale) {
  Shape shape{batch, seq, heads, kv_heads, head_dim, causal != 0};
  T* packed_k = Scratch(q);
  T* packed_v = packed_k + kHeadElements;
  T* work = packed_v + kHeadElements;
  int64_t block_count = (seq + kBlock - 1) / kBlock;
  bool whole = block_count * kBlock * PackedColumns(head_dim) <= kHeadElements;
  HeadBlocks<T> blocks{k, v, packed_k, packed_v, whole};
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t kv = 0; kv < kv_heads; ++kv) {
      for (int64_t block = 0; whole && block < block_count; ++block) blocks.Pack(shape, b, kv, block);
      for (int64_t h = kv * shape.group(); h < (kv + 1) * shape.group(); ++h) {
        for (int64_t i0 = 0; i0 < seq; i0 += kBlock) {
          ForwardBlock(shape, blocks, q, o, lse, b, h, i0, work, scale);
        }
      }
    }
  }
}

template <typename T>
void attention_backward(const T* q, const T* k, const T* v, const T* o, const T* lse, const T* dout, T* dq,
                        T* dk, T* dv, int64_t batch, int64_t seq, int64_t heads, int64_t kv_heads,
                        int64_t head_dim, int64_t causal, double scale) {
  Shape shape{batch, seq, heads, kv_heads, head_dim, causal != 0};
  Gradients<T> tensors{q, k, v, o, lse, dout, dq, dk, dv};
  BackwardWork<T> work;
  T* next = Scratch(q);
  for (T** tile : {&work.keys_transposed, &work.values_transposed, &work.keys, &work.queries, &work.douts,
                   &work.key_sums, &work.value_sums}) {
    *tile = next;
    next += kTileElements;
  }
  work.probabilities = next;
  work.products = next + kBlock * kBlock;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t kv = 0; kv < kv_heads; ++kv) {
      for (int64_t j0 = 0; j0 < seq; j0 += kBlock) {
        int64_t cols = MinInt(kBlock, seq - j0);
        int64_t at = shape.key_at(b, j0, kv);
        PackRight(k + at, shape.key_stride(), true, head_dim, cols, work.keys_transposed);
        PackRight(v + at, shape.key_stride(), true, head_dim, cols, work.values_transposed);
        PackRight(k + at, shape.key_stride(), false, cols, head_dim, work.keys);
        bool first = true;
        for (int64_t h = kv * shape.group(); h < (kv + 1) * shape.group(); ++h) {
          for (int64_t i0 = causal != 0 ? j0 : 0; i0 < seq; i0 += kBlock) {
            BackwardBlock(shape, tensors, work, b, h, i0, j0, first, scale);
            first = false;
          }
        }
        for (int64_t r = 0; r < cols; ++r) {
          for (int64_t c = 0; c < head_dim; ++c) {
            dk[at + r * shape.key_stride() + c] = work.key_sums[r * head_dim + c];
            dv[at + r * shape.key_stride() + c] = work.value_sums[r * head_dim + c];
          }
        }
      }
    }
  }
}

PIPER_EXPORT_KERNEL(attention_forward)
PIPER_EXPORT_KERNEL(attention_backward)

}  // namespace piper::kernels::PIPER_ISA
