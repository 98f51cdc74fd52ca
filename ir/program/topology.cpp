#include <algorithm>

#include "ir/program/program.h"

namespace piper::ir {

Link Topology::Between(int64_t a, int64_t b) const {
  if (a == b) return {};
  for (const Level& level : levels) {
    // The last group that starts at or before `a`.
    auto after =
        std::upper_bound(level.groups.begin(), level.groups.end(), a,
                         [](int64_t device, const Level::Group& group) { return device < group.first; });
    if (after == level.groups.begin()) continue;
    const Level::Group& group = *std::prev(after);
    int64_t end = static_cast<int64_t>(group.first) + group.count;
    if (a < end && b >= group.first && b < end) return group.link;
  }
  return {};
}

}  // namespace piper::ir
