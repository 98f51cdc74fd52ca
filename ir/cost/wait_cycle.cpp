// The witness of a deadlock: the smallest cycle of blocked stream heads in the stuck state.
#include <algorithm>

#include "ir/cost/event_loop.h"

namespace piper::ir::simulation {

std::vector<BlockedHead> SmallestCycle(const EventLoop& loop) {
  const std::vector<uint32_t> blocked = loop.BlockedStreams();
  const auto index_of = [&](uint32_t stream) {
    auto found = std::lower_bound(blocked.begin(), blocked.end(), stream);
    return found != blocked.end() && *found == stream ? static_cast<size_t>(found - blocked.begin())
                                                      : SIZE_MAX;
  };
  std::vector<std::vector<size_t>> waits(blocked.size());
  for (size_t i = 0; i < blocked.size(); ++i) {
    for (const auto& [stream, task] : loop.WaitsFor(blocked[i])) {
      if (size_t j = index_of(stream); j != SIZE_MAX) waits[i].push_back(j);
    }
  }
  // A breadth-first search from every head, no deeper than the best cycle so far. The first found of each
  // length wins, so the result is the first by stream.
  std::vector<size_t> best;
  std::vector<uint32_t> seen(blocked.size(), 0);
  std::vector<size_t> parent(blocked.size()), queue;
  std::vector<size_t> depth(blocked.size());
  for (size_t start = 0; start < blocked.size() && best.size() != 1; ++start) {
    const uint32_t mark = static_cast<uint32_t>(start) + 1;
    queue.assign(1, start);
    seen[start] = mark;
    depth[start] = 1;
    bool found = false;
    for (size_t front = 0; front < queue.size() && !found; ++front) {
      const size_t node = queue[front];
      if (!best.empty() && depth[node] >= best.size()) break;
      for (size_t next : waits[node]) {
        if (next == start) {
          best.clear();
          for (size_t at = node; at != start; at = parent[at]) best.push_back(at);
          best.push_back(start);
          std::reverse(best.begin(), best.end());
          found = true;
          break;
        }
        if (seen[next] == mark) continue;
        seen[next] = mark;
        parent[next] = node;
        depth[next] = depth[node] + 1;
        queue.push_back(next);
      }
    }
  }
  std::vector<BlockedHead> cycle;
  if (best.empty()) {
    // Somebody waits for a partner that does not exist.
    for (size_t i = 0; i < blocked.size() && cycle.empty(); ++i) {
      if (waits[i].empty()) cycle.push_back(loop.Head(blocked[i], kNone));
    }
  }
  for (size_t i = 0; i < best.size(); ++i) {
    const uint32_t next = blocked[best[(i + 1) % best.size()]];
    uint32_t awaited = kNone;
    for (const auto& [stream, task] : loop.WaitsFor(blocked[best[i]])) {
      if (stream == next) awaited = task;
    }
    cycle.push_back(loop.Head(blocked[best[i]], awaited));
  }
  return cycle;
}

}  // namespace piper::ir::simulation
