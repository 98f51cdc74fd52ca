#include "ir/cost/simulator.h"

#include <algorithm>

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
  simulation::EventLoop loop(job, topology, options);
  const bool complete = loop.Run();
  std::vector<BlockedHead> cycle;
  if (!complete) cycle = simulation::SmallestCycle(loop);
  SimulationResult result = loop.TakeResult();
  result.deadlock = std::move(cycle);
  return result;
}

}  // namespace piper::ir
