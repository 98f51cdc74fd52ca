// Vector clocks over the tasks of one role: what is complete, by stream order and waits alone, before a task
// starts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "ir/support/result.h"
#include "runtime/program.h"

namespace piper::ir {

// Streams complete in order, as the executor runs them. Entries are `task index + 1`, 0: nothing of that
// stream. Rows are padded to whole vectors of signed integers, which every instruction set compares: of 16
// bits where the tasks can be counted so.
class HappensBefore {
 public:
  HappensBefore(size_t tasks, size_t streams)
      : stride_((streams + kLanes - 1) / kLanes * kLanes), last_(streams, runtime::kNone) {
    PIPER_CHECK(tasks < INT32_MAX, "too many tasks of one role");
    if (tasks < INT16_MAX) {
      narrow_ = Clocks<int16_t>(tasks, streams, stride_);
    } else {
      wide_ = Clocks<int32_t>(tasks, streams, stride_);
    }
  }

  // Call in an order that respects streams and waits, once a task. `stream_of`: the stream of every task.
  void Enter(uint32_t task, uint16_t stream, const uint32_t* waits, uint32_t wait_count,
             const uint16_t* stream_of) {
    const uint32_t before = last_[stream];
    last_[stream] = task;
    if (narrow_.rows != nullptr) {
      narrow_.Enter(task, stream, before, waits, wait_count, stream_of, stride_);
    } else {
      wide_.Enter(task, stream, before, waits, wait_count, stream_of, stride_);
    }
  }
  // Of the task of its stream that was entered last.
  void AddWait(uint32_t task, uint16_t stream, uint32_t awaited, uint16_t awaited_stream) {
    if (narrow_.rows != nullptr) {
      narrow_.AddWait(task, stream, awaited, awaited_stream, stride_);
    } else {
      wide_.AddWait(task, stream, awaited, awaited_stream, stride_);
    }
  }
  // Whether `earlier` is complete before `later` starts. `later` has been entered.
  bool Ordered(uint32_t earlier, uint16_t earlier_stream, uint32_t later) const {
    const size_t at = size_t{later} * stride_ + earlier_stream;
    return static_cast<int32_t>(earlier) < (narrow_.rows != nullptr ? narrow_.rows[at] : wide_.rows[at]);
  }

 private:
  static constexpr size_t kLanes = 8;
  template <typename Entry>
  struct Clocks {
    Clocks() = default;
    Clocks(size_t tasks, size_t streams, size_t stride)
        : rows(std::make_unique_for_overwrite<Entry[]>(tasks * stride + 1)), now(streams * stride, 0) {}
    void Enter(uint32_t task, uint16_t stream, uint32_t before, const uint32_t* waits, uint32_t wait_count,
               const uint16_t* stream_of, size_t stride) {
      Entry* clock = &now[size_t{stream} * stride];
      if (before != runtime::kNone) clock[stream] = static_cast<Entry>(before + 1);
      for (uint32_t w = 0; w < wait_count; ++w) Join(clock, waits[w], stream_of[waits[w]], stride);
      Keep(task, clock, stride);
    }
    void AddWait(uint32_t task, uint16_t stream, uint32_t awaited, uint16_t awaited_stream, size_t stride) {
      Entry* clock = &now[size_t{stream} * stride];
      Join(clock, awaited, awaited_stream, stride);
      Keep(task, clock, stride);
    }
    void Join(Entry* clock, uint32_t task, uint16_t stream, size_t stride) {
      const Entry* other = &rows[size_t{task} * stride];
      for (size_t first = 0; first < stride; first += kLanes) {
        for (size_t s = first; s < first + kLanes; ++s) clock[s] = clock[s] > other[s] ? clock[s] : other[s];
      }
      const auto own = static_cast<Entry>(task + 1);
      if (clock[stream] < own) clock[stream] = own;
    }
    void Keep(uint32_t task, const Entry* clock, size_t stride) {
      Entry* row = &rows[size_t{task} * stride];
      for (size_t first = 0; first < stride; first += kLanes) {
        for (size_t s = first; s < first + kLanes; ++s) row[s] = clock[s];
      }
    }
    std::unique_ptr<Entry[]> rows;  // one a task, once it was entered
    std::vector<Entry> now;         // a row a stream: that of the task entered last
  };
  size_t stride_;
  Clocks<int16_t> narrow_;  // one of the two is used
  Clocks<int32_t> wide_;
  std::vector<uint32_t> last_;
};

}  // namespace piper::ir
