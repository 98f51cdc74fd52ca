// Compiled once for each level of x86-64: what that level asks for. Data alone, so any processor can read it.
#include "runtime/processor_target.h"

namespace piper::runtime::testing {

extern const FeatureSet PIPER_LEVEL;
constexpr FeatureSet kCompiled = CompiledFeatures();
const FeatureSet PIPER_LEVEL = kCompiled;

}  // namespace piper::runtime::testing
