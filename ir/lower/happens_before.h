// Vector clocks over the tasks of one role: what is complete, by stream order and waits alone, before a task
// starts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/program.h"

namespace piper::ir {

// Streams complete in order, as the executor runs them. Entries are `task index + 1`, 0: nothing of that
// stream.
class HappensBefore {
 public:
  HappensBefore(size_t tasks, size_t streams)
      : streams_(streams), clocks_(tasks * streams, 0), last_(streams, runtime::kNone) {}

  // Call in an order that respects streams and waits, once a task.
  void Enter(uint32_t task, uint16_t stream, const uint32_t* waits, uint32_t wait_count,
             std::span<const runtime::Task> tasks) {
    uint32_t* clock = &clocks_[size_t{task} * streams_];
    if (last_[stream] != runtime::kNone) Join(clock, last_[stream], stream);
    last_[stream] = task;
    for (uint32_t w = 0; w < wait_count; ++w) Join(clock, waits[w], tasks[waits[w]].stream);
  }
  void AddWait(uint32_t task, uint32_t awaited, uint16_t awaited_stream) {
    Join(&clocks_[size_t{task} * streams_], awaited, awaited_stream);
  }
  // Whether `earlier` is complete before `later` starts. `later` has been entered.
  bool Ordered(uint32_t earlier, uint16_t earlier_stream, uint32_t later) const {
    return earlier < clocks_[size_t{later} * streams_ + earlier_stream];
  }

 private:
  void Join(uint32_t* clock, uint32_t task, uint16_t stream) {
    const uint32_t* other = &clocks_[size_t{task} * streams_];
    for (size_t s = 0; s < streams_; ++s) clock[s] = std::max(clock[s], other[s]);
    clock[stream] = std::max(clock[stream], task + 1);
  }
  size_t streams_;
  std::vector<uint32_t> clocks_;
  std::vector<uint32_t> last_;
};

}  // namespace piper::ir
