#include "runtime/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace piper::runtime {
namespace {

// Shortest text that reads back as the same double; JSON has no inf or nan.
void Number(char* out, int size, bool known, double value) {
  if (!known || !std::isfinite(value)) {
    std::snprintf(out, size, "null");
    return;
  }
  for (int digits = 9; digits <= 17; digits += 4) {
    std::snprintf(out, size, "%.*g", digits, value);
    double back = 0;
    if (std::sscanf(out, "%lf", &back) == 1 && back == value) return;
  }
}

// Length of the lines of `path` up to the first that is incomplete or later than `step`; -1: no regular file.
off_t KeptLength(const std::string& path, uint64_t step) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return -1;
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return -1;
  off_t kept = 0;
  char* line = nullptr;
  size_t capacity = 0;
  for (ssize_t length; (length = getline(&line, &capacity, file)) > 0; kept += length) {
    unsigned long long at = 0;
    bool later = std::sscanf(line, "{\"step\":%llu", &at) == 1 && at > step;
    if (later || line[length - 1] != '\n') break;
  }
  std::free(line);
  std::fclose(file);
  return kept;
}

}  // namespace

int FormatMetrics(const StepMetrics& metrics, char* out, int size) {
  char loss[40], rate[40], norm[40], speed[40], time[40];
  Number(loss, sizeof loss, metrics.loss_known, metrics.loss);
  Number(rate, sizeof rate, true, metrics.learning_rate);
  Number(norm, sizeof norm, metrics.norm_known, metrics.gradient_norm);
  std::snprintf(speed, sizeof speed, "%.1f", metrics.tokens_per_second);
  std::snprintf(time, sizeof time, "%.3f", metrics.step_milliseconds);
  char mfu[40];
  std::snprintf(mfu, sizeof mfu, metrics.mfu >= 0 ? "%.4g" : "null", metrics.mfu);
  char eval[64] = "";
  if (metrics.eval_known) {
    char value[40];
    Number(value, sizeof value, true, metrics.eval_loss);
    std::snprintf(eval, sizeof eval, ",\"eval_loss\":%s", value);
  }
  return std::snprintf(
      out, size,
      "{\"step\":%llu,\"loss\":%s,\"lr\":%s,\"grad_norm\":%s,\"tokens_per_s\":%s,\"step_ms\":%s,"
      "\"mfu\":%s,\"peak_memory\":%lld%s}\n",
      static_cast<unsigned long long>(metrics.step), loss, rate, norm, speed, time, mfu,
      static_cast<long long>(metrics.peak_memory), eval);
}

Status MetricsWriter::Open(const std::string& path, bool append, bool console, uint64_t last_step,
                           uint64_t first_step) {
  console_ = console;
  terminal_ = console && isatty(STDOUT_FILENO) != 0;
  last_step_ = last_step;
  if (path.empty()) return {};
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (append ? O_APPEND : O_TRUNC), 0644);
  if (fd_ < 0) return IoError("cannot write metrics to '" + path + "': " + std::strerror(errno));
  off_t kept = append ? KeptLength(path, first_step) : -1;
  if (kept >= 0 && ftruncate(fd_, kept) != 0) {
    return IoError("cannot shorten the metrics in '" + path + "': " + std::strerror(errno));
  }
  return {};
}

MetricsWriter::~MetricsWriter() {
  Finish();
  if (fd_ >= 0) close(fd_);
}

void MetricsWriter::Write(const StepMetrics& metrics) {
  char line[512];
  if (fd_ >= 0) {
    int length = FormatMetrics(metrics, line, sizeof line);
    for (int at = 0; at < length;) {
      ssize_t written = write(fd_, line + at, static_cast<size_t>(length - at));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) break;  // a full disk costs the report, not the training
      at += static_cast<int>(written);
    }
  }
  if (!console_) return;
  bool last = metrics.step >= last_step_;
  bool due = lines_++ == 0 || metrics.step % 10 == 0 || last || metrics.eval_known;
  if (!terminal_ && !due) return;
  char eval[48] = "";
  if (metrics.eval_known) std::snprintf(eval, sizeof eval, "  validation %.4f", metrics.eval_loss);
  int length =
      std::snprintf(line, sizeof line, "%sstep %llu/%llu  loss %.4f  lr %.3g  %.0f tokens/s  %.0f ms%s%s",
                    terminal_ ? "\r" : "", static_cast<unsigned long long>(metrics.step),
                    static_cast<unsigned long long>(last_step_), metrics.loss, metrics.learning_rate,
                    metrics.tokens_per_second, metrics.step_milliseconds, eval, terminal_ ? "\x1b[K" : "\n");
  line_open_ = terminal_;
  if (terminal_ && metrics.eval_known) {
    length += std::snprintf(line + length, sizeof line - length, "\n");
    line_open_ = false;
  }
  if (write(STDOUT_FILENO, line, static_cast<size_t>(length)) < 0) console_ = false;
}

void MetricsWriter::Finish() {
  if (line_open_ && write(STDOUT_FILENO, "\n", 1) < 0) console_ = false;
  line_open_ = false;
}

}  // namespace piper::runtime
