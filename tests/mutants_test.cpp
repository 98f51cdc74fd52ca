// Mutated schedules: steps swapped, dropped, duplicated, moved to another rank, sizes of messages changed,
// streams merged, messages reordered, limits, lanes, barriers, listed recomputation and offloading disturbed,
// over every schedule of the library, an order that `greedy` found and steps that overlap, in equal shares of
// kind and schedule. Each mutant is refused by the compiler, with a witness that names its lines, and the
// brute-force model (tests/mutants_model.h) finds it stuck or wrong; or both find it fine, and it runs on the
// real executor with hashes for values (tests/mutants_provenance.h) under twenty seeds of random delays. A
// sample runs always, everything under PIPER_SOAK=1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "ir/dag/dag_text.h"
#include "runtime/interpreter.h"
#include "tests/mutants_model.h"
#include "tests/mutants_provenance.h"
#include "tests/mutants_text.h"
#include "tests/pipeline_support.h"

namespace piper::mutants {
namespace {

using testing::Compile;
using testing::Compiled;
using testing::Soak;

constexpr int kDelaySeeds = 20;
constexpr uint32_t kDelayMicroseconds = 60;

// A plan that both sides accepted, waiting for its runs.
struct Accepted {
  std::string name, text;
  Chain chain;
  FoldOrders folds;
  int dp = 1;
  std::unique_ptr<Compiled> compiled;
};

// Seeds of delays [first, last) on the real executor, every other one in rendezvous mode; every fourth goes
// on for three steps.
std::string RunUnderDelays(const Accepted& accepted, int first, int last) {
  const Expectation one(accepted.chain, accepted.folds, accepted.dp, 1);
  const Expectation three(accepted.chain, accepted.folds, accepted.dp, 3);
  for (int seed = first; seed < last; ++seed) {
    HashRun run;
    run.delay_seed = static_cast<uint64_t>(seed) + 1;
    run.delay_microseconds = kDelayMicroseconds;
    run.delay_one_in = 4;
    run.rendezvous = seed % 2 == 1;
    const std::string fault = RunWithHashes(*accepted.compiled->plan, seed % 4 == 0 ? three : one, run);
    if (!fault.empty())
      return accepted.name + ", delays " + std::to_string(seed) + ": " + fault + "\n" + accepted.text;
  }
  return "";
}

// Runs what was accepted (in a sample, all seeds of delays for every 16th, one for the others), several at a
// time: most of the time their threads sleep.
void RunAll(std::vector<Accepted>* accepted) {
  constexpr size_t kAtATime = 3;
  std::vector<std::string> faults(accepted->size());
  std::vector<std::thread> threads;
  for (size_t first = 0; first < kAtATime; ++first) {
    threads.emplace_back([&, first] {
      for (size_t i = first; i < accepted->size(); i += kAtATime) {
        const bool all = Soak() || i % 16 == 0;
        const int one = static_cast<int>(i) % kDelaySeeds;
        faults[i] = RunUnderDelays((*accepted)[i], all ? 0 : one, all ? kDelaySeeds : one + 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& fault : faults) EXPECT_EQ(fault, "");
  accepted->clear();
}

// Lines that the errors name, first places and notes.
std::set<int> NamedLines(const Compiled& compiled) {
  std::set<int> lines;
  const auto add = [&](const ir::SourceRange& range) {
    if (range.valid())
      lines.insert(static_cast<int>(compiled.sources.Position(range.file, range.begin).line));
  };
  for (const ir::Diagnostic& diagnostic : compiled.diag.diagnostics()) {
    if (diagnostic.severity != ir::Severity::kError) continue;
    add(diagnostic.range);
    for (const ir::DiagNote& note : diagnostic.notes) add(note.range);
  }
  return lines;
}

// Lines of steps: six spaces in.
std::set<int> StepLines(const std::string& text) {
  std::set<int> lines;
  std::istringstream in(text);
  int number = 0;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    ++number;
    inside |= line.rfind("strategy ", 0) == 0;
    if (inside && line.rfind("      ", 0) == 0) lines.insert(number);
  }
  return lines;
}

bool Meet(const std::set<int>& a, const std::set<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int line) { return b.count(line) > 0; });
}

std::string Numbers(const std::set<int>& lines) {
  std::string text;
  for (int line : lines) text += " " + std::to_string(line);
  return text;
}

// Empty: a refusal's witness is right.
std::string CheckWitness(const Mutant& mutant, const Verdict& verdict, const Compiled& compiled) {
  const std::set<int> named = NamedLines(compiled);
  if (verdict.kind == Verdict::Kind::kWrong) {
    for (ir::DiagKind kind : {ir::DiagKind::kCycle, ir::DiagKind::kDeadlock}) {
      if (compiled.Has(kind)) return "refused for another reason";
    }
    if (!Meet(named, verdict.wrong_lines))
      return "no line that is wrong is named; these are:" + Numbers(verdict.wrong_lines);
    if (mutant.dropped.empty()) {
      return Meet(named, mutant.written.touched) ? "" : "no line that the mutation touched is named";
    }
    constexpr size_t kNamed = 3;
    size_t named_steps = 0;
    std::string missing;
    for (const std::string& step : mutant.dropped) {
      const bool is_named = compiled.Messages().find(step) != std::string::npos;
      named_steps += is_named;
      if (!is_named) missing += " " + step;
    }
    return named_steps >= std::min(kNamed, mutant.dropped.size()) ? "" : "it does not name" + missing;
  }
  if (!compiled.Has(ir::DiagKind::kCycle) && !compiled.Has(ir::DiagKind::kDeadlock))
    return "refused for another reason";
  if (!Meet(named, verdict.cycle_steps) && !Meet(named, verdict.cycle_lines)) {
    return "no line of a cycle is named; these are:" + Numbers(verdict.cycle_steps);
  }
  for (int line : StepLines(mutant.written.text)) {
    if (named.count(line) && !verdict.cycle_steps.count(line)) {
      return "line " + std::to_string(line) +
             " is named and lies on no cycle; these do:" + Numbers(verdict.cycle_steps);
    }
  }
  return "";
}

struct Tally {
  int mutants = 0, accepted = 0, stuck = 0, wrong = 0, with_numbers = 0;
};

// A message of which one end states another size: refused from the plan's text, by the line; and by the
// executor, before the first step, where it stands in the programs of the ranks.
void CheckSizes(const Study& study, uint64_t seed, const std::string& name) {
  std::unique_ptr<Compiled> good = Compile(Write(study).text);
  ASSERT_TRUE(good->ok()) << name << "\n" << good->Messages();
  const int64_t bytes = study.chain.width * static_cast<int64_t>(sizeof(float));
  const std::string plan = ir::DagToText(good->plan->dag);
  EXPECT_TRUE(WrongSizes(plan, bytes).empty()) << name << "\n" << plan;
  const auto [text, line] = MutateSize(plan, seed);
  ASSERT_GT(line, 0) << name << ": no message";
  EXPECT_TRUE(WrongSizes(text, bytes).count(line)) << name;
  Compiled mutated;
  EXPECT_FALSE(ir::ParseDag(mutated.sources.Add("plan.ir", text), mutated.diag)) << name;
  EXPECT_TRUE(NamedLines(mutated).count(line)) << name << ": line " << line << "\n" << mutated.Messages();

  Random random(seed);
  std::vector<runtime::Task*> messages;
  for (ir::RoleStorage& role : good->plan->job->train_roles()) {
    for (runtime::Task& task : role.tasks) {
      if (task.kind == runtime::TaskKind::kSend || task.kind == runtime::TaskKind::kRecv)
        messages.push_back(&task);
    }
  }
  runtime::Task& task = *messages[random.Below(messages.size())];
  task.bytes = random.Chance(2) ? task.bytes / 2 : task.bytes - 4;
  good->plan->job->Seal();
  runtime::LocalOptions options;
  options.bodies = runtime::MakeInterpreter;
  runtime::Result<runtime::LocalResult> run = runtime::RunLocal(good->plan->job->job(), options);
  ASSERT_FALSE(run.ok()) << name;
  EXPECT_NE(run.status().message().find("sizes"), std::string::npos) << run.status().message();
}

// PIPER_MUTANTS_FROM=n: other mutants than always.
uint64_t FirstSeed() {
  const char* from = std::getenv("PIPER_MUTANTS_FROM");
  return from == nullptr ? 0 : std::strtoull(from, nullptr, 10) * 1'000'000'000;
}

TEST(Mutants, AreRefusedWithTheirLinesOrRunRight) {
  const std::vector<std::string>& schedules = ScheduleNames();
  const int cells = static_cast<int>(schedules.size()) * kKinds;
  const int wanted = Soak() ? 5000 : 240;
  const int per_cell = (wanted + cells - 1) / cells;
  const int with_numbers = Soak() ? 200 : 8;
  std::map<Kind, Tally> tallies;
  std::set<std::string> known;
  std::vector<Accepted> accepted;
  Tally all;
  for (int n = 0; n < cells * per_cell; ++n) {
    const std::string& schedule = schedules[static_cast<size_t>(n) % schedules.size()];
    const auto kind = static_cast<Kind>(n / static_cast<int>(schedules.size()) % kKinds);
    Tally& tally = tallies[kind];
    // A mutant that is there already, or is none, is drawn again.
    for (uint64_t attempt = 0;; ++attempt) {
      ASSERT_LT(attempt, 200u) << "no new mutant: " << schedule << ", " << KindName(kind);
      const uint64_t seed = FirstSeed() + static_cast<uint64_t>(n) * 1000 + attempt;
      static const std::set<Kind> kChainOnly = {Kind::kMerge, Kind::kMessages, Kind::kEdge,
                                                Kind::kLanes, Kind::kBarrier,  Kind::kOffload};
      // Some of what is done to steps is done where more than steps is written down.
      static const std::set<Kind> kOfSteps = {
          Kind::kSwapNeighbours, Kind::kSwapDistant, Kind::kDrop, Kind::kDuplicate,
          Kind::kSplit,          Kind::kFuse,        Kind::kEdge};
      static const Kind kFurther[] = {Kind::kLimit, Kind::kReplay, Kind::kOffload, Kind::kSide};
      const bool further = kOfSteps.count(kind) > 0 && seed / 7 % 3 == 0;
      Study good = ChooseStudy(schedule, seed, !further && kChainOnly.count(kind) == 0 && seed % 3 != 0);
      Random random(seed + 1);
      if (further) {
        const Kind more = kFurther[random.Below(std::size(kFurther))];
        good = Decorate(good, more == Kind::kSide && good.overlapped ? Kind::kReplay : more, random);
      }
      const Written written = Write(good);
      const std::string name = "mutant " + std::to_string(n) + ": " + good.Name() + ", " + KindName(kind);
      const Verdict before = Judge(written.text, good.chain);
      if (further && before.kind == Verdict::Kind::kStuck)
        continue;  // copies come back too late for its lists
      ASSERT_EQ(before.kind, Verdict::Kind::kFine) << name << ": " << before.why << "\n" << written.text;
      if (kind == Kind::kSize) {
        CheckSizes(good, seed, name);
        ++tally.mutants;
        ++tally.wrong;
        break;
      }
      Mutant mutant = Mutate(good, kind, before.executed, seed);
      if (mutant.written.text == written.text || !known.insert(mutant.written.text).second) continue;
      const Verdict verdict = Judge(mutant.written.text, good.chain);
      std::unique_ptr<Compiled> compiled = Compile(mutant.written.text);
      ++tally.mutants;
      const bool fine = verdict.kind == Verdict::Kind::kFine;
      EXPECT_EQ(compiled->ok(), fine)
          << name << "\nthe compiler: " << (compiled->ok() ? "fine" : compiled->Messages())
          << "\nthe model: " << (fine ? "fine" : verdict.why) << "\n"
          << mutant.written.text;
      if (fine != compiled->ok()) break;
      if (!fine) {
        ++(verdict.kind == Verdict::Kind::kStuck ? tally.stuck : tally.wrong);
        const std::string fault = CheckWitness(mutant, verdict, *compiled);
        EXPECT_EQ(fault, "") << name << "\n" << compiled->Messages() << mutant.written.text;
        break;
      }
      ++tally.accepted;
      ++all.accepted;
      if (all.with_numbers < with_numbers && all.accepted % (Soak() ? 8 : 12) == 1) {
        ++all.with_numbers;
        testing::ExpectEqualToReference(*compiled, 2, name);
      }
      accepted.push_back(
          {name, mutant.written.text, good.chain, verdict.folds, mutant.study.dp, std::move(compiled)});
      if (accepted.size() >= 60) RunAll(&accepted);
      break;
    }
  }
  RunAll(&accepted);
  for (const auto& [kind, tally] : tallies) {
    std::printf("%-24s %5d mutants: %5d accepted, %5d stuck, %5d wrong\n", KindName(kind), tally.mutants,
                tally.accepted, tally.stuck, tally.wrong);
    all.mutants += tally.mutants;
    all.stuck += tally.stuck;
    all.wrong += tally.wrong;
    EXPECT_EQ(tally.mutants, static_cast<int>(schedules.size()) * per_cell);
  }
  std::printf("%-24s %5d mutants: %5d accepted, %5d stuck, %5d wrong; %d with numbers\n", "all", all.mutants,
              all.accepted, all.stuck, all.wrong, all.with_numbers);
  EXPECT_GE(5 * all.accepted, all.mutants);
  EXPECT_GE(5 * all.stuck, all.mutants);
  EXPECT_EQ(all.with_numbers, with_numbers);
}

// Every other one is written out further: limits that it keeps, lanes, barriers, R steps, copies to the host.
TEST(Mutants, GoodSchedulesAreAcceptedAndRunRight) {
  const int per_schedule = Soak() ? 25 : 2;
  std::vector<Accepted> accepted;
  int checked = 0;
  for (const std::string& schedule : ScheduleNames()) {
    std::set<std::string> known;
    for (uint64_t seed = FirstSeed() + 900'000'000; static_cast<int>(known.size()) < per_schedule; ++seed) {
      static const Kind kFurther[] = {Kind::kLimit,   Kind::kLanes, Kind::kBarrier,    Kind::kReplay,
                                      Kind::kOffload, Kind::kSide,  Kind::kCollectives};
      const bool further = known.size() % 2 == 1;
      Random random(seed);
      Study study = ChooseStudy(schedule, seed, !further && seed % 3 != 0);
      const Kind kind = kFurther[checked / 2 % std::size(kFurther)];
      // Where steps overlap, a rank computes on one stream.
      if (further)
        study = Decorate(study, kind == Kind::kSide && study.overlapped ? Kind::kReplay : kind, random);
      const Written written = Write(study);
      const Verdict verdict = Judge(written.text, study.chain);
      // Receives in the order of their readers and barriers do not go with every schedule.
      if (further && verdict.kind == Verdict::Kind::kStuck) continue;
      if (!known.insert(written.text).second) continue;
      EXPECT_EQ(verdict.kind, Verdict::Kind::kFine) << study.Name() << ": " << verdict.why;
      std::unique_ptr<Compiled> compiled = Compile(written.text);
      ASSERT_TRUE(compiled->ok()) << study.Name() << "\n" << compiled->Messages();
      if (checked++ % 4 == 0) testing::ExpectEqualToReference(*compiled, 2, study.Name());
      accepted.push_back(
          {study.Name(), written.text, study.chain, verdict.folds, study.dp, std::move(compiled)});
    }
  }
  RunAll(&accepted);
}

// `greedy` itself, with other costs, priorities and bounds: the order that it finds is right by the model's
// verdict and keeps the bound, and runs; a bound is refused, at its line, if one microbatch alone exceeds it.
TEST(Mutants, GreedyFindsOrdersThatRunRight) {
  const int wanted = Soak() ? 320 : 12;
  std::vector<Accepted> accepted;
  int refused = 0;
  for (int n = 0; n < wanted; ++n) {
    const uint64_t seed = FirstSeed() + 800'000'000 + static_cast<uint64_t>(n);
    Random random(seed);
    Study study = ChooseStudy("greedy", seed, seed % 3 != 0);
    GreedyChoice choice = ChooseGreedy(study, random);
    if (n % 3 == 0) choice.in_flight = 1;
    const auto [text, line] = WriteGreedy(study, choice);
    const std::string name = "greedy " + std::to_string(n) + ": " + study.Name() + "\n" + text;
    std::unique_ptr<Compiled> compiled = Compile(text);
    // A microbatch passes every stage of a rank before the first of them can go back.
    const bool possible = choice.in_flight == 0 || choice.in_flight >= study.v;
    ASSERT_EQ(compiled->ok(), possible) << name << compiled->Messages();
    if (!possible) {
      ++refused;
      EXPECT_TRUE(compiled->Has(ir::DiagKind::kBadGreedy)) << name << compiled->Messages();
      EXPECT_EQ(NamedLines(*compiled), std::set<int>{line}) << name << compiled->Messages();
      continue;
    }
    study.orders = OrdersOf(*compiled);
    for (RankOrder& order : study.orders) {
      int most = 0;
      std::set<std::pair<int, int>> forward;  // (stage, microbatch), sent forward and not yet back
      for (const Listed& step : order.compute()) {
        const std::pair<int, int> key(step.parts[0].stage, step.parts[0].mb);
        if (step.parts[0].pass == "F") forward.insert(key);
        most = std::max(most, static_cast<int>(forward.size()));
        if (step.parts[0].pass != "F") forward.erase(key);
      }
      EXPECT_LE(most, choice.in_flight > 0 ? choice.in_flight : study.m * study.v)
          << name << "rank " << order.rank;
    }
    const Written written = Write(study);
    const Verdict verdict = Judge(written.text, study.chain);
    EXPECT_EQ(verdict.kind, Verdict::Kind::kFine) << name << verdict.why << "\n" << written.text;
    if (verdict.kind != Verdict::Kind::kFine) continue;
    // Written out it is the same order.
    std::unique_ptr<Compiled> again = Compile(written.text);
    ASSERT_TRUE(again->ok()) << name << again->Messages();
    Study same = study;
    same.orders = OrdersOf(*again);
    EXPECT_EQ(Write(same).text, written.text) << name;
    if (n % 8 == 0) testing::ExpectEqualToReference(*compiled, 2, name);
    accepted.push_back({name, text, study.chain, verdict.folds, study.dp, std::move(compiled)});
  }
  RunAll(&accepted);
  if (FirstSeed() == 0) {
    EXPECT_GT(refused, 0);
  }
  EXPECT_LT(2 * refused, wanted);
}

// The judges themselves: what they say of a case that a person can follow.

std::string TwoRanks(const std::string& second) {
  return ModelText(MakeChain(3, false)) + R"(topology machine(ranks: int) {
  device core { compute f32 = 1 TFLOP/s }
  level all = ranks of core
}
strategy study {
  mesh (pp = 2)
  cut ramp, unit into [ramp + unit, unit] as stage
  split batch into 2 as mb
  place [stage = 0] on pp[0]
  place [stage = 1] on pp[1]
  stream [send] on compute
  stream [recv] on compute
  order on pp[0] {
      F[stage = 0, mb = 0]
      F[send, stage = 0, mb = 0]
      F[stage = 0, mb = 1]
      F[send, stage = 0, mb = 1]
      BI[recv, stage = 0, mb = 0]
      B[stage = 0, mb = 0]
      BI[recv, stage = 0, mb = 1]
      B[stage = 0, mb = 1]
  }
  order on pp[1] {
)" + second +
         R"(  }
}
train {
  model net
  data random()
  global_batch 2
  optimizer sgd(lr = 0.0009765625)
  on machine(ranks = 2)
  using study
}
)";
}

TEST(Mutants, TheModelKnowsThatNothingIsBuffered) {
  const std::string both_send = TwoRanks(R"(      F[recv, stage = 1, mb = 0]
      F[stage = 1, mb = 0]
      B[stage = 1, mb = 0]
      BI[send, stage = 1, mb = 0]
      F[recv, stage = 1, mb = 1]
      F[stage = 1, mb = 1]
      B[stage = 1, mb = 1]
      BI[send, stage = 1, mb = 1]
)");
  const Chain chain = MakeChain(3, false);
  const Verdict stuck = Judge(both_send, chain);
  ASSERT_EQ(stuck.kind, Verdict::Kind::kStuck);
  // Rank 0 sends its second value before it takes the first gradient, rank 1 the other way round.
  int send = 0, line = 0;
  std::istringstream lines(both_send);
  std::set<int> expected;
  for (std::string text; std::getline(lines, text);) {
    ++line;
    if (text == "      F[send, stage = 0, mb = 1]") send = line;
    if (text == "      BI[recv, stage = 0, mb = 0]" || text == "      BI[send, stage = 1, mb = 0]" ||
        text == "      F[recv, stage = 1, mb = 1]") {
      expected.insert(line);
    }
  }
  expected.insert(send);
  EXPECT_EQ(stuck.cycle_steps, expected);
  std::unique_ptr<Compiled> compiled = Compile(both_send);
  EXPECT_TRUE(compiled->Has(ir::DiagKind::kDeadlock)) << compiled->Messages();

  const std::string receives_first = TwoRanks(R"(      F[recv, stage = 1, mb = 0]
      F[stage = 1, mb = 0]
      B[stage = 1, mb = 0]
      F[recv, stage = 1, mb = 1]
      BI[send, stage = 1, mb = 0]
      F[stage = 1, mb = 1]
      B[stage = 1, mb = 1]
      BI[send, stage = 1, mb = 1]
)");
  EXPECT_EQ(Judge(receives_first, chain).kind, Verdict::Kind::kFine);
  EXPECT_TRUE(Compile(receives_first)->ok());
}

// One fault in the ranks' programs: each shows.
TEST(Mutants, TheHashesSeeOneFault) {
  const Study study = ChooseStudy("one_f_one_b", 17, true);
  const Written written = Write(study);
  const Verdict verdict = Judge(written.text, study.chain);
  ASSERT_GE(study.m, 3);
  using runtime::Task;
  using runtime::TaskKind;
  // The `n`th task of a kind of rank 1 (and, for computation, of a pass), and the one after it.
  const auto tasks_of = [](ir::RoleStorage& role, TaskKind kind, int pass) {
    std::vector<Task*> found;
    for (Task& task : role.tasks) {
      if (task.kind == kind && (pass < 0 || task.flag == pass)) found.push_back(&task);
    }
    return found;
  };
  const std::vector<std::pair<const char*, std::function<void(ir::RoleStorage&)>>> faults = {
      {"nothing", [](ir::RoleStorage&) {}},
      {"an accumulate assigns",
       [&](ir::RoleStorage& r) { tasks_of(r, TaskKind::kAccumulate, 0).at(1)->flag = 1; }},
      {"an accumulate adds another slice",
       [&](ir::RoleStorage& r) {
         std::vector<Task*> a = tasks_of(r, TaskKind::kAccumulate, 0);
         a.at(0)->first_operand = a.at(1)->first_operand;
       }},
      {"two sends change their values",
       [&](ir::RoleStorage& r) {
         std::vector<Task*> a = tasks_of(r, TaskKind::kSend, -1);
         std::swap(a.at(0)->first_operand, a.at(1)->first_operand);
       }},
      {"a forward takes another microbatch's place",
       [&](ir::RoleStorage& r) {
         std::vector<Task*> a = tasks_of(r, TaskKind::kCompute, 0);
         std::swap(a.at(0)->microbatch, a.at(1)->microbatch);
       }},
      {"a backward reads and writes another's buffers",
       [&](ir::RoleStorage& r) {
         std::vector<Task*> a = tasks_of(r, TaskKind::kCompute, 2);
         a.at(1)->first_operand = a.at(0)->first_operand;
       }},
      {"an update comes too soon", [&](ir::RoleStorage& r) {
         Task* update = tasks_of(r, TaskKind::kUpdate, -1).at(0);
         Task* last = tasks_of(r, TaskKind::kAccumulate, 0).back();
         const uint16_t stream = update->stream;
         ASSERT_EQ(stream, last->stream);
         std::swap(update->kind, last->kind);
         std::swap(update->argument, last->argument);
         std::swap(update->flag, last->flag);
         std::swap(update->bytes, last->bytes);
         std::swap(update->first_operand, last->first_operand);
         std::swap(update->operand_count, last->operand_count);
       }}};
  for (const auto& [name, fault] : faults) {
    std::unique_ptr<Compiled> compiled = Compile(written.text);
    ASSERT_TRUE(compiled->ok()) << compiled->Messages();
    fault(compiled->plan->job->train_roles()[1]);
    compiled->plan->job->Seal();
    const std::string seen =
        RunWithHashes(*compiled->plan, Expectation(study.chain, verdict.folds, study.dp, 1), {});
    EXPECT_EQ(seen.empty(), std::string(name) == "nothing") << name << ": " << seen;
  }
  // Another order of folding.
  FoldOrders folds = verdict.folds;
  std::swap(folds[1][0][1], folds[1][0][2]);
  std::unique_ptr<Compiled> compiled = Compile(written.text);
  EXPECT_NE(RunWithHashes(*compiled->plan, Expectation(study.chain, folds, study.dp, 1), {}), "");
}

}  // namespace
}  // namespace piper::mutants
