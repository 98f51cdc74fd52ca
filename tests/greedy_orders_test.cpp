// `greedy(..)`: orders that the compiler finds. Against the optima of an exact solver
// (tests/golden/greedy_optima.csv, written by greedy_optima.py beside it), against every order of small
// pipelines, and against the closed schedules.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ir/dag/dag_text.h"
#include "ir/search/list_pass.h"
#include "ir/search/list_schedule.h"
#include "tests/schedules_support.h"

namespace piper {
namespace {

bool Soak() { return std::getenv("PIPER_SOAK") != nullptr; }

struct Instance {
  int p = 0, m = 0;
  std::vector<int> f, bi, bw;  // a stage
  int latency = 0;
  int in_flight = 0;  // 0: no cap
  int64_t makespan = 0;

  std::string Name() const {
    std::string name = std::to_string(p) + " x " + std::to_string(m) + ", in flight " +
                       std::to_string(in_flight) + ", latency " + std::to_string(latency) + ":";
    for (int s = 0; s < p; ++s) {
      const auto i = static_cast<size_t>(s);
      name += " (" + std::to_string(f[i]) + " " + std::to_string(bi[i]) + " " + std::to_string(bw[i]) + ")";
    }
    return name;
  }
};

std::string CostsOf(const Instance& instance) {
  std::ostringstream out;
  for (int s = 0; s < instance.p; ++s) {
    const auto i = static_cast<size_t>(s);
    out << "  cost F[layer = " << s << "] = " << instance.f[i] << " us\n  cost BI[layer = " << s
        << "] = " << instance.bi[i] << " us\n  cost BW[layer = " << s << "] = " << instance.bw[i] << " us\n";
  }
  if (instance.p > 1) out << "  cost [send]? = " << instance.latency << " us\n";
  return out.str();
}

std::string Greedy(int in_flight, const std::string& priority = "[B, F, W]") {
  return "greedy(priority = " + priority +
         (in_flight > 0 ? ", in_flight = " + std::to_string(in_flight) : "") + ")";
}

std::optional<ir::Plan> PlanOrder(const Instance& instance, const std::string& order, std::string* errors,
                                  const std::string& more = "") {
  Schedule schedule;
  schedule.order = order;
  return PlanText(ChainProgram(schedule, instance.p, instance.m, CostsOf(instance) + more, kIdealMachine),
                  errors);
}

int64_t Makespan(const ir::Plan& plan) { return plan.simulation.makespan / ir::kPsPerUs; }

// Most microbatches of a rank between the start of their F and the end of their BI; at one instant, ends come
// first.
int64_t MostInFlight(const ir::Plan& plan, size_t rank) {
  std::vector<std::pair<int64_t, int>> changes;
  const runtime::RankProgram& program = plan.job->job().train[rank];
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const runtime::Task& task = program.tasks[t];
    if (task.kind != runtime::TaskKind::kCompute || task.cost == 0) continue;
    if (task.flag == static_cast<uint8_t>(ir::Pass::kF))
      changes.emplace_back(plan.simulation.timings[rank][t].start, 1);
    if (task.flag == static_cast<uint8_t>(ir::Pass::kBI))
      changes.emplace_back(plan.simulation.timings[rank][t].end, -1);
  }
  std::sort(changes.begin(), changes.end());
  int64_t now = 0, most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, now += change);
  return most;
}

std::vector<Instance> Optima() {
  std::ifstream in("tests/golden/greedy_optima.csv");
  EXPECT_TRUE(in) << "run from the source root";
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "p,m,F,BI,BW,latency,in_flight,makespan");
  std::vector<Instance> instances;
  while (std::getline(in, line)) {
    std::istringstream row(line);
    std::vector<std::string> fields;
    for (std::string field; std::getline(row, field, ',');) fields.push_back(field);
    EXPECT_EQ(fields.size(), 8u) << line;
    const auto numbers = [](const std::string& text) {
      std::istringstream words(text);
      return std::vector<int>(std::istream_iterator<int>(words), {});
    };
    instances.push_back({std::stoi(fields[0]), std::stoi(fields[1]), numbers(fields[2]), numbers(fields[3]),
                         numbers(fields[4]), std::stoi(fields[5]), std::stoi(fields[6]),
                         std::stoll(fields[7])});
  }
  return instances;
}

Instance Uniform(int p, int m, int in_flight, int64_t makespan) {
  const std::vector<int> ones(static_cast<size_t>(p), 1);
  return {p, m, ones, ones, ones, 0, in_flight, makespan};
}

// The exact optima of docs/schedules.md, with caps of p and below.
TEST(GreedyOrders, ExactOptimaOfEqualStages) {
  for (const Instance& instance :
       {Uniform(2, 4, 2, 13), Uniform(3, 4, 3, 14), Uniform(4, 4, 4, 15), Uniform(4, 6, 4, 21),
        Uniform(4, 8, 4, 27), Uniform(4, 6, 3, 22), Uniform(4, 6, 2, 27)}) {
    std::string errors;
    std::optional<ir::Plan> plan = PlanOrder(instance, Greedy(instance.in_flight), &errors);
    ASSERT_TRUE(plan) << errors;
    EXPECT_EQ(Makespan(*plan), instance.makespan) << instance.Name();
    for (size_t rank = 0; rank < static_cast<size_t>(instance.p); ++rank)
      EXPECT_LE(MostInFlight(*plan, rank), instance.in_flight) << instance.Name();
  }
}

// Within 1.05 of the solver's optimum, never below it (that would convict the solver), and within the cap.
TEST(GreedyOrders, NearTheOptimumOfUnevenStages) {
  const std::vector<Instance> optima = Optima();
  ASSERT_GE(optima.size(), 100u);
  int found = 0, tried = 0;
  for (size_t i = 0; i < optima.size(); ++i) {
    const Instance& instance = optima[i];
    if (!Soak() && i % 6 != 0) continue;
    std::string errors;
    std::optional<ir::Plan> plan = PlanOrder(instance, Greedy(instance.in_flight), &errors);
    ASSERT_TRUE(plan) << errors;
    EXPECT_GE(Makespan(*plan), instance.makespan) << instance.Name();
    EXPECT_LE(Makespan(*plan) * 100, instance.makespan * 105) << instance.Name();
    for (size_t rank = 0; rank < static_cast<size_t>(instance.p); ++rank)
      EXPECT_LE(MostInFlight(*plan, rank), instance.in_flight) << instance.Name();
    found += Makespan(*plan) == instance.makespan;
    ++tried;
  }
  EXPECT_GE(found * 100, tried * 95) << "of " << tried;
}

// ---- every order of small pipelines, by a search that shares nothing with the compiler's

// All words of m F, BI and BW each in which a BI follows its F, a BW its BI, and at most `cap` are in flight.
void Words(int m, int cap, int f, int b, int w, std::string* word, std::vector<std::string>* out) {
  if (w == m) {
    out->push_back(*word);
    return;
  }
  const auto go = [&](char letter, int df, int db, int dw) {
    word->push_back(letter);
    Words(m, cap, f + df, b + db, w + dw, word, out);
    word->pop_back();
  };
  if (f < m && f - b < cap) go('F', 1, 0, 0);
  if (b < f) go('B', 0, 1, 0);
  if (w < b) go('W', 0, 0, 1);
}

int64_t TimeOf(const Instance& in, const std::vector<const std::string*>& words) {
  const int p = in.p, m = in.m;
  std::vector<std::vector<int64_t>> forward(static_cast<size_t>(p),
                                            std::vector<int64_t>(static_cast<size_t>(m), -1));
  auto backward = forward;
  std::vector<size_t> at(static_cast<size_t>(p), 0), f(at), b(at);
  std::vector<int64_t> now(static_cast<size_t>(p), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < static_cast<size_t>(p); ++s) {
      while (at[s] < words[s]->size()) {
        const char letter = (*words[s])[at[s]];
        int64_t ready = 0;
        if (letter == 'F' && s > 0) ready = forward[s - 1][f[s]] < 0 ? -1 : forward[s - 1][f[s]] + in.latency;
        if (letter == 'B') {
          const bool last = s + 1 == static_cast<size_t>(p);
          const int64_t before = last ? forward[s][b[s]] : backward[s + 1][b[s]];
          ready = before < 0 ? -1 : before + (last ? 0 : in.latency);
        }
        if (ready < 0) break;
        now[s] = std::max(now[s], ready) + (letter == 'F' ? in.f[s] : letter == 'B' ? in.bi[s] : in.bw[s]);
        if (letter == 'F') forward[s][f[s]++] = now[s];
        if (letter == 'B') backward[s][b[s]++] = now[s];
        ++at[s];
        moved = true;
      }
    }
  }
  for (size_t s = 0; s < static_cast<size_t>(p); ++s) {
    if (at[s] < words[s]->size()) return INT64_MAX;
  }
  return *std::max_element(now.begin(), now.end());
}

int64_t BestOfAll(const Instance& in) {
  std::vector<std::string> words;
  std::string word;
  Words(in.m, in.in_flight, 0, 0, 0, &word, &words);
  std::vector<size_t> choice(static_cast<size_t>(in.p), 0);
  std::vector<const std::string*> chosen(choice.size());
  int64_t best = INT64_MAX;
  for (bool more = true; more;) {
    for (size_t s = 0; s < choice.size(); ++s) chosen[s] = &words[choice[s]];
    best = std::min(best, TimeOf(in, chosen));
    more = false;
    for (size_t s = 0; s < choice.size() && !more; ++s) {
      more = ++choice[s] < words.size();
      if (!more) choice[s] = 0;
    }
  }
  return best;
}

TEST(GreedyOrders, NearTheBestOfAllOrders) {
  std::mt19937 random(7);
  const auto number = [&](int bound) {
    return 1 + static_cast<int>(random() % static_cast<uint32_t>(bound));
  };
  for (int round = 0; round < (Soak() ? 60 : 10); ++round) {
    Instance in;
    in.p = round % 2 == 0 ? 2 : 3;
    in.m = in.p == 2 && round % 4 == 0 && Soak() ? 4 : 3;
    for (int s = 0; s < in.p; ++s) {
      in.f.push_back(number(9));
      in.bi.push_back(number(9));
      in.bw.push_back(number(9));
    }
    in.latency = static_cast<int>(random() % 3);
    in.in_flight = number(in.p);
    const int64_t best = BestOfAll(in);
    std::string errors;
    std::optional<ir::Plan> plan = PlanOrder(in, Greedy(in.in_flight), &errors);
    ASSERT_TRUE(plan) << errors;
    EXPECT_GE(Makespan(*plan), best) << in.Name();
    EXPECT_LE(Makespan(*plan) * 100, best * 105) << in.Name();
  }
}

// The solver and the search over all orders agree where both can say.
TEST(GreedyOrders, SolverAgreesWithAllOrders) {
  int compared = 0;
  for (const Instance& instance : Optima()) {
    const bool small = instance.m == 3 && (instance.p == 2 || instance.p == 3);
    if (!small || (!Soak() && compared >= 6)) continue;
    EXPECT_EQ(BestOfAll(instance), instance.makespan) << instance.Name();
    ++compared;
  }
  EXPECT_GE(compared, 6);
}

// ---- against closed schedules

Instance Uneven(int p, int m, uint32_t seed) {
  std::mt19937 random(seed);
  Instance in;
  in.p = p;
  in.m = m;
  for (int s = 0; s < p; ++s) {
    in.f.push_back(8 + static_cast<int>(random() % 8));
    in.bi.push_back(8 + static_cast<int>(random() % 8));
    in.bw.push_back(4 + static_cast<int>(random() % 8));
  }
  in.latency = 1;
  return in;
}

TEST(GreedyOrders, NeverLongerThanZb1pWithinItsMemory) {
  for (const auto& [p, m] : {std::pair(4, 12), std::pair(8, 24)}) {
    for (uint32_t seed = 1; seed <= (Soak() ? 8u : 2u); ++seed) {
      const Instance in = Uneven(p, m, seed);
      std::string errors;
      std::optional<ir::Plan> zb1p = PlanOrder(in, "schedules.zb1p(r, p, m)", &errors);
      std::optional<ir::Plan> greedy = PlanOrder(in, Greedy(p), &errors);
      ASSERT_TRUE(zb1p && greedy) << errors;
      EXPECT_LE(Makespan(*greedy), Makespan(*zb1p)) << in.Name();
    }
  }
}

TEST(GreedyOrders, BackwardStaysWholeWithoutW) {
  Instance in = Uniform(4, 8, 4, 0);
  std::string errors;
  std::optional<ir::Plan> plan = PlanOrder(in, Greedy(4, "[B, F]"), &errors);
  ASSERT_TRUE(plan) << errors;
  EXPECT_EQ(Makespan(*plan), 33);  // 1F1B's, which is the least
  for (const runtime::RankProgram& program : plan->job->job().train) {
    for (size_t t = 0; t + 1 < program.tasks.size(); ++t) {
      const runtime::Task& task = program.tasks[t];
      if (task.kind != runtime::TaskKind::kCompute || task.flag != static_cast<uint8_t>(ir::Pass::kBI))
        continue;
      EXPECT_NE(task.atomic, runtime::kNone);
      EXPECT_EQ(task.atomic, program.tasks[t + 1].atomic);
    }
  }
  in = Uneven(4, 12, 3);
  std::optional<ir::Plan> whole = PlanOrder(in, Greedy(4, "[B, F]"), &errors);
  std::optional<ir::Plan> listed = PlanOrder(in, "schedules.one_f_one_b(r, p, m)", &errors);
  ASSERT_TRUE(whole && listed) << errors;
  EXPECT_LE(Makespan(*whole), Makespan(*listed));
}

// Some ranks say what they do; the others fit in.
TEST(GreedyOrders, BesideGivenOrders) {
  const Instance in = Uneven(4, 8, 5);
  std::string errors;
  for (const char* given :
       {"schedules.one_f_one_b(r, p, m)", "schedules.zb1p(r, p, m)", "schedules.gpipe(r, p, m)"}) {
    std::optional<ir::Plan> all = PlanOrder(in, given, &errors);
    for (const char* which : {"r == 0", "r == p - 1", "r % 2 == 1"}) {
      std::optional<ir::Plan> mixed = PlanOrder(
          in, std::string("if ") + which + " { " + given + " } else { greedy(priority = [B, F, W]) }",
          &errors);
      ASSERT_TRUE(all && mixed) << given << " " << which << "\n" << errors;
      EXPECT_LE(Makespan(*mixed), Makespan(*all)) << given << " " << which;
    }
  }
}

// A given order of another rank may ask for more in flight than the cap: the least that suffices is said, and
// suffices.
TEST(GreedyOrders, CapsBesideGivenOrders) {
  const Instance in = Uniform(4, 6, 0, 0);
  const auto order = [](int cap) {
    return "if r == 3 { schedules.gpipe(r, p, m) } else { " + Greedy(cap) + " }";
  };
  std::string errors;
  EXPECT_FALSE(PlanOrder(in, order(2), &errors));
  EXPECT_NE(errors.find("bad-greedy"), std::string::npos) << errors;
  EXPECT_NE(errors.find("in_flight = 6 is the least"), std::string::npos) << errors;
  EXPECT_FALSE(PlanOrder(in, order(5), &errors));
  EXPECT_TRUE(PlanOrder(in, order(6), &errors)) << errors;
}

// Two stages a rank: caps that plain list scheduling would run into are kept without getting stuck.
TEST(GreedyOrders, SeveralStagesARank) {
  for (Shape shape : {Shape::kV, Shape::kLooped}) {
    for (int p : {2, 3, 4}) {
      for (int cap = 2; cap <= 2 * p; cap += Soak() ? 1 : p) {
        Schedule schedule;
        schedule.shape = shape;
        schedule.v = 2;
        schedule.order = Greedy(cap);
        std::string errors;
        const std::string costs =
            "  cost F[layer] = 1 us\n  cost BI[layer] = 1 us\n  cost BW[layer] = 1 us\n  cost [send]? = 0 "
            "us\n";
        std::optional<ir::Plan> plan =
            PlanText(ChainProgram(schedule, p, 2 * p, costs, kIdealMachine), &errors);
        ASSERT_TRUE(plan) << p << " cap " << cap << "\n" << errors;
        for (size_t rank = 0; rank < static_cast<size_t>(p); ++rank)
          EXPECT_LE(MostInFlight(*plan, rank), cap);
        // ZBV's span at 1F1B's memory; never more than everything in turn.
        if (shape == Shape::kV && cap == 2 * p) {
          EXPECT_LE(Makespan(*plan), 12 * p + p - 1 + 1);
        }
        EXPECT_LE(Makespan(*plan), 6 * p * 2 * p);
      }
      Schedule schedule;
      schedule.shape = shape;
      schedule.v = 2;
      schedule.order = Greedy(1);
      std::string errors;
      EXPECT_FALSE(
          PlanText(ChainProgram(schedule, p, 2, "  cost F[layer] = 1 us\n", kIdealMachine), &errors));
      EXPECT_NE(errors.find("in_flight = 2 is the least"), std::string::npos) << errors;
    }
  }
}

// Both directions of DualPipe's placement: a rank has copies of two stages.
TEST(GreedyOrders, TwoDirections) {
  Schedule schedule;
  schedule.shape = Shape::kTwoWays;
  schedule.order = Greedy(5);
  std::string errors;
  const std::string costs =
      "  cost F[layer] = 1 us\n  cost BI[layer] = 1 us\n  cost BW[layer] = 1 us\n  cost [send]? = 0 us\n";
  std::optional<ir::Plan> plan = PlanText(ChainProgram(schedule, 4, 8, costs, kIdealMachine), &errors);
  ASSERT_TRUE(plan) << errors;
  EXPECT_LE(Makespan(*plan), 30);  // DualPipe's own is 30
  for (size_t rank = 0; rank < 4; ++rank) EXPECT_LE(MostInFlight(*plan, rank), 5);
}

// `memory` bounds what passes save for later ones: less memory, a longer step and a smaller arena.
TEST(GreedyOrders, MemoryCaps) {
  // Four bytes a sample and stage: F leaves its input, BI the cotangent that BW reads.
  const Instance in = Uniform(4, 8, 0, 0);
  std::string errors;
  int64_t last = 0;
  std::vector<int64_t> acts;
  for (int microbatches : {8, 4, 2, 1}) {
    std::optional<ir::Plan> plan = PlanOrder(
        in, "greedy(priority = [B, F, W], memory = " + std::to_string(8 * microbatches + 8) + " B)", &errors);
    ASSERT_TRUE(plan) << errors;
    EXPECT_GE(Makespan(*plan), last) << microbatches;
    last = Makespan(*plan);
    int64_t most = 0;
    for (const ir::RoleStatistics& role : plan->simulation.roles)
      most = std::max(most, role.peak_activations);
    acts.push_back(most);
    EXPECT_LE(most, 2 * microbatches + 2);
  }
  EXPECT_GT(acts.front(), acts.back());
  EXPECT_FALSE(PlanOrder(in, "greedy(memory = 3 B)", &errors));
  EXPECT_NE(errors.find("is the least"), std::string::npos) << errors;
  const size_t at = errors.find("memory = ", errors.find("hint"));
  const std::string least = errors.substr(at, errors.find(" is the least") - at);
  EXPECT_TRUE(PlanOrder(in, "greedy(" + least + ")", &errors)) << least << "\n" << errors;
}

// What a refusal of too little memory names as enough.
int64_t LeastMemory(const std::string& text) {
  std::string errors;
  EXPECT_FALSE(PlanText(text, &errors));
  const size_t hint = errors.find("memory = ", errors.find("hint"));
  EXPECT_NE(errors.find(" B is the least", hint), std::string::npos) << errors;
  return hint == std::string::npos ? -1 : std::stoll(errors.substr(hint + 9));
}

// What is recomputed is not held meanwhile, and takes its time before the pass that needs it.
TEST(GreedyOrders, BesideRecompute) {
  const auto text = [](const std::string& bounds, const std::string& more) {
    return "import std.gpt\nimport std.topologies\n"
           "model net = gpt.GPT(layers = 4, embed = 16, heads = 2, vocab = 32, seq = 8)\n"
           "strategy s(m: int) {\n  mesh (pp = 2)\n  cut embed, layer, head into 2 as stage\n"
           "  split batch into m as mb\n  for s in 0..2 { place [stage = s] on pp[s] }\n  order on pp { "
           "greedy(" +
           bounds + ") }\n" + more +
           "}\ntrain {\n  model net\n  global_batch 8\n  optimizer sgd(0.1)\n"
           "  on topologies.local(ranks = 2)\n  using s(m = 8)\n}\n";
  };
  EXPECT_LT(LeastMemory(text("priority = [B, F], memory = 1 B", "  recompute [layer]\n")),
            LeastMemory(text("priority = [B, F], memory = 1 B", "")));
  // With BW apart, all layers of a stage are replayed before its BW reads them.
  EXPECT_EQ(LeastMemory(text("memory = 1 B", "  recompute [layer]\n")),
            LeastMemory(text("memory = 1 B", "")));
  std::string errors;
  std::optional<ir::Plan> free = PlanText(text("in_flight = 2", ""), &errors);
  std::optional<ir::Plan> slower = PlanText(text("in_flight = 2", "  recompute [layer]\n"), &errors);
  ASSERT_TRUE(free && slower) << errors;
  EXPECT_GT(slower->simulation.makespan, free->simulation.makespan);
}

// Two stages of two layers; each layer keeps 2 * 1024 * 4 bytes a microbatch, and hands on 2 * 4 * 4.
std::string WideLayers(const std::string& bounds, const std::string& lines, const std::string& host = "") {
  return "topology two { device d { memory = 1 GiB" + (host.empty() ? "" : "; host_bandwidth = " + host) +
         R"( }; level all = 2 of d }
module Wide(width: dim, inner: dim) {
  param up: [width, inner] = normal(0.3)
  param down: [inner, width] = normal(0.3)
  forward(x: [batch, width]) -> [batch, width] { tanh(x @ up) @ down }
}
module Net(width: dim) {
  wide = [Wide(width, 1024) for i in 0..4]
  forward(x: [batch, width], y: [batch, width]) -> loss {
    var h = x
    for w in wide { h = tag layer { w(h) } }
    return tag head { mse(h, y) }
  }
}
model net = Net(width = 4)
strategy study {
  mesh (pp = 2)
  cut layer, head into [2 * layer, 2 * layer + head] as stage
  split batch into 8 as mb
  for s in 0..2 { place [stage = s] on pp[s] }
  order on pp { greedy(priority = [B, F], )" +
         bounds + ") }\n" + lines + R"(
  cost F[layer] = 10 us
  cost B[layer] = 20 us
}
train {
  model net
  data random()
  global_batch 16
  steps 2
  optimizer sgd(0.1)
  on two
  using study
}
)";
}

// `memory` counts what is there at once: of a stage that is replayed layer by layer the values of one layer,
// of what leaves for the host nothing in between.
TEST(GreedyOrders, MemoryCountsWhatIsThereAtOnce) {
  constexpr int64_t kLayer = 2 * 1024 * 4, kHanded = 2 * 4 * 4;
  // The second stage: what it receives, what the layers keep and hand on, and the targets.
  const int64_t plain = LeastMemory(WideLayers("memory = 1 B", ""));
  EXPECT_EQ(plain, 2 * kLayer + 4 * kHanded);
  // Inputs of the layers are kept; one layer at a time is replayed, when the head's two are gone.
  EXPECT_EQ(LeastMemory(WideLayers("memory = 1 B", "  recompute [layer]")), kLayer + 2 * kHanded);
  // A stage that is replayed whole has all of its values then.
  EXPECT_EQ(LeastMemory(WideLayers("memory = 1 B", "  recompute [stage]")), 2 * kLayer + 4 * kHanded);
  // All of one microbatch at the end of its F, whatever leaves then.
  const std::string away = "  offload [layer] to host { prefetch 0 }";
  EXPECT_EQ(LeastMemory(WideLayers("memory = 1 B", away)), plain);
  // One layer ahead, with what it hands on and what the first of the stage received; with copies that take
  // time all that left in the pass before.
  EXPECT_EQ(LeastMemory(WideLayers("memory = 1 B", "  offload [layer] to host { prefetch 1 }")),
            plain + kLayer + 2 * kHanded);
  EXPECT_EQ(LeastMemory(WideLayers("memory = 1 B", away, "1 GB/s")), plain + 2 * kLayer + 3 * kHanded);

  // One microbatch's bytes let the first rank hold two of them only if the first is away.
  std::vector<int64_t> live;  // of the plans so far: the largest live set of the first rank
  const auto makespan = [&](const std::string& text) {
    std::string errors;
    std::optional<ir::Plan> plan = PlanText(text, &errors);
    EXPECT_TRUE(plan) << errors;
    if (!plan) return int64_t{-1};
    live.push_back(plan->job->job().train[0].live_bytes);
    return Makespan(*plan);
  };
  const std::string tight = "memory = " + std::to_string(plain) + " B";
  const int64_t free = makespan(WideLayers("in_flight = 8", ""));
  EXPECT_GT(makespan(WideLayers(tight, "")), free);
  EXPECT_EQ(makespan(WideLayers(tight, away)), free);
  EXPECT_LT(live[1], live[0]);
  EXPECT_LT(live[2] - live[1], kLayer) << "not a layer more than one microbatch at a time";
  // Copies that are slower than the passes do not count as having left.
  EXPECT_EQ(LeastMemory(WideLayers("memory = 1 B", away, "100 MB/s")), plain);
  EXPECT_GT(makespan(WideLayers(tight, away, "100 MB/s")), free);
}

// Messages of a device share its port. Two stages a rank in a V send both ways; for messages about as long as
// the passes an order must leave room on the port. A search to which every pair's link is its own finds 3,128
// here, all four together; what the receivers' ports share, the clock alone sees.
TEST(GreedyOrders, SeesThatMessagesShareAPort) {
  struct Case {
    int p, m, kilobytes;
  };
  int64_t together = 0;
  for (const Case& c : {Case{4, 8, 14}, Case{4, 9, 16}, Case{3, 6, 14}, Case{4, 12, 12}}) {
    const std::string p = std::to_string(c.p), m = std::to_string(c.m), n = std::to_string(2 * c.p);
    std::ostringstream text;
    text << "topology machine(ranks: int) {\n  device unit { compute f32 = 1 TFLOP/s }\n"
         << "  level all = ranks of unit joined by { bandwidth = 1 GB/s }\n}\n"
         << "module Layer(width: dim) {\n  param w: [width] = ones\n"
         << "  forward(x: [batch, width]) -> [batch, width] { x * w }\n}\n"
         << "module Chain(n: int, width: dim) {\n  layers = [Layer(width) for i in 0..n]\n"
         << "  forward(x: [batch, width], y: [batch, width]) -> loss {\n    var h = x\n"
         << "    for i in 0..n - 1 { h = tag layer { layers[i](h) } }\n"
         << "    return tag layer { mse(layers[n - 1](h), y) }\n  }\n}\n"
         << "model net = Chain(n = " << n << ", width = 1)\nstrategy study {\n  mesh (pp = " << p
         << ")\n  cut layer into " << n << " as stage\n  split batch into " << m << " as mb\n  for s in 0.."
         << n << " { place [stage = s] on pp[if s < " << p << " { s } else { " << n << " - 1 - s }] }\n"
         << "  order on pp { greedy(priority = [B, F, W], in_flight = " << n
         << ") }\n  cost [send] = " << c.kilobytes
         << " kB\n  cost F[stage] = 10 us\n  cost BI[stage] = 10 us\n  cost BW[stage] = 10 us\n"
         << "  cost [accumulate] = 0 us\n  cost [update] = 0 us\n  cost [loss.*] = 0 us\n}\n"
         << "train {\n  model net\n  data random()\n  global_batch " << m
         << "\n  steps 1\n  optimizer sgd(lr = 0.1)\n  on machine(" << p << ")\n  using study\n}\n";
    std::string errors;
    std::optional<ir::Plan> plan = PlanText(text.str(), &errors);
    ASSERT_TRUE(plan) << errors;
    together += Makespan(*plan);
  }
  EXPECT_LE(together, 3'060) << "of 3,128";
}

TEST(GreedyOrders, TheSameOrderEveryTime) {
  const Instance in = Uneven(4, 10, 9);
  std::string errors;
  std::optional<ir::Plan> a = PlanOrder(in, Greedy(4), &errors), b = PlanOrder(in, Greedy(4), &errors);
  ASSERT_TRUE(a && b) << errors;
  EXPECT_EQ(ir::DagToText(a->dag, nullptr), ir::DagToText(b->dag, nullptr));
}

// When a pass of a microbatch starts (false) or ends on a rank.
int64_t TimeOn(const ir::Plan& plan, size_t rank, ir::Pass pass, int32_t microbatch, bool end) {
  const runtime::RankProgram& program = plan.job->job().train[rank];
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const runtime::Task& task = program.tasks[t];
    if (task.kind != runtime::TaskKind::kCompute || task.cost == 0 || task.microbatch != microbatch) continue;
    if (task.flag != static_cast<uint8_t>(pass)) continue;
    const ir::TaskTiming& timing = plan.simulation.timings[rank][t];
    return (end ? timing.end : timing.start) / ir::kPsPerUs;
  }
  return -1;
}

// An `edge` line is kept, whatever it costs, within a rank and between two.
TEST(GreedyOrders, KeepsEdges) {
  const Instance in = Uniform(2, 4, 0, 0);
  std::string errors;
  std::optional<ir::Plan> plan =
      PlanOrder(in, Greedy(0), &errors, "  edge BW[stage = 0, mb = 0] -> F[stage = 0, mb = 1]\n");
  ASSERT_TRUE(plan) << errors;
  EXPECT_GE(TimeOn(*plan, 0, ir::Pass::kBW, 0, true), 5);
  EXPECT_GE(TimeOn(*plan, 0, ir::Pass::kF, 1, false), TimeOn(*plan, 0, ir::Pass::kBW, 0, true));
  plan = PlanOrder(in, Greedy(0), &errors, "  edge BW[stage = 1, mb = 0] -> F[stage = 0, mb = 2]\n");
  ASSERT_TRUE(plan) << errors;
  EXPECT_GE(TimeOn(*plan, 0, ir::Pass::kF, 2, false), TimeOn(*plan, 1, ir::Pass::kBW, 0, true));
  // The other one's weight gradient is brought forward for it.
  EXPECT_EQ(Makespan(*plan), 13);
  // One that no order keeps is shown as the cycle that it is.
  EXPECT_FALSE(PlanOrder(in, Greedy(0), &errors, "  edge B[stage = 0, mb = 0] -> F[stage = 0, mb = 0]\n"));
  EXPECT_NE(errors.find("dependency-cycle"), std::string::npos) << errors;
}

// ---- list scheduling itself

// One rank, no messages: what is ready is run in the order of the priorities.
ir::ListProblem OneRank(int m) {
  ir::ListProblem problem;
  problem.hosts.resize(1);
  problem.hosts[0].free = true;
  problem.ways.resize(1);
  ir::ListProblem::Unit unit;
  unit.mb_end = m;
  const auto count = static_cast<uint32_t>(m);
  for (uint32_t pass = 0; pass < 3; ++pass) {
    unit.queues[pass] = pass;
    ir::ListProblem::Queue queue;
    queue.pass = static_cast<ir::ListProblem::Pass>(pass);
    queue.first = pass * count;
    queue.count = count;
    problem.queues.push_back(queue);
    for (uint32_t i = 0; i < count; ++i) {
      problem.host_of.push_back(0);
      problem.cost.push_back(1);
      problem.queue_of.push_back(pass);
      problem.priority.push_back(0);
      problem.first_arc.push_back(static_cast<uint32_t>(problem.arcs.size()));
      if (pass < 2) problem.arcs.push_back({(pass + 1) * count + i, 0});
    }
  }
  problem.first_arc.push_back(static_cast<uint32_t>(problem.arcs.size()));
  problem.queues[0].take[ir::kInFlight] = problem.queues[1].give[ir::kInFlight] = 1;
  problem.units.push_back(unit);
  return problem;
}

TEST(ListScheduling, FollowsPriorities) {
  const auto run = [](std::vector<uint16_t> of_pass, int64_t cap) {
    ir::ListProblem problem = OneRank(3);
    problem.hosts[0].cap[ir::kInFlight] = cap;
    for (uint32_t op = 0; op < problem.size(); ++op) problem.priority[op] = of_pass[problem.queue_of[op]];
    ir::ListOrder order;
    ir::RunList(problem, {}, &order);
    EXPECT_FALSE(order.stuck);
    EXPECT_EQ(order.makespan, 9);
    EXPECT_EQ(ir::TimeOrder(problem, order.hosts), 9);
    std::string text;
    for (uint32_t op : order.hosts[0]) text += "FBW"[op / 3];
    return text;
  };
  EXPECT_EQ(run({1, 0, 2}, ir::kNoCap), "FBFBFBWWW");
  EXPECT_EQ(run({0, 1, 2}, ir::kNoCap), "FFFBBBWWW");
  EXPECT_EQ(run({2, 1, 0}, ir::kNoCap), "FBWFBWFBW");
  EXPECT_EQ(run({0, 1, 2}, 2), "FFBFBBWWW");
}

// A bounded effort: large pipelines take about as long to resolve as to list.
TEST(ListScheduling, LargePipelines) {
  const Instance in = Uneven(16, 64, 4);
  std::string errors;
  std::optional<ir::Plan> plan = PlanOrder(in, Greedy(16), &errors);
  std::optional<ir::Plan> zb1p = PlanOrder(in, "schedules.zb1p(r, p, m)", &errors);
  ASSERT_TRUE(plan && zb1p) << errors;
  EXPECT_LE(Makespan(*plan), Makespan(*zb1p));
}

}  // namespace
}  // namespace piper
