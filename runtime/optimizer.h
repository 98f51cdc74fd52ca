// Learning-rate schedules and parameter updates, as torch.optim computes them.
#pragma once

#include <cstdint>

#include "runtime/program.h"

namespace piper::runtime {

// The rate of the 0-based `step`. Warm-up is linear from 0: peak * (step + 1) / warmup while step < warmup.
// After it the rate is the peak (schedules 0 and 1), or falls as half a cosine wave from the peak to `floor`,
// reached at step `total` (schedule 2).
double LearningRate(const Optimizer& optimizer, uint64_t step);

// One update in place of `elements` elements; AdamW counts the step from 1. `state0` is momentum or m,
// `state1` v; SGD without momentum takes null.
template <typename T>
void UpdateParameter(const Optimizer& optimizer, uint64_t step, double weight_decay, const T* gradient,
                     T* value, T* state0, T* state1, int64_t elements);

extern template void UpdateParameter(const Optimizer&, uint64_t, double, const float*, float*, float*, float*,
                                     int64_t);
extern template void UpdateParameter(const Optimizer&, uint64_t, double, const double*, double*, double*,
                                     double*, int64_t);

}  // namespace piper::runtime
