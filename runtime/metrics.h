// What a run reports: one JSON object a line into a file, and a line for people: rewritten in place on a
// terminal, otherwise a plain line every few steps. Writing a line allocates nothing.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/status.h"

namespace piper::runtime {

struct StepMetrics {
  uint64_t step = 0;  // 1-based: steps done
  bool loss_known = false, norm_known = false, eval_known = false;
  double loss = 0, learning_rate = 0, gradient_norm = 0, eval_loss = 0;
  double tokens_per_second = 0, step_milliseconds = 0;
  // Model FLOPs utilisation: the step's useful FLOPs over what all devices declare for its time; negative:
  // unknown, the topology declares no FLOP/s.
  double mfu = -1;
  int64_t peak_memory = 0;  // bytes, of the rank with most
};

class MetricsWriter {
 public:
  // `path` empty: no file. `append` keeps what is there up to the line of `first_step` (a run resumed after
  // that many steps repeats the later ones). `console` prints for people on standard output; `last_step` is
  // where the run ends.
  Status Open(const std::string& path, bool append, bool console, uint64_t last_step,
              uint64_t first_step = 0);
  ~MetricsWriter();
  void Write(const StepMetrics& metrics);
  void Finish();  // ends the line on a terminal

 private:
  int fd_ = -1;
  bool console_ = false, terminal_ = false, line_open_ = false;
  uint64_t last_step_ = 0, lines_ = 0;
};

// Formats one line of the metrics file with its newline; returns its length.
int FormatMetrics(const StepMetrics& metrics, char* out, int size);

}  // namespace piper::runtime
