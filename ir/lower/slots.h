// What memory packing and its verifier share: which buffers are slots, and who uses a buffer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/lower/static_layout.h"
#include "runtime/program.h"

namespace piper::ir {

inline bool IsStatic(const runtime::Buffer& buffer) {
  return buffer.kind == runtime::BufferKind::kParameter ||
         buffer.kind == runtime::BufferKind::kOptimizerState ||
         buffer.kind == runtime::BufferKind::kGradient || buffer.kind == runtime::BufferKind::kScalar ||
         buffer.kind == runtime::BufferKind::kSaved;
}
inline int64_t SlotBytes(const runtime::Buffer& buffer) {
  return std::max(AlignUp(buffer.bytes), runtime::kAlignment);
}
// Slots are packed in two pools: the arena, and what `offload` takes of host memory.
enum class Pool : uint8_t { kArena, kHost };
inline bool IsSlot(const runtime::Buffer& buffer, Pool pool = Pool::kArena) {
  if (buffer.kind == runtime::BufferKind::kHost) return pool == Pool::kHost;
  return pool == Pool::kArena && !IsStatic(buffer) && buffer.kind != runtime::BufferKind::kScratch;
}

// Users of every buffer, as tasks in ascending order (a task that uses it twice stands twice).
struct Users {
  std::vector<uint32_t> first, tasks;

  Users(std::span<const runtime::Buffer> buffers, std::span<const runtime::Task> all,
        std::span<const uint32_t> operands)
      : first(buffers.size() + 2, 0) {
    // Counted two entries on, so that entry b + 1 is where the next user of b goes, and stands right at the
    // end.
    uint32_t* const counts = first.data() + 2;
    const uint32_t* const operand = operands.data();
    for (const runtime::Task& task : all) {
      for (uint32_t i = task.first_operand, end = i + task.operand_count; i < end; ++i) ++counts[operand[i]];
    }
    uint32_t* const next = first.data() + 1;
    for (size_t b = 0; b < buffers.size(); ++b) counts[b] += next[b];
    tasks.resize(first.back());
    uint32_t* const users = tasks.data();
    const runtime::Task* const task = all.data();
    for (uint32_t t = 0; t < all.size(); ++t) {
      for (uint32_t i = task[t].first_operand, end = i + task[t].operand_count; i < end; ++i) {
        users[next[operand[i]]++] = t;
      }
    }
    first.pop_back();
  }
  std::span<const uint32_t> Of(uint32_t buffer) const {
    return std::span(tasks).subspan(first[buffer], first[buffer + 1] - first[buffer]);
  }
};

}  // namespace piper::ir
