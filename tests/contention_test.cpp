// The clock under contention: ports and compute units are shared, `slowdown` is exact, and what shares
// nothing is not slower for it. Random jobs on one and several ranks; exact figures of small ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>

#include "ir/cost/simulator.h"
#include "tests/pipeline_job.h"
#include "tests/schedules_support.h"

namespace piper::ir {
namespace {

using runtime::TaskKind;
using testing::FlatTopology;

// Tasks of one rank: costs, the stream that each is on, and what each waits for (earlier ones).
struct Work {
  std::vector<Picoseconds> cost;
  std::vector<uint32_t> lane;
  std::vector<std::vector<uint32_t>> waits;
};

// One rank whose streams run `work` in the order of its tasks; `computes` says which of the streams compute.
std::unique_ptr<JobStorage> OneRank(const Work& work, const std::vector<bool>& computes,
                                    std::vector<runtime::Slowdown> slowdowns) {
  auto storage = std::make_unique<JobStorage>();
  RoleStorage& role = storage->AddTrainRole();
  role.name = storage->Intern("role0");
  role.ranks.push_back({0, 0, {}, {}});
  std::vector<uint32_t> place(work.cost.size());
  uint32_t count = 0;
  for (uint32_t lane = 0; lane < computes.size(); ++lane) {
    for (uint32_t i = 0; i < work.cost.size(); ++i) {
      if (work.lane[i] == lane) place[i] = count++;
    }
  }
  for (uint32_t lane = 0; lane < computes.size(); ++lane) {
    role.streams.push_back({storage->Intern("lane" + std::to_string(lane)),
                            static_cast<uint32_t>(role.tasks.size()), 0,
                            static_cast<uint8_t>(computes[lane])});
    for (uint32_t i = 0; i < work.cost.size(); ++i) {
      if (work.lane[i] != lane) continue;
      runtime::Task task{};
      task.kind = TaskKind::kBarrier;
      task.stream = static_cast<uint16_t>(lane);
      task.microbatch = static_cast<int32_t>(i);
      task.atomic = runtime::kNone;
      task.cost = work.cost[i];
      task.first_wait = static_cast<uint32_t>(role.waits.size());
      for (uint32_t wait : work.waits[i]) {
        if (work.lane[wait] != lane) role.waits.push_back(place[wait]);
      }
      task.wait_count = static_cast<uint32_t>(role.waits.size()) - task.first_wait;
      role.tasks.push_back(task);
      ++role.streams.back().task_count;
    }
  }
  role.slowdowns = std::move(slowdowns);
  storage->rank_role = {0};
  storage->header.microbatches = 1;
  storage->Seal();
  return storage;
}

Picoseconds Makespan(const Work& work, const std::vector<bool>& computes,
                     std::vector<runtime::Slowdown> slowdowns = {}) {
  const std::unique_ptr<JobStorage> storage = OneRank(work, computes, std::move(slowdowns));
  const SimulationResult result = Simulate(storage->job(), FlatTopology(1));
  EXPECT_TRUE(result.deadlock.empty());
  return result.makespan;
}

Work Random(std::mt19937& random, uint32_t lanes) {
  Work work;
  const uint32_t count = 2 + random() % 30;
  for (uint32_t i = 0; i < count; ++i) {
    work.cost.push_back(random() % 5 == 0 ? 0 : 1 + random() % 1000);
    work.lane.push_back(random() % lanes);
    std::vector<uint32_t> waits;
    for (uint32_t k = 0; i > 0 && k < random() % 3; ++k) waits.push_back(random() % i);
    std::sort(waits.begin(), waits.end());
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
    work.waits.push_back(waits);
  }
  return work;
}

TEST(Contention, FreeLanesNeverLengthenAStep) {
  std::mt19937 random(3);
  int shorter = 0;
  for (int round = 0; round < 2000; ++round) {
    const uint32_t lanes = 2 + random() % 3;
    const Work work = Random(random, lanes);
    Work sequence = work;
    std::fill(sequence.lane.begin(), sequence.lane.end(), 0);
    std::vector<bool> computes(lanes, false);
    computes[0] = true;
    const Picoseconds together = Makespan(work, computes), one = Makespan(sequence, {true});
    EXPECT_LE(together, one);
    shorter += together < one;
    // A slowdown of 1 is none; and the longest chain of waits is a bound.
    std::vector<Picoseconds> end(work.cost.size());
    std::vector<Picoseconds> last(lanes, 0);
    Picoseconds longest = 0;
    for (size_t i = 0; i < work.cost.size(); ++i) {
      Picoseconds start = last[work.lane[i]];
      for (uint32_t wait : work.waits[i]) start = std::max(start, end[wait]);
      end[i] = start + work.cost[i];
      last[work.lane[i]] = end[i];
      longest = std::max(longest, end[i]);
    }
    EXPECT_EQ(together, longest);
  }
  EXPECT_GT(shorter, 1000);
}

// The same over several ranks: sends and receives on streams of their own against one stream for all of a
// rank's communication, and against the compute stream; wherever these do not deadlock.
TEST(Contention, FreeLanesOfSeveralRanksNeverLengthenAStep) {
  using testing::CommunicationStreams;
  std::mt19937 random(13);
  int compared = 0, shorter = 0;
  for (int round = 0; round < 300; ++round) {
    const int p = 2 + static_cast<int>(random() % 4), m = 1 + static_cast<int>(random() % 6);
    std::vector<testing::RankSteps> steps =
        random() % 3 == 0 ? testing::OneFOneB(p, m) : testing::GPipe(p, m);
    // All ranks take the microbatches in one random order.
    std::vector<int> order(static_cast<size_t>(m));
    for (int i = 0; i < m; ++i) order[static_cast<size_t>(i)] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (testing::RankSteps& rank : steps) {
      for (testing::PipelineStep& step : rank) step.microbatch = order[static_cast<size_t>(step.microbatch)];
    }
    testing::PipelineCosts costs;
    costs.forward = random() % 50;
    costs.backward = random() % 50;
    costs.transfer = random() % 40;
    costs.pure_latency = true;
    const Topology topology = FlatTopology(static_cast<uint32_t>(p));
    testing::PipelineJob lanes(steps, p, costs, CommunicationStreams::kPairs);
    const SimulationResult free = Simulate(lanes.job(), topology);
    ASSERT_TRUE(free.deadlock.empty());
    for (CommunicationStreams merged : {CommunicationStreams::kSingle, CommunicationStreams::kCompute}) {
      testing::PipelineJob one(steps, p, costs, merged);
      const SimulationResult result = Simulate(one.job(), topology);
      if (!result.deadlock.empty()) continue;
      EXPECT_LE(free.makespan, result.makespan);
      ++compared;
      shorter += free.makespan < result.makespan;
    }
  }
  EXPECT_GT(compared, 200);
  EXPECT_GT(shorter, 10);
}

// A stream that both receives and computes does not compute with what has not arrived.
TEST(Contention, AReaderOnTheReceivingStreamWaitsForTheArrival) {
  using testing::CommunicationStreams;
  for (CommunicationStreams streams : {CommunicationStreams::kPairs, CommunicationStreams::kCompute}) {
    testing::PipelineJob job(testing::GPipe(2, 1), 2, {10, 20, 7, true, 0}, streams);
    EXPECT_EQ(Simulate(job.job(), FlatTopology(2)).makespan, 10 + 7 + 10 + 20 + 7 + 20);
  }
}

// Two tasks at once, from the same instant or not.
TEST(Contention, APairNeverCostsMoreThanItsPartsInSequence) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    const Picoseconds a = 1 + random() % (round % 2 == 0 ? 20 : 1'000'000), b = 1 + random() % 1'000'000;
    const Picoseconds before = random() % 3 == 0 ? random() % 1000 : 0;
    const uint32_t thousandths = 1001 + random() % 1000;
    const Work work{{before, a, b}, {1, 0, 1}, {{}, {}, {}}};
    const Picoseconds alone = std::max(a, before + b), sequence = a + before + b;
    const Picoseconds slowed = Makespan(work, {true, false}, {{0, 1, thousandths}});
    EXPECT_GE(slowed, alone);
    EXPECT_LE(slowed, sequence) << a << " " << b << " " << thousandths;
    if (before == 0) {
      // Fluid: the shorter one takes f times as long, then the rest goes on alone.
      const Picoseconds least = std::min(a, b), most = std::max(a, b);
      const Picoseconds fluid = (least * (thousandths - 1000) + 999) / 1000 + most;
      EXPECT_GE(slowed, fluid - 1);
      EXPECT_LE(slowed, fluid + 1);
    }
    // Shared compute units lose nothing and gain nothing.
    const Work pair{{a, b}, {0, 1}, {{}, {}}};
    EXPECT_EQ(Makespan(pair, {true, true}), a + b);
    EXPECT_EQ(Makespan(pair, {true, false}), std::max(a, b));
    // A figure for the pair replaces the equal share.
    EXPECT_LE(Makespan(pair, {true, true}, {{0, 1, thousandths}}), a + b);
  }
}

TEST(Contention, EqualSharesAreExact) {
  for (uint32_t n = 2; n <= 16; ++n) {
    Work work;
    Picoseconds sum = 0;
    for (uint32_t i = 0; i < n; ++i) {
      work.cost.push_back(7 + 13 * i);
      work.lane.push_back(i);
      work.waits.emplace_back();
      sum += work.cost.back();
    }
    const std::unique_ptr<JobStorage> storage = OneRank(work, std::vector<bool>(n, true), {});
    const SimulationResult result = Simulate(storage->job(), FlatTopology(1));
    EXPECT_EQ(result.makespan, sum);
    // Ends of equal shares: what all have done until then, and what the longer ones still share.
    Picoseconds end = 0, done = 0;
    for (uint32_t i = 0; i < n; ++i) {
      end += (work.cost[i] - done) * static_cast<Picoseconds>(n - i);
      done = work.cost[i];
      EXPECT_EQ(result.timings[0][i].end, end);
    }
    EXPECT_EQ(result.roles[0].busy, sum);
  }
}

TEST(Contention, ASlowdownOfTwoStreamsIsExact) {
  // compute 12 beside a2a 6, at 1.5: a2a ends at 9, when compute has 6 left.
  const Work work{{12, 6}, {0, 1}, {{}, {}}};
  const std::unique_ptr<JobStorage> storage = OneRank(work, {true, false}, {{0, 1, 1500}});
  const SimulationResult result = Simulate(storage->job(), FlatTopology(1));
  EXPECT_EQ(result.timings[0][1].end, 9);
  EXPECT_EQ(result.timings[0][0].end, 15);
  // Written the other way round, it is the same.
  EXPECT_EQ(Makespan(work, {true, false}, {{1, 0, 1500}}), 15);
}

TEST(Contention, RandomWorkIsNeverFasterThanFree) {
  std::mt19937 random(9);
  for (int round = 0; round < 500; ++round) {
    const Work work = Random(random, 3);
    const std::vector<runtime::Slowdown> slowdowns = {{0, 1, 1001 + static_cast<uint32_t>(random() % 1000)},
                                                      {2, 0, 1001 + static_cast<uint32_t>(random() % 1000)}};
    const Picoseconds free = Makespan(work, {true, false, false});
    const Picoseconds slowed = Makespan(work, {true, false, false}, slowdowns);
    EXPECT_GE(slowed, free);
    EXPECT_LE(slowed, 2 * free + static_cast<Picoseconds>(work.cost.size()));
    EXPECT_EQ(slowed, Makespan(work, {true, false, false}, slowdowns));
  }
}

// A message between two ranks, on streams of its own that do something else first.
struct Transfer {
  uint32_t from = 0, to = 0;
  Picoseconds cost = 0, before = 0;
};
// Timings are [rank][..]: per transfer that the rank takes part in, in their order, what comes before it and
// itself.
SimulationResult Transfers(uint32_t ranks, const std::vector<Transfer>& transfers, const Topology& topology) {
  JobStorage storage;
  for (uint32_t r = 0; r < ranks; ++r) {
    RoleStorage& role = storage.AddTrainRole();
    role.name = storage.Intern("role" + std::to_string(r));
    RoleStorage::Rank rank{r, 0, {}, {}};
    for (uint32_t other = 0; other < ranks; ++other) {
      rank.peers.push_back(other);
      role.peer_roles.push_back(other);
    }
    role.ranks.push_back(rank);
    for (uint32_t i = 0; i < transfers.size(); ++i) {
      const bool sends = transfers[i].from == r;
      if (!sends && transfers[i].to != r) continue;
      runtime::Task task{};
      task.stream = static_cast<uint16_t>(role.streams.size());
      task.atomic = runtime::kNone;
      task.kind = TaskKind::kBarrier;
      task.cost = sends ? transfers[i].before : 0;
      role.streams.push_back({storage.Intern("s"), static_cast<uint32_t>(role.tasks.size()), 2, 0});
      role.tasks.push_back(task);
      task.kind = sends ? TaskKind::kSend : TaskKind::kRecv;
      task.argument = sends ? transfers[i].to : transfers[i].from;
      task.key = i;
      task.cost = transfers[i].cost;
      role.tasks.push_back(task);
    }
    storage.rank_role.push_back(r);
  }
  storage.header.microbatches = 1;
  storage.Seal();
  return Simulate(storage.job(), topology);
}

// `nodes` of `each` devices; the cluster's link has a bandwidth only where it says how many ports a node has.
Topology Nodes(uint32_t nodes, uint32_t each, int64_t nics) {
  Topology topology = FlatTopology(nodes * each);
  topology.levels = {{"node", {}}, {"cluster", {{0, nodes * each, {1, 0, nics}}}}};
  for (uint32_t n = 0; n < nodes; ++n) topology.levels[0].groups.push_back({n * each, each, {1, 0, 0}});
  return topology;
}

TEST(Contention, TransfersOverOneLevelShareThePortsOfBothDevices) {
  // 10 and 30 at once: both at half rate until 20, the second alone from there.
  SimulationResult result = Transfers(3, {{0, 1, 10}, {0, 2, 30}}, FlatTopology(3));
  EXPECT_EQ(result.timings[1][1].end, 20);
  EXPECT_EQ(result.timings[2][1].end, 40);
  // Latency is not shared.
  result = Transfers(3, {{0, 1, 15}, {0, 2, 35}}, FlatTopology(3, Link{1, 5, 0}));
  EXPECT_EQ(result.timings[1][1].end, 25);
  EXPECT_EQ(result.timings[2][1].end, 45);
  EXPECT_EQ(result.timings[0][3].end, 40);
  // What arrives from several devices at once shares the receiver's port.
  result = Transfers(3, {{1, 0, 10}, {2, 0, 30}}, FlatTopology(3));
  EXPECT_EQ(result.timings[0][1].end, 20);
  EXPECT_EQ(result.timings[0][3].end, 40);
  // What leaves and what arrives do not.
  EXPECT_EQ(Transfers(3, {{0, 1, 10}, {2, 0, 30}}, FlatTopology(3)).makespan, 30);
  EXPECT_EQ(Transfers(2, {{0, 1, 10}, {1, 0, 30}}, FlatTopology(2)).makespan, 30);
  // One that shares a port at each end goes at the lesser of its shares: 0 -> 1 at a half until 10 -> 20.
  result = Transfers(4, {{0, 1, 10}, {0, 2, 10}, {3, 1, 10}}, FlatTopology(4));
  EXPECT_EQ(result.makespan, 20);
  // Different levels have ports of their own.
  EXPECT_EQ(Transfers(4, {{0, 1, 10}, {0, 2, 30}}, Nodes(2, 2, 0)).makespan, 30);
}

TEST(Contention, DevicesOfANodeShareItsPorts) {
  // Devices 0 and 1 of node 0 send to 2 and 3 of node 1.
  const std::vector<Transfer> pair = {{0, 2, 10}, {1, 3, 30}};
  EXPECT_EQ(Transfers(4, pair, Nodes(2, 2, 0)).makespan, 30);
  EXPECT_EQ(Transfers(4, pair, Nodes(2, 2, 2)).makespan, 30);
  SimulationResult result = Transfers(4, pair, Nodes(2, 2, 1));
  EXPECT_EQ(result.timings[2][1].end, 20);
  EXPECT_EQ(result.timings[3][1].end, 40);
  // Ports are of the level: what stays within the node has others.
  EXPECT_EQ(Transfers(4, {{0, 2, 10}, {1, 0, 30}}, Nodes(2, 2, 1)).makespan, 30);
  // The i-th device uses port i mod nics: of four devices and three ports 0 and 3 share one.
  EXPECT_EQ(Transfers(8, {{0, 4, 10}, {3, 5, 10}}, Nodes(2, 4, 3)).makespan, 20);
  EXPECT_EQ(Transfers(8, {{0, 4, 10}, {1, 5, 10}, {2, 6, 10}}, Nodes(2, 4, 3)).makespan, 10);
  EXPECT_EQ(Transfers(8, {{0, 4, 10}, {1, 7, 10}}, Nodes(2, 4, 3)).makespan, 20);  // 4 and 7 receive
}

TEST(Contention, TransfersNeverTakeLongerThanOneAfterTheOther) {
  std::mt19937 random(21);
  int shared = 0;
  for (int round = 0; round < 1500; ++round) {
    const uint32_t ranks = 2 + random() % 5;
    const Topology topology = round % 2 == 0 ? FlatTopology(ranks) : Nodes(2, ranks, 1 + round % 3);
    const auto devices = static_cast<uint32_t>(topology.devices());
    std::vector<Transfer> transfers;
    const size_t count = round % 3 == 0 ? 2 : 2 + random() % 6;
    Picoseconds sum = 0, alone = 0, latest = 0;
    for (size_t i = 0; i < count; ++i) {
      Transfer one;
      one.from = random() % devices;
      do one.to = random() % devices;
      while (one.to == one.from);
      one.cost = 1 + random() % (round % 5 == 0 ? 20 : 100'000);
      one.before = random() % 3 == 0 ? random() % 1000 : 0;
      sum += one.cost;
      alone = std::max(alone, one.before + one.cost);
      latest = std::max(latest, one.before);
      transfers.push_back(one);
    }
    const SimulationResult result = Transfers(devices, transfers, topology);
    ASSERT_TRUE(result.deadlock.empty());
    EXPECT_GE(result.makespan, alone);
    // Of two exactly; of more but for the rounding of their ends.
    EXPECT_LE(result.makespan, latest + sum + (count > 2 ? static_cast<Picoseconds>(count) : 0));
    shared += result.makespan > alone;
  }
  EXPECT_GT(shared, 300);
}

// From text: replicas in nodes whose ports they share. A timeline a role is that of each of its ranks.
TEST(Contention, FoldedAndExpandedAgreeWherePortsAreShared) {
  std::map<ir::Picoseconds, int> times;
  for (const int nics : {0, 1, 2, 3, 4}) {
    for (const auto& [p, dp] : {std::pair(2, 4), std::pair(4, 2), std::pair(2, 2), std::pair(1, 8)}) {
      const std::string text = R"(import std.gpt
import std.strategies
model net = gpt.GPT(layers = 6, embed = 16, heads = 2, vocab = 32, seq = 8)
topology machine {
  device core { compute f32 = 5 GFLOP/s; memory_bandwidth = 10 GB/s }
  level node = 4 of core joined by { bandwidth = 1 GB/s; latency = 1 us }
  level cluster = 2 of node joined by { bandwidth = 0.1 GB/s; latency = 2 us)" +
                               (nics > 0 ? "; nics = " + std::to_string(nics) : std::string()) + R"( }
}
train {
  model net
  data random()
  global_batch 32
  optimizer sgd(0.1)
  clip 1.0
  on machine
  using strategies.pipeline_data_parallel(p = )" +
                               std::to_string(p) + ", dp = " + std::to_string(dp) + ", m = 4)\n}\n";
      SourceManager sources;
      DiagnosticEngine diag(sources);
      frontend::LoadOptions options;
      options.text = text;
      std::optional<Program> program = frontend::LoadProgram("study.piper", options, sources, diag);
      std::optional<Plan> plan;
      if (program) plan = BuildPlan(*program, diag);
      ASSERT_TRUE(plan) << diag.Render(DiagnosticEngine::Format::kHuman, false);
      SimulationOptions expanded;
      expanded.expand = true;
      const SimulationResult whole = Simulate(plan->job->job(), program->topology, expanded);
      EXPECT_EQ(whole.makespan, plan->simulation.makespan) << p << " x " << dp << ", nics " << nics;
      for (uint32_t rank = 0; rank < plan->job->job().rank_count; ++rank)
        EXPECT_EQ(whole.roles[rank].busy, plan->simulation.roles[plan->job->job().rank_role[rank]].busy);
      if (dp == 4) ++times[whole.makespan];
    }
  }
  EXPECT_GE(times.size(), 3u);  // so ports matter
}

// A run that looks at contention but meets none gives the figures of one that does not look.
TEST(Contention, WithoutSharingBothWaysOfRunningAgree) {
  for (const auto& steps : {testing::OneFOneB(4, 8), testing::GPipe(4, 6), testing::Interleaved(4, 2, 8)}) {
    for (const bool pure : {true, false}) {
      testing::PipelineCosts costs{100, 200, 31, pure, 64};
      const int of = std::max_element(steps[3].begin(), steps[3].end(),
                                      [](const auto& a, const auto& b) { return a.stage < b.stage; })
                         ->stage +
                     1;
      testing::PipelineJob plain(steps, of, costs), looking(steps, of, costs);
      for (RoleStorage& role : looking.storage().train_roles()) role.slowdowns = {{0, 0, 1500}};
      looking.storage().Seal();
      const Topology topology = FlatTopology(4, Link{1, 7, 1});
      const SimulationResult a = Simulate(plain.job(), topology), b = Simulate(looking.job(), topology);
      EXPECT_EQ(a.makespan, b.makespan);
      EXPECT_EQ(a.events, b.events);
      for (size_t r = 0; r < a.timings.size(); ++r) {
        for (size_t t = 0; t < a.timings[r].size(); ++t) {
          EXPECT_EQ(a.timings[r][t].start, b.timings[r][t].start);
          EXPECT_EQ(a.timings[r][t].end, b.timings[r][t].end);
        }
      }
    }
  }
}

// From text: two replicas whose gradients are reduced while the backward passes go on.
Picoseconds StepTime(const std::string& directives, std::string* errors) {
  const std::string text = R"(import std.topologies
module Layer(width: dim) {
  param w: [width] = ones
  forward(x: [batch, width]) -> [batch, width] { x * w }
}
module Net(width: dim) {
  layers = [Layer(width) for i in 0..3]
  forward(x: [batch, width], y: [batch, width]) -> loss {
    var h = x
    for l in layers { h = tag layer { l(h) } }
    return tag head { mse(h, y) }
  }
}
model net = Net(width = 4)
topology machine(ranks: int) {
  device unit { compute f32 = 1 TFLOP/s }
  level all = ranks of unit
}
strategy study {
  mesh (dp = 2)
  shard batch over dp
  cost F[layer] = 10 us
  cost F[head] = 0 us
  cost BI[layer]? = 10 us
  cost BI[head] = 0 us
  cost BW[layer] = 10 us
  cost [dp.reduce] = 20 us
  cost [accumulate]? = 0 us
  cost [update] = 0 us
  cost [loss.fold] = 0 us
  cost [loss.reduce] = 0 us
)" + directives + R"(}
train {
  model net
  data random()
  global_batch 4
  steps 1
  optimizer sgd(lr = 0.1)
  on machine(2)
  using study
}
)";
  std::optional<Plan> plan = PlanText(text, errors);
  return plan ? plan->simulation.makespan / kPsPerUs : -1;
}

TEST(Contention, SlowdownFromText) {
  std::string errors;
  const Picoseconds free = StepTime("", &errors);
  ASSERT_GT(free, 0) << errors;
  EXPECT_EQ(StepTime("  slowdown compute with reduce = 1\n", &errors), free);
  const Picoseconds slowed = StepTime("  slowdown compute with reduce = 1.5\n", &errors);
  EXPECT_GT(slowed, free) << errors;
  EXPECT_EQ(StepTime("  slowdown reduce with compute = 1.5\n", &errors), slowed);
  // Everything on one stream is never faster.
  const Picoseconds merged = StepTime("  stream [dp.reduce] on compute\n", &errors);
  EXPECT_GE(merged, slowed);
  EXPECT_GE(StepTime("  slowdown compute with reduce = 2\n", &errors), slowed);
  EXPECT_LE(StepTime("  slowdown compute with reduce = 2\n", &errors), merged);
}

}  // namespace
}  // namespace piper::ir
