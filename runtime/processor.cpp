#include "runtime/processor.h"

namespace piper::runtime {
namespace {

constexpr const char* kNames[] = {
#define PIPER_FEATURE(text, name) text,
    PIPER_PROCESSOR_FEATURES(PIPER_FEATURE)
#undef PIPER_FEATURE
};

}  // namespace

FeatureSet ProcessorFeatures() {
  FeatureSet features = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
#define PIPER_FEATURE(text, name) \
  if (__builtin_cpu_supports(text)) features |= FeatureBit(Feature::name);
  PIPER_PROCESSOR_FEATURES(PIPER_FEATURE)
#undef PIPER_FEATURE
#endif
  return features;
}

const char* MissingFeature(FeatureSet needed, FeatureSet available) {
  for (unsigned i = 0; i < static_cast<unsigned>(Feature::kCount); ++i) {
    if ((needed & ~available & FeatureSet{1} << i) != 0) return kNames[i];
  }
  return nullptr;
}

int CheckTarget(const char* target_cpu, FeatureSet needed, FeatureSet available, std::FILE* errors) {
  const char* missing = MissingFeature(needed, available);
  if (missing == nullptr) return 0;
  std::fprintf(errors,
               "error: this program was compiled for %s, and this processor has no %s\n"
               "hint: compile it again on this machine, or with piperc --target-cpu=x86-64\n",
               target_cpu, missing);
  return 1;
}

}  // namespace piper::runtime
