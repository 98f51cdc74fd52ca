// When everything of a list problem happens under one order: a pass over operations and arcs, used thousands
// of times by the search. Internal to ir/search.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/search/list_schedule.h"

namespace piper::ir {

class OrderTiming {
 public:
  explicit OrderTiming(const ListProblem& problem);

  // The makespan, tails included; -1 where the orders wait for each other. `limit`: a time at which it is
  // given up (anything at least that large is returned).
  Picoseconds Time(const std::vector<std::vector<uint32_t>>& hosts);

  // Of the last call that returned no -1.
  Picoseconds End(uint32_t op) const { return end_[op]; }
  // Of all hosts' ends, for telling equal makespans apart.
  Picoseconds SumOfEnds() const { return sum_of_ends_; }
  // What the operation waited for last: the one before it on its host, or the sender of the message that it
  // needed; UINT32_MAX for neither.
  uint32_t Binding(uint32_t op) const { return binding_[op]; }
  uint32_t LastOp() const { return last_op_; }
  const std::vector<uint32_t>& missing() const { return missing_; }  // arcs into an operation

 private:
  const ListProblem& problem_;
  std::vector<uint32_t> missing_, left_;
  std::vector<Picoseconds> ready_, end_, free_, channel_;
  std::vector<uint32_t> binding_, sender_;
  std::vector<uint32_t> next_, runnable_;
  uint32_t last_op_ = UINT32_MAX;
  Picoseconds sum_of_ends_ = 0;
};

}  // namespace piper::ir
