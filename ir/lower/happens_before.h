// Vector clocks over the tasks of one role: what is complete, by stream order and waits alone, before a task
// starts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/support/result.h"
#include "runtime/program.h"

namespace piper::ir {

// Streams complete in order, as the executor runs them. Entries are `task index + 1`, 0: nothing of that
// stream. Rows are padded to whole vectors of signed integers, which every instruction set compares.
class HappensBefore {
 public:
  HappensBefore(size_t tasks, size_t streams)
      : stride_((streams + kLanes - 1) / kLanes * kLanes),
        clocks_(tasks * stride_, 0),
        last_(streams, runtime::kNone) {
    PIPER_CHECK(tasks < INT32_MAX, "too many tasks of one role");
  }

  // Call in an order that respects streams and waits, once a task.
  void Enter(uint32_t task, uint16_t stream, const uint32_t* waits, uint32_t wait_count,
             std::span<const runtime::Task> tasks) {
    int32_t* clock = &clocks_[size_t{task} * stride_];
    if (last_[stream] != runtime::kNone) Join(clock, last_[stream], stream);
    last_[stream] = task;
    for (uint32_t w = 0; w < wait_count; ++w) Join(clock, waits[w], tasks[waits[w]].stream);
  }
  void AddWait(uint32_t task, uint32_t awaited, uint16_t awaited_stream) {
    Join(&clocks_[size_t{task} * stride_], awaited, awaited_stream);
  }
  // Whether `earlier` is complete before `later` starts. `later` has been entered.
  bool Ordered(uint32_t earlier, uint16_t earlier_stream, uint32_t later) const {
    return static_cast<int32_t>(earlier) < clocks_[size_t{later} * stride_ + earlier_stream];
  }

 private:
  static constexpr size_t kLanes = 8;
  void Join(int32_t* clock, uint32_t task, uint16_t stream) {
    const int32_t* other = &clocks_[size_t{task} * stride_];
    for (size_t first = 0; first < stride_; first += kLanes) {
      for (size_t s = 0; s < kLanes; ++s) {
        clock[first + s] = clock[first + s] > other[first + s] ? clock[first + s] : other[first + s];
      }
    }
    clock[stream] = std::max(clock[stream], static_cast<int32_t>(task + 1));
  }
  size_t stride_;
  std::vector<int32_t> clocks_;
  std::vector<uint32_t> last_;
};

}  // namespace piper::ir
