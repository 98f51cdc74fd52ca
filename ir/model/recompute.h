// The replay of a region's forward pass: the calls of F that what later passes still need depends on, and no
// others. It runs the same kernels on the same inputs with the same random keys, so it makes the same bits.
#pragma once

#include <cstdint>
#include <set>

#include "ir/model/body.h"

namespace piper::ir {

// `forward` (a region's F) reduced to what leaves the given outputs and saved values (by key); pass R.
// Formals keep their order. What a call writes besides becomes scratch. Nothing wanted: an empty body.
Body RecomputeBody(const Body& forward, const std::set<ValueId>& outputs, const std::set<uint32_t>& saved);

}  // namespace piper::ir
