// Train blocks: their fields -> ir::TrainSpec, and the Program that model, topology, strategy and spec make
// together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "frontend/interpreter.h"

namespace piper::frontend {

// A `--set name=value`.
struct Override {
  std::string name;
  Value value;
  SourceRange range;
  bool used = false;
};

// A train block, evaluated but not yet put together: tests replace parts of it.
struct TrainBlock {
  ir::TrainSpec spec;
  Value model, topology;
  SourceRange model_range, topology_range;
  const Field* strategy = nullptr;  // evaluated last, with overrides in force
  const FunctionInfo* unit = nullptr;
  bool evaluates = false;  // an eval block alone: forward passes over its data, nothing is trained
};

// Evaluates the fields of a train block and of the eval block (may be null). Reports several errors, then
// throws. An eval block that stands alone is given as `train`: it says what a run needs but for training.
TrainBlock EvaluateTrain(Interpreter& interpreter, const RunDecl& train, const RunDecl* eval,
                         std::vector<Override>* overrides);

// The names that `--set` may give to fields.
const std::vector<std::string>& OverridableFields();

}  // namespace piper::frontend
