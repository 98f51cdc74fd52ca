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

ClockRows::ClockRows() : rows_(std::make_unique<simulation::RowsOfJob>()) {}
ClockRows::~ClockRows() = default;
void ClockRows::Add(const runtime::RankProgram& program) { rows_->Add(program); }

SimulationResult Simulate(const runtime::Job& job, const Topology& topology, const SimulationOptions& options,
                          ClockRows* rows) {
  ClockRows own;
  if (rows == nullptr) {
    for (const runtime::RankProgram& program : options.evaluation ? job.eval : job.train) own.Add(program);
    rows = &own;
  }
  const std::vector<simulation::RoleRows> role_rows = rows->rows_->Finish();
  std::optional<simulation::EventLoop> loop;
  loop.emplace(job, topology, options, role_rows, false);
  bool complete = loop->Run();
  if (loop->contended()) {
    loop.emplace(job, topology, options, role_rows, true);
    complete = loop->Run();
  }
  std::vector<BlockedHead> cycle;
  if (!complete) cycle = simulation::SmallestCycle(*loop);
  SimulationResult result = loop->TakeResult();
  result.deadlock = std::move(cycle);
  return result;
}

}  // namespace piper::ir
