// The job behind `train --sample`: one rank that runs the model forward on one sequence and leaves the logits
// of every position in a buffer named "logits". Built from the model graph alone, so it samples from a
// checkpoint of any strategy.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ir/lower/job_storage.h"
#include "ir/model/body.h"

namespace piper::ir {

struct SampleJob {
  std::unique_ptr<JobStorage> job;  // null: nothing to sample from, `why` says so
  RegionGraph regions;              // whose forward bodies the job runs
  std::string why;
};

// `train` gives what the samples share with training: names, data kind, seed. The model must read one integer
// input [batch, seq] on the way to the logits of its first cross-entropy loss, and those must be [batch, seq,
// vocab]. Dropout is left out.
SampleJob LowerSample(const Graph& model, const runtime::Job& train);

}  // namespace piper::ir
