// The text form of the training DAG: prints and parses back to an equal Dag; bad text is refused where it is
// bad.
#include <gtest/gtest.h>

#include "tests/dag_test_support.h"

namespace piper::ir {
namespace {

void ExpectEqual(const Dag& a, const Dag& b) {
  EXPECT_EQ(a.groups, b.groups);
  EXPECT_EQ(a.templates, b.templates);
  EXPECT_EQ(a.first_node, b.first_node);
  EXPECT_EQ(a.edges, b.edges);
  EXPECT_EQ(a.temporal, b.temporal);
  EXPECT_EQ(a.orders, b.orders);
  EXPECT_EQ(a.origins, b.origins);
  EXPECT_EQ(a.expression, b.expression);
  EXPECT_EQ(a.split_dims, b.split_dims);
  EXPECT_EQ(a.device_replica, b.device_replica);
  EXPECT_EQ(a.atomic_costs, b.atomic_costs);
  EXPECT_EQ(a.microbatches, b.microbatches);
  EXPECT_EQ(a.replicas, b.replicas);
  EXPECT_EQ(a.samples_per_microbatch, b.samples_per_microbatch);
  EXPECT_EQ(a.device_count, b.device_count);
  EXPECT_EQ(a.forward_only, b.forward_only);
}

struct Shape {
  int64_t p, m, dp;
  bool tied, skip, clip;
};

class RoundTrip : public ::testing::TestWithParam<Shape> {};

TEST_P(RoundTrip, PrintsAndParsesBack) {
  const Shape& shape = GetParam();
  TestProgram test({6, 32, 4, shape.tied, shape.skip, false}, shape.p * shape.dp);
  test.program.train.clip = shape.clip ? 1.0 : 0.0;
  test.Pipeline(shape.p, shape.m, shape.dp);
  test.OneForwardOneBackward(shape.p, shape.m);
  BuiltDag built = test.MustBuild();
  std::string text = DagToText(built.dag, &test.sources());
  // Origins name their file: give each its own text back by parsing among the same sources.
  SourceManager& sources = test.sources();
  FileId file = sources.Add("plan.ir", text);
  std::optional<Dag> parsed = ParseDag(file, test.diag());
  ASSERT_TRUE(parsed) << test.Diagnostics();
  // All test lines share one file name, so an origin comes back as a place of equal length in the first such
  // file.
  EXPECT_EQ(parsed->origins.size(), built.dag.origins.size());
  parsed->origins = built.dag.origins;
  ExpectEqual(built.dag, *parsed);
  EXPECT_EQ(DagToText(built.dag), DagToText(*parsed));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RoundTrip,
    ::testing::Values(Shape{1, 1, 1, false, false, false}, Shape{2, 4, 1, true, false, true},
                      Shape{4, 8, 1, false, true, false}, Shape{4, 4, 2, true, true, true},
                      Shape{1, 4, 4, false, false, true}, Shape{8, 16, 1, true, true, false}));

TEST(DagText, RunsAreCompressed) {
  TestProgram test({2, 256, 4}, 4);
  test.Pipeline(4, 256);
  test.OneForwardOneBackward(4, 256);
  std::string text = DagToText(test.MustBuild().dag);
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 200) << text;
}

std::string ParseError(const std::string& text) {
  SourceManager sources;
  DiagnosticEngine diag(sources);
  FileId file = sources.Add("plan.ir", text);
  EXPECT_FALSE(ParseDag(file, diag));
  return diag.Render(DiagnosticEngine::Format::kHuman, false);
}

TEST(DagText, RefusesWhereItIsBad) {
  const std::string head = "dag devices 1 replicas 1 microbatches 2 samples 1\ngroup \"g\" 0\n";
  EXPECT_EQ(ParseError("dag devices 0 replicas 1 microbatches 1 samples 1\n"),
            "plan.ir:1:13: error: 0 is out of range [bad-ir-text]\n"
            "  dag devices 0 replicas 1 microbatches 1 samples 1\n"
            "              ^\n"
            "hint: it lies between 1 and 16777216\n");
  EXPECT_NE(ParseError(head + "node \"a\" comput on \"g\"").find("there is no kind of node called 'comput'"),
            std::string::npos);
  EXPECT_NE(
      ParseError(head + "node \"a\" compute on \"h\"").find("plan.ir:3:21: error: no group is called 'h'"),
      std::string::npos);
  EXPECT_NE(ParseError(head + "node \"a").find("this name is not closed"), std::string::npos);
  EXPECT_NE(ParseError(head + "node \"a\" compute pass F region 0 on \"g\" stream compute mb 0 2\norder "
                              "\"g\" compute {\n  \"a\" 2\n}\n")
                .find("plan.ir:5:3: error: 'a' has no microbatch 2"),
            std::string::npos);
  EXPECT_NE(ParseError(head + "node \"a\" compute pass F region 0 on \"g\" stream compute mb 0 2\norder "
                              "\"g\" compute {\n  \"a\" 1\n}\nexpression replicas 1 microbatches 2\n")
                .find("the orders list 'a' 1 times on its devices, not 2"),
            std::string::npos);
  EXPECT_NE(ParseError(head + "edge \"a\" -> \"b\"").find("no node is called 'a'"), std::string::npos);
  EXPECT_NE(ParseError(head + "order \"g\" compute {\n repeat 1000000000000 stride 1 { \"a\" 0 }\n}")
                .find("out of range"),
            std::string::npos);
  EXPECT_NE(ParseError("hello").find("expected a statement"), std::string::npos);
}

TEST(DagText, NeverCrashesOnMangledText) {
  TestProgram test({3, 16, 4, true}, 4);
  test.Pipeline(2, 4, 2);
  test.OneForwardOneBackward(2, 4);
  std::string text = DagToText(test.MustBuild().dag);
  uint64_t state = 7;
  for (int round = 0; round < 400; ++round) {
    std::string mangled = text;
    for (int edit = 0; edit < 3; ++edit) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      size_t at = (state >> 33) % mangled.size();
      switch ((state >> 20) % 3) {
        case 0:
          mangled.erase(at, 1 + (state >> 40) % 20);
          break;
        case 1:
          mangled.insert(at, std::string(1, static_cast<char>(32 + (state >> 45) % 90)));
          break;
        default:
          mangled[at] = static_cast<char>('0' + (state >> 50) % 10);
          break;
      }
    }
    SourceManager sources;
    DiagnosticEngine diag(sources);
    std::optional<Dag> parsed = ParseDag(sources.Add("plan.ir", mangled), diag);
    EXPECT_EQ(parsed.has_value(), !diag.HasErrors());
    if (parsed) {
      CheckOrder(*parsed, diag);
    }
  }
}

}  // namespace
}  // namespace piper::ir
