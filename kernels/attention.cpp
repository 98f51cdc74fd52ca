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

// One row of scores becomes exp(scale * score - maximum), zero beyond `visible`; the running maximum and sum
// are renewed. Returns the factor for what was summed under the old maximum.
template <typename T>
T RenewRow(T* row, int64_t visible, int64_t cols, Vec<T> scale, bool first, T* maximum, T* sum) {
  auto lowest = Vec<T>::Broadcast(-static_cast<T>(__builtin_inf()));
  auto largest = lowest;
  int64_t c = 0;
  for (; c + kLanes <= visible; c += kLanes) largest = Max(Vec<T>::Load(row + c) * scale, largest);
  if (c < visible) {
    T lanes[kLanes];
    lowest.Store(lanes);
    (Vec<T>::LoadPartial(row + c, visible - c) * scale).StorePartial(lanes, visible - c);
    largest = Max(Vec<T>::Load(lanes), largest);
  }
  T block_maximum = ReduceMax(largest);
  T renewed = first || block_maximum > *maximum ? block_maximum : *maximum;
  auto shift = Vec<T>::Broadcast(-renewed);
  auto total = Vec<T>::Zero();
  for (c = 0; c + kLanes <= visible; c += kLanes) {
    auto e = Exp(Fma(Vec<T>::Load(row + c), scale, shift));
    total = total + e;
    e.Store(row + c);
  }
  if (c < visible) {
    T lanes[kLanes];
    Exp(Fma(Vec<T>::LoadPartial(row + c, visible - c), scale, shift)).Store(lanes);
    auto e = Vec<T>::LoadPartial(lanes, visible - c);
    total = total + e;
    e.StorePartial(row + c, MinInt(kLanes, cols - c));
    c += kLanes;
  }
  for (; c < cols; ++c) row[c] = T(0);
  T factor = first ? T(0) : (renewed > *maximum ? ScalarExp(*maximum - renewed) : T(1));
  *sum = FusedMultiplyAdd(*sum, factor, ReduceAdd(total));
  *maximum = renewed;
  return factor;
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
  T* sums = scores + kBlock * kBlock;
  T* maximum = sums + kTileElements;
  T* total = maximum + kBlock;
  for (int64_t r = 0; r < rows; ++r) total[r] = T(0);
  auto factor = Vec<T>::Broadcast(static_cast<T>(scale));
  LeftOperand<T> queries{q + shape.query_at(b, i0, h), shape.query_stride(), false};
  for (int64_t j0 = 0; j0 < end; j0 += kBlock) {
    int64_t block = j0 / kBlock;
    int64_t cols = MinInt(kBlock, end - j0);
    if (!blocks.whole) blocks.Pack(shape, b, h / shape.group(), block);
    BlockProduct(queries,
                 RightPacked(static_cast<const T*>(blocks.packed_k + blocks.KeyOffset(shape, block)), d),
                 rows, cols, d, scores, kBlock, false);
    for (int64_t r = 0; r < rows; ++r) {
      int64_t visible = Visible(shape, i0 + r, j0, cols);
      T keep = RenewRow(scores + r * kBlock, visible, cols, factor, j0 == 0, maximum + r, total + r);
      if (j0 != 0 && keep != T(1)) {
        auto k = Vec<T>::Broadcast(keep);
        T* row = sums + r * d;
        MapLanes(
            d, row, [&](auto u) { return u * k; }, static_cast<const T*>(row));
      }
    }
    // The values of a block are packed with the depth of the whole block, which may be more than is visible.
    int64_t depth = MinInt(kBlock, shape.seq - j0);
    BlockProduct(
        LeftOperand<T>{scores, kBlock, false},
        RightPacked(static_cast<const T*>(blocks.packed_v + blocks.ValueOffset(shape, block)), depth), rows,
        d, cols, sums, d, j0 != 0);
  }
  for (int64_t r = 0; r < rows; ++r) {
    auto divisor = Vec<T>::Broadcast(total[r]);
    MapLanes(
        d, o + shape.query_at(b, i0 + r, h), [&](auto u) { return u / divisor; },
        static_cast<const T*>(sums + r * d));
    lse[(b * shape.heads + h) * shape.seq + i0 + r] = maximum[r] + ScalarLog(total[r]);
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

// Queries [i0, ..) of head h against keys [j0, ..): adds to dq and to the sums for dk and dv.
template <typename T>
void BackwardBlock(const Shape& shape, const Gradients<T>& t, const BackwardWork<T>& work, int64_t b,
                   int64_t h, int64_t i0, int64_t j0, bool first, double scale) {
  int64_t d = shape.head_dim;
  int64_t stride = shape.query_stride();
  int64_t rows = MinInt(kBlock, shape.seq - i0);
  int64_t cols = MinInt(kBlock, shape.seq - j0);
  int64_t at = shape.query_at(b, i0, h);
  BlockProduct(LeftOperand<T>{t.q + at, stride, false}, RightPacked<T>(work.keys_transposed, d), rows, cols,
               d, work.probabilities, kBlock, false);
  BlockProduct(LeftOperand<T>{t.dout + at, stride, false}, RightPacked<T>(work.values_transposed, d), rows,
               cols, d, work.products, kBlock, false);
  auto factor = Vec<T>::Broadcast(static_cast<T>(scale));
  for (int64_t r = 0; r < rows; ++r) {
    const T* out = t.o + at + r * stride;
    const T* gradient = t.dout + at + r * stride;
    auto delta = Vec<T>::Broadcast(SumLanes<T>(
        d, [](auto u, auto v) { return u * v; }, out, gradient));
    auto shift = Vec<T>::Broadcast(-t.lse[(b * shape.heads + h) * shape.seq + i0 + r]);
    int64_t visible = Visible(shape, i0 + r, j0, cols);
    T* p = work.probabilities + r * kBlock;
    T* g = work.products + r * kBlock;
    for (int64_t c = 0; c < kBlock; c += kLanes) {
      int64_t width = MaxInt(0, MinInt(kLanes, visible - c));
      auto score = Vec<T>::LoadPartial(p + c, width);
      auto product = Vec<T>::LoadPartial(g + c, width);
      auto e = Exp(Fma(score, factor, shift));
      e.Store(p + c);
      (e * (product - delta) * factor).Store(g + c);
      for (int64_t i = width; i < kLanes; ++i) p[c + i] = g[c + i] = T(0);
    }
  }
  PackRight(t.q + at, stride, false, rows, d, work.queries);
  PackRight(t.dout + at, stride, false, rows, d, work.douts);
  BlockProduct(LeftOperand<T>{work.probabilities, kBlock, true}, RightPacked<T>(work.douts, rows), cols, d,
               rows, work.value_sums, d, !first);
  BlockProduct(LeftOperand<T>{work.products, kBlock, true}, RightPacked<T>(work.queries, rows), cols, d, rows,
               work.key_sums, d, !first);
  BlockProduct(LeftOperand<T>{work.products, kBlock, false}, RightPacked<T>(work.keys, cols), rows, d, cols,
               t.dq + at, stride, j0 != 0);
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
