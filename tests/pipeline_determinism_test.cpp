// The same input gives the same bytes: two builds of a plan, two runs of it, any timing of its tasks; and the
// compiler knows no schedule by name.
#include <gtest/gtest.h>

#include "ir/dag/dag_text.h"
#include "tests/pipeline_support.h"

namespace piper::testing {
namespace {

TEST(PipelineDeterminism, TwoBuildsGiveTheSameText) {
  for (TrainText text : {Layout("gpt", "one_f_one_b", 4, 1, 2, 4), Layout("skip", "interleaved", 2, 2, 2, 4),
                         Layout("llama", "", 1, 1, 4, 2)}) {
    text.zero = text.dp > 1 ? "zero 0 [*] as dp { bucket 2 KiB }" : "";
    text.train = "  clip 1.0\n";
    std::unique_ptr<Compiled> a = Compile(text.Text()), b = Compile(text.Text());
    ASSERT_TRUE(a->ok() && b->ok()) << a->Messages();
    EXPECT_EQ(ir::DagToText(a->plan->dag, &a->sources), ir::DagToText(b->plan->dag, &b->sources))
        << text.Name();
    EXPECT_STREQ(a->job().plan_hash, b->job().plan_hash);
    EXPECT_EQ(a->plan->simulation.makespan, b->plan->simulation.makespan);
    // Another seed or another rate is the same plan of other numbers only where it says so.
    TrainText other = text;
    other.m = text.m / 2;
    if (text.schedule == "interleaved") continue;
    std::unique_ptr<Compiled> c = Compile(other.Text());
    ASSERT_TRUE(c->ok()) << c->Messages();
    EXPECT_STRNE(a->job().plan_hash, c->job().plan_hash);
  }
}

TEST(PipelineDeterminism, ACopyOfAScheduleUnderAnotherNameIsTheSameSchedule) {
  const char mine[] = R"(
fn alternate_like_mad(stage_number: int, ranks: int, count: int) -> schedule {
  let ahead = min(count, ranks - stage_number - 1)
  for i in 0..ahead { F[stage = stage_number, mb = i] }
  for i in 0..count - ahead { F[stage = stage_number, mb = ahead + i]; B[stage = stage_number, mb = i] }
  for i in count - ahead..count { B[stage = stage_number, mb = i] }
}
)";
  TrainText text = Layout("gpt", "one_f_one_b", 4, 1, 2, 8);
  std::string theirs = text.Text();
  std::string copy = theirs;
  const std::string call = "schedules.one_f_one_b(";
  size_t at = copy.find(call);
  ASSERT_NE(at, std::string::npos);
  copy.replace(at, call.size(), "alternate_like_mad(");
  copy += mine;
  std::unique_ptr<Compiled> a = Compile(theirs), b = Compile(copy);
  ASSERT_TRUE(a->ok() && b->ok()) << a->Messages() << b->Messages();
  // Without sources no origin is printed: everything else is the same bytes.
  EXPECT_EQ(ir::DagToText(a->plan->dag), ir::DagToText(b->plan->dag));
  EXPECT_STREQ(a->job().plan_hash, b->job().plan_hash);
  // And with them each cites its own file: origins are not lost either.
  EXPECT_NE(ir::DagToText(a->plan->dag, &a->sources), ir::DagToText(b->plan->dag, &b->sources));
}

TEST(PipelineDeterminism, TwoRunsGiveTheSameBits) {
  TrainText text = Layout("gpt_dropout", "one_f_one_b", 2, 1, 2, 4);
  std::unique_ptr<Compiled> compiled = Compile(text.Text());
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  RunResult a = RunJob(compiled->job(), 3), b = RunJob(compiled->job(), 3);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.gradients, b.gradients);
  EXPECT_EQ(a.parameters, b.parameters);
}

// Tasks start late at random: messages and reductions arrive in other orders, the numbers do not change;
// poisoned slots show that nothing is read after its release.
TEST(PipelineDeterminism, RandomDelaysChangeNoBit) {
  for (TrainText text : {Layout("gpt", "one_f_one_b", 4, 1, 1, 4), Layout("skip", "interleaved", 2, 2, 2, 2),
                         Layout("llama", "gpipe", 2, 1, 2, 4)}) {
    text.zero = text.dp > 1 ? "zero 0 [*] as dp { bucket 2 KiB }" : "";
    text.train = "  clip 0.5\n";
    std::unique_ptr<Compiled> compiled = Compile(text.Text());
    ASSERT_TRUE(compiled->ok()) << compiled->Messages();
    RunResult calm = RunJob(compiled->job(), 2);
    for (uint64_t seed = 1; seed <= (Soak() ? 12 : 2); ++seed) {
      runtime::LocalOptions options;
      options.steps = 2;
      options.execution.delay_microseconds = 300;
      options.execution.delay_seed = seed;
      options.execution.poison = true;
      options.execution.stall_seconds = 60;
      RunResult late = RunJob(compiled->job(), options);
      EXPECT_EQ(calm.losses, late.losses) << text.Name() << " delays " << seed;
      EXPECT_EQ(calm.norms, late.norms) << text.Name() << " delays " << seed;
      EXPECT_EQ(calm.gradients, late.gradients) << text.Name() << " delays " << seed;
      EXPECT_EQ(calm.parameters, late.parameters) << text.Name() << " delays " << seed;
    }
  }
}

}  // namespace
}  // namespace piper::testing
