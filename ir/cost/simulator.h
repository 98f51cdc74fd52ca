// The one virtual clock: a discrete-event simulation, in integer picoseconds, of a Job's RankPrograms under
// zero-buffer rendezvous. Ranks of one role are folded into one (their programs and costs are equal);
// `expand` times every rank. It is also the deadlock proof: the run either completes or stops in a stuck
// state that does not depend on timing, and the blocked stream heads are reported.
//
// A send and its receive start when both stream heads have reached them and their waits are met; the sender's
// and the receiver's streams are free again after bytes/bandwidth (the task's cost less the link's latency),
// the data (the receive's completion) arrives one latency later; a stream that goes on with anything but a
// receive waits for what it received. A collective starts when all its members have reached it. Fused tasks
// (consecutive, equal `atomic`) start when the waits of all are met and end together after the sum of their
// costs. At one instant everything that ends precedes everything that starts.
//
// Contention. What is shared slows down what shares it, while it does. A transfer holds the port through
// which it leaves the sender, and the one through which it reaches the receiver, both on the level whose link
// joins the two; a collective holds each member's port towards its next neighbour on the ring, and the one
// from the neighbour before. What leaves and what arrives do not share a port. A device has ports of its own
// on every level, or, on a level with `nics`, shares those of its member of that level (Topology::PortOf).
// Transfers on one port share it equally. Streams that compute on one device share its compute units,
// equally; and a `slowdown` names two streams of a device that take longer together. A task progresses at the
// least of these rates: 1/n, or 1000/thousandths. Latencies are never shared, and figures of `cost` in time
// on messages are latency. Work done is rounded down in parts of a picosecond, ends are rounded up to the
// next one. A pair that runs at once never takes longer than one after the other; nor do more, as those on
// the fullest port make up one whole rate.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/program/program.h"
#include "ir/support/units.h"
#include "runtime/program.h"

namespace piper::ir {

struct TaskTiming {
  Picoseconds start = 0, end = 0;
};

// A stream whose head cannot run, when the job is stuck. `role` is a rank if the simulation was expanded. It
// waits for task `awaited` of role `awaited_role`, which stands behind the next head of the cycle (or is that
// head); kNone: for another end that does not exist.
struct BlockedHead {
  uint32_t role = 0, stream = 0, task = 0;
  uint32_t awaited_role = kNone, awaited = kNone;
  friend bool operator==(const BlockedHead&, const BlockedHead&) = default;
};

struct RoleStatistics {
  Picoseconds busy = 0;          // while some stream computes
  Picoseconds idle = 0;          // makespan - busy
  int64_t peak_activations = 0;  // most live (stage, microbatch) pairs: F started, last B/BW not ended
  int64_t messages = 0, message_bytes = 0;        // sent, a rank a step
  int64_t collectives = 0, collective_bytes = 0;  // joined, payload
  int64_t peak_live_bytes = 0;                    // largest live set of buffers, static ones included
};

struct SimulationResult {
  Picoseconds makespan = 0;
  std::vector<std::vector<TaskTiming>> timings;  // [role][task]; [rank][task] if expanded
  std::vector<RoleStatistics> roles;             // a role; a rank if expanded
  // Non-empty: the smallest cycle among the blocked heads of the stuck state, each waiting for the next (of
  // equally small ones the first by role and stream). One head that waits for a partner that nobody has
  // stands alone.
  std::vector<BlockedHead> deadlock;
  uint64_t events = 0;  // starts and ends of tasks
  // With `record_log`, [role]: 2 * task where it starts, 2 * task + 1 where it ends, in the clock's order.
  // The order is one legal sequential history of the whole job.
  std::vector<std::vector<uint32_t>> log;
  double bubble() const;  // largest idle share of a rank
};

struct SimulationOptions {
  bool expand = false;  // one timeline a rank instead of a role
  bool record_log = false;
  bool evaluation = false;  // Job::eval instead of Job::train
};

namespace simulation {
class RowsOfJob;
}

// What the clock reads of a job's programs. Whoever builds a job can add each program while its tables are at
// hand, which saves the clock a pass over millions of tasks that are far by then.
class ClockRows {
 public:
  ClockRows();
  ~ClockRows();
  // In the order of the job. Only streams, tasks, waits, peer_roles and collectives are read; they stay as
  // they are until the job was simulated.
  void Add(const runtime::RankProgram& program);

 private:
  friend SimulationResult Simulate(const runtime::Job& job, const Topology& topology,
                                   const SimulationOptions& options, ClockRows* rows);
  std::unique_ptr<simulation::RowsOfJob> rows_;
};

// Exact and deterministic. Times of the result are meaningless where `deadlock` is not empty. `rows`, if
// given, has all programs and is used up.
SimulationResult Simulate(const runtime::Job& job, const Topology& topology,
                          const SimulationOptions& options = {}, ClockRows* rows = nullptr);

}  // namespace piper::ir
