// The last step of BuildRegions: one region, already differentiated, becomes its three bodies. Decides where
// every value lives: which formals there are, what is saved between the passes, what shares bytes, what is
// scratch.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/model/body.h"
#include "ir/model/body_builder.h"
#include "ir/model/gradient.h"
#include "ir/model/graph.h"

namespace piper::ir {

// What differentiation leaves of a region, in terms of the graph that GradientBuilder grew.
struct RegionWork {
  RegionId region = kNone;
  std::vector<OpId> forward;                   // live operations of the region, program order
  OpId first_backward = 0, last_backward = 0;  // operations emitted for it
  // Partials that arrive: `source` stands for consumer's partial cotangent of output `value`. Ascending.
  struct Partial {
    ValueId value;
    RegionId consumer;
    ValueId source;
  };
  std::vector<Partial> partials;
  std::vector<std::pair<ValueId, ValueId>>
      input_cotangents;                                    // (value from outside, its cotangent), ascending
  std::vector<std::pair<ParameterId, ValueId>> gradients;  // ascending
};

class RegionLowering {
 public:
  // All referenced objects outlive the lowering; `graph` is the grown one and may gain copies.
  RegionLowering(Graph* graph, GradientBuilder* builder, const std::vector<RegionId>& value_region,
                 const std::vector<Region>& regions, RegionWork work);
  // Fills in the bodies of `region`.
  void Run(Region* region);

 private:
  struct BodyPlan;

  bool ProducedHere(ValueId value) const;
  bool IsBackward(ValueId value) const;
  // The value whose bytes a value is, within this region: follows operations that move no bytes.
  ValueId Root(ValueId value) const;
  std::string Name(ValueId value) const;
  // The operations of [first_backward, last_backward) that the given values need, ascending.
  std::set<OpId> Ancestors(const std::vector<ValueId>& values) const;
  // Gradients get buffers of their own: those that would share one are copied.
  void SeparateGradients();
  void FindSaved(const Region& region);
  Body LowerForward(const Region& region);
  Body LowerBackward(Pass pass);
  void AddReads(BodyPlan* plan, const std::set<ValueId>& roots);
  Body Emit(BodyPlan* plan);

  Graph* graph_;
  GradientBuilder* builder_;
  const std::vector<RegionId>& value_region_;
  const std::vector<Region>& regions_;
  RegionWork work_;
  std::set<OpId> forward_set_, input_set_, weight_set_;
  std::map<ValueId, ValueId> outputs_;  // root produced here -> the first output value that has it
  std::map<ValueId, uint32_t> saved_;   // root -> saved key
  std::map<ValueId, ValueId>
      input_roots_;  // root of an input cotangent computed by BI -> first value it is of
};

}  // namespace piper::ir
