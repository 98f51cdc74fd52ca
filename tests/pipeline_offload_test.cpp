// `offload`, end to end: values leave for host memory and come back with the same bits, device memory falls
// by exactly what is away, and copies are costed, bounded and ordered like any other node.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "ir/lower/memory.h"
#include "tests/pipeline_support.h"

namespace piper::testing {
namespace {

// A region that keeps 2 * 1024 * 4 bytes a microbatch (the result of tanh), between two that keep next to
// nothing.
std::string WideText(const std::string& directives, const std::string& host = "", int64_t m = 4) {
  const std::string count = std::to_string(m);
  return "topology one { device d { memory = 1 GiB" + (host.empty() ? "" : "; host_bandwidth = " + host) +
         R"( }; level all = 1 of d }
module Wide(width: dim, inner: dim) {
  param up: [width, inner] = normal(0.3)
  param down: [inner, width] = normal(0.3)
  forward(x: [batch, width]) -> [batch, width] { tanh(x @ up) @ down }
}
module Net(width: dim) {
  param into: [features = 4, width] = normal(0.5)
  wide = Wide(width, 1024)
  forward(x: [batch, features = 4], y: [batch, width]) -> loss {
    let h = tag embed { x @ into }
    let z = tag wide { wide(h) }
    return tag head { mse(z, y) }
  }
}
model net = Net(width = 4)
strategy study {
  mesh (pp = 1)
  split batch into )" +
         count + " as mb\n" + directives + "\n  order on all {\n    for i in 0.." + count +
         " { F[mb = i] }\n    for i in 0.." + count +
         R"( { B[mb = i] }
  }
}
train {
  model net
  data random()
  global_batch )" +
         std::to_string(2 * m) + R"(
  steps 2
  optimizer sgd(0.1)
  on one
  using study
}
)";
}
constexpr int64_t kSaved = 2 * 1024 * 4;  // samples x inner x bytes

// Start and end of the tasks of a name, by microbatch.
std::vector<ir::TaskTiming> TimesOf(const Compiled& compiled, const std::string& name) {
  std::vector<ir::TaskTiming> times;
  const runtime::RankProgram& program = compiled.job().train[0];
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    if (compiled.job().strings[program.tasks[t].name] != name) continue;
    times.resize(std::max(times.size(), static_cast<size_t>(program.tasks[t].microbatch) + 1));
    times[static_cast<size_t>(program.tasks[t].microbatch)] = compiled.plan->simulation.timings[0][t];
  }
  return times;
}
constexpr ir::Picoseconds kUs = 1'000'000;

TEST(Offload, LearnsWhatTheReferenceLearns) {
  struct Case {
    const char* model;
    const char* schedule;
    int64_t p, v, dp, m;
    std::string directives;
  };
  std::vector<Case> cases = {
      {"gpt_dropout", "", 1, 1, 1, 2, "  offload [*] to host"},
      {"gpt_dropout", "one_f_one_b", 2, 1, 2, 4, "  offload [layer] to host { prefetch 2 }"},
      {"gpt_dropout", "zb1p", 2, 1, 1, 4, "  recompute [layer]\n  offload [layer] to host"},
      {"llama", "interleaved", 2, 2, 1, 2, "  offload [attn] to host { prefetch 0 }"},
      {"skip", "zb1p", 4, 1, 1, 4, "  recompute [layer]\n  offload [stage] to host"},
      {"llama", "gpipe", 2, 1, 1, 2, "  freeze [embed]\n  freeze [layer = 0]\n  offload [*] to host"},
      {"skip", "gpipe", 4, 1, 1, 4, "  recompute [stage]\n  offload [stage] to host { prefetch 0 }"},
  };
  if (Soak()) {
    for (const char* model : {"gpt_dropout", "llama", "skip"}) {
      for (const char* schedule : {"gpipe", "one_f_one_b", "eager_1f1b", "zb1p", "zb2p"}) {
        for (int64_t p : {2, 4}) {
          for (int64_t dp : {1, 2}) {
            for (const char* lines : {"  offload [*] to host", "  offload [layer] to host { prefetch 3 }",
                                      "  recompute [stage]\n  offload [*] to host",
                                      "  recompute [layer]\n  offload [stage] to host { prefetch 0 }"}) {
              cases.push_back({model, schedule, p, 1, dp, p + 2, lines});
            }
          }
        }
      }
    }
  }
  for (const Case& c : cases) {
    TrainText text = Layout(c.model, c.schedule, c.p, c.v, c.dp, c.m);
    text.batch = 2 * c.m * c.dp;
    const std::string freezes =
        c.directives.find("freeze") == std::string::npos ? "" : "  freeze [embed]\n  freeze [layer = 0]";
    text.directives = freezes;
    std::unique_ptr<Compiled> without = MustCompile(text.Text());
    text.directives = c.directives;
    std::unique_ptr<Compiled> with = MustCompile(text.Text());
    const std::string what = text.Name() + c.directives;
    ASSERT_TRUE(with->ok() && without->ok()) << what;
    ExpectEqualToReference(*with, 2, what);
    ExpectSameBits(*with, *without, what);
    int64_t host = 0;
    for (const runtime::RankProgram& program : with->job().train) {
      host += program.host_bytes;
      EXPECT_EQ(ir::VerifyMemory(program), "") << what;
    }
    EXPECT_GT(host, 0) << what;
  }
}

// Copies are free and instant here. The peak stands at the BW of microbatch 1, the first whose gradients need
// buffers of their own: without, the results of tanh of microbatches 1, 2 and 3 are alive. With `prefetch 0`,
// that of 1, just back. All else is the same. On the host all four were at once.
TEST(Offload, GivesBackExactlyWhatIsAway) {
  std::unique_ptr<Compiled> without = MustCompile(WideText(""));
  std::unique_ptr<Compiled> with =
      MustCompile(WideText("  offload [wide] to host { prefetch 0 }\n  cost B[wide] = 1 us"));
  ASSERT_TRUE(with->ok() && without->ok());
  const runtime::RankProgram &before = without->job().train[0], &after = with->job().train[0];
  // `wide` also hands over its result, 2 * 4 * 4 bytes a microbatch, which the head's backward reads: at the
  // peak those of 2 and 3 are away.
  constexpr int64_t kResult = 2 * 4 * 4;
  EXPECT_EQ(before.live_bytes - after.live_bytes, 2 * kSaved + 2 * kResult);
  EXPECT_EQ(before.host_bytes, 0);
  EXPECT_EQ(after.host_bytes, 4 * (kSaved + 64));  // ranges are multiples of 64
  RunResult run = RunJob(with->job(), 1);
  EXPECT_EQ(run.ranks[0].host_peak_live_bytes, 4 * (kSaved + kResult));
  EXPECT_EQ(run.ranks[0].host_high_water_bytes, after.host_bytes);
  EXPECT_EQ(run.ranks[0].high_water_bytes, after.arena_bytes);
}

// The second rank receives 2 * 1024 * 4 bytes a microbatch, which BW reads again; `head` keeps next to
// nothing of its own: its result, 2 * 4 * 4 bytes.
std::string ReceivingText(const std::string& directives) {
  return R"(topology two { device d { memory = 1 GiB }; level all = 2 of d }
module Net(width: dim) {
  param into: [features = 4, width] = normal(0.5)
  param down: [width, inner = 4] = normal(0.1)
  forward(x: [batch, features = 4], y: [batch, inner = 4]) -> loss {
    let h = tag embed { x @ into }
    let z = tag head { h @ down }
    return tag loss { mse(z, y) }
  }
}
model net = Net(width = 1024)
strategy study {
  mesh (pp = 2)
  cut embed, head, loss into [embed, head + loss] as stage
  split batch into 4 as mb
  for s in 0..2 {
    place [stage = s] on pp[s]
    order on pp[s] { for i in 0..4 { F[mb = i] }; for i in 0..4 { B[mb = i] } }
  }
)" + directives +
         R"(
}
train {
  model net
  data random()
  global_batch 8
  steps 2
  optimizer sgd(0.1)
  on two
  using study
}
)";
}

// As above, on rank 1: at the BW of microbatch 1 what was received for 2 and 3 is away, with prefetch 0.
TEST(Offload, WhatMessagesBringLeavesAsWell) {
  std::unique_ptr<Compiled> without = MustCompile(ReceivingText(""));
  std::unique_ptr<Compiled> with =
      MustCompile(ReceivingText("  offload [head] to host { prefetch 0 }\n  cost B[head] = 1 us"));
  ASSERT_TRUE(with->ok() && without->ok());
  const runtime::RankProgram &before = without->job().train[1], &after = with->job().train[1];
  constexpr int64_t kReceived = 2 * 1024 * 4, kResult = 2 * 4 * 4;
  EXPECT_EQ(before.live_bytes - after.live_bytes, 2 * kReceived + 2 * kResult);
  EXPECT_EQ(with->job().train[0].host_bytes, 0) << "nobody reads the sent value again on rank 0";
  EXPECT_EQ(after.host_bytes, 4 * (kReceived + 64));
  ExpectEqualToReference(*with, 2, "received");
  ExpectSameBits(*with, *without, "received");
  const RunResult run = RunJob(with->job(), 1);
  EXPECT_EQ(run.ranks[1].host_peak_live_bytes, 4 * (kReceived + kResult));
  EXPECT_EQ(run.ranks[1].high_water_bytes, after.arena_bytes);
  EXPECT_EQ(ir::VerifyMemory(after), "");
  // It has nodes of its own, with the tags of the region that it leaves with.
  std::set<std::string> copies;
  for (const runtime::Task& task : after.tasks) {
    if (task.kind == runtime::TaskKind::kCopy) copies.insert(with->job().strings[task.name]);
  }
  EXPECT_EQ(copies, (std::set<std::string>{"offload.out stage0.embed -> stage1.head",
                                           "offload.in stage0.embed -> stage1.head",
                                           "offload.out stage1.head", "offload.in stage1.head"}));
  // What is replayed whole still travels as what the replay reads; what is not selected stays.
  std::unique_ptr<Compiled> replayed =
      MustCompile(ReceivingText("  recompute [stage]\n  offload [stage] to host { prefetch 0 }"));
  EXPECT_EQ(replayed->job().train[1].host_bytes, 4 * kReceived);
  EXPECT_EQ(MustCompile(ReceivingText("  offload [loss]? to host"))->job().train[1].host_bytes, 0);
}

// 1 GB/s: 8192 + 32 bytes in 8.224 us. F and B of 20 us hide the copies of the unit before.
TEST(Offload, CopiesTakeTheHostLinkAndComeBackAhead) {
  const std::string costs = "\n  cost F[wide] = 20 us\n  cost B[wide] = 20 us";
  for (int64_t prefetch : {0, 1, 2}) {
    std::unique_ptr<Compiled> compiled = MustCompile(WideText(
        "  offload [wide] to host { prefetch " + std::to_string(prefetch) + " }" + costs, "1 GB/s", 6));
    ASSERT_TRUE(compiled->ok());
    std::vector<ir::TaskTiming> out = TimesOf(*compiled, "offload.out wide"),
                                in = TimesOf(*compiled, "offload.in wide");
    std::vector<ir::TaskTiming> forward = TimesOf(*compiled, "F wide"),
                                reader = TimesOf(*compiled, "BI head");
    ASSERT_EQ(out.size(), 6u);
    ASSERT_EQ(in.size(), 6u);
    for (size_t mb = 0; mb < 6; ++mb) {
      EXPECT_EQ(out[mb].end - out[mb].start, 8'224'000) << mb;
      EXPECT_EQ(in[mb].end - in[mb].start, 8'224'000) << mb;
      EXPECT_EQ(out[mb].start, forward[mb].end) << mb;
      EXPECT_GE(reader[mb].start, in[mb].end) << mb;
      // Not before the first reader of the one that is `prefetch` before it could start, and of its own copy
      // out.
      const auto ahead = static_cast<size_t>(prefetch);
      if (mb >= ahead && mb > 0) {
        const ir::Picoseconds could = mb - ahead == 0 ? TimesOf(*compiled, "F head")[5].end
                                                      : TimesOf(*compiled, "BW embed")[mb - ahead - 1].end;
        EXPECT_GE(in[mb].start, could) << prefetch << " " << mb;
      }
    }
    // Without the exposed copies in: 12 passes of 20 us. With `prefetch 0` each copy is waited for.
    const ir::Picoseconds makespan = compiled->plan->simulation.makespan;
    if (prefetch == 0) {
      EXPECT_GE(makespan, 12 * 20 * kUs + 6 * 8'224'000);
    } else {
      EXPECT_LT(makespan, 12 * 20 * kUs + 3 * 8'224'000) << prefetch;
    }
  }
  std::unique_ptr<Compiled> priced = MustCompile(WideText(
      "  offload [wide] to host\n  cost [offload.out] = 3 us\n  cost [offload.in] = 1 MiB", "1 GB/s"));
  ASSERT_TRUE(priced->ok());
  EXPECT_EQ(TimesOf(*priced, "offload.out wide")[0].end - TimesOf(*priced, "offload.out wide")[0].start,
            3 * kUs);
  EXPECT_EQ(TimesOf(*priced, "offload.in wide")[0].end - TimesOf(*priced, "offload.in wide")[0].start,
            1'048'576'000);
}

// More units ahead hold more of the device; all stay below what is never away.
TEST(Offload, PrefetchTradesMemory) {
  std::vector<int64_t> live;
  for (const char* lines :
       {"  offload [wide] to host { prefetch 0 }", "  offload [wide] to host { prefetch 2 }", ""}) {
    std::unique_ptr<Compiled> compiled = MustCompile(
        WideText(std::string(lines) + "\n  cost F[wide] = 20 us\n  cost B[wide] = 20 us", "1 GB/s", 8));
    ASSERT_TRUE(compiled->ok());
    live.push_back(compiled->job().train[0].live_bytes);
  }
  EXPECT_EQ((live[1] - live[0]) / kSaved, 2);
  EXPECT_LT(live[1], live[2]);
}

TEST(Offload, CopiesHaveStreamsAndCanBeMovedListedAndMeasured) {
  const std::string costs = "\n  cost F[wide] = 20 us\n  cost B[wide] = 20 us";
  auto streams = [](const Compiled& compiled) {
    std::set<std::string> names;
    const runtime::RankProgram& program = compiled.job().train[0];
    for (const runtime::Task& task : program.tasks) {
      if (task.kind == runtime::TaskKind::kCopy) names.insert(program.streams[task.stream].name);
    }
    return names;
  };
  std::unique_ptr<Compiled> plain = MustCompile(WideText("  offload [wide] to host" + costs, "1 GB/s"));
  EXPECT_EQ(streams(*plain), (std::set<std::string>{"offload", "prefetch"}));
  std::unique_ptr<Compiled> moved =
      MustCompile(WideText("  offload [wide] to host\n  stream [offload.*] on copies" + costs, "1 GB/s"));
  EXPECT_EQ(streams(*moved), (std::set<std::string>{"copies"}));
  std::unique_ptr<Compiled> computed =
      MustCompile(WideText("  offload [wide] to host\n  stream [offload.*] on compute" + costs, "1 GB/s"));
  EXPECT_EQ(streams(*computed), (std::set<std::string>{"compute"}));
  for (Compiled* compiled : {plain.get(), moved.get(), computed.get()}) {
    ASSERT_TRUE(compiled->ok());
    ExpectEqualToReference(*compiled, 2, "streams");
  }
  EXPECT_GE(computed->plan->simulation.makespan, 8 * 20 * kUs + 8 * 8'224'000);
  EXPECT_TRUE(
      Compile(WideText("  offload [wide] to host\n  assert exposed([offload.*]) < 50 %" + costs, "1 GB/s"))
          ->ok());
  EXPECT_FALSE(
      Compile(WideText("  offload [wide] to host { prefetch 0 }\n  assert exposed([offload.*]) < 1 %" + costs,
                       "1 GB/s"))
          ->ok());
}

}  // namespace
}  // namespace piper::testing
