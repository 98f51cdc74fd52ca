// Orders that list steps of other devices: where data edges, orders and `edge` lines already put them,
// nothing changes; elsewhere they are refused.
#include <gtest/gtest.h>

#include "ir/dag/dag_text.h"
#include "tests/pipeline_support.h"

namespace piper::testing {
namespace {

// Two stages, two microbatches; `first` and `second` are the orders of the two hosts.
std::string Text(const std::string& first, const std::string& second, const std::string& more = "") {
  TrainText text;
  text.p = 2;
  text.m = 2;
  text.cut = "2";
  text.directives = more + "  order on pp[0] { " + first + " }\n  order on pp[1] { " + second + " }";
  std::string program = text.Text();
  return program;
}

constexpr char kFirst[] =
    "F[stage = 0, mb = 0]; F[stage = 0, mb = 1]; B[stage = 0, mb = 0]; B[stage = 0, mb = 1]";
constexpr char kSecond[] =
    "F[stage = 1, mb = 0]; B[stage = 1, mb = 0]; F[stage = 1, mb = 1]; B[stage = 1, mb = 1]";

std::string Plan(const std::string& first, const std::string& second, const std::string& more = "") {
  std::unique_ptr<Compiled> compiled = Compile(Text(first, second, more));
  EXPECT_TRUE(compiled->ok()) << compiled->Messages();
  return compiled->ok() ? ir::DagToText(compiled->plan->dag) : "";
}

std::string Refusal(const std::string& first, const std::string& second, const std::string& more = "") {
  std::unique_ptr<Compiled> compiled = Compile(Text(first, second, more));
  EXPECT_FALSE(compiled->ok());
  EXPECT_TRUE(compiled->Has(ir::DiagKind::kOrderForeign)) << compiled->Messages();
  return compiled->Messages();
}

TEST(ForeignSteps, WhatDataImpliesChangesNothing) {
  const char* second =
      "F[stage = 1, mb = 0]; F[stage = 1, mb = 1]; B[stage = 1, mb = 0]; B[stage = 1, mb = 1]";
  const std::string plain = Plan(kFirst, second);
  // The way of microbatch 1 there, and of 0 back, by data and the order of rank 1.
  EXPECT_TRUE(Plan("F[stage = 0, mb = 0]; F[stage = 0, mb = 1]; F[stage = 1, mb = 1]; B[stage = 1, mb = 0]; "
                   "B[stage = 0, mb = 0]; B[stage = 0, mb = 1]",
                   second) == plain);
  // From rank 1: at the very beginning and at the end, several steps in a row.
  EXPECT_TRUE(Plan(kFirst,
                   "F[stage = 0, mb = 0]; F[stage = 1, mb = 0]; F[stage = 1, mb = 1]; B[stage = 1, mb = 0]; "
                   "B[stage = 1, mb = 1]; B[stage = 0, mb = 1]") == plain);
  EXPECT_TRUE(Plan(kFirst,
                   "F[stage = 0, mb = 0]; F[stage = 1, mb = 0]; F[stage = 1, mb = 1]; B[stage = 1, mb = 0]; "
                   "B[stage = 1, mb = 1]; B[stage = 0, mb = 1]; [update, embed]") == plain);
}

TEST(ForeignSteps, TheOppositeIsRefusedWithThePath) {
  const std::string text = Refusal(
      "F[stage = 0, mb = 0]; F[stage = 0, mb = 1]; B[stage = 0, mb = 0]; F[stage = 1, mb = 0]; B[stage = 0, "
      "mb = 1]",
      kSecond);
  for (const char* part : {"is listed before", "but comes after it", "needs recv", "needs send"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(ForeignSteps, WhatNothingImpliesIsRefusedAndTheHintHelps) {
  const std::string order =
      "F[stage = 0, mb = 0]; F[stage = 1, mb = 0]; F[stage = 0, mb = 1]; B[stage = 0, mb = 0]; B[stage = 0, "
      "mb = 1]";
  const std::string text = Refusal(order, kSecond);
  EXPECT_NE(text.find("nothing implies"), std::string::npos) << text;
  const size_t begin = text.find("`edge "), end = text.find('`', begin + 1);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos) << text;
  const std::string edge = text.substr(begin + 1, end - begin - 1);
  EXPECT_NE(Plan(order, kSecond, "  " + edge + "\n").find("edge.send"), std::string::npos) << edge;
}

TEST(ForeignSteps, AWrongGroupsScheduleIsStillIncomplete) {
  std::unique_ptr<Compiled> compiled = Compile(Text(kSecond, kSecond));
  EXPECT_FALSE(compiled->ok());
  EXPECT_TRUE(compiled->Has(ir::DiagKind::kOrderMissing)) << compiled->Messages();
  EXPECT_NE(compiled->Messages().find("this step is another group's"), std::string::npos)
      << compiled->Messages();
}

}  // namespace
}  // namespace piper::testing
