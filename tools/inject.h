// Faults for testing --verify: each edits the lowered job the way a wrong compiler would have made it, and
// must be caught. Reached by a hidden option only.
#pragma once

#include <string>
#include <vector>

#include "ir/lower/job_storage.h"
#include "ir/support/result.h"

namespace piper::tools {

// "drop-accumulate", "swap-microbatch", "wrong-scale".
const std::vector<std::string>& FaultNames();

// Edits and seals again. The message of a failure says why this job has no place for the fault.
Status InjectFault(const std::string& name, ir::JobStorage& job);

}  // namespace piper::tools
