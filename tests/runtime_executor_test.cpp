#include "runtime/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>

#include "runtime/interpreter.h"
#include "runtime/local_runner.h"
#include "runtime/optimizer.h"
#include "tests/runtime_test_job.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

__attribute__((noinline)) void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace piper::runtime::testing {
namespace {

constexpr Initializer kOnes{1, 0, 0};

// w -> loss = sum w / 4, gradient = w: one rank, no communication.
struct OneRank {
  TestJob job;
  explicit OneRank(uint32_t optimizer_kind, double momentum = 0, double weight_decay = 0) {
    uint32_t optimizer = optimizer_kind == 1 ? job.AdamW(0.1) : job.Sgd(0.1, momentum);
    TestRole& role = job.Role("role0");
    role.Rank(0, 0, {}, {});
    role.Parameter("w", 4, kOnes, optimizer,
                   optimizer_kind == 1 ? 2
                   : momentum != 0     ? 1
                                       : 0,
                   0, true, weight_decay);
    uint32_t w = role.parameters[0].value, g = role.parameters[0].gradient;
    role.loss = role.Buffer("loss", BufferKind::kScalar, 1);
    uint32_t part = role.Buffer("part", BufferKind::kActivation, 1);
    uint32_t body = role.Body(
        "both",
        [](BodyContext& c) {
          float sum = 0;
          for (int i = 0; i < 4; ++i) sum += F(c, 0)[i] / 4, F(c, 1)[i] = F(c, 0)[i];
          F(c, 2)[0] = sum;
        },
        3);
    role.Stream("compute", true);
    role.Task(TaskKind::kCompute, "F", body, {w, g, part}, {}, 0);
    role.Task(TaskKind::kLossFold, "loss", 0, {role.loss, part});
    role.Task(TaskKind::kUpdate, "U w", 0, {});
    job.fields.parameter_count = 1;
    job.Finish();
  }
};

TEST(RuntimeExecutor, SgdFollowsItsFormula) {
  OneRank one(0, 0.9, 0.5);
  Result<LocalResult> result = RunLocal(one.job.fields, Steps(3));
  ASSERT_TRUE(result.ok()) << result.status().message();
  double w = 1, v = 0;
  for (int step = 0; step < 3; ++step) {
    EXPECT_NEAR(result->losses[step], w, 1e-6);
    v = 0.9 * v + w + 0.5 * w;
    w -= 0.1 * v;
  }
}

TEST(RuntimeExecutor, SgdWithoutMomentumNeedsNoState) {
  OneRank one(0);
  Result<LocalResult> result = RunLocal(one.job.fields, Steps(3));
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_NEAR(result->losses[2], 0.81, 1e-6);
}

TEST(RuntimeExecutor, AdamWFollowsItsFormula) {
  OneRank one(1, 0, 0.01);
  Result<LocalResult> result = RunLocal(one.job.fields, Steps(4));
  ASSERT_TRUE(result.ok()) << result.status().message();
  double w = 1, m = 0, v = 0;
  for (int step = 0; step < 4; ++step) {
    EXPECT_NEAR(result->losses[step], w, 1e-6);
    double g = w;
    w *= 1 - 0.1 * 0.01;
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    w -= 0.1 / (1 - std::pow(0.9, step + 1)) * m /
         (std::sqrt(v) / std::sqrt(1 - std::pow(0.999, step + 1)) + 1e-8);
  }
}

TEST(RuntimeExecutor, LearningRateSchedules) {
  Optimizer o{};
  o.peak = 1;
  EXPECT_EQ(LearningRate(o, 100), 1);
  o.schedule = 1;
  o.warmup = 4;
  EXPECT_EQ(LearningRate(o, 0), 0.25);
  EXPECT_EQ(LearningRate(o, 3), 1);
  EXPECT_EQ(LearningRate(o, 4), 1);
  o.schedule = 2;
  o.total = 14;
  o.floor = 0.1;
  EXPECT_EQ(LearningRate(o, 1), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(o, 4), 1);
  EXPECT_NEAR(LearningRate(o, 9), 0.55, 1e-12);
  EXPECT_NEAR(LearningRate(o, 14), 0.1, 1e-12);
  EXPECT_NEAR(LearningRate(o, 99), 0.1, 1e-12);
}

TEST(RuntimeExecutor, StatisticsCountTheArenaToTheByte) {
  OneRank one(1);
  Result<LocalResult> result = RunLocal(one.job.fields, Steps(2));
  ASSERT_TRUE(result.ok());
  const RankStatistics& rank = result->ranks[0];
  EXPECT_EQ(rank.arena_bytes, one.job.fields.train[0].arena_bytes);
  EXPECT_EQ(rank.high_water_bytes, rank.arena_bytes);
  EXPECT_EQ(rank.peak_live_bytes, one.job.fields.train[0].static_bytes + 4);
  EXPECT_EQ(rank.parameter_bytes, 16);
}

// Two stages, m microbatches, every microbatch forth and back; stage 1 doubles, stage 0 adds to its gradient.
// Transfers have their own streams.
struct Pipeline {
  TestJob job;
  explicit Pipeline(int m, int64_t elements, bool wrong_order = false) {
    uint32_t optimizer = job.Sgd(1.0);
    TestRole& first = job.Role("role0");
    TestRole& second = job.Role("role1");
    first.Rank(0, 0, {1}, {});
    second.Rank(1, 0, {0}, {});
    int64_t bytes = elements * 4;
    static int64_t n;
    n = elements;
    first.Parameter("w", elements, kOnes, optimizer, 0, 0);
    uint32_t w = first.parameters[0].value, g = first.parameters[0].gradient;
    uint32_t forward = first.Body(
        "forward",
        [](BodyContext& c) {
          for (int64_t i = 0; i < n; ++i) F(c, 1)[i] = F(c, 0)[i] + static_cast<float>(c.first_sample);
        },
        2);
    std::vector<uint32_t> out(m), back(m), back0(m), loss_part(m), in(m), result(m);
    for (int i = 0; i < m; ++i) {
      out[i] = first.Buffer("out", BufferKind::kActivation, elements);
      back[i] = first.Buffer("back", BufferKind::kCotangent, elements);
      in[i] = second.Buffer("in", BufferKind::kActivation, elements);
      result[i] = second.Buffer("result", BufferKind::kCotangent, elements);
      loss_part[i] = second.Buffer("loss part", BufferKind::kScalar, 1);
    }
    second.loss = second.Buffer("loss", BufferKind::kScalar, 1);
    // Compute tasks 0 .. 2m; sends 2m + 1 ..; receives behind them.
    uint32_t send = static_cast<uint32_t>(2 * m + 1), receive = send + static_cast<uint32_t>(m);
    first.Stream("compute", true);
    for (int i = 0; i < m; ++i) {
      first.Task(TaskKind::kCompute, "F mb " + std::to_string(i), forward, {w, out[i]}, {}, i);
    }
    for (int i = 0; i < m; ++i) {
      first.Task(TaskKind::kAccumulate, "acc", 0, {g, back[i]}, {receive + i}, i, bytes, i == 0);
    }
    first.Task(TaskKind::kUpdate, "U", 0, {});
    first.Stream("send>1", false);
    for (uint32_t i = 0; i < static_cast<uint32_t>(m); ++i) {
      first.Task(TaskKind::kSend, "send", 0, {out[i]}, {i}, static_cast<int32_t>(i), bytes);
    }
    first.Stream("recv<1", false);
    for (int i = 0; i < m; ++i) first.Task(TaskKind::kRecv, "recv back", 0, {back[i]}, {}, i, bytes);

    uint32_t twice = second.Body(
        "twice",
        [](BodyContext& c) {
          for (int64_t i = 0; i < n; ++i) F(c, 1)[i] = 2 * F(c, 0)[i];
          F(c, 2)[0] = F(c, 0)[n - 1];
        },
        3);
    uint32_t m32 = static_cast<uint32_t>(m);
    second.Stream("compute", true);
    for (uint32_t i = 0; i < m32; ++i) {
      second.Task(TaskKind::kCompute, "FB", twice, {in[i], result[i], loss_part[i]}, {2 * m32 + 1 + i},
                  static_cast<int32_t>(i));
    }
    std::vector<uint32_t> fold = {second.loss};
    fold.insert(fold.end(), loss_part.begin(), loss_part.end());
    second.Task(TaskKind::kLossFold, "loss", 0, fold);
    second.Stream("send>0", false);
    for (uint32_t i = 0; i < m32; ++i) {
      second.Task(TaskKind::kSend, "send back", 0, {result[i]}, {i}, static_cast<int32_t>(i), bytes);
    }
    second.Stream("recv<0", false);
    for (uint32_t i = 0; i < m32; ++i) {
      uint32_t microbatch = wrong_order ? m32 - 1 - i : i;
      second.Task(TaskKind::kRecv, "recv", 0, {in[microbatch]}, {}, static_cast<int32_t>(microbatch), bytes);
    }
    // recv follows m + 1 compute and m send tasks.
    job.fields.parameter_count = 1;
    job.fields.microbatches = m;
    job.fields.global_batch = m;
    job.Finish();
  }
};

TEST(RuntimeExecutor, PipelineOfTwoRanksUnderRandomDelays) {
  Pipeline pipeline(4, 1000);
  std::vector<double> expected;
  double w = 1;
  for (int step = 0; step < 3; ++step) {
    double loss = 0, gradient = 0;
    for (int mb = 0; mb < 4; ++mb) loss += w + mb, gradient += 2 * (w + mb);
    expected.push_back(loss);
    w -= gradient;
  }
  for (uint64_t seed = 0; seed < 8; ++seed) {
    LocalOptions options = Steps(3);
    options.execution.delay_microseconds = seed == 0 ? 0 : 300;
    options.execution.delay_seed = seed;
    options.execution.poison = true;
    Result<LocalResult> result = RunLocal(pipeline.job.fields, options);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->losses, expected) << seed;
    EXPECT_EQ(result->ranks[0].messages, 3 * 4);
    EXPECT_EQ(result->ranks[1].message_bytes, 3 * 4 * 4000);
  }
}

TEST(RuntimeExecutor, MessagesMeetByKeyOverSeveralStreams) {
  TestJob job;
  TestRole& sender = job.Role("role0");
  sender.Rank(0, 0, {1}, {});
  TestRole& receiver = job.Role("role1");
  receiver.Rank(1, 0, {0}, {});
  constexpr uint32_t kCount = 6;
  std::vector<uint32_t> in(kCount);
  sender.Body(
      "number",
      [](BodyContext& c) {
        F(c, 0)[0] = static_cast<float>(c.first_sample);
      },
      1);
  std::vector<uint32_t> out(kCount);
  sender.Stream("compute", true);
  for (uint32_t i = 0; i < kCount; ++i) {
    out[i] = sender.Buffer("out", BufferKind::kActivation, 1);
    in[i] = receiver.Buffer("in", BufferKind::kScalar, 1);
    sender.Task(TaskKind::kCompute, "F", 0, {out[i]}, {}, static_cast<int32_t>(i));
  }
  // Even ones on one stream, odd ones on another; received on one stream each, declared the other way round.
  for (uint32_t odd : {0u, 1u}) {
    sender.Stream(odd != 0 ? "odd" : "even", false);
    receiver.Stream(odd != 0 ? "even" : "odd", false);
    for (uint32_t i = 0; i < kCount / 2; ++i) {
      uint32_t sent = 2 * i + odd, received = 2 * i + 1 - odd;
      sender.Task(TaskKind::kSend, "send", 0, {out[sent]}, {sent}, static_cast<int32_t>(sent), 4);
      sender.tasks.back().key = 7;
      receiver.Task(TaskKind::kRecv, "recv", 0, {in[received]}, {}, static_cast<int32_t>(received), 4);
      receiver.tasks.back().key = 7;
    }
  }
  job.fields.microbatches = kCount;
  job.Finish();
  LocalHooks hooks;
  hooks.step_done = [&](const RankView& view, uint64_t, const StepOutcome&) {
    if (view.rank == 0) return;
    for (uint32_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(*reinterpret_cast<float*>(view.executor->buffer(in[i])), static_cast<float>(i));
    }
  };
  for (uint64_t seed = 0; seed < 4; ++seed) {
    LocalOptions options = Steps(3);
    options.execution.delay_microseconds = 200;
    options.execution.delay_seed = seed;
    Result<LocalResult> result = RunLocal(job.fields, options, hooks);
    ASSERT_TRUE(result.ok()) << result.status().message();
  }
}

// Receives that a `stream` directive merged into the compute stream are its thread's; the others are the
// communication thread's. Both look at the slots of one sender, which are posted again as soon as they are
// taken.
TEST(RuntimeExecutor, BothThreadsOfARankReceiveFromOneSender) {
  TestJob job;
  TestRole& sender = job.Role("role0");
  sender.Rank(0, 0, {1}, {});
  TestRole& receiver = job.Role("role1");
  receiver.Rank(1, 0, {0}, {});
  constexpr uint32_t kCount = 64, kElements = 256;
  sender.Body(
      "number", [](BodyContext& c) { std::fill_n(F(c, 0), kElements, static_cast<float>(c.first_sample)); },
      1);
  std::vector<uint32_t> out(kCount), in(kCount);
  sender.Stream("compute", true);
  for (uint32_t i = 0; i < kCount; ++i) {
    out[i] = sender.Buffer("out", BufferKind::kActivation, kElements);
    in[i] = receiver.Buffer("in", BufferKind::kScalar, kElements);
    sender.Task(TaskKind::kCompute, "F", 0, {out[i]}, {}, static_cast<int32_t>(i));
  }
  for (uint32_t odd : {0u, 1u}) {
    sender.Stream(odd != 0 ? "odd" : "even", false);
    receiver.Stream(odd != 0 ? "recv" : "compute", odd == 0);
    for (uint32_t i = odd; i < kCount; i += 2) {
      sender.Task(TaskKind::kSend, "send", 0, {out[i]}, {i}, static_cast<int32_t>(i), kElements * 4);
      sender.tasks.back().key = 7;
      receiver.Task(TaskKind::kRecv, "recv", 0, {in[i]}, {}, static_cast<int32_t>(i), kElements * 4);
      receiver.tasks.back().key = 7;
    }
  }
  job.fields.microbatches = kCount;
  job.Finish();
  LocalHooks hooks;
  hooks.step_done = [&](const RankView& view, uint64_t, const StepOutcome&) {
    if (view.rank == 0) return;
    for (uint32_t i = 0; i < kCount; ++i) {
      const float* got = reinterpret_cast<float*>(view.executor->buffer(in[i]));
      EXPECT_EQ(std::count(got, got + kElements, static_cast<float>(i)), int64_t{kElements}) << i;
    }
  };
  Result<LocalResult> result = RunLocal(job.fields, Steps(20), hooks);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->ranks[0].messages, 20 * int64_t{kCount});
}

TEST(RuntimeExecutor, MessagesThatDoNotMatchAreNamed) {
  Pipeline pipeline(4, 10, /*wrong_order=*/true);
  Result<LocalResult> result = RunLocal(pipeline.job.fields, Steps(1));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), kExitInternal);
  EXPECT_NE(result.status().message().find("rank 1 expects 4 messages a step from rank 0"), std::string::npos)
      << result.status().message();
}

TEST(RuntimeExecutor, StepLoopDoesNotAllocate) {
  Pipeline pipeline(4, 1000);
  std::vector<int64_t> counts;
  counts.reserve(32);
  LocalHooks hooks;
  hooks.step_done = [&](const RankView& view, uint64_t, const StepOutcome&) {
    if (view.rank == 0) counts.push_back(allocations.load());
  };
  Result<LocalResult> result = RunLocal(pipeline.job.fields, Steps(20), hooks);
  ASSERT_TRUE(result.ok()) << result.status().message();
  // The first steps may warm up kernels; ranks run at most a step apart.
  EXPECT_EQ(counts[5], counts[18]);
}

TEST(RuntimeExecutor, StallNamesTheBlockedTasks) {
  // Both ranks wait for the other's message first: a deadlock that the compiler would have refused.
  TestJob job;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    TestRole& role = job.Role("role" + std::to_string(rank));
    role.Rank(rank, 0, {1 - rank}, {});
    uint32_t a = role.Buffer("a", BufferKind::kActivation, 4),
             b = role.Buffer("b", BufferKind::kActivation, 4);
    role.Stream("both", false);
    role.Task(TaskKind::kSend, "send x", 0, {a}, {}, 0, 16);
    role.Task(TaskKind::kRecv, "recv x", 0, {b}, {}, 0, 16);
  }
  job.Finish();
  LocalOptions options = Steps(1);
  options.execution.stall_seconds = 0.3;
  Result<LocalResult> result = RunLocal(job.fields, options);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("both stands at 'send x'"), std::string::npos)
      << result.status().message();
}

// A body that needs a message's arrival while it runs can only end if transfers go on meanwhile.
TEST(RuntimeExecutor, TransfersGoOnWhileABodyRuns) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the body looks, on purpose, at what another thread is writing";
#endif
  TestJob job;
  TestRole& sender = job.Role("role0");
  sender.Rank(0, 0, {1}, {});
  uint32_t a = sender.Buffer("a", BufferKind::kScalar, 1);
  sender.Body(
      "one",
      [](BodyContext& c) {
        F(c, 0)[0] = 42;
      },
      1);
  sender.Stream("compute", true);
  sender.Task(TaskKind::kCompute, "one", 0, {a});
  sender.Stream("send>1", false);
  sender.Task(TaskKind::kSend, "send", 0, {a}, {0}, 0, 4);
  TestRole& receiver = job.Role("role1");
  receiver.Rank(1, 0, {0}, {});
  uint32_t b = receiver.Buffer("b", BufferKind::kScalar, 1);
  receiver.Body(
      "wait",
      [](BodyContext& c) {
        auto* value = reinterpret_cast<std::atomic<float>*>(F(c, 0));
        while (value->load() != 42) {
        }
        value->store(0);
      },
      1);
  receiver.Stream("compute", true);
  receiver.Task(TaskKind::kCompute, "wait", 0, {b});
  receiver.Stream("recv<0", false);
  receiver.Task(TaskKind::kRecv, "recv", 0, {b}, {}, 0, 4);
  job.Finish();
  Result<LocalResult> result = RunLocal(job.fields, Steps(5));
  ASSERT_TRUE(result.ok()) << result.status().message();
}

TEST(RuntimeExecutor, FusedTasksStartAndEndTogether) {
  TestJob job;
  TestRole& role = job.Role("role0");
  role.Rank(0, 0, {}, {});
  uint32_t a = role.Buffer("a", BufferKind::kScalar, 1), b = role.Buffer("b", BufferKind::kScalar, 1);
  role.Body(
      "nothing", [](BodyContext&) {}, 1);
  role.Stream("compute", true);
  role.Task(TaskKind::kCompute, "F", 0, {a}, {}, 0, 0, 0, 1);
  role.Task(TaskKind::kCompute, "B", 0, {b}, {3}, 0, 0, 0, 1);  // waits for the other stream's first task
  role.Stream("copy", false);
  role.Task(TaskKind::kBarrier, "x", 0, {});
  role.Task(TaskKind::kAccumulate, "late", 0, {a, b}, {}, -1, 4);
  role.Task(TaskKind::kBarrier, "after", 0, {}, {0});
  job.Finish();
  LocalOptions options = Steps(2);
  options.execution.record_timings = true;
  options.execution.delay_microseconds = 2000;
  Result<LocalResult> result = RunLocal(job.fields, options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  const std::vector<TaskTime>& times = result->timings[0];
  EXPECT_GE(times[0].start, times[3].end);  // F waits for what B needs
  EXPECT_GE(times[4].end, times[1].end);    // F's result is seen when B ends
}

TEST(RuntimeExecutor, ClippingScalesByTheGlobalNorm) {
  // Two ranks, a parameter each; gradients 3 and 4: norm 5, clip 1.
  TestJob job;
  uint32_t optimizer = job.Sgd(1.0);
  uint32_t group = job.Group({0, 1});
  static BodyFunction fills[2] = {[](BodyContext& c) {
                                    F(c, 0)[0] = 3;
                                  },
                                  [](BodyContext& c) {
                                    F(c, 0)[0] = 4;
                                  }};
  for (uint32_t rank = 0; rank < 2; ++rank) {
    TestRole& role = job.Role("role" + std::to_string(rank));
    role.Rank(rank, 0, {}, {group});
    role.Parameter(rank == 0 ? "a" : "b", 1, kOnes, optimizer, 0, rank);
    uint32_t sums = role.Buffer("sums", BufferKind::kScalar, 2, ElementType::kF64);
    role.collectives.push_back({CollectiveKind::kAllReduce, ElementType::kF64, 0, 2, 0, 0, 1, "clip.norm"});
    role.Body("fill", fills[rank], 1);
    role.Stream("compute", true);
    role.Task(TaskKind::kCompute, "B", 0, {role.parameters[0].gradient});
    role.Task(TaskKind::kSumSquares, "sums", 0, {sums});
    role.Task(TaskKind::kClip, "clip", 0, {sums}, {4});
    role.Task(TaskKind::kUpdate, "U", 0, {});
    role.Stream("reduce", false);
    role.Task(TaskKind::kCollective, "clip.norm", 0, {sums, sums}, {1}, -1, 16);
  }
  job.fields.parameter_count = 2;
  job.fields.clip = 1;
  job.Finish();
  LocalHooks hooks;
  hooks.gradients = [](const RankView& view, uint64_t) {
    float g = *reinterpret_cast<const float*>(view.gradient(view.program->parameters[0]));
    EXPECT_EQ(g, view.rank == 0 ? 3.0f : 4.0f);
  };
  hooks.step_done = [](const RankView& view, uint64_t step, const StepOutcome& outcome) {
    float w = *reinterpret_cast<const float*>(view.value(view.program->parameters[0]));
    EXPECT_NEAR(w, 1 - static_cast<double>(step + 1) * (view.rank == 0 ? 0.6 : 0.8), 1e-5);
    EXPECT_EQ(outcome.gradient_norm, 5);
  };
  Result<LocalResult> result = RunLocal(job.fields, Steps(3), hooks);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->gradient_norms, std::vector<double>(3, 5.0));
}

// Two ranks, a parameter each with momentum. Updates precede the norm of both, which judges them at the end
// of the step or, carried, in the one after it; rank 1 knows the squares of rank 0 when it updates. In step
// kBad rank 1 has an infinite gradient.
struct PostValidated {
  TestJob job;
  PostValidated(double clip, bool carried) {
    uint32_t optimizer = job.Sgd(1.0, 0.5);
    uint32_t group = job.Group({0, 1});
    static BodyFunction fills[2] = {
        [](BodyContext& c) {
          F(c, 0)[0] = c.step == 1 ? 30 : 3;
        },
        [](BodyContext& c) {
          F(c, 0)[0] = c.step == kBad ? std::numeric_limits<float>::infinity() : 4;
        }};
    for (uint32_t rank = 0; rank < 2; ++rank) {
      TestRole& role = job.Role("role" + std::to_string(rank));
      role.Rank(rank, 0, {1 - rank}, {group});
      role.peer_roles = {1 - rank};
      role.Parameter(rank == 0 ? "a" : "b", 1, kOnes, optimizer, 1, rank);
      role.parameters[0].saved = role.Buffer("copy", BufferKind::kSaved, 32);
      uint32_t sums = role.Buffer("sums", BufferKind::kScalar, 2, ElementType::kF64);
      const auto scalar = [&](const char* name) {
        return role.Buffer(name, BufferKind::kScalar, 1, ElementType::kF64);
      };
      const uint32_t own = scalar("own"), partial = scalar("partial"), received = scalar("received");
      role.collectives.push_back({CollectiveKind::kAllReduce, ElementType::kF64, 0, 2, 0, 0, 1, "clip.norm"});
      role.Body("fill", fills[rank], 1);
      role.Stream("compute", true);
      if (carried) role.Task(TaskKind::kValidate, "validate", 0, {sums}, {6}, -1, 0, 1);
      role.Task(TaskKind::kCompute, "B", 0, {role.parameters[0].gradient});
      role.Task(TaskKind::kSumSquares, "sums", 0, {sums, own});
      if (rank == 0) {
        role.Task(TaskKind::kPartialSquares, "partial", 0, {partial, own});
      } else {
        role.Task(TaskKind::kPartialSquares, "partial", 0, {partial, own, received}, {7});
      }
      role.Task(TaskKind::kSave, "save", 0, {});
      role.Task(TaskKind::kUpdate, "U", 0, {}, {}, -1, 0, 1);
      if (!carried) role.Task(TaskKind::kValidate, "validate", 0, {sums}, {6});
      role.Stream("reduce", false);
      const std::vector<uint32_t> after = carried ? std::vector<uint32_t>{} : std::vector<uint32_t>{1};
      role.Task(TaskKind::kCollective, "clip.norm", 0, {sums, sums}, after, -1, 16, carried ? 1 : 0);
      if (rank == 0) {
        role.Stream("send>1", false);
        role.Task(TaskKind::kSend, "pass on", 0, {partial}, {carried ? 3u : 2u}, -1, 8);
      } else {
        role.Stream("recv<0", false);
        role.Task(TaskKind::kRecv, "receive", 0, {received}, {}, -1, 8);
      }
    }
    job.fields.parameter_count = 2;
    job.fields.clip = clip;
    job.fields.overlaps = carried ? 1 : 0;
    job.Finish();
  }
  static constexpr uint64_t kBad = 3;
};

TEST(RuntimeExecutor, UpdatesBeforeTheNormAreRestoredAndRepeated) {
  // Norms 5, 30.3, 5: a bound of 6 clips step 1, which rank 0 knows by itself and rank 1 from rank 0; of 4.5
  // all, which rank 1 knows every time, though its own part is 4, and rank 0 in step 1 only.
  for (const auto& [clip, carried] : std::vector<std::pair<double, bool>>{
           {6.0, false}, {4.5, false}, {100.0, false}, {6.0, true}, {4.5, true}, {100.0, true}}) {
    PostValidated test(clip, carried);
    double value[2] = {1, 1}, velocity[2] = {0, 0};
    for (uint64_t step = 0; step < 3; ++step) {
      const double gradient[2] = {step == 1 ? 30.0 : 3.0, 4.0};
      const double factor = std::min(1.0, clip / (std::hypot(gradient[0], gradient[1]) + 1e-6));
      for (int rank = 0; rank < 2; ++rank) {
        velocity[rank] = 0.5 * velocity[rank] + factor * gradient[rank];
        value[rank] -= velocity[rank];
      }
    }
    LocalHooks hooks;
    hooks.step_done = [&](const RankView& view, uint64_t step, const StepOutcome&) {
      if (step != 2) return;
      const Parameter& parameter = view.program->parameters[0];
      EXPECT_NEAR(*reinterpret_cast<const float*>(view.value(parameter)), value[view.rank], 1e-4);
      EXPECT_NEAR(*reinterpret_cast<const float*>(view.state(parameter, 0)), velocity[view.rank], 1e-4);
    };
    Result<LocalResult> result = RunLocal(test.job.fields, Steps(3), hooks);
    ASSERT_TRUE(result.ok()) << result.status().message();
    const int64_t clipped = clip == 6.0 ? 1 : clip == 4.5 ? 3 : 0;
    EXPECT_EQ(result->ranks[0].late_updates, clipped > 0 ? 1 : 0);
    EXPECT_EQ(result->ranks[0].rollbacks, clipped > 0 ? clipped - 1 : 0);
    EXPECT_EQ(result->ranks[1].late_updates, clipped);
    EXPECT_EQ(result->ranks[1].rollbacks, 0);
  }
}

TEST(RuntimeExecutor, UpdatesBeforeANormThatIsNotFiniteAreRestored) {
  // Rank 0 updates; the infinity is rank 1's. No loss says so.
  for (bool carried : {false, true}) {
    PostValidated test(100, carried);
    static Executor* executor = nullptr;
    LocalHooks hooks;
    hooks.initialized = [&](const RankView& view) {
      if (view.rank == 0) executor = view.executor;
    };
    // The repeated step begins with what was restored.
    static float seen = 0;
    static int times = 0;
    times = 0;
    auto* program = const_cast<RankProgram*>(&test.job.fields.train[0]);
    const_cast<Body*>(&program->bodies[0])->function = [](BodyContext& c) {
      F(c, 0)[0] = 3;
      if (c.step != PostValidated::kBad) return;
      seen = *reinterpret_cast<const float*>(executor->buffer(executor->program().parameters[0].value));
      ++times;
    };
    Result<LocalResult> result = RunLocal(test.job.fields, Steps(5), hooks);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), kExitInput);
    EXPECT_EQ(result.status().message().rfind("step 3: a gradient is not finite; first in 'B', rank 1", 0),
              0u)
        << result.status().message();
    // Gradients of 3, momentum 0.5: 3, 4.5, 5.25.
    EXPECT_EQ(seen, 1.0F - 3 - 4.5F - 5.25F);
    EXPECT_EQ(times, 2);
  }
}

TEST(RuntimeExecutor, NonFiniteValueIsNamed) {
  Pipeline pipeline(4, 16);
  // From step 2 on, stage 1 makes an infinity of microbatch 2.
  auto* program = const_cast<RankProgram*>(&pipeline.job.fields.train[1]);
  auto* body = const_cast<Body*>(&program->bodies[0]);
  body->function = [](BodyContext& c) {
    for (int64_t i = 0; i < 16; ++i) F(c, 1)[i] = 2 * F(c, 0)[i];
    F(c, 2)[0] = F(c, 0)[15];
    if (c.step == 2 && c.first_sample == 2) F(c, 1)[3] = std::numeric_limits<float>::infinity();
  };
  Result<LocalResult> result = RunLocal(pipeline.job.fields, Steps(5));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), kExitInput);
  EXPECT_EQ(
      result.status().message(),
      "step 2: a gradient is not finite; first in 'FB', rank 1, microbatch 2: 'result' is inf at element 3");
}

TEST(RuntimeExecutor, InterpretedCallsRunAndNameTheirOperation) {
  TestJob job;
  uint32_t optimizer = job.Sgd(1.0);
  TestRole& role = job.Role("role0");
  role.Rank(0, 0, {}, {});
  role.Parameter("w", 8, kOnes, optimizer, 0, 0);
  uint32_t w = role.parameters[0].value, g = role.parameters[0].gradient;
  uint32_t scratch = role.Buffer("scratch", BufferKind::kScratch, 64);
  role.call_operands = {{0, 0}, {1, 0}, {1, 0}, {0, 1}};
  role.call_ints = {8, 8};
  role.call_scalars = {2.0, 1.0};
  role.calls.push_back({"scale", 0, 2, 0, 1, 0, 1, 0, "net.double"});     // local = 2 w
  role.calls.push_back({"log_forward", 2, 2, 1, 1, 1, 0, 0, "net.log"});  // g = log(local)
  role.bodies.push_back({"body", nullptr, 0, 2, 2, 64});
  role.Stream("compute", true);
  role.streams.back().scratch = scratch;
  role.Task(TaskKind::kCompute, "B net", 0, {w, g}, {}, 0);
  role.Task(TaskKind::kUpdate, "U", 0, {});
  job.fields.parameter_count = 1;
  job.Finish();
  LocalOptions options = Steps(2);
  options.bodies = MakeInterpreter;
  LocalHooks hooks;
  hooks.step_done = [](const RankView& view, uint64_t step, const StepOutcome&) {
    float value = *reinterpret_cast<const float*>(view.value(view.program->parameters[0]));
    if (step == 0) {
      EXPECT_NEAR(value, 1 - std::log(2.0), 1e-6);
    }
  };
  Result<LocalResult> result = RunLocal(job.fields, options, hooks);
  ASSERT_TRUE(result.ok()) << result.status().message();
  // log of a negative number is nan.
  options.steps = 1;
  hooks.step_done = nullptr;
  hooks.initialized = [](const RankView& view) {
    reinterpret_cast<float*>(view.value(view.program->parameters[0]))[5] = -1;
  };
  result = RunLocal(job.fields, options, hooks);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(
      result.status().message(),
      "step 0: a gradient is not finite; first in operation 'net.log' in 'B net', rank 0, microbatch 0: "
      "'gradient' is nan at element 5");
}

TEST(RuntimeExecutor, EvaluationRunsItsOwnProgram) {
  OneRank one(0);
  TestJob& job = one.job;
  TestRole& role = job.Role("role0", /*eval=*/true);
  role.Rank(0, 0, {}, {});
  role.Parameter("w", 4, kOnes, 0, 0, 0);
  role.loss = role.Buffer("loss", BufferKind::kScalar, 1);
  role.Body(
      "sum",
      [](BodyContext& c) {
        F(c, 1)[0] = F(c, 0)[0] + static_cast<float>(c.step);
      },
      2);
  role.Stream("compute", true);
  role.Task(TaskKind::kCompute, "F", 0, {role.parameters[0].value, role.loss}, {}, 0);
  RankProgram view = role.View();
  job.fields.eval = std::span<const RankProgram>(&view, 1);
  std::vector<const char*> strings(job.fields.strings.begin(), job.fields.strings.end());
  strings.push_back("F eval");
  job.fields.strings = strings;
  job.fields.eval_every = 2;
  job.fields.eval_batches = 3;
  LocalOptions options = Steps(5);
  options.evaluate = true;
  Result<LocalResult> result = RunLocal(job.fields, options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(result->eval_losses.size(), 3u);  // after steps 2, 4 and at the end
  EXPECT_NEAR(result->eval_losses[0], 0.81 + 1, 1e-6);
}

TEST(RuntimeExecutor, BrokenProgramsAreRefused) {
  OneRank one(0);
  auto* task = const_cast<Task*>(&one.job.fields.train[0].tasks[0]);
  task->argument = 9;
  Result<LocalResult> result = RunLocal(one.job.fields, Steps(1));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), kExitInternal);
  EXPECT_EQ(result.status().message(), "task 0 'F' of role0: no such body");
}

}  // namespace
}  // namespace piper::runtime::testing
