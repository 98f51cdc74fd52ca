// What the deadlock proof accepts runs without a single buffer: the plan of every schedule of the library
// ends in the transports' rendezvous mode, with the bits that it has without; and a plan that is made to wait
// in a cycle is refused, and stops where the proof says.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "ir/check/deadlock.h"
#include "ir/cost/simulator.h"
#include "runtime/interpreter.h"
#include "tests/pipeline_support.h"

namespace piper::testing {
namespace {

struct Case {
  const char* schedule;
  int p, m;
  const char* more = "";  // arguments
};

// dp > 1: collectives meet as well.
std::string Text(const Case& c, int dp) {
  const std::string p = std::to_string(c.p), m = std::to_string(c.m), replicas = std::to_string(dp);
  return R"(import std.strategies
import std.topologies
module Layer(width: dim) {
  param w: [width, out = width] = normal(0.3)
  forward(x: [batch, width]) -> [batch, width] { x + tanh(rename(x @ w, out, width)) }
}
module Net(layers: int, width: dim) {
  param into: [width] = ones
  blocks = [Layer(width) for i in 0..layers]
  forward(x: [batch, width], y: [batch, width]) -> loss {
    let start = tag embed { x * into }
    var h = start
    for b in blocks { h = tag layer { b(h) } }
    return tag head { mse(h * into + start, y) }
  }
}
model net = Net(layers = 8, width = 6)
train {
  model net
  data random()
  steps 2
  optimizer adamw(lr = 1e-2)
  clip 0.5
  seed 5
  global_batch )" +
         std::to_string(c.m * dp) + "\n  on topologies.local(ranks = " + std::to_string(c.p * dp) +
         ")\n  using strategies." + c.schedule + "(p = " + p + ", m = " + m + ", dp = " + replicas + c.more +
         ")\n}\n";
}

const Case kCases[] = {{"gpipe", 4, 6},
                       {"one_f_one_b", 4, 6},
                       {"eager_1f1b", 4, 6},
                       {"zb1p", 4, 6},
                       {"zb2p", 4, 8},
                       {"looped_bfs", 2, 4, ", v = 3"},
                       {"interleaved", 4, 6, ", v = 2"},
                       {"interleaved_zb", 4, 6, ", v = 2"},
                       {"zbv", 4, 8},
                       {"v_half", 4, 6},
                       {"v_min", 4, 6},
                       {"dualpipe", 4, 8},
                       {"dualpipev", 4, 8}};

void ExpectSame(const RunResult& a, const RunResult& b, const std::string& what) {
  ASSERT_FALSE(a.losses.empty()) << what;
  EXPECT_EQ(a.losses, b.losses) << what;
  EXPECT_EQ(a.norms, b.norms) << what;
  EXPECT_EQ(a.gradients, b.gradients) << what;
  EXPECT_EQ(a.parameters, b.parameters) << what;
}

class Rendezvous : public ::testing::TestWithParam<Case> {};

TEST_P(Rendezvous, AcceptedPlansRunToTheirEnd) {
  for (int dp : Soak() ? std::vector<int>{1, 2} : std::vector<int>{1}) {
    std::unique_ptr<Compiled> compiled = Compile(Text(GetParam(), dp));
    ASSERT_TRUE(compiled->ok()) << compiled->Messages();
    runtime::LocalOptions options;
    options.execution.stall_seconds = 60;
    const RunResult plain = RunJob(compiled->job(), options);
    options.rendezvous = true;
    for (uint64_t seed = 0; seed < (Soak() ? 20u : 3u); ++seed) {
      options.execution.delay_microseconds = seed == 0 ? 0 : 50;
      options.execution.delay_seed = seed;
      options.execution.poison = true;
      ExpectSame(plain, RunJob(compiled->job(), options), GetParam().schedule);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Library, Rendezvous, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.schedule); });

// Swaps two neighbouring tasks of a stream, with what waits for them.
void Swap(ir::RoleStorage* role, uint32_t first) {
  std::swap(role->tasks[first], role->tasks[first + 1]);
  for (uint32_t& wait : role->waits) {
    if (wait == first || wait == first + 1) wait = 2 * first + 1 - wait;
  }
}

TEST(Sabotage, ACyclicWaitIsRefusedAndStopsThere) {
  std::unique_ptr<Compiled> compiled = Compile(Text({"one_f_one_b", 2, 4}, 1));
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  // Rank 1 receives its first two microbatches in the other order: the sender's stream holds the first.
  ir::JobStorage& storage = *compiled->plan->job;
  bool swapped = false;
  for (ir::RoleStorage& role : storage.train_roles()) {
    for (const runtime::Stream& stream : role.streams) {
      if (swapped || role.ranks[0].rank != 1 || stream.task_count < 2) continue;
      if (role.tasks[stream.first_task].kind != runtime::TaskKind::kRecv) continue;
      Swap(&role, stream.first_task);
      swapped = true;
    }
  }
  ASSERT_TRUE(swapped);
  storage.Seal();
  const ir::SimulationResult simulation = ir::Simulate(storage.job(), compiled->program->topology);
  ASSERT_EQ(simulation.deadlock.size(), 2u);
  EXPECT_FALSE(ir::CheckDeadlock(storage.job(), simulation, {}, compiled->diag));
  EXPECT_TRUE(compiled->Has(ir::DiagKind::kDeadlock));
  for (bool rendezvous : {false, true}) {
    runtime::LocalOptions options;
    options.bodies = runtime::MakeInterpreter;
    options.execution.stall_seconds = 0.5;
    options.rendezvous = rendezvous;
    runtime::Result<runtime::LocalResult> run = runtime::RunLocal(storage.job(), options);
    ASSERT_FALSE(run.ok());
    EXPECT_NE(run.status().message().find("no progress at step 0"), std::string::npos)
        << run.status().message();
  }
}

// The same from text: one stream for what rank 1 sends and receives, in an order that needs a buffer.
TEST(Sabotage, AMergedStreamIsRefused) {
  TrainText text;
  text.schedule = "one_f_one_b";
  text.p = 2;
  text.m = 4;
  EXPECT_TRUE(Compile(text.Text())->ok());
  text.directives = "  stream [send] on comm\n  stream [recv] on comm";
  std::unique_ptr<Compiled> compiled = Compile(text.Text());
  EXPECT_FALSE(compiled->ok());
  EXPECT_TRUE(compiled->Has(ir::DiagKind::kDeadlock)) << compiled->Messages();
}

// A body that does not end before messages of later microbatches have arrived: the communication thread
// delivers them meanwhile, whatever the order of the compute stream.
class WaitingBodies : public runtime::BodyRunner {
 public:
  WaitingBodies(const runtime::Job& job, const runtime::RankProgram& program, bool waits)
      : inner_(runtime::MakeInterpreter(job, program)), waits_(waits) {}
  void Run(uint32_t body, runtime::BodyContext& context) override {
    if (waits_ && context.step == 0 && !waited_.exchange(true)) {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      for (const auto& [data, bytes] : arriving) {
        // The arena is zero at the start, and no activation is.
        while (!Arrived(data, bytes) && std::chrono::steady_clock::now() < deadline)
          std::this_thread::yield();
        seen += Arrived(data, bytes);
      }
    }
    inner_->Run(body, context);
  }
  static std::vector<std::pair<const std::byte*, int64_t>> arriving;
  static int seen;

 private:
  static bool Arrived(const std::byte* data, int64_t bytes) {
    const auto* words = reinterpret_cast<const volatile uint32_t*>(data);
    return words[bytes / 4 - 1] != 0;
  }
  std::unique_ptr<runtime::BodyRunner> inner_;
  bool waits_;
  std::atomic<bool> waited_{false};
};
std::vector<std::pair<const std::byte*, int64_t>> WaitingBodies::arriving;
int WaitingBodies::seen = 0;

TEST(Overlap, ABodyMayWaitForWhatArrivesMeanwhile) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the body looks, on purpose, at what another thread is writing";
#endif
  std::unique_ptr<Compiled> compiled = Compile(Text({"gpipe", 2, 5}, 1));
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  for (bool rendezvous : {false, true}) {
    WaitingBodies::arriving.clear();
    WaitingBodies::seen = 0;
    runtime::LocalOptions options;
    options.steps = 2;
    options.rendezvous = rendezvous;
    options.bodies = [](const runtime::Job& job, const runtime::RankProgram& program) {
      return std::make_unique<WaitingBodies>(job, program, program.ranks[0].rank == 1);
    };
    runtime::LocalHooks hooks;
    hooks.initialized = [](const runtime::RankView& view) {
      if (view.rank != 1) return;
      for (const runtime::Task& task : view.program->tasks) {
        if (task.kind != runtime::TaskKind::kRecv || task.microbatch == 0) continue;
        const uint32_t buffer = view.program->task_operands[task.first_operand];
        WaitingBodies::arriving.emplace_back(view.executor->buffer(buffer),
                                             view.program->buffers[buffer].bytes);
      }
    };
    runtime::Result<runtime::LocalResult> run = runtime::RunLocal(compiled->job(), options, hooks);
    ASSERT_TRUE(run.ok()) << run.status().message();
    EXPECT_GE(WaitingBodies::arriving.size(), 4u);
    EXPECT_EQ(WaitingBodies::seen, static_cast<int>(WaitingBodies::arriving.size()));
  }
}

}  // namespace
}  // namespace piper::testing
