// List scheduling of pipeline passes: given what every pass costs and waits for, in which order should each
// rank run them? The problem is abstract (operations, arcs, hosts); `ir/directives/greedy` makes one from a
// training DAG. Plain list scheduling, highest priority first, is tried under several rules; the best order
// is then improved by a local search along its critical path, within a budget of work. All of it is
// deterministic: the same problem and budget give the same order on every machine.
//
// Instances of one queue (one pass of one stage copy) are equal, so an order that runs each queue first in,
// first out is never worse than another: a host's order is decided by which queue it serves next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "ir/support/units.h"

namespace piper::ir {

constexpr int64_t kNoCap = std::numeric_limits<int64_t>::max();

// What `in_flight` and `memory` bound; a queue takes and gives back some of each.
enum Resource : uint8_t { kInFlight, kBytes, kResources };

struct ListProblem {
  enum class Pass : uint8_t { kForward, kBackward, kWeight };

  // The way from the end of an operation to the start of another. A channel carries one message at a time, in
  // the order of its senders.
  struct Way {
    uint32_t channel = UINT32_MAX;
    Picoseconds early = 0;      // the value is ready this long before the sender's end
    Picoseconds occupancy = 0;  // of the channel
    Picoseconds latency = 0;    // behind that
    Picoseconds late = 0;       // the reader needs it this long after its start

    // When the reader can start, of an operation that ends at `end`; takes the channel, whose ends are
    // `channels`.
    Picoseconds Arrival(Picoseconds end, std::vector<Picoseconds>* channels) const {
      Picoseconds sent = end - early;
      if (channel != UINT32_MAX) {
        sent = std::max(sent, (*channels)[channel]) + occupancy;
        (*channels)[channel] = sent;
      }
      return sent + latency - late;
    }
  };
  struct Arc {
    uint32_t to = 0;
    uint32_t way = 0;  // index into `ways`
  };
  // One pass of one unit (consecutive regions of a model on one host, one copy), for its microbatches in
  // order.
  struct Queue {
    uint32_t host = 0;
    uint32_t unit = 0;
    Pass pass = Pass::kForward;
    uint32_t first = 0, count = 0;                         // operations [first, first + count)
    int64_t take[kResources] = {}, give[kResources] = {};  // at the start and at the end of an operation
  };
  // The units of a host, in the order in which a microbatch goes through them.
  struct Unit {
    uint32_t host = 0;
    int32_t mb_begin = 0, mb_end = 0;
    uint32_t queues[3] = {UINT32_MAX, UINT32_MAX, UINT32_MAX};  // by Pass
  };
  struct Host {
    bool free = false;            // its order is to be found
    std::vector<uint32_t> order;  // else: given
    Picoseconds tail = 0;         // what it does after its last operation
    int64_t cap[kResources] = {kNoCap, kNoCap};
  };

  std::vector<Host> hosts;
  std::vector<uint32_t> host_of;    // per operation
  std::vector<Picoseconds> cost;    // per operation
  std::vector<uint32_t> queue_of;   // per operation; UINT32_MAX on hosts that are not free
  std::vector<uint16_t> priority;   // per operation: place in the list of priorities, 0 first
  std::vector<uint32_t> first_arc;  // per operation, plus one end entry
  std::vector<Arc> arcs;
  std::vector<Way> ways;
  uint32_t channels = 0;
  std::vector<Queue> queues;
  std::vector<Unit> units;

  uint32_t size() const { return static_cast<uint32_t>(cost.size()); }
  // The least cap of a resource under which host `h` gets one microbatch after another done, whatever happens
  // elsewhere; 0 where nothing is taken.
  int64_t LeastCap(uint32_t h, Resource resource) const;
};

struct ListOrder {
  bool stuck = true;         // no order was found: the caps (or the given orders) leave no way
  Picoseconds makespan = 0;  // by the model above, tails included
  std::vector<std::vector<uint32_t>> hosts;  // per host: its operations in order; given orders unchanged
};

// A budget of operations timed: about ten nanoseconds each.
constexpr uint64_t kListBudget = 10'000'000;

ListOrder ResolveOrder(const ListProblem& problem, uint64_t budget = kListBudget);

// The time that an order takes; -1 where it waits for itself. What ResolveOrder minimises.
Picoseconds TimeOrder(const ListProblem& problem, const std::vector<std::vector<uint32_t>>& hosts);

}  // namespace piper::ir
