// The single-device reference behind `--verify`: one training step evaluated from the model graph alone, with
// neither placement nor DAG nor lowering to ranks. It evaluates the canonical expression of language.md,
// "Numerics", with the same slice shapes, so that a strategy's losses and gradients can be compared with it
// bit for bit; in f64 with one slice it is the yardstick for tolerances.
//
//   loss    = left fold over (Graph::losses, replicas), losses major, of left fold over microbatches
//   grad(P) = left fold over P's using regions (model order) of left fold over replicas of left fold over
//   microbatches
//
// both ascending, first term assigned. Replica d's microbatch i holds samples [(d * m + i) * b, + b) of the
// global batch, b the samples of the RegionGraph's slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "ir/model/body.h"

namespace piper::ir {

// A dense tensor of f32 or f64 values on the host.
struct HostTensor {
  DType dtype = DType::kF32;
  std::vector<float> f32;  // the one of dtype is in use
  std::vector<double> f64;

  static HostTensor Zeros(DType dtype, int64_t elements);
  int64_t size() const { return static_cast<int64_t>(dtype == DType::kF64 ? f64.size() : f32.size()); }
  void* data() {
    return dtype == DType::kF64 ? static_cast<void*>(f64.data()) : static_cast<void*>(f32.data());
  }
  const void* data() const { return const_cast<HostTensor*>(this)->data(); }
  double at(int64_t i) const {
    return dtype == DType::kF64 ? f64[static_cast<size_t>(i)] : f32[static_cast<size_t>(i)];
  }
  // Converts; f64 to f32 rounds.
  HostTensor As(DType other) const;
};

// Writes samples [first, first + samples) of a batch field of the global batch, dense: int32_t for i32
// fields, float for f32 fields.
using BatchProvider = std::function<void(InputId input, int64_t first, int64_t samples, void* out)>;

// A slice of the global batch.
struct Slice {
  int64_t replica = 0;
  int64_t microbatch = 0;
  friend auto operator<=>(const Slice&, const Slice&) = default;
};
// A fold in two levels: each group from left to right, then the groups from left to right. Covers every slice
// once.
using FoldOrder = std::vector<std::vector<Slice>>;

struct ReferenceOptions {
  int64_t replicas = 1;
  int64_t microbatches = 1;
  bool reduce_per_microbatch = false;  // swaps the inner two folds of gradients
  // `numerics fast`: the outer fold of each region's gradients is a tree of pairs, see runtime::FoldKind.
  bool pairwise = false;
  bool want_magnitudes = false;  // fills ReferenceResult::magnitudes
  uint64_t seed = 0;
  uint64_t step = 0;
  DType dtype = DType::kF32;  // kF64: everything is computed in f64
  // Per region the order in which its gradients fold; empty, or empty for a region: the canonical one. For
  // strategies whose order changes the expression (stage copies, backward passes that are not ascending).
  std::vector<FoldOrder> gradient_orders;
  // Likewise, one a Graph::losses entry.
  std::vector<FoldOrder> loss_orders;
  bool want_gradients = true;  // false: losses only (evaluation)
};

struct ReferenceResult {
  double loss = 0;                    // the total; a float's value in f32
  std::vector<double> losses;         // one a Graph::losses entry
  int64_t count = 0;                  // N (FindLossScale)
  std::vector<HostTensor> gradients;  // one a parameter; no elements if frozen, unused, or not wanted
  // If wanted, one a gradient: in f64 the sum of the absolute values of what its outer folds add up, and how
  // many additions any of them can go through: the error of each fold is at most about additions * 2^-24 *
  // magnitude.
  std::vector<HostTensor> magnitudes;
  std::vector<int64_t> additions;
};

// `parameters` has one tensor a Graph parameter, of options.dtype.
ReferenceResult RunReferenceStep(const RegionGraph& regions, const ReferenceOptions& options,
                                 const std::vector<HostTensor>& parameters, const BatchProvider& batch);

// How one parameter is updated in one step; the schedule's learning rate is resolved already.
struct UpdateRule {
  enum class Kind : uint8_t { kSgd, kAdamW } kind = Kind::kAdamW;
  double lr = 0;
  double weight_decay = 0;
  double momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};
// Momentum, or first and second moments; created by the first update.
struct UpdateState {
  HostTensor a, b;
};

// sqrt of the sum over all gradients of their squares, each tensor's sum as the kernel sum_of_squares forms
// it.
double GlobalNorm(const std::vector<HostTensor>& gradients);

// Clips the gradients to global norm `clip` (0: not), then updates every parameter that has one. `step`
// counts from 0. One rule and one state a parameter.
void ReferenceUpdate(std::vector<HostTensor>* parameters, std::vector<HostTensor>* gradients,
                     std::vector<UpdateState>* states, const std::vector<UpdateRule>& rules, double clip,
                     int64_t step);

}  // namespace piper::ir
