// What the end-to-end tests share: programs as `.piper` text, the road from text to a plan, and the
// comparison of a plan's run with the single-device reference, bit for bit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frontend/frontend.h"
#include "ir/pipeline.h"
#include "runtime/local_runner.h"
#include "tools/verify.h"

namespace piper::testing {

// A file's way through the compiler. Keeps what plans refer to.
struct Compiled {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag{sources};
  std::optional<ir::Program> program;
  std::optional<ir::Plan> plan;

  bool ok() const { return plan.has_value(); }
  std::string Messages() const { return diag.Render(ir::DiagnosticEngine::Format::kHuman, false); }
  bool Has(ir::DiagKind kind) const;
  const runtime::Job& job() const { return plan->job->job(); }
};
std::unique_ptr<Compiled> Compile(const std::string& text, std::vector<std::string> overrides = {});

// A training program, put together from parts. The defaults are a GPT of six layers (eight units to cut) on
// one device.
struct TrainText {
  std::string model = "gpt";  // gpt, gpt_dropout, llama, skip: see Declarations()
  std::string schedule;       // gpipe, one_f_one_b, interleaved; empty: no order
  int64_t p = 1, v = 1, dp = 1, m = 1;
  int64_t batch = 16, steps = 2;
  std::string cut;    // "[embed + 2 * layer, ..]"; empty: balanced
  std::string split;  // instead of `split batch into m as mb`
  std::string place;  // instead of stage s on pp[s % p]
  std::string optimizer = "optimizer adamw(lr = 1e-2, weight_decay = 0.1)";  // lines of the train block
  std::string directives;                                                    // more lines of the strategy
  std::string train;                                                         // more lines of the train block
  std::string zero;                                                          // the zero line; empty: none
  uint64_t seed = 7;

  std::string Text() const;
  std::string Name() const;
};
TrainText Layout(const std::string& model, const std::string& schedule, int64_t p, int64_t v, int64_t dp,
                 int64_t m);
// The imports and the models of TrainText: `gpt`, `llama` (both tiny), `skip` (skips across stages, branches
// that meet, two losses, an unused output, a parameter shared by three regions).
std::string Declarations();

// Random data, in-process run beside the reference: every loss, every gradient, every parameter. Adds a test
// failure that says what differs.
void ExpectEqualToReference(const Compiled& compiled, int64_t steps, const std::string& what);
// Compiles, and then the same.
void ExpectEqualToReference(const TrainText& text);

// What one run came to.
struct RunResult {
  std::vector<double> losses, norms, eval_losses;
  // Of the last step, by parameter name, from whichever rank holds it; equal on all that do (checked).
  std::vector<std::pair<std::string, std::vector<float>>> gradients, parameters;
  std::vector<runtime::RankStatistics> ranks;
};
// Interprets `job`; `options.bodies` is filled in, and random data where the job has none.
RunResult RunJob(const runtime::Job& job, runtime::LocalOptions options);
RunResult RunJob(const runtime::Job& job, int64_t steps);

// Compiles; adds a test failure with messages and text where that fails.
std::unique_ptr<Compiled> MustCompile(const std::string& text);
// `with` has the bits of `without`: losses, gradients, parameters, with released slots poisoned and under
// random delays; and its marks of memory are those that its plan predicts.
void ExpectSameBits(const Compiled& with, const Compiled& without, const std::string& what);

// The graph is consistent, prints and parses back; two steps have the reference's bits, and those of a plain
// run with poison, delays and rendezvous; and the memory is what was planned.
void ExpectSound(const Compiled& compiled, const std::string& what);

// sqrt of the sum of squares of all gradients, in f64.
double GradientNorm(const RunResult& result);

// PIPER_SOAK=1: everything, not a sample.
bool Soak();

}  // namespace piper::testing
