// The reference's side of a verification: its parameters, optimizer states and one step after another, on
// data that it opens itself.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/model/reference.h"
#include "ir/pipeline.h"
#include "ir/program/program.h"
#include "runtime/executor.h"
#include "runtime/status.h"

namespace piper::tools {

class ReferenceRun {
 public:
  struct Step {
    ir::ReferenceResult result;              // gradients before clipping
    std::vector<ir::HostTensor> parameters;  // after the update
  };

  // `plan` gives how the batch is divided, what is frozen, and the order of backward passes; regions and
  // their bodies are made anew from the program's model. All outlive the run.
  static runtime::Result<std::unique_ptr<ReferenceRun>> Create(const ir::Program& program,
                                                               const ir::Plan& plan,
                                                               std::unique_ptr<runtime::BatchSource> data);

  // Initial values.
  const std::vector<ir::HostTensor>& initial() const { return initial_; }
  // Computes up to `step` if need be. Valid until Forget.
  const Step& At(int64_t step);
  // Where the plan's expression is not the canonical one (`numerics fast`): the first step by the canonical
  // one, with magnitudes; after At(0). Else nothing in it.
  const ir::ReferenceResult& canonical() const { return canonical_; }
  // Steps before `step` are needed no more.
  void Forget(int64_t step);
  // What the data source refused, if it did.
  const runtime::Status& status() const { return status_; }
  // Index of a parameter by name; -1 if the model has none of that name.
  int64_t FindParameter(const std::string& name) const;
  int64_t parameter_count() const { return static_cast<int64_t>(initial_.size()); }

 private:
  ReferenceRun(const ir::Program& program, const ir::Plan& plan) : program_(program), plan_(plan) {}
  void Advance();

  const ir::Program& program_;
  const ir::Plan& plan_;
  ir::RegionGraph regions_;
  std::unique_ptr<runtime::BatchSource> data_;
  std::vector<uint32_t> field_of_input_;
  std::map<std::string, int64_t> by_name_;
  std::vector<ir::HostTensor> initial_, current_;
  std::vector<ir::UpdateState> states_;
  std::vector<std::pair<uint32_t, double>> optimizer_of_;  // optimizer, weight decay; a parameter each
  std::vector<ir::FoldOrder> gradient_orders_, loss_orders_;
  std::map<int64_t, Step> steps_;
  ir::ReferenceResult canonical_;
  int64_t next_ = 0;
  runtime::Status status_;
};

// The order in which each region's gradients fold, where the plan's expression says another than the
// canonical one: stage copies, and backward passes that are not ascending. Empty: canonical everywhere.
std::vector<ir::FoldOrder> GradientOrders(const ir::Plan& plan);
// Likewise for each loss: a copy of its stage folds its own microbatches first.
std::vector<ir::FoldOrder> LossOrders(const ir::Plan& plan);

}  // namespace piper::tools
