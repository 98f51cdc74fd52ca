// What --verify stands for: a plan with a fault in it, of the kinds that a wrong compiler would make, does
// not pass.
#include <gtest/gtest.h>

#include "tests/pipeline_support.h"
#include "tools/inject.h"

namespace piper::testing {
namespace {

TrainText Base(const std::string& model, int64_t p, int64_t dp, int64_t m) {
  return Layout(model, "one_f_one_b", p, 1, dp, m);
}

TEST(PipelineFaults, EveryInjectedFaultIsCaught) {
  for (const TrainText& text : {Base("gpt", 2, 2, 4), Base("llama", 4, 1, 4), Base("skip", 2, 1, 8)}) {
    for (const std::string& fault : tools::FaultNames()) {
      SCOPED_TRACE(text.Name() + ": " + fault);
      std::unique_ptr<Compiled> compiled = Compile(text.Text());
      ASSERT_TRUE(compiled->ok()) << compiled->Messages();
      Status injected = tools::InjectFault(fault, *compiled->plan->job);
      ASSERT_TRUE(injected.ok());
      tools::VerifyOptions options;
      options.steps = 2;
      runtime::Result<tools::VerifyReport> report =
          tools::Verify(*compiled->program, *compiled->plan, options);
      ASSERT_TRUE(report.ok()) << report.status().message();
      EXPECT_FALSE(report->equal());
      EXPECT_FALSE(report->where.empty());
      EXPECT_GT(report->largest, 0);
    }
  }
}

// Any one accumulate that is dropped, not only the one that the hidden option picks.
TEST(PipelineFaults, AnyDroppedAccumulateIsCaught) {
  TrainText text = Base("gpt", 2, 2, 2);
  std::unique_ptr<Compiled> count = Compile(text.Text());
  ASSERT_TRUE(count->ok()) << count->Messages();
  int tried = 0;
  for (size_t role = 0; role < count->job().train.size(); ++role) {
    std::span<const runtime::Task> tasks = count->job().train[role].tasks;
    for (size_t t = 0; t < tasks.size(); ++t) {
      if (tasks[t].kind != runtime::TaskKind::kAccumulate) continue;
      if (!Soak() && (t + role) % 11 != 0) continue;
      std::unique_ptr<Compiled> compiled = Compile(text.Text());
      runtime::Task& task = compiled->plan->job->train_roles()[role].tasks[t];
      task.kind = runtime::TaskKind::kBarrier;
      task.operand_count = 0;
      task.bytes = 0;
      compiled->plan->job->Seal();
      tools::VerifyOptions options;
      options.steps = 1;
      runtime::Result<tools::VerifyReport> report =
          tools::Verify(*compiled->program, *compiled->plan, options);
      ASSERT_TRUE(report.ok()) << report.status().message();
      EXPECT_FALSE(report->equal()) << "role " << role << " task " << t;
      ++tried;
    }
  }
  EXPECT_GE(tried, 4);
}

// `numerics fast` is another expression, which the reference follows to the bit; how far it is from the
// reproducible one is measured against the bound of summation.
TEST(PipelineFaults, FastNumericsAreVerifiedTwice) {
  TrainText text = Base("gpt", 1, 4, 2);
  text.directives = "numerics fast\n";
  for (bool tampered : {false, true}) {
    std::unique_ptr<Compiled> compiled = Compile(text.Text());
    ASSERT_TRUE(compiled->ok()) << compiled->Messages();
    if (tampered) {
      for (ir::RoleStorage& role : compiled->plan->job->train_roles()) {
        for (runtime::Collective& collective : role.collectives) collective.fold = runtime::FoldKind::kLeft;
      }
      compiled->plan->job->Seal();
    }
    tools::VerifyOptions options;
    options.steps = 2;
    runtime::Result<tools::VerifyReport> report = tools::Verify(*compiled->program, *compiled->plan, options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->equal(), !tampered);
    EXPECT_TRUE(report->fast);
    EXPECT_GT(report->changed, report->elements / 100);
    EXPECT_LT(report->changed, report->elements);
    EXPECT_GT(report->share, 0);
    EXPECT_LE(report->share, 1);
    EXPECT_NE(report->ToString().find("numerics fast: gradients fold over replicas in pairs"),
              std::string::npos)
        << report->ToString();
  }
  // Without the line nothing is said of it.
  text.directives.clear();
  std::unique_ptr<Compiled> compiled = Compile(text.Text());
  tools::VerifyOptions options;
  options.steps = 1;
  runtime::Result<tools::VerifyReport> report = tools::Verify(*compiled->program, *compiled->plan, options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_FALSE(report->fast);
}

// A collective whose terms are folded in another order gives other bits, and that is seen too.
TEST(PipelineFaults, AnotherFoldOrderIsCaught) {
  TrainText text = Base("gpt", 1, 4, 2);
  text.zero = "zero 0 [*] as dp { bucket 4 KiB }";
  std::unique_ptr<Compiled> compiled = Compile(text.Text());
  ASSERT_TRUE(compiled->ok()) << compiled->Messages();
  int changed = 0;
  for (ir::RoleStorage& role : compiled->plan->job->train_roles()) {
    for (runtime::Collective& collective : role.collectives) {
      if (collective.kind != runtime::CollectiveKind::kAllReduce || collective.elements < 64) continue;
      uint32_t members = role.communicator_sizes[collective.communicator];
      if (collective.term_count == 0) {
        collective.first_term = static_cast<uint32_t>(role.terms.size());
        for (uint32_t i = 0; i < members; ++i) role.terms.push_back({members - 1 - i, 0});
        collective.term_count = members;
      } else {
        std::swap(role.terms[collective.first_term],
                  role.terms[collective.first_term + collective.term_count - 1]);
      }
      ++changed;
    }
  }
  ASSERT_GT(changed, 0);
  compiled->plan->job->Seal();
  tools::VerifyOptions options;
  options.steps = 1;
  runtime::Result<tools::VerifyReport> report = tools::Verify(*compiled->program, *compiled->plan, options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_FALSE(report->equal());
}

}  // namespace
}  // namespace piper::testing
