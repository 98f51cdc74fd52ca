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
      : first(buffers.size() + 1, 0) {
    for (const runtime::Task& task : all) {
      for (uint32_t i = 0; i < task.operand_count; ++i) ++first[operands[task.first_operand + i] + 1];
    }
    for (size_t b = 0; b < buffers.size(); ++b) first[b + 1] += first[b];
    tasks.resize(first.back());
    std::vector<uint32_t> next(first.begin(), first.end() - 1);
    for (uint32_t t = 0; t < all.size(); ++t) {
      for (uint32_t i = 0; i < all[t].operand_count; ++i) {
        tasks[next[operands[all[t].first_operand + i]]++] = t;
      }
    }
  }
  std::span<const uint32_t> Of(uint32_t buffer) const {
    return std::span(tasks).subspan(first[buffer], first[buffer + 1] - first[buffer]);
  }
};

}  // namespace piper::ir
