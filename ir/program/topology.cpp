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

namespace {

// The group that holds a device, or the end.
std::vector<Level::Group>::const_iterator GroupOf(const Level& level, uint32_t device) {
  const auto after = std::upper_bound(level.groups.begin(), level.groups.end(), device,
                                      [](uint32_t d, const Level::Group& group) { return d < group.first; });
  if (after == level.groups.begin()) return level.groups.end();
  const auto group = std::prev(after);
  return device < group->first + group->count ? group : level.groups.end();
}

}  // namespace

uint32_t Topology::LevelBetween(uint32_t a, uint32_t b) const {
  for (uint32_t level = 0; level < levels.size(); ++level) {
    const auto group = GroupOf(levels[level], a);
    if (group != levels[level].groups.end() && group == GroupOf(levels[level], b)) return level;
  }
  return 0;
}

Topology::Port Topology::PortOf(uint32_t device, size_t level) const {
  const Port own = {device, 0};
  if (level == 0 || level >= levels.size()) return own;
  const auto group = GroupOf(levels[level], device);
  if (group == levels[level].groups.end() || group->link.nics < 1) return own;
  const auto member = GroupOf(levels[level - 1], device);
  if (member == levels[level - 1].groups.end()) return own;
  return {member->first, 1 + static_cast<uint32_t>((device - member->first) % group->link.nics)};
}

}  // namespace piper::ir
