// Vector clocks over the tasks of one role: what is complete, by stream order and waits alone, before a task
// starts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "ir/support/result.h"
#include "runtime/program.h"

namespace piper::ir {

// Streams complete in order, as the executor runs them. A task's row has an entry a stream: `task index + 1`
// of the last one there that is complete, 0: none; of its own stream, itself. Rows are padded to whole
// vectors of 16 bytes, which every instruction set compares: of 16-bit entries where the tasks can be counted
// so.
class HappensBefore {
 public:
  HappensBefore(size_t tasks, size_t streams) : last_(streams, runtime::kNone) {
    PIPER_CHECK(tasks < INT32_MAX, "too many tasks of one role");
    if (tasks < INT16_MAX) {
      narrow_ = Clocks<int16_t, Narrow>(tasks, streams);
    } else {
      wide_ = Clocks<int32_t, Wide>(tasks, streams);
    }
  }

  // Call in an order that respects streams and waits, once a task.
  void Enter(uint32_t task, uint16_t stream, const uint32_t* waits, uint32_t wait_count) {
    const uint32_t before = last_[stream];
    last_[stream] = task;
    if (narrow_.rows != nullptr) {
      narrow_.Enter(task, stream, before, waits, wait_count);
    } else {
      wide_.Enter(task, stream, before, waits, wait_count);
    }
  }
  // Of the task of its stream that was entered last.
  void AddWait(uint32_t task, uint32_t awaited) {
    if (narrow_.rows != nullptr) {
      narrow_.Join(task, awaited);
    } else {
      wide_.Join(task, awaited);
    }
  }
  // Whether `earlier` is complete before `later` starts. `later` has been entered.
  bool Ordered(uint32_t earlier, uint16_t earlier_stream, uint32_t later) const {
    if (earlier == later) return false;
    return static_cast<int32_t>(earlier) <
           (narrow_.rows != nullptr ? narrow_.At(later, earlier_stream) : wide_.At(later, earlier_stream));
  }

 private:
  using Narrow = int16_t __attribute__((vector_size(16)));
  using Wide = int32_t __attribute__((vector_size(16)));
  template <typename Entry, typename Vector>
  struct Clocks {
    static constexpr size_t kLanes = sizeof(Vector) / sizeof(Entry);

    Clocks() = default;
    Clocks(size_t tasks, size_t streams)
        : vectors((streams + kLanes - 1) / kLanes),
          rows(std::make_unique_for_overwrite<Vector[]>(tasks * vectors)) {}
    int32_t At(uint32_t task, uint16_t stream) const {
      Entry entry;
      std::memcpy(&entry, Row(task) + stream * sizeof(Entry), sizeof(Entry));
      return entry;
    }
    void Enter(uint32_t task, uint16_t stream, uint32_t before, const uint32_t* waits, uint32_t wait_count) {
      if (vectors == 1) [[likely]] {  // up to eight streams
        Vector row{};
        if (before != runtime::kNone) row = rows[before];
        for (const uint32_t* end = waits + wait_count; waits != end; ++waits) row = Later(row, rows[*waits]);
        rows[task] = row;
      } else {
        for (size_t v = 0; v < vectors; ++v) {
          Vector row = before == runtime::kNone ? Vector{} : rows[before * vectors + v];
          for (uint32_t w = 0; w < wait_count; ++w) row = Later(row, rows[waits[w] * vectors + v]);
          rows[task * vectors + v] = row;
        }
      }
      const auto own = static_cast<Entry>(task + 1);
      std::memcpy(Row(task) + stream * sizeof(Entry), &own, sizeof(Entry));
    }
    void Join(uint32_t task, uint32_t awaited) {
      for (size_t v = 0; v < vectors; ++v) {
        Vector& row = rows[task * vectors + v];
        row = Later(row, rows[awaited * vectors + v]);
      }
    }
    static Vector Later(Vector a, Vector b) { return a > b ? a : b; }
    std::byte* Row(uint32_t task) const { return reinterpret_cast<std::byte*>(&rows[task * vectors]); }

    size_t vectors = 0;              // a row
    std::unique_ptr<Vector[]> rows;  // one a task, once it was entered
  };
  Clocks<int16_t, Narrow> narrow_;  // one of the two is used
  Clocks<int32_t, Wide> wide_;
  std::vector<uint32_t> last_;  // per stream: the task entered last
};

}  // namespace piper::ir
