// `piper run --verify`: the lowered job on real data beside the single-device reference, which is built from
// the model graph alone. Both start from the same initial parameters and read the same samples; each does its
// own optimizer steps. Every loss, every gradient (before clipping) and every parameter after each step must
// have the same bits; the report names the largest difference.
//
// Under `numerics fast` the reference follows the fold that the plan records, so that is bitwise too;
// besides, the first step's gradients must lie within a derived bound of those of the reproducible
// expression: two folds of the same f32 terms t, through at most n additions each, differ by at most 2 n u /
// (1 - n u) * sum |t|, u = 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2).
#pragma once

#include <cstdint>
#include <string>

#include "ir/pipeline.h"
#include "ir/program/program.h"
#include "runtime/status.h"

namespace piper::tools {

struct VerifyOptions {
  int64_t steps = 3;
  std::string data_path;        // instead of the job's
  bool synthetic_data = false;  // random tokens, no file
};

struct VerifyReport {
  int64_t steps = 0;
  int64_t tensors = 0;    // gradients and parameters compared, over ranks and steps
  int64_t different = 0;  // tensors (and losses) that differ
  double largest = 0;     // absolute difference; NaN counts as infinite
  std::string where;      // "gradient of blocks.3.attn.wqkv[17], step 0, rank 2: 0.5 is not 0.25"
  std::string first;      // the earliest difference, likewise
  double last_loss = 0;

  // `numerics fast` only: the first step against the reproducible expression.
  bool fast = false;
  int64_t elements = 0, changed = 0;  // gradient elements, and how many have other bits
  double share = 0;         // largest difference as a share of its bound; above 1 counts as different
  std::string share_where;  // likewise "head.weight[3]: 0.5, not 0.25"

  bool equal() const { return different == 0; }
  std::string ToString() const;
};

// Errors are of the environment: missing data, no memory.
runtime::Result<VerifyReport> Verify(const ir::Program& program, const ir::Plan& plan,
                                     const VerifyOptions& options);

}  // namespace piper::tools
