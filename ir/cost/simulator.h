// The one virtual clock: a discrete-event simulation, in integer picoseconds, of a Job's RankPrograms under
// zero-buffer rendezvous. Ranks of one role are folded into one (their programs and costs are equal); `expand` times
// every rank. It is also the deadlock proof: the run either completes or stops in a stuck state that does not
// depend on timing, and the blocked stream heads are reported.
//
// A send and its receive start when both stream heads have reached them and their waits are met; the sender's and
// the receiver's streams are free again after bytes/bandwidth, the data (the receive's completion) arrives one
// latency later. A collective starts when all its members have reached it.
#pragma once

#include <cstdint>
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

// A stream whose head cannot run, when the job is stuck.
struct BlockedHead {
  uint32_t role = 0, stream = 0, task = 0;
};

struct RoleStatistics {
  Picoseconds busy = 0;                // of compute streams
  Picoseconds idle = 0;                // makespan - busy
  int64_t peak_activations = 0;        // most live (stage, microbatch) pairs: F started, last B/BW not ended
  int64_t messages = 0, message_bytes = 0;        // sent, a rank a step
  int64_t collectives = 0, collective_bytes = 0;  // joined, payload
  int64_t peak_live_bytes = 0;         // largest live set of buffers, static ones included
};

struct SimulationResult {
  Picoseconds makespan = 0;
  std::vector<std::vector<TaskTiming>> timings;  // [role][task]
  std::vector<RoleStatistics> roles;
  // Non-empty: the smallest cycle among the blocked heads of the stuck state, each waiting for the next.
  std::vector<BlockedHead> deadlock;
  uint64_t events = 0;
  double bubble() const;               // largest idle share of a rank's compute stream
};

struct SimulationOptions {
  bool expand = false;                 // one timeline a rank instead of a role
};

SimulationResult Simulate(const runtime::Job& job, const Topology& topology, const SimulationOptions& options = {});

}  // namespace piper::ir
