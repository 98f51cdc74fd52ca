// The step loop of a compiled plan takes no memory from the heap, on any thread.
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/interpreter.h"
#include "tests/pipeline_support.h"

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCountsMalloc = false;  // the sanitizer has the allocator's names
namespace {
std::atomic<int64_t> allocations{0};
}
#else
constexpr bool kCountsMalloc = true;
namespace {
std::atomic<int64_t> allocations{0};
void Count() { allocations.fetch_add(1, std::memory_order_relaxed); }
}  // namespace

// All of the C library's own ways to its allocator; `operator new` comes through malloc.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void* malloc(size_t size) {
  Count();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  Count();
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  Count();
  return __libc_realloc(memory, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  Count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  Count();
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
}
#endif

namespace piper::testing {
namespace {

void ExpectNoAllocations(const std::string& text) {
  const std::unique_ptr<Compiled> compiled = Compile(text);
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  const int64_t before = allocations.load();
  std::vector<int64_t> counts;
  counts.reserve(32);
  EXPECT_GT(allocations.load(), before) << "the count itself does not work";
  runtime::LocalOptions options;
  options.steps = 20;
  options.bodies = runtime::MakeInterpreter;
  runtime::LocalHooks hooks;
  hooks.step_done = [&](const runtime::RankView& view, uint64_t, const runtime::StepOutcome&) {
    if (view.rank == 0) counts.push_back(allocations.load());
  };
  const runtime::Result<runtime::LocalResult> run = runtime::RunLocal(compiled->job(), options, hooks);
  ASSERT_TRUE(run.ok()) << run.status().message();
  ASSERT_EQ(counts.size(), 20u);
  // The first steps may warm up kernels; ranks run at most a step apart.
  EXPECT_EQ(counts[18] - counts[5], 0);
  EXPECT_NE(run->losses[0], run->losses[19]);
}

// More lines of the strategy than none.
std::string Text(const std::string& using_what, const std::string& strategy) {
  return R"(
import std.gpt
import std.strategies
import std.topologies
model net = gpt.GPT(layers = 4, embed = 16, heads = 2, vocab = 256, seq = 16, dropout_rate = 0.1)
train {
  model        net
  data         text("tests/pipeline_allocation_test.cpp")
  global_batch 16
  steps        20
  optimizer    adamw(lr = warmup(4, 1e-3), weight_decay = 0.1, matrices_only = true)
  clip         1.0
  seed         3
  on           topologies.local(ranks = 4)
  )" + ("using " + using_what) +
         "\n}\n" + strategy;
}

TEST(PipelineAllocation, TheStepLoopOfAPlanTakesNoMemory) {
  if (!kCountsMalloc) GTEST_SKIP() << "the sanitizer's own allocator cannot be counted";
  ExpectNoAllocations(Text("strategies.pipeline_data_parallel(p = 2, dp = 2, m = 4)", ""));
}

TEST(PipelineAllocation, NorDoThreadsOfFurtherStreams) {
  if (!kCountsMalloc) GTEST_SKIP() << "the sanitizer's own allocator cannot be counted";
  ExpectNoAllocations(Text("study",
                           "strategy study {\n  mesh (pp = 2, dp = 2)\n  shard batch over dp\n"
                           "  cut embed, layer, head into 2 as stage\n  split batch into 4 as mb\n"
                           "  for s in 0..2 { place [stage = s] on pp[s] }\n"
                           "  stream BW on side\n  stream U on third\n}\n"));
}

}  // namespace
}  // namespace piper::testing
