// The instruction sets that the compiler may use for the source that includes this: that source says so in a
// constant, which one that is compiled for any processor can read.
#pragma once

#include "runtime/processor.h"

namespace piper::runtime {

// Of one translation unit, so each has its own.
static constexpr FeatureSet CompiledFeatures() {  // NOLINT(misc-definitions-in-headers)
  FeatureSet features = 0;
#define PIPER_NEEDS(name) features |= FeatureBit(Feature::name)
#ifdef __POPCNT__
  PIPER_NEEDS(kPopcnt);
#endif
#ifdef __SSE3__
  PIPER_NEEDS(kSse3);
#endif
#ifdef __SSSE3__
  PIPER_NEEDS(kSsse3);
#endif
#ifdef __SSE4_1__
  PIPER_NEEDS(kSse41);
#endif
#ifdef __SSE4_2__
  PIPER_NEEDS(kSse42);
#endif
#ifdef __GCC_HAVE_SYNC_COMPARE_AND_SWAP_16
  PIPER_NEEDS(kCmpxchg16b);
#endif
#ifdef __LAHF_SAHF__
  PIPER_NEEDS(kLahf);
#endif
#ifdef __AVX__
  PIPER_NEEDS(kAvx);
#endif
#ifdef __AVX2__
  PIPER_NEEDS(kAvx2);
#endif
#ifdef __BMI__
  PIPER_NEEDS(kBmi);
#endif
#ifdef __BMI2__
  PIPER_NEEDS(kBmi2);
#endif
#ifdef __F16C__
  PIPER_NEEDS(kF16c);
#endif
#ifdef __FMA__
  PIPER_NEEDS(kFma);
#endif
#ifdef __LZCNT__
  PIPER_NEEDS(kLzcnt);
#endif
#ifdef __MOVBE__
  PIPER_NEEDS(kMovbe);
#endif
#ifdef __XSAVE__
  PIPER_NEEDS(kXsave);
#endif
#ifdef __AVX512F__
  PIPER_NEEDS(kAvx512f);
#endif
#ifdef __AVX512BW__
  PIPER_NEEDS(kAvx512bw);
#endif
#ifdef __AVX512CD__
  PIPER_NEEDS(kAvx512cd);
#endif
#ifdef __AVX512DQ__
  PIPER_NEEDS(kAvx512dq);
#endif
#ifdef __AVX512VL__
  PIPER_NEEDS(kAvx512vl);
#endif
#ifdef __AVX512IFMA__
  PIPER_NEEDS(kAvx512ifma);
#endif
#ifdef __AVX512VBMI__
  PIPER_NEEDS(kAvx512vbmi);
#endif
#ifdef __AVX512VBMI2__
  PIPER_NEEDS(kAvx512vbmi2);
#endif
#ifdef __AVX512BITALG__
  PIPER_NEEDS(kAvx512bitalg);
#endif
#ifdef __AVX512VPOPCNTDQ__
  PIPER_NEEDS(kAvx512vpopcntdq);
#endif
#ifdef __AVX512VNNI__
  PIPER_NEEDS(kAvx512vnni);
#endif
#ifdef __AVX512FP16__
  PIPER_NEEDS(kAvx512fp16);
#endif
#ifdef __AVXVNNI__
  PIPER_NEEDS(kAvxVnni);
#endif
#ifdef __GFNI__
  PIPER_NEEDS(kGfni);
#endif
#ifdef __ADX__
  PIPER_NEEDS(kAdx);
#endif
#ifdef __FMA4__
  PIPER_NEEDS(kFma4);
#endif
#ifdef __XOP__
  PIPER_NEEDS(kXop);
#endif
#ifdef __TBM__
  PIPER_NEEDS(kTbm);
#endif
#undef PIPER_NEEDS
  return features;
}

}  // namespace piper::runtime
