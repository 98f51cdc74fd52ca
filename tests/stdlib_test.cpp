#include "tests/elab_support.h"

namespace piper::frontend {
namespace {

TEST(Stdlib, EveryModuleChecks) {
  for (const char* module : {"gpt", "llama", "mlp", "schedules", "strategies", "topologies"}) {
    auto loaded = CheckText(std::string("import std.") + module + "\n");
    EXPECT_FALSE(loaded->diag.HasErrors()) << module << "\n" << loaded->Errors();
  }
}

}  // namespace
}  // namespace piper::frontend
