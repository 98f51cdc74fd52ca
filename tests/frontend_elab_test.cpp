#include <chrono>
#include <cstdio>

#include "tests/elab_support.h"

namespace piper::frontend {
namespace {

double Milliseconds(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

TEST(Elaborate, GptExample) {
  auto begin = std::chrono::steady_clock::now();
  auto loaded = LoadPath("examples/gpt_1f1b.piper");
  std::printf("LoadProgram(gpt_1f1b): %.1f ms\n", Milliseconds(begin));
  ASSERT_TRUE(loaded->program) << loaded->Errors();
  const ir::Program& program = *loaded->program;
  EXPECT_EQ(program.model.parameters.size(), 2u + 8 * 12 + 2);
}

TEST(Elaborate, Big) {
  auto begin = std::chrono::steady_clock::now();
  auto loaded = LoadText(R"(
import std.gpt
import std.strategies
import std.topologies
model net = gpt.GPT(layers = 62, embed = 8, heads = 2, vocab = 16, seq = 4)
train {
  model net
  global_batch 1024
  optimizer sgd(0.1)
  on topologies.ideal(ranks = 64)
  using strategies.one_f_one_b(p = 64, m = 1024)
}
)");
  std::printf("131072 steps: %.1f ms\n", Milliseconds(begin));
  ASSERT_TRUE(loaded->program) << loaded->Errors();
}

}  // namespace
}  // namespace piper::frontend
