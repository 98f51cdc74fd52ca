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

// Sixteen 32-bit words and the two halves of their products with a constant.
#if PIPER_ISA_LEVEL == 4

struct Words {
  __m512i v;
  static Words Broadcast(uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
  static Words Counting(uint32_t first) {
    return {_mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)),
                             _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))};
  }
  void Store(uint32_t* p) const { _mm512_storeu_si512(p, v); }
  friend Words operator^(Words a, Words b) { return {_mm512_xor_si512(a.v, b.v)}; }
};
inline void MultiplyWords(Words x, uint32_t factor, Words* high, Words* low) {
  __m512i f = _mm512_set1_epi32(static_cast<int>(factor));
  __m512i even = _mm512_mul_epu32(x.v, f);
  __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(x.v, 32), f);
  high->v = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
  low->v = _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
}

#elif PIPER_ISA_LEVEL == 3

struct Words {
  __m256i v[2];
  static Words Broadcast(uint32_t x) {
    __m256i r = _mm256_set1_epi32(static_cast<int>(x));
    return {{r, r}};
  }
  static Words Counting(uint32_t first) {
    __m256i r = _mm256_set1_epi32(static_cast<int>(first));
    return {{_mm256_add_epi32(r, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
             _mm256_add_epi32(r, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))}};
  }
  void Store(uint32_t* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v[0]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), v[1]);
  }
  friend Words operator^(Words a, Words b) {
    return {{_mm256_xor_si256(a.v[0], b.v[0]), _mm256_xor_si256(a.v[1], b.v[1])}};
  }
};
inline void MultiplyWords(Words x, uint32_t factor, Words* high, Words* low) {
  __m256i f = _mm256_set1_epi32(static_cast<int>(factor));
  for (int i = 0; i < 2; ++i) {
    __m256i even = _mm256_mul_epu32(x.v[i], f);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(x.v[i], 32), f);
    high->v[i] = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    low->v[i] = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  }
}

#else

struct Words {
  uint32_t v[kRandomGroups];
  static Words Broadcast(uint32_t x) {
    Words r;
    for (uint32_t& w : r.v) w = x;
    return r;
  }
  static Words Counting(uint32_t first) {
    Words r;
    for (uint32_t& w : r.v) w = first++;
    return r;
  }
  void Store(uint32_t* p) const {
    for (int64_t i = 0; i < kRandomGroups; ++i) p[i] = v[i];
  }
  friend Words operator^(Words a, const Words& b) {
    for (int64_t i = 0; i < kRandomGroups; ++i) a.v[i] ^= b.v[i];
    return a;
  }
};
inline void MultiplyWords(const Words& x, uint32_t factor, Words* high, Words* low) {
  for (int64_t i = 0; i < kRandomGroups; ++i) {
    uint64_t product = static_cast<uint64_t>(x.v[i]) * factor;
    high->v[i] = static_cast<uint32_t>(product >> 32);
    low->v[i] = static_cast<uint32_t>(product);
  }
}

#endif

// The numbers of elements [kRandomBlock * block, ..) of a sample: element 16 w + g of a block is word w of
// the counter (16 block + g, sample).
inline void RandomNumbers(uint64_t stream, uint64_t sample, uint64_t block, uint32_t* numbers) {
  uint64_t group = block * kRandomGroups;  // a multiple of sixteen: the low words count up without a carry
  Words x0 = Words::Counting(static_cast<uint32_t>(group));
  Words x1 = Words::Broadcast(static_cast<uint32_t>(group >> 32));
  Words x2 = Words::Broadcast(static_cast<uint32_t>(sample));
  Words x3 = Words::Broadcast(static_cast<uint32_t>(sample >> 32));
  uint32_t k0 = static_cast<uint32_t>(stream), k1 = static_cast<uint32_t>(stream >> 32);
  for (int round = 0; round < 10; ++round) {
    Words high0, low0, high1, low1;
    MultiplyWords(x0, 0xD2511F53u, &high0, &low0);
    MultiplyWords(x2, 0xCD9E8D57u, &high1, &low1);
    x0 = high1 ^ x1 ^ Words::Broadcast(k0);
    x1 = low1;
    x2 = high0 ^ x3 ^ Words::Broadcast(k1);
    x3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  x0.Store(numbers);
  x1.Store(numbers + 16);
  x2.Store(numbers + 32);
  x3.Store(numbers + 48);
}

}  // namespace piper::kernels::PIPER_ISA
