// Random numbers by counter: the Philox4x32-10 function of Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3" (SC 2011). A number is a function of a RandomKey, a sample and an element, so any rank can draw
// it.
#pragma once

#include <cstdint>

#include "kernels/kernel.h"
#include "kernels/simd.h"

namespace piper::kernels::PIPER_ISA {

inline constexpr int64_t kRandomGroups = 16;                // counters evaluated together
inline constexpr int64_t kRandomBlock = 4 * kRandomGroups;  // numbers that they give

// Mixes a word into a state (the finaliser of MurmurHash3 by Appleby, public domain constants).
inline uint64_t MixWord(uint64_t state, uint64_t word) {
  uint64_t h = (state ^ word) * 0xff51afd7ed558ccdULL;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return h ^ (h >> 33);
}

// The 64-bit Philox key of everything but sample and element.
inline uint64_t StreamOf(const RandomKey& key) {
  return MixWord(MixWord(MixWord(0x9e3779b97f4a7c15ULL, key.seed), key.operation), key.step);
}

// numbers[4 g + w], g < kRandomGroups: word w of the counter (first_group + g, sample).
inline void RandomNumbers(uint64_t stream, uint64_t sample, uint64_t first_group, uint32_t* numbers) {
  constexpr uint64_t kMultiply0 = 0xD2511F53u, kMultiply1 = 0xCD9E8D57u;
  uint32_t x0[kRandomGroups], x1[kRandomGroups], x2[kRandomGroups], x3[kRandomGroups];
  for (int64_t g = 0; g < kRandomGroups; ++g) {
    uint64_t group = first_group + static_cast<uint64_t>(g);
    x0[g] = static_cast<uint32_t>(group);
    x1[g] = static_cast<uint32_t>(group >> 32);
    x2[g] = static_cast<uint32_t>(sample);
    x3[g] = static_cast<uint32_t>(sample >> 32);
  }
  uint32_t k0 = static_cast<uint32_t>(stream), k1 = static_cast<uint32_t>(stream >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int64_t g = 0; g < kRandomGroups; ++g) {
      uint64_t p0 = kMultiply0 * x0[g];
      uint64_t p1 = kMultiply1 * x2[g];
      x0[g] = static_cast<uint32_t>(p1 >> 32) ^ x1[g] ^ k0;
      x1[g] = static_cast<uint32_t>(p1);
      x2[g] = static_cast<uint32_t>(p0 >> 32) ^ x3[g] ^ k1;
      x3[g] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int64_t g = 0; g < kRandomGroups; ++g) {
    numbers[4 * g] = x0[g];
    numbers[4 * g + 1] = x1[g];
    numbers[4 * g + 2] = x2[g];
    numbers[4 * g + 3] = x3[g];
  }
}

}  // namespace piper::kernels::PIPER_ISA
