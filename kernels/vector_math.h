// exp, log, tanh, erf, sigmoid on sixteen lanes, and the few scalar functions that the kernels need, all
// ours: fixed polynomials and explicit fused multiply-adds, so that every instruction set, compiler and C
// library gives the same bits. The f32 forms are within 3 units in the last place
// (tests/kernels_math_test.cpp measures them); results below the smallest normal number become zero. The f64
// forms call the C library lane by lane: they serve references only.
#pragma once

#include "kernels/simd.h"

namespace piper::kernels::PIPER_ISA {

// c[0] + c[1] x + ... by Horner's rule.
template <int n>
inline Vec<float> Polynomial(Vec<float> x, const float (&c)[n]) {
  Vec<float> r = Vec<float>::Broadcast(c[n - 1]);
  for (int i = n - 2; i >= 0; --i) r = Fma(r, x, Vec<float>::Broadcast(c[i]));
  return r;
}

// NaN stays: the sum p is NaN, and AddExponent adds nothing for an n that is NaN.
// x = n log(2) + r with |r| <= log(2)/2; exp(r) = 1 + r + r^2 q(r), q interpolated at Chebyshev nodes.
inline Vec<float> Exp(Vec<float> x) {
  constexpr float kQ[] = {0.5f, 0.166665763f, 0.0416665524f, 0.00836329255f, 0.00139263261f};
  using V = Vec<float>;
  V n = Round(x * V::Broadcast(1.44269504f));
  V r = Fma(n, V::Broadcast(-0.693145752f), x);  // the leading 15 bits of log(2): exact
  r = Fma(n, V::Broadcast(-1.42860682e-6f), r);
  V p = Fma(r * r, Polynomial(r, kQ), r) + V::Broadcast(1.0f);
  V y = AddExponent(p, n);
  y = Select(x < V::Broadcast(-87.3365f), V::Zero(), y);
  return Select(x > V::Broadcast(88.7228f), V::Broadcast(__builtin_inff()), y);
}

// log(m 2^e) = e log(2) + log(1 + f), f = m - 1; log(1 + f) = f - f^2/2 + f^3 p(f).
inline Vec<float> Log(Vec<float> x) {
  constexpr float kP[] = {0.333333313f,  -0.24999997f, 0.200007156f,  -0.166678026f, 0.142490581f,
                          -0.124256872f, 0.116854198f, -0.114797339f, 0.0697161108f};
  using V = Vec<float>;
  auto tiny = x < V::Broadcast(1.17549435e-38f);
  V scaled = Select(tiny, x * V::Broadcast(8388608.0f), x);
  V e;
  V m = SplitExponent(scaled, &e);
  e = e - Select(tiny, V::Broadcast(23.0f), V::Zero());
  V f = m - V::Broadcast(1.0f);
  V f2 = f * f;
  V tail = Fma(f2 * f, Polynomial(f, kP), e * V::Broadcast(1.42860682e-6f));
  tail = Fma(f2, V::Broadcast(-0.5f), tail);
  V y = Fma(e, V::Broadcast(0.693145752f), f + tail);
  V infinity = V::Broadcast(__builtin_inff());
  y = Select(Equal(x, infinity), infinity, y);
  y = Select(Equal(x, V::Zero()), -infinity, y);
  y = Select(x < V::Zero(), V::Broadcast(__builtin_nanf("")), y);
  return Select(IsNan(x), x, y);
}

// 1 / (1 + exp(-x)).
inline Vec<float> Sigmoid(Vec<float> x) {
  Vec<float> one = Vec<float>::Broadcast(1.0f);
  return one / (one + Exp(-x));
}

// Odd polynomial below 0.625, 1 - 2 / (exp(2|x|) + 1) above.
inline Vec<float> Tanh(Vec<float> x) {
  constexpr float kP[] = {-0.333333343f, 0.133333042f,    -0.0539592579f,
                          0.0217689183f, -0.00834394619f, 0.00229274505f};
  using V = Vec<float>;
  V a = Abs(x);
  V z = x * x;
  V small = Fma(z * x, Polynomial(z, kP), x);
  V one = V::Broadcast(1.0f);
  V large = one - V::Broadcast(2.0f) / (Exp(a + a) + one);
  return Select(a < V::Broadcast(0.625f), small, CopySign(large, x));
}

// x p(x^2) below 1, 1 - exp(-g(|x|)) above with g = -log(erfc) as a polynomial; 1 beyond 3.95.
inline Vec<float> Erf(Vec<float> x) {
  constexpr float kSmall[] = {1.12837911f,    -0.37612626f,    0.112835944f,   -0.0268542115f,
                              0.00518908724f, -0.00080168643f, 7.87587487e-05f};
  constexpr float kLarge[] = {-0.000328646594f, 1.1302712f,      0.631755948f,
                              0.110151127f,     -0.0264643282f,  0.00477576815f,
                              -0.000600458414f, 4.65144512e-05f, -1.66136999e-06f};
  using V = Vec<float>;
  V a = Abs(x);
  V small = x * Polynomial(x * x, kSmall);
  V one = V::Broadcast(1.0f);
  V clamped = Select(a > V::Broadcast(3.95f), V::Broadcast(3.95f), a);  // keeps NaN
  V large = one - Exp(-Polynomial(clamped, kLarge));
  return Select(a < one, small, CopySign(large, x));
}

#define PIPER_LANE_BY_LANE(name, expression)      \
  inline Vec<double> name(const Vec<double>& a) { \
    Vec<double> r;                                \
    for (int i = 0; i < kLanes; ++i) {            \
      double x = a.v[i];                          \
      r.v[i] = expression;                        \
    }                                             \
    return r;                                     \
  }
PIPER_LANE_BY_LANE(Exp, __builtin_exp(x))
PIPER_LANE_BY_LANE(Log, __builtin_log(x))
PIPER_LANE_BY_LANE(Sigmoid, 1.0 / (1.0 + __builtin_exp(-x)))
PIPER_LANE_BY_LANE(Tanh, __builtin_tanh(x))
PIPER_LANE_BY_LANE(Erf, __builtin_erf(x))
#undef PIPER_LANE_BY_LANE

// One value, with the bits of the lane-wise form.
template <typename T>
inline T ScalarLog(T x) {
  T lanes[kLanes];
  Log(Vec<T>::Broadcast(x)).Store(lanes);
  return lanes[0];
}
template <typename T>
inline T ScalarExp(T x) {
  T lanes[kLanes];
  Exp(Vec<T>::Broadcast(x)).Store(lanes);
  return lanes[0];
}

// sin(2 pi u) and cos(2 pi u) for u in [0, 1): the quadrant is exact, the rest is within a quarter turn.
inline void SinCosTurns(Vec<float> u, Vec<float>* sine, Vec<float>* cosine) {
  constexpr float kSin[] = {3.14159274f, -5.16770792f, 2.54976559f, -0.589058936f};
  constexpr float kCos[] = {1.0f, -4.93480206f, 4.05870724f, -1.33504379f, 0.231322438f};
  using V = Vec<float>;
  V quadrant = Round(u * V::Broadcast(4.0f));       // 0..4
  V x = Fma(quadrant, V::Broadcast(-0.5f), u + u);  // half turns, |x| <= 1/4
  V z = x * x;
  V s = x * Polynomial(z, kSin);
  V c = Polynomial(z, kCos);
  V one = V::Broadcast(1.0f);
  V two = V::Broadcast(2.0f);
  V three = V::Broadcast(3.0f);
  auto swap_first = Equal(quadrant, one);
  auto swap_second = Equal(quadrant, three);
  V sin_part = Select(swap_first, c, Select(swap_second, c, s));
  V cos_part = Select(swap_first, s, Select(swap_second, s, c));
  auto sin_negative_second = Equal(quadrant, two);
  *sine = Select(sin_negative_second, -sin_part, Select(swap_second, -sin_part, sin_part));
  *cosine = Select(swap_first, -cos_part, Select(sin_negative_second, -cos_part, cos_part));
}

// f64 scalars for tables of angles: within a few units in the last place for |x| < 10^6.
inline void SinCos(double x, double* sine, double* cosine) {
  double n = __builtin_floor(x * 0.63661977236758134308 + 0.5);
  double r = __builtin_fma(n, -1.57079632673412561417e+00, x);  // pi/2 in three parts of 33 bits
  r = __builtin_fma(n, -6.07710050630396597660e-11, r);
  r = __builtin_fma(n, -2.02226624879595063154e-21, r);
  double z = r * r;
  // Taylor series: the next term is below 2^-60 for |r| <= pi/4.
  double s = 0.0, c = 0.0;
  for (int k = 10; k >= 1; --k) {
    s = (s + 1.0) * (-z / static_cast<double>((2 * k) * (2 * k + 1)));
    c = (c + 1.0) * (-z / static_cast<double>((2 * k - 1) * (2 * k)));
  }
  s = r + r * s;
  c = 1.0 + c;
  int64_t quadrant = static_cast<int64_t>(n) & 3;
  double a = (quadrant & 1) ? c : s;
  double b = (quadrant & 1) ? s : c;
  *sine = (quadrant & 2) ? -a : a;
  *cosine = (quadrant == 1 || quadrant == 2) ? -b : b;
}

// base^exponent for base > 0 and |exponent * log(base)| < 700, within about 10^-14 relative.
inline double PowerOf(double base, double exponent) {
  int shift = 0;
  while (base >= 1.4142135623730951) {
    base *= 0.5;
    ++shift;
  }
  while (base < 0.7071067811865476) {
    base *= 2.0;
    --shift;
  }
  double t = (base - 1.0) / (base + 1.0);  // log(base) = 2 atanh(t)
  double t2 = t * t;
  double series = 0.0;
  for (int k = 25; k >= 1; k -= 2) series = series * t2 + 1.0 / static_cast<double>(k);
  double x = exponent * (2.0 * t * series + shift * 0.69314718055994530942);
  double n = __builtin_floor(x * 1.44269504088896340736 + 0.5);
  double r = __builtin_fma(n, -0.69314718055994530942, x);
  double e = 1.0;
  for (int k = 16; k >= 1; --k) e = 1.0 + r / k * e;
  for (; n >= 1.0; n -= 1.0) e *= 2.0;
  for (; n <= -1.0; n += 1.0) e *= 0.5;
  return e;
}

}  // namespace piper::kernels::PIPER_ISA
