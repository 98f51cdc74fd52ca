// The key under which a parameter's initial values are drawn. Depends on its name alone, so that every
// strategy, the reference included, starts from the same bits.
#pragma once

#include <cstdint>
#include <string_view>

namespace piper::runtime {

// 64-bit FNV-1a (Fowler, Noll, Vo).
constexpr uint64_t ParameterKey(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace piper::runtime
