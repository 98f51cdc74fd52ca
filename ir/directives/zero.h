// zero 0 [sel] as dp { bucket 25 MiB }
//
// before:  accumulate w2, accumulate w1 -> dp.reduce w2, dp.reduce w1 -> update
// after:   accumulate w2, accumulate w1 -> dp.reduce {w2, w1} -> update          one collective a bucket
//
// Level 0 is an all_reduce a bucket of gradients, filled in the order in which they become ready (last region
// first); without a bucket size, or without the directive, each (parameter, region) has its own. Levels 1 to
// 3, `per tag`, `keep` and `reduce per mb` are refused.
#pragma once

#include "ir/directives/context.h"

namespace piper::ir {

// How the gradients that a region contributes are reduced.
struct ReducePolicy {
  int64_t bucket_bytes = 0;
  std::string name = "dp";  // [dp.reduce]
  SourceRange range;        // of the directive, or nowhere
  const Directive* directive = nullptr;
};

// Per region; a region that two directives name is an error citing both.
std::vector<ReducePolicy> ApplyZero(BuildContext& context);

}  // namespace piper::ir
