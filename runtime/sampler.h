// Text from a trained model. A job of one rank computes the logits of a window of tokens; the window slides
// over what was generated so far. Reproducible: the same checkpoint, options and seed give the same text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/executor.h"
#include "runtime/program.h"
#include "runtime/status.h"

namespace piper::runtime {

struct SampleOptions {
  std::string checkpoint;
  int64_t tokens = 0;
  std::string prompt;  // bytes are tokens where the vocabulary has at most 256, else numbers between spaces
  double temperature = 0.8;  // 0: always the likeliest token
  int64_t top_k = 0;         // 0: all
  uint64_t seed = 0;
};

// See main.h for what `job` must be. `emit` receives the prompt and then the text as it grows.
Status Sample(const Job& job, const SampleOptions& options,
              const std::function<std::unique_ptr<BodyRunner>(const Job&, const RankProgram&)>& bodies,
              const std::function<void(const std::string&)>& emit);

// Chooses a token by its logit; `unit` in [0, 1) decides. -1: a logit is nan, or the best is
// infinite.
int64_t ChooseToken(const float* logits, int64_t vocab, double temperature, int64_t top_k, double unit);

}  // namespace piper::runtime
