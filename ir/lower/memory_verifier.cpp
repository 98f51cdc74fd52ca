#include <algorithm>
#include <string>

#include "ir/lower/happens_before.h"
#include "ir/lower/memory.h"
#include "ir/lower/slots.h"

namespace piper::ir {

using runtime::Buffer;
using runtime::BufferKind;
using runtime::Task;

std::string VerifyMemory(const runtime::RankProgram& program) {
  const Users users(program.buffers, program.tasks, program.task_operands);
  HappensBefore clock(program.tasks.size(), program.streams.size());
  // Tasks in an order that respects streams and waits.
  std::vector<uint32_t> head(program.streams.size());
  std::vector<uint8_t> done(program.tasks.size(), 0);
  for (size_t s = 0; s < head.size(); ++s) head[s] = program.streams[s].first_task;
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t s = 0; s < head.size(); ++s) {
      const uint32_t end = program.streams[s].first_task + program.streams[s].task_count;
      while (head[s] < end) {
        const Task& task = program.tasks[head[s]];
        bool ready = true;
        for (uint32_t w = 0; w < task.wait_count; ++w)
          ready = ready && done[program.waits[task.first_wait + w]] != 0;
        if (!ready) break;
        clock.Enter(head[s], task.stream, program.waits.data() + task.first_wait, task.wait_count);
        done[head[s]++] = 1;
        progress = true;
      }
    }
  }
  for (size_t s = 0; s < head.size(); ++s) {
    if (head[s] != program.streams[s].first_task + program.streams[s].task_count) return "waits form a cycle";
  }

  const auto text = [&](uint32_t b) {
    const Buffer& buffer = program.buffers[b];
    return std::string(buffer.name) + " at " + std::to_string(buffer.offset) + " + " +
           std::to_string(buffer.bytes);
  };
  // All users of `a` before any user of `b`: the last of each stream before the first of each stream.
  const auto all_before = [&](uint32_t a, uint32_t b) {
    const std::span<const uint32_t> from = users.Of(a), to = users.Of(b);
    for (size_t i = 0; i < from.size(); ++i) {
      const uint16_t from_stream = program.tasks[from[i]].stream;
      if (i + 1 < from.size() && program.tasks[from[i + 1]].stream == from_stream) continue;
      for (size_t j = 0; j < to.size(); ++j) {
        const uint16_t to_stream = program.tasks[to[j]].stream;
        if (j > 0 && program.tasks[to[j - 1]].stream == to_stream) continue;
        if (!clock.Ordered(from[i], from_stream, to[j])) return false;
      }
    }
    return true;
  };
  std::vector<uint32_t> by_offset, on_host;
  for (uint32_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.kind == BufferKind::kHost) {
      if (buffer.offset < 0 || buffer.offset % runtime::kAlignment != 0 ||
          buffer.offset + buffer.bytes > program.host_bytes) {
        return "outside the host pool or not aligned: " + text(b);
      }
      if (buffer.bytes > 0 && !users.Of(b).empty()) on_host.push_back(b);
      continue;
    }
    if (buffer.offset < 0 || buffer.offset % runtime::kAlignment != 0 ||
        buffer.offset + buffer.bytes > program.arena_bytes) {
      return "outside the arena or not aligned: " + text(b);
    }
    if (IsStatic(buffer)) {
      if (buffer.offset + buffer.bytes > program.static_bytes) return "outside the static part: " + text(b);
    } else if (buffer.offset < program.static_bytes) {
      return "within the static part: " + text(b);
    } else if (buffer.bytes > 0 && (buffer.kind == BufferKind::kScratch || !users.Of(b).empty())) {
      by_offset.push_back(b);
    }
  }
  const auto sweep = [&](std::vector<uint32_t>& pool) -> std::string {
    // Sweep by offset; at every start the sharers of that byte, in the order of use, must be ordered one
    // after another.
    std::sort(pool.begin(), pool.end(), [&](uint32_t a, uint32_t b) {
      return program.buffers[a].offset != program.buffers[b].offset
                 ? program.buffers[a].offset < program.buffers[b].offset
                 : a < b;
    });
    // Sharers of the bytes at the sweep's position, kept in an order in which each precedes the next.
    std::vector<uint32_t> sharers;
    for (uint32_t b : pool) {
      const int64_t offset = program.buffers[b].offset;
      std::erase_if(sharers, [&](uint32_t s) {
        return program.buffers[s].offset + program.buffers[s].bytes <= offset;
      });
      for (uint32_t s : sharers) {
        if (program.buffers[b].kind == BufferKind::kScratch ||
            program.buffers[s].kind == BufferKind::kScratch) {
          return "scratch shares bytes: " + text(b) + " and " + text(s);
        }
      }
      // Binary search for the place of b, then check its neighbours: precedence is transitive.
      size_t low = 0, high = sharers.size();
      while (low < high) {
        const size_t middle = (low + high) / 2;
        if (all_before(sharers[middle], b)) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      if (low < sharers.size() && !all_before(b, sharers[low])) {
        return "in use at once: " + text(b) + " and " + text(sharers[low]);
      }
      if (low > 0 && !all_before(sharers[low - 1], b)) {
        return "in use at once: " + text(b) + " and " + text(sharers[low - 1]);
      }
      sharers.insert(sharers.begin() + static_cast<std::ptrdiff_t>(low), b);
    }
    return "";
  };
  std::string offence = sweep(by_offset);
  return offence.empty() ? sweep(on_host) : offence;
}

}  // namespace piper::ir
