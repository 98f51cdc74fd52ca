// Whether this processor can run a program that was compiled for another. A compiled program states the
// instruction sets that its compiler was allowed to use (processor_target.h); before anything else runs,
// `main` compares them with those at hand.
//
// Everything here is plain code without templates or inline functions of the standard library: of those the
// linker may keep a copy from a source that was compiled for the target.
#pragma once

#include <cstdint>
#include <cstdio>

namespace piper::runtime {

using FeatureSet = uint64_t;  // a bit a row

// X(name for GCC's __builtin_cpu_supports, enumerator): all that x86-64-v2, v3 and v4 stand for, and what
// compilers use beyond them without being asked by name.
#define PIPER_PROCESSOR_FEATURES(X)      \
  X("popcnt", kPopcnt)                   \
  X("sse3", kSse3)                       \
  X("ssse3", kSsse3)                     \
  X("sse4.1", kSse41)                    \
  X("sse4.2", kSse42)                    \
  X("cmpxchg16b", kCmpxchg16b)           \
  X("lahf_lm", kLahf)                    \
  X("avx", kAvx)                         \
  X("avx2", kAvx2)                       \
  X("bmi", kBmi)                         \
  X("bmi2", kBmi2)                       \
  X("f16c", kF16c)                       \
  X("fma", kFma)                         \
  X("lzcnt", kLzcnt)                     \
  X("movbe", kMovbe)                     \
  X("xsave", kXsave)                     \
  X("avx512f", kAvx512f)                 \
  X("avx512bw", kAvx512bw)               \
  X("avx512cd", kAvx512cd)               \
  X("avx512dq", kAvx512dq)               \
  X("avx512vl", kAvx512vl)               \
  X("avx512ifma", kAvx512ifma)           \
  X("avx512vbmi", kAvx512vbmi)           \
  X("avx512vbmi2", kAvx512vbmi2)         \
  X("avx512bitalg", kAvx512bitalg)       \
  X("avx512vpopcntdq", kAvx512vpopcntdq) \
  X("avx512vnni", kAvx512vnni)           \
  X("avx512fp16", kAvx512fp16)           \
  X("avxvnni", kAvxVnni)                 \
  X("gfni", kGfni)                       \
  X("adx", kAdx)                         \
  X("fma4", kFma4)                       \
  X("xop", kXop)                         \
  X("tbm", kTbm)

enum class Feature : uint8_t {
#define PIPER_FEATURE(text, name) name,
  PIPER_PROCESSOR_FEATURES(PIPER_FEATURE)
#undef PIPER_FEATURE
      kCount
};
constexpr FeatureSet FeatureBit(Feature feature) { return FeatureSet{1} << static_cast<unsigned>(feature); }

// Of the processor (and operating system) that runs this.
FeatureSet ProcessorFeatures();

// The first needed feature that is not available, by the name that /proc/cpuinfo and compilers use; null:
// none.
const char* MissingFeature(FeatureSet needed, FeatureSet available);

// 0 where nothing is missing; otherwise says so on `errors` and returns the exit code.
int CheckTarget(const char* target_cpu, FeatureSet needed, FeatureSet available, std::FILE* errors);

}  // namespace piper::runtime
