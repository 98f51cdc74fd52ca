#include "ir/cost/simulator.h"

#include <algorithm>
#include <optional>

#include "ir/cost/event_loop.h"

namespace piper::ir {

double SimulationResult::bubble() const {
  if (makespan <= 0) return 0;
  Picoseconds idle = 0;
  for (const RoleStatistics& role : roles) idle = std::max(idle, role.idle);
  return static_cast<double>(idle) / static_cast<double>(makespan);
}

SimulationResult Simulate(const runtime::Job& job, const Topology& topology,
                          const SimulationOptions& options) {
  std::optional<simulation::EventLoop> loop;
  loop.emplace(job, topology, options, false);
  bool complete = loop->Run();
  if (loop->contended()) {
    loop.emplace(job, topology, options, true);
    complete = loop->Run();
  }
  std::vector<BlockedHead> cycle;
  if (!complete) cycle = simulation::SmallestCycle(*loop);
  SimulationResult result = loop->TakeResult();
  result.deadlock = std::move(cycle);
  return result;
}

}  // namespace piper::ir
