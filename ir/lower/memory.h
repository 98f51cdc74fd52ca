// Memory packing of one role: offsets for scratch and slots, and the waits that make their reuse safe. The
// rule and why the waits are harmless are in lower.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/lower/job_storage.h"

namespace piper::ir {

// Sets Buffer::offset of everything that is not static, arena_bytes, live_bytes and host_bytes, and adds
// waits to tasks. The host pool is packed like the arena. `log` is the role's history from the clock
// (SimulationResult::log), complete. Slots are taken in the order of the history: exactly fitting bytes
// first, else the smallest that fit and are not much too large, else neighbours that fit together, else new
// ones; a few readings of "much too large" are tried and the smallest arena is kept. They are freed when
// their last user ends, and what ends at an instant is free for what starts at it. Within a fused node, parts
// run in program order and reuse each other's bytes, but nothing of it is free for others before its end.
// Near-linear in tasks and operands.
void PackMemory(RoleStorage& role, const std::vector<uint32_t>& log);

// Every slot gets bytes of its own: for jobs whose history is incomplete (a deadlock).
void PlaceWithoutReuse(RoleStorage& role);

// Whether any two buffers that share bytes are ordered: all users of one complete, by stream order and waits
// of this role alone, before any user of the other starts. Static buffers may overlap (a bucket covers its
// accumulators). Empty if so, else a description of the first offence. Quadratic in nothing: a sweep over
// offsets.
std::string VerifyMemory(const runtime::RankProgram& program);

}  // namespace piper::ir
