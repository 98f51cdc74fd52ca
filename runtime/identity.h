// Which rank this process is, from the environment that launchers set: torchrun, Open MPI, MPICH and Cray
// PMI, PMIx, Slurm; or none of them ("bare"). Two families that say different things are an error that names
// both variables.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/status.h"

namespace piper::runtime {

enum class Launcher : uint8_t {
  kBare,
  kPiper,  // started by our own launcher (runtime/launcher.h)
  kTorchrun,
  kOpenMpi,
  kPmi,
  kSlurm,
};

struct RankIdentity {
  Launcher launcher = Launcher::kBare;
  uint32_t rank = 0, size = 1;
  uint32_t local_rank = 0, local_size = 1;
  int segment_fd = -1;  // kPiper
  std::string job_key;  // equal for the ranks of one job on one host, different for other jobs of this user
};

// The variables that our own launcher sets.
constexpr const char* kRankVariable = "PIPER_RANK";
constexpr const char* kSizeVariable = "PIPER_WORLD_SIZE";
constexpr const char* kSegmentVariable = "PIPER_SEGMENT_FD";

using Environment = std::function<const char*(const char* name)>;  // like getenv
Result<RankIdentity> DetectIdentity(const Environment& environment);

}  // namespace piper::runtime
