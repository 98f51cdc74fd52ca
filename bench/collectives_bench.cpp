// What the two folds of an all-reduce take in shared memory: `numerics reproducible` (from the left) beside
// `numerics fast` (in pairs), over ranks that are threads, taking turns. Best of several runs of each.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "runtime/local_runner.h"
#include "tests/runtime_test_job.h"

namespace {

using namespace piper::runtime;
using piper::runtime::testing::TestJob;
using piper::runtime::testing::TestRole;

constexpr int64_t kSteps = 12;

// Milliseconds of a step that only reduces `elements` floats over `ranks`.
double Step(uint32_t ranks, int64_t elements, FoldKind fold) {
  TestJob job;
  std::vector<uint32_t> members(ranks);
  for (uint32_t r = 0; r < ranks; ++r) members[r] = r;
  const uint32_t group = job.Group(members);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    TestRole& role = job.Role("role" + std::to_string(rank));
    role.Rank(rank, 0, {}, {group});
    const uint32_t own = role.Buffer("own", BufferKind::kGradient, elements);
    role.collectives.push_back(
        {CollectiveKind::kAllReduce, ElementType::kF32, 0, elements, 0, 0, 1, "dp.reduce", fold});
    role.Stream("reduce", false);
    role.Task(TaskKind::kCollective, "dp.reduce", 0, {own, own}, {}, -1, elements * 4);
  }
  job.Finish();
  using Clock = std::chrono::steady_clock;
  Clock::time_point first, last;
  LocalHooks hooks;
  hooks.step_done = [&](const RankView& view, uint64_t step, const StepOutcome&) {
    if (view.rank != 0) return;
    if (step == 1) first = Clock::now();
    last = Clock::now();
  };
  LocalOptions options;
  options.steps = kSteps;
  Result<LocalResult> result = RunLocal(job.fields, options, hooks);
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().message().c_str());
    return 0;
  }
  return std::chrono::duration<double, std::milli>(last - first).count() / static_cast<double>(kSteps - 2);
}

}  // namespace

int main() {
  std::printf("%6s %10s | %14s %14s %8s\n", "ranks", "elements", "from left ms", "in pairs ms", "ratio");
  for (uint32_t ranks : {4u, 8u, 16u}) {
    for (int64_t elements : {int64_t{1} << 16, int64_t{1} << 22}) {
      double best[2] = {1e30, 1e30};
      for (int repeat = 0; repeat < 7; ++repeat) {
        best[0] = std::min(best[0], Step(ranks, elements, FoldKind::kLeft));
        best[1] = std::min(best[1], Step(ranks, elements, FoldKind::kPairwise));
      }
      std::printf("%6u %10lld | %14.3f %14.3f %8.2f\n", ranks, static_cast<long long>(elements), best[0],
                  best[1], best[0] / best[1]);
    }
  }
  return 0;
}
