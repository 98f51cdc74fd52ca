// A Chrome trace (JSON, "X" events with flows for messages) of some steps of a real run: a process a rank, a
// thread a stream. All ranks of a host share the steady clock, so their times compare.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/executor.h"
#include "runtime/status.h"
#include "runtime/transport.h"

namespace piper::runtime {

class TraceRecorder {
 public:
  // Keeps the steps [first, first + steps). The executor must record timings.
  TraceRecorder(const Executor& executor, std::string path, int64_t first, int64_t steps);
  // After each train step; allocates nothing.
  void Record(uint64_t step);
  // Collective: the ranks write their events one after the other.
  Status Write(Transport& transport);

 private:
  std::string Events(int64_t origin) const;
  const Executor& executor_;
  std::string path_;
  int64_t first_, steps_;
  int64_t recorded_ = 0;
  std::vector<TaskTime> times_;
};

// `text` as the inside of a JSON string.
std::string EscapeJson(const char* text);

}  // namespace piper::runtime
