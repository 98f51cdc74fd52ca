// The command line of generated programs: one table, from which parsing and --help both come.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/status.h"

namespace piper::runtime {

struct RunOptions {
  int64_t steps = -1;  // total, not further ones; -1: the job's
  std::string data;    // several paths and wildcards are joined by newlines
  std::string out;     // checkpoints and metrics
  bool resumes = false;
  std::string resume = "auto";
  int64_t keep = 3;               // 0: all
  int64_t checkpoint_every = -1;  // -1: the job's
  std::string metrics, trace;
  bool check_finite = false, quiet = false, eval_only = false, list = false, help = false;
  bool seeded = false;
  uint64_t seed = 0;
  bool samples = false;
  int64_t sample = 0;  // tokens
  std::string prompt;
  double temperature = 0.8;
  int64_t top_k = 0;  // 0: all
};

Result<RunOptions> ParseOptions(int argc, char** argv);
std::string HelpText(const char* program, const char* job);

}  // namespace piper::runtime
