// Sixteen lanes of T, the one logical vector width of all kernels, so that reductions form the same tree on
// every instruction set: one AVX-512 register, two AVX registers or a plain array. Internal to the kernels'
// sources, which are compiled once per instruction set; PIPER_ISA names the namespace and PIPER_ISA_LEVEL (0,
// 3, 4) the set. Code here must not call out-of-line library templates: the linker could keep a copy that
// this processor cannot run.
#pragma once

#include <cstdint>

#if PIPER_ISA_LEVEL >= 3
#include <immintrin.h>
#endif

namespace piper::kernels::PIPER_ISA {

inline constexpr int64_t kLanes = 16;

inline int64_t MinInt(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t MaxInt(int64_t a, int64_t b) { return a > b ? a : b; }

inline float FusedMultiplyAdd(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double FusedMultiplyAdd(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float SquareRoot(float a) { return __builtin_sqrtf(a); }
inline double SquareRoot(double a) { return __builtin_sqrt(a); }

// The portable form, and the form for double everywhere.
template <typename T>
struct Vec {
  T v[kLanes];

  struct Mask {
    bool m[kLanes];
  };

  static Vec Broadcast(T x) {
    Vec r;
    for (int i = 0; i < kLanes; ++i) r.v[i] = x;
    return r;
  }
  static Vec Zero() { return Broadcast(T{0}); }
  static Vec Load(const T* p) {
    Vec r;
    for (int i = 0; i < kLanes; ++i) r.v[i] = p[i];
    return r;
  }
  // The first `count` (0..16) elements; the rest are zero and are not touched in memory.
  static Vec LoadPartial(const T* p, int64_t count) {
    Vec r;
    for (int i = 0; i < kLanes; ++i) r.v[i] = i < count ? p[i] : T{0};
    return r;
  }
  void Store(T* p) const {
    for (int i = 0; i < kLanes; ++i) p[i] = v[i];
  }
  void StorePartial(T* p, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) p[i] = v[i];
  }

#define PIPER_LANEWISE(signature, expression) \
  friend Vec signature {                      \
    Vec r;                                    \
    for (int i = 0; i < kLanes; ++i) {        \
      r.v[i] = expression;                    \
    }                                         \
    return r;                                 \
  }
  PIPER_LANEWISE(operator+(const Vec& a, const Vec& b), a.v[i] + b.v[i])
  PIPER_LANEWISE(operator-(const Vec& a, const Vec& b), a.v[i] - b.v[i])
  PIPER_LANEWISE(operator*(const Vec& a, const Vec& b), a.v[i] * b.v[i])
  PIPER_LANEWISE(operator/(const Vec& a, const Vec& b), a.v[i] / b.v[i])
  PIPER_LANEWISE(operator-(const Vec& a), -a.v[i])
  PIPER_LANEWISE(Fma(const Vec& a, const Vec& b, const Vec& c), FusedMultiplyAdd(a.v[i], b.v[i], c.v[i]))
  // As the x86 instructions: the second operand if either is NaN.
  PIPER_LANEWISE(Max(const Vec& a, const Vec& b), a.v[i] > b.v[i] ? a.v[i] : b.v[i])
  PIPER_LANEWISE(Min(const Vec& a, const Vec& b), a.v[i] < b.v[i] ? a.v[i] : b.v[i])
  PIPER_LANEWISE(Sqrt(const Vec& a), SquareRoot(a.v[i]))
  PIPER_LANEWISE(Abs(const Vec& a), a.v[i] < 0 ? -a.v[i] : (a.v[i] == 0 ? T{0} : a.v[i]))
  PIPER_LANEWISE(CopySign(const Vec& magnitude, const Vec& sign),
                 static_cast<T>(__builtin_copysign(magnitude.v[i], sign.v[i])))
  PIPER_LANEWISE(Select(const Mask& mask, const Vec& a, const Vec& b), mask.m[i] ? a.v[i] : b.v[i])
#undef PIPER_LANEWISE

#define PIPER_COMPARE(signature, expression) \
  friend Mask signature {                    \
    Mask r;                                  \
    for (int i = 0; i < kLanes; ++i) {       \
      r.m[i] = expression;                   \
    }                                        \
    return r;                                \
  }
  PIPER_COMPARE(operator<(const Vec& a, const Vec& b), a.v[i] < b.v[i])
  PIPER_COMPARE(operator>(const Vec& a, const Vec& b), a.v[i] > b.v[i])
  PIPER_COMPARE(Equal(const Vec& a, const Vec& b), a.v[i] == b.v[i])
  PIPER_COMPARE(IsNan(const Vec& a), a.v[i] != a.v[i])
#undef PIPER_COMPARE
};

#if PIPER_ISA_LEVEL == 4

template <>
struct Vec<float> {
  __m512 v;

  using Mask = __mmask16;

  static __mmask16 First(int64_t count) { return static_cast<__mmask16>((1u << count) - 1u); }

  static Vec Broadcast(float x) { return {_mm512_set1_ps(x)}; }
  static Vec Zero() { return {_mm512_setzero_ps()}; }
  static Vec Load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Vec LoadPartial(const float* p, int64_t count) { return {_mm512_maskz_loadu_ps(First(count), p)}; }
  void Store(float* p) const { _mm512_storeu_ps(p, v); }
  void StorePartial(float* p, int64_t count) const { _mm512_mask_storeu_ps(p, First(count), v); }

  friend Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
  friend Vec operator-(Vec a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }
  friend Vec Fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  friend Vec Max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  friend Vec Min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
  friend Vec Sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
  friend Vec Abs(Vec a) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)}; }
  friend Vec CopySign(Vec magnitude, Vec sign) {
    __m512 bit = _mm512_set1_ps(-0.0f);
    return {_mm512_or_ps(_mm512_andnot_ps(bit, magnitude.v), _mm512_and_ps(bit, sign.v))};
  }
  friend Vec Select(Mask mask, Vec a, Vec b) { return {_mm512_mask_blend_ps(mask, b.v, a.v)}; }
  friend Mask operator<(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
  friend Mask operator>(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ); }
  friend Mask Equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ); }
  friend Mask IsNan(Vec a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q); }
};

// The nearest integer, ties to even, as a float; exact for |x| < 2^22.
inline Vec<float> Round(Vec<float> x) {
  return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// x * 2^n for integral n, by adding n to the exponent field: the result must be a normal number.
inline Vec<float> AddExponent(Vec<float> x, Vec<float> n) {
  __m512i shifted = _mm512_slli_epi32(_mm512_cvtps_epi32(n.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x.v), shifted))};
}
// Splits a positive normal x into m * 2^e with m in [sqrt(1/2), sqrt(2)).
inline Vec<float> SplitExponent(Vec<float> x, Vec<float>* e) {
  __m512i bits = _mm512_castps_si512(x.v);
  __m512i k = _mm512_srai_epi32(_mm512_sub_epi32(bits, _mm512_set1_epi32(0x3f3504f3)), 23);
  *e = {_mm512_cvtepi32_ps(k)};
  return {_mm512_castsi512_ps(_mm512_sub_epi32(bits, _mm512_slli_epi32(k, 23)))};
}

#elif PIPER_ISA_LEVEL == 3

template <>
struct Vec<float> {
  __m256 lo, hi;

  struct Mask {
    __m256 lo, hi;
  };

  static __m256i First(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }

  static Vec Broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static Vec Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Vec Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static Vec LoadPartial(const float* p, int64_t count) {
    return {_mm256_maskload_ps(p, First(count)), _mm256_maskload_ps(p + 8, First(count - 8))};
  }
  void Store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
  void StorePartial(float* p, int64_t count) const {
    _mm256_maskstore_ps(p, First(count), lo);
    _mm256_maskstore_ps(p + 8, First(count - 8), hi);
  }

  friend Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
  friend Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
  friend Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
  friend Vec operator-(Vec a) {
    __m256 bit = _mm256_set1_ps(-0.0f);
    return {_mm256_xor_ps(a.lo, bit), _mm256_xor_ps(a.hi, bit)};
  }
  friend Vec Fma(Vec a, Vec b, Vec c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  friend Vec Max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
  friend Vec Min(Vec a, Vec b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
  friend Vec Sqrt(Vec a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
  friend Vec Abs(Vec a) {
    __m256 bit = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(bit, a.lo), _mm256_andnot_ps(bit, a.hi)};
  }
  friend Vec CopySign(Vec magnitude, Vec sign) {
    __m256 bit = _mm256_set1_ps(-0.0f);
    return {_mm256_or_ps(_mm256_andnot_ps(bit, magnitude.lo), _mm256_and_ps(bit, sign.lo)),
            _mm256_or_ps(_mm256_andnot_ps(bit, magnitude.hi), _mm256_and_ps(bit, sign.hi))};
  }
  friend Vec Select(Mask mask, Vec a, Vec b) {
    return {_mm256_blendv_ps(b.lo, a.lo, mask.lo), _mm256_blendv_ps(b.hi, a.hi, mask.hi)};
  }
  friend Mask operator<(Vec a, Vec b) {
    return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
  }
  friend Mask operator>(Vec a, Vec b) {
    return {_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ)};
  }
  friend Mask Equal(Vec a, Vec b) {
    return {_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)};
  }
  friend Mask IsNan(Vec a) {
    return {_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q)};
  }
};

inline Vec<float> Round(Vec<float> x) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.lo, kMode), _mm256_round_ps(x.hi, kMode)};
}
inline __m256 AddExponent(__m256 x, __m256 n) {
  __m256i shifted = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), shifted));
}
inline Vec<float> AddExponent(Vec<float> x, Vec<float> n) {
  return {AddExponent(x.lo, n.lo), AddExponent(x.hi, n.hi)};
}
inline __m256 SplitExponent(__m256 x, __m256* e) {
  __m256i bits = _mm256_castps_si256(x);
  __m256i k = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(0x3f3504f3)), 23);
  *e = _mm256_cvtepi32_ps(k);
  return _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(k, 23)));
}
inline Vec<float> SplitExponent(Vec<float> x, Vec<float>* e) {
  Vec<float> m;
  m.lo = SplitExponent(x.lo, &e->lo);
  m.hi = SplitExponent(x.hi, &e->hi);
  return m;
}

#else

inline float Round(float x) {
  // Adding and subtracting 1.5 * 2^23 rounds in the default mode; |x| < 2^22.
  constexpr float kShift = 12582912.0f;
  float shifted = x + kShift;
  return shifted - kShift;
}
inline Vec<float> Round(const Vec<float>& x) {
  Vec<float> r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = Round(x.v[i]);
  return r;
}
inline Vec<float> AddExponent(const Vec<float>& x, const Vec<float>& n) {
  Vec<float> r;
  for (int i = 0; i < kLanes; ++i) {
    // NaN and out-of-range n are replaced by the callers' selects; any value does, a trap does not.
    int32_t k = n.v[i] >= -1000.0f && n.v[i] <= 1000.0f ? static_cast<int32_t>(n.v[i]) : 0;
    uint32_t bits = __builtin_bit_cast(uint32_t, x.v[i]) + (static_cast<uint32_t>(k) << 23);
    r.v[i] = __builtin_bit_cast(float, bits);
  }
  return r;
}
inline Vec<float> SplitExponent(const Vec<float>& x, Vec<float>* e) {
  Vec<float> m;
  for (int i = 0; i < kLanes; ++i) {
    uint32_t bits = __builtin_bit_cast(uint32_t, x.v[i]);
    int32_t k = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
    e->v[i] = static_cast<float>(k);
    m.v[i] = __builtin_bit_cast(float, bits - (static_cast<uint32_t>(k) << 23));
  }
  return m;
}

#endif

// The fixed reduction tree: lanes i and i + 8, then i + 4, then i + 2, then i + 1.
template <typename T>
inline T ReduceAdd(const Vec<T>& x) {
  T t[kLanes];
  x.Store(t);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) t[i] = t[i] + t[i + width];
  }
  return t[0];
}

template <typename T>
inline T ReduceMax(const Vec<T>& x) {
  T t[kLanes];
  x.Store(t);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) t[i] = t[i] > t[i + width] ? t[i] : t[i + width];
  }
  return t[0];
}

#if PIPER_ISA_LEVEL >= 3
inline float ReduceAddHalf(__m256 a) {
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
inline float ReduceMaxHalf(__m256 a) {
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
#if PIPER_ISA_LEVEL == 4
inline __m256 LowHalf(Vec<float> x) { return _mm512_castps512_ps256(x.v); }
inline __m256 HighHalf(Vec<float> x) { return _mm512_extractf32x8_ps(x.v, 1); }
#else
inline __m256 LowHalf(Vec<float> x) { return x.lo; }
inline __m256 HighHalf(Vec<float> x) { return x.hi; }
#endif
template <>
inline float ReduceAdd<float>(const Vec<float>& x) {
  return ReduceAddHalf(_mm256_add_ps(LowHalf(x), HighHalf(x)));
}
template <>
inline float ReduceMax<float>(const Vec<float>& x) {
  return ReduceMaxHalf(_mm256_max_ps(LowHalf(x), HighHalf(x)));
}
#endif

// step(i, width) for each sixteen of n elements; width is below sixteen for the tail only.
template <typename F>
inline void ForLanes(int64_t n, F step) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) step(i, kLanes);
  if (i < n) step(i, n - i);
}

// y[i] = f(a[i], ...) over n elements, sixteen at a time; the tail sees zeros beyond n.
template <typename T, typename F, typename... Inputs>
inline void MapLanes(int64_t n, T* y, F f, const Inputs*... inputs) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(Vec<T>::Load(inputs + i)...).Store(y + i);
  if (i < n) f(Vec<T>::LoadPartial(inputs + i, n - i)...).StorePartial(y + i, n - i);
}

// The sum of f(a[i], ...) over n elements: sixteen running sums and the fixed tree. f must map zeros to zero.
template <typename T, typename F, typename... Inputs>
inline T SumLanes(int64_t n, F f, const Inputs*... inputs) {
  Vec<T> sum = Vec<T>::Zero();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sum = sum + f(Vec<T>::Load(inputs + i)...);
  if (i < n) sum = sum + f(Vec<T>::LoadPartial(inputs + i, n - i)...);
  return ReduceAdd(sum);
}

}  // namespace piper::kernels::PIPER_ISA

// At the end of a kernel's source: the table entry for this instruction set, checked against the declaration.
#define PIPER_EXPORT_KERNEL(name)                                                                   \
  extern const internal::KernelEntry name##_entry;                                                  \
  const internal::KernelEntry name##_entry = {                                                      \
      reinterpret_cast<internal::AnyFunction>(static_cast<name##_signature<float>*>(&name<float>)), \
      reinterpret_cast<internal::AnyFunction>(static_cast<name##_signature<double>*>(&name<double>))};
