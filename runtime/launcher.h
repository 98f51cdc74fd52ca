// Getting the ranks of one host together. Bare: a parent starts the executables of all ranks, hands them the
// shared memory as an open descriptor, watches them and passes on requests to stop. Under another launcher:
// rank 0 makes the shared memory and gives it to its siblings over an abstract Unix socket (no file), whose
// name holds user and job; both sides check that the other end is the same user.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/identity.h"
#include "runtime/segment.h"
#include "runtime/status.h"

namespace piper::runtime {

// Starts `programs[rank]` with the arguments `arguments` (its own argument 0 is added), waits for all, and
// returns the exit code of the job: 0; 128 + n when stopped by signal n after a checkpoint; 75 when a rank
// died, which is reported here; else what the first rank to fail exited with. The children die with this
// process.
int LaunchRanks(const std::vector<std::string>& programs, const std::vector<std::string>& arguments,
                uint64_t plan);

// The segment that the siblings of this host share. Blocks until all have come, at most `seconds`.
Result<std::unique_ptr<Segment>> JoinSiblings(const RankIdentity& identity, uint64_t plan, int seconds);

// Directory of the running executable.
Result<std::string> ExecutableDirectory();

// SIGTERM, SIGINT and SIGUSR1 ask the step loop to stop; the second one ends the process at once.
void InstallStopSignals();

}  // namespace piper::runtime
