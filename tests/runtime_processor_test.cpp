// The check of a compiled program's target, on whatever processor this runs: the one at hand is an argument.
#include "runtime/processor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

namespace piper::runtime::testing {

#if defined(__x86_64__)
extern const FeatureSet kLevelV1, kLevelV2, kLevelV3, kLevelV4;
#endif

namespace {

FeatureSet Bits(const std::vector<Feature>& features) {
  FeatureSet set = 0;
  for (Feature feature : features) set |= FeatureBit(feature);
  return set;
}

// Exit code and message.
std::pair<int, std::string> Check(FeatureSet needed, FeatureSet available) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  const int code = CheckTarget("x86-64-v9", needed, available, out);
  std::fclose(out);
  std::pair<int, std::string> result(code, std::string(text, size));
  std::free(text);
  return result;
}

TEST(RuntimeProcessor, EveryMissingFeatureIsNamed) {
  const FeatureSet all = (FeatureSet{1} << static_cast<unsigned>(Feature::kCount)) - 1;
  EXPECT_EQ(Check(all, all), std::pair(0, std::string()));
  EXPECT_EQ(Check(0, 0).first, 0);
  std::vector<std::string> names;
#define PIPER_FEATURE(text, name) names.push_back(text);
  PIPER_PROCESSOR_FEATURES(PIPER_FEATURE)
#undef PIPER_FEATURE
  ASSERT_EQ(names.size(), static_cast<size_t>(Feature::kCount));
  for (size_t i = 0; i < names.size(); ++i) {
    const auto [code, text] = Check(all, all & ~(FeatureSet{1} << i));
    EXPECT_EQ(code, 1);
    EXPECT_EQ(text, "error: this program was compiled for x86-64-v9, and this processor has no " + names[i] +
                        "\nhint: compile it again on this machine, or with piperc --target-cpu=x86-64\n");
    // What is not needed is not missed.
    EXPECT_EQ(Check(all & ~(FeatureSet{1} << i), all & ~(FeatureSet{1} << i)).first, 0);
  }
}

#if defined(__x86_64__)
TEST(RuntimeProcessor, LevelsAskForWhatTheyAreDefinedBy) {
  // System V ABI, AMD64 supplement, section 3.1.1.
  const FeatureSet v2 = Bits({Feature::kPopcnt, Feature::kSse3, Feature::kSsse3, Feature::kSse41,
                              Feature::kSse42, Feature::kCmpxchg16b, Feature::kLahf});
  const FeatureSet v3 =
      v2 | Bits({Feature::kAvx, Feature::kAvx2, Feature::kBmi, Feature::kBmi2, Feature::kF16c, Feature::kFma,
                 Feature::kLzcnt, Feature::kMovbe, Feature::kXsave});
  const FeatureSet v4 = v3 | Bits({Feature::kAvx512f, Feature::kAvx512bw, Feature::kAvx512cd,
                                   Feature::kAvx512dq, Feature::kAvx512vl});
  EXPECT_EQ(kLevelV1, 0u);
  EXPECT_EQ(kLevelV2, v2);
  EXPECT_EQ(kLevelV3, v3);
  EXPECT_EQ(kLevelV4, v4);
  // A processor of each level runs the programs of the levels below, and refuses those above.
  const FeatureSet levels[] = {kLevelV1, kLevelV2, kLevelV3, kLevelV4};
  for (int program = 0; program < 4; ++program) {
    for (int processor = 0; processor < 4; ++processor) {
      EXPECT_EQ(Check(levels[program], levels[processor]).first, program > processor ? 1 : 0);
    }
  }
}

TEST(RuntimeProcessor, ThisProcessorHasWhatTheKernelSays) {
  // Every name of /proc/cpuinfo that is ours, where the kernel lists it; some names differ (sse3 is pni,
  // lzcnt is abm, fields with dots have underscores).
  std::FILE* file = std::fopen("/proc/cpuinfo", "re");
  if (file == nullptr) GTEST_SKIP() << "no /proc/cpuinfo";
  std::string flags;
  char line[8192];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, "flags", 5) == 0) {
      flags = std::string(" ") + line;
      break;
    }
  }
  std::fclose(file);
  if (flags.empty()) GTEST_SKIP() << "no flags in /proc/cpuinfo";
  if (flags.back() == '\n') flags.back() = ' ';
  const FeatureSet here = ProcessorFeatures();
  for (auto [name, feature] :
       {std::pair(" popcnt ", Feature::kPopcnt), std::pair(" ssse3 ", Feature::kSsse3),
        std::pair(" avx ", Feature::kAvx), std::pair(" avx2 ", Feature::kAvx2),
        std::pair(" fma ", Feature::kFma), std::pair(" bmi2 ", Feature::kBmi2),
        std::pair(" avx512f ", Feature::kAvx512f), std::pair(" avx512vl ", Feature::kAvx512vl)}) {
    EXPECT_EQ((here & FeatureBit(feature)) != 0, flags.find(name) != std::string::npos) << name;
  }
}
#endif

}  // namespace
}  // namespace piper::runtime::testing
