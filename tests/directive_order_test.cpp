// order (select, fused, barrier, lanes), edge, limit, stream, cost, run, numerics, assert: effect, need,
// refusals.
#include <gtest/gtest.h>

#include "tests/dag_test_support.h"

namespace piper::ir {
namespace {

void ExpectRefusal(TestProgram& test, const std::string& kind, const std::vector<std::string>& parts) {
  std::string text = test.Refusal();
  EXPECT_NE(text.find("[" + kind + "]"), std::string::npos) << text;
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "missing: " << part << "\n" << text;
}

// The lines of one order.
std::string OrderText(const std::string& text, const std::string& header) {
  size_t at = text.find("order " + header);
  return at == std::string::npos ? "" : text.substr(at, text.find("\n}", at) + 3 - at);
}

void ExpectMatters(TestProgram& with, TestProgram& without, const std::string& golden,
                   const std::vector<std::string>& orders, const std::vector<std::string>& words = {}) {
  std::string after = DagToText(with.MustBuild().dag);
  std::string before = DagToText(without.MustBuild().dag);
  EXPECT_NE(after, before) << golden;
  std::string text;
  for (const auto& [label, dag] : {std::pair("before:\n", &before), std::pair("after:\n", &after)}) {
    text += label;
    for (const std::string& order : orders) text += OrderText(*dag, order);
    text += LinesWith(*dag, words);
  }
  ExpectGolden(golden, text);
}

TestProgram TwoStages(int64_t m = 4) {
  TestProgram test({2, 8}, 2);
  test.Pipeline(2, m);
  return test;
}

// ---- order
// -----------------------------------------------------------------------------------------------------

TEST(Order, TotalOrderOfAStream) {
  TestProgram with = TwoStages(), without = TwoStages();
  with.OneForwardOneBackward(2, 4);
  ExpectMatters(with, without, "directive_order.txt",
                {"\"pp[0]\" compute", "\"pp[1]\" compute", "\"pp[0]\" send"});
}

TEST(Order, AStepOfManyRegionsAndMicrobatchesExpandsInModelOrder) {
  TestProgram test({2, 8}, 1);
  test.Split(2);
  OrderDirective order;
  order.streams.push_back(
      {InternName("compute"), Schedule{{test.Do(Sel(kPassF, {})), test.Do(Sel(kPassB, {}))}}});
  test.Add("order on all { F[*]; B[*] }", order);
  ExpectGolden("directive_order_expansion.txt",
               OrderText(DagToText(test.MustBuild().dag), "\"all\" compute"));
}

TEST(Order, SplitBackwardIsTwoNodes) {
  TestProgram test = TwoStages(2);
  test.Order("pp", 1,
             {test.Do(F(1, 0)), test.Do(Sel(kPassBI, {{"stage", 1}, {"mb", 0}})), test.Do(F(1, 1)),
              test.Do(Sel(kPassBI, {{"stage", 1}, {"mb", 1}})), test.Do(Sel(kPassBW, {{"stage", 1}}))});
  std::string order = OrderText(DagToText(test.MustBuild().dag), "\"pp[1]\" compute");
  EXPECT_EQ(order.find('['), order.find("[1]")) << order;  // no atomic nodes
}

TEST(Order, RenamedScheduleIsIdentical) {
  TestProgram a = TwoStages(), b = TwoStages();
  a.OneForwardOneBackward(2, 4);
  b.OneForwardOneBackward(2, 4);
  EXPECT_EQ(DagToText(a.MustBuild().dag), DagToText(b.MustBuild().dag));
}

TEST(Order, FusedIsOneNodeWithItsOwnCost) {
  TestProgram with = TwoStages(2), without = TwoStages(2);
  for (TestProgram* test : {&with, &without}) {
    std::vector<Step> steps = {test->Do(F(0, 0)), test->Do(F(0, 1)), test->Do(B(0, 0)), test->Do(B(0, 1))};
    test->Order("pp", 0, std::move(steps));
    test->Order(
        "pp", 1,
        test == &with
            ? std::vector<Step>{test->Do(F(1, 0)), test->Fused({F(1, 1), B(1, 0)}), test->Do(B(1, 1))}
            : std::vector<Step>{test->Do(F(1, 0)), test->Do(F(1, 1)), test->Do(B(1, 0)), test->Do(B(1, 1))});
  }
  CostDirective cost;
  cost.fused = {Sel(kPassF, {{"stage"}}), Sel(kPassB, {{"stage"}})};
  cost.figure = {2e6, UnitKind::kTime};
  with.Add("cost fused(F[stage], B[stage]) = 2 us", cost);
  ExpectMatters(with, without, "directive_fused.txt", {"\"pp[1]\" compute"});
}

TEST(Order, LanesGiveAnOrderAStream) {
  TestProgram with({2, 8}, 2), without({2, 8}, 2);
  for (TestProgram* test : {&with, &without}) {
    test->Mesh({{"dp", 2}});
    test->ShardBatch({"dp"});
    Step lanes;
    lanes.kind = Step::Kind::kLanes;
    lanes.lanes.push_back({InternName("compute"), {test->Do(Sel(kPassF, {})), test->Do(Sel(kPassB, {}))}});
    if (test == &with)
      lanes.lanes.push_back(
          {InternName("reduce"),
           {test->Do(Sel(0, {{"dp.reduce"}, {"embed"}})), test->Do(Sel(0, {{"dp.reduce"}, {"head"}}))}});
    OrderDirective order;
    order.streams.push_back({InternName("compute"), Schedule{{lanes}}});
    test->Add("order on all { lanes { .. } }", order);
  }
  ExpectMatters(with, without, "directive_lanes.txt", {"\"all\" reduce"});
}

TEST(Order, BarrierOrdersAcrossStreams) {
  TestProgram with({2, 8}, 2), without({2, 8}, 2);
  for (TestProgram* test : {&with, &without}) {
    test->Mesh({{"dp", 2}});
    test->ShardBatch({"dp"});
    Step compute, reduce, barrier;
    compute.kind = reduce.kind = Step::Kind::kLanes;
    compute.lanes.push_back({InternName("compute"), {test->Do(Sel(kPassF, {})), test->Do(Sel(kPassB, {}))}});
    reduce.lanes.push_back({InternName("reduce"), {test->Do(Sel(0, {{"dp.reduce"}, {"head"}}))}});
    barrier.kind = Step::Kind::kBarrier;
    barrier.range = test->Line("barrier");
    OrderDirective order;
    order.streams.push_back(
        {InternName("compute"), Schedule{test == &with ? std::vector<Step>{compute, barrier, reduce}
                                                       : std::vector<Step>{compute, reduce}}});
    test->Add("order on all { lanes ..; barrier; lanes .. }", order);
  }
  ExpectMatters(with, without, "directive_barrier.txt", {}, {"after"});
}

TEST(Order, Refusals) {
  {
    TestProgram test = TwoStages(2);
    test.Order("pp", 0, {test.Do(F(0, 0)), test.Do(F(0, 1)), test.Do(B(0, 0))});
    ExpectRefusal(
        test, "order-missing",
        {"the order on pp[0] leaves out B", "mb = 1]", "is listed here", "hint: it belongs after that"});
  }
  {
    TestProgram test = TwoStages(2);
    test.Order("pp", 0,
               {test.Do(F(0, 0)), test.Do(F(0, 1)), test.Do(F(0, 0)), test.Do(B(0, 0)), test.Do(B(0, 1))});
    ExpectRefusal(test, "order-repeated", {"F stage0.embed mb 0 is listed twice", "the first time here"});
  }
  {
    TestProgram test = TwoStages(2);
    test.Order("pp", 0, {test.Do(F(1, 0))});
    ExpectRefusal(test, "order-missing", {"leaves out F[stage = 0, mb = 0]", "this step is another group's"});
  }
  {
    TestProgram test = TwoStages(2);
    test.Order("pp", 0,
               {test.Do(F(0, 0)), test.Do(F(0, 1)), test.Do(F(1, 0)), test.Do(B(0, 0)), test.Do(B(0, 1))});
    ExpectRefusal(test, "order-foreign",
                  {"nothing implies that F stage0", "(on pp[1])", "leave it out, or make it so: `edge F["});
  }
  {
    TestProgram test = TwoStages(2);
    test.Order("pp", 0, {test.Do(F(0, 2))});
    ExpectRefusal(test, "empty-selector",
                  {"F[stage = 0, mb = 2] selects nothing", "'mb' has the indices 0..2"});
  }
  {
    TestProgram test = TwoStages(2);
    test.Order("pp", 0, {test.Do(Sel(kPassF, {{"stgae", 0}}))});
    ExpectRefusal(test, "no-such-tag", {"nothing is called 'stgae'", "did you mean 'stage'?"});
  }
  {
    TestProgram test = TwoStages(2);
    test.Order("pp", 0, {test.Do(Sel(0, {{"send"}}))});
    ExpectRefusal(test, "bad-order", {"runs on stream send, not on compute", "list it under `send:`"});
  }
  {
    TestProgram test = TwoStages(2);
    test.OneForwardOneBackward(2, 2);
    test.Order("pp", 0, {});
    ExpectRefusal(test, "conflicting-directives", {"pp[0] has a second order"});
  }
  {
    TestProgram test = TwoStages(2);
    Step lanes;
    lanes.kind = Step::Kind::kLanes;
    lanes.lanes.push_back({InternName("reduce"), {test.Fused({F(0, 0), B(0, 0)})}});
    test.Order("pp", 0, {lanes});
    ExpectRefusal(test, "bad-fused",
                  {"`fused` on stream reduce, where none of its parts runs", "list it under `compute:`"});
  }
  {
    // Backward before forward: the data contradicts the order.
    TestProgram test = TwoStages(2);
    test.Order("pp", 0, {test.Do(B(0, 0)), test.Do(F(0, 0)), test.Do(F(0, 1)), test.Do(B(0, 1))});
    ExpectRefusal(test, "dependency-cycle",
                  {"waits for itself: ", "needs", "stands after", "in the order on pp[0]"});
  }
  {
    // Stage 1 asks for microbatch 1 first and gives its cotangent only after microbatch 0, which stage 0
    // sends later.
    TestProgram test = TwoStages(2);
    test.Order("pp", 0, {test.Do(F(0, 0)), test.Do(B(0, 0)), test.Do(F(0, 1)), test.Do(B(0, 1))});
    test.Order("pp", 1, {test.Do(F(1, 1)), test.Do(F(1, 0)), test.Do(B(1, 0)), test.Do(B(1, 1))});
    ExpectRefusal(test, "dependency-cycle", {"F stage0.embed mb 1", "in the order on pp[1]"});
  }
}

TEST(Order, DescendingBackwardIsNotedAndRecorded) {
  TestProgram test = TwoStages(2);
  test.Order("pp", 0, {test.Do(F(0, 0)), test.Do(F(0, 1)), test.Do(B(0, 1)), test.Do(B(0, 0))});
  test.Order("pp", 1, {test.Do(F(1, 0)), test.Do(F(1, 1)), test.Do(B(1, 1)), test.Do(B(1, 0))});
  BuiltDag built = test.MustBuild();
  EXPECT_NE(test.Diagnostics().find("[expression-changed]"), std::string::npos);
  ASSERT_FALSE(built.dag.expression.permuted.empty());
  EXPECT_EQ(built.dag.expression.permuted[0].microbatches, (std::vector<int32_t>{1, 0}));
}

// ---- edge
// ------------------------------------------------------------------------------------------------------

TEST(Edge, IsTemporal) {
  TestProgram with({2, 8}, 2), without({2, 8}, 2);
  for (TestProgram* test : {&with, &without}) {
    test->Mesh({{"dp", 2}});
    test->ShardBatch({"dp"});
  }
  with.Add("edge [dp.reduce, head] -> BW[embed]",
           EdgeDirective{Sel(0, {{"dp.reduce"}, {"head"}}), Sel(kPassBW, {{"embed"}})});
  ExpectMatters(with, without, "directive_edge.txt", {}, {"after"});
}

TEST(Edge, CarriesTheValidationIntoTheNextStep) {
  TestProgram with = TwoStages(2), without = TwoStages(2);
  for (TestProgram* test : {&with, &without}) {
    test->program.train.clip = 1;
    test->Add("optimizer post_validation", OptimizerDirective{true});
    test->OneForwardOneBackward(2, 2);
  }
  EdgeDirective edge{Sel(0, {{"update.validate"}}), Sel(kPassBW, {})};
  edge.distance = 1;
  with.Add("edge [update.validate] -> BW distance 1", edge);
  ExpectMatters(with, without, "directive_edge_distance.txt",
                {"\"pp[0]\" compute", "\"pp[1]\" compute", "\"pp[0]\" reduce"}, {"validate", "clip.norm"});
}

TEST(Edge, Refusals) {
  {
    TestProgram test = TwoStages(2);
    test.Add("edge F[stage = 1] -> F[stage = 0]",
             EdgeDirective{Sel(kPassF, {{"stage", 1}}), Sel(kPassF, {{"stage", 0}})});
    ExpectRefusal(test, "dependency-cycle", {"is made to wait for edge.recv"});
  }
  {
    TestProgram test = TwoStages(2);
    test.Add("edge B[stage = 0] -> F[stage = 0]",
             EdgeDirective{Sel(kPassB, {{"stage", 0}}), Sel(kPassF, {{"stage", 0}})});
    ExpectRefusal(test, "dependency-cycle", {"is made to wait for", "test.piper:1:1"});
  }
  {
    TestProgram test = TwoStages(2);
    EdgeDirective edge{Sel(kPassF, {{"stage", 0}}), Sel(kPassF, {{"stage", 0}})};
    edge.distance = 2;
    test.Add("edge F -> F distance 2", edge);
    ExpectRefusal(test, "bad-edge", {"reaches into the next step at most", "distance 1"});
  }
  {
    TestProgram test = TwoStages(2);
    EdgeDirective edge{Sel(kPassU, {{"stage", 1}}), Sel(kPassF, {{"stage", 0}})};
    edge.distance = 1;
    test.Add("edge U[stage = 1] -> F[stage = 0] distance 1", edge);
    ExpectRefusal(test, "bad-edge", {"no rank has both update", "F stage0"});
  }
  {
    // A cycle, but for the step between.
    TestProgram test = TwoStages(2);
    EdgeDirective edge{Sel(kPassB, {{"stage", 0}}), Sel(kPassF, {{"stage", 0}})};
    edge.distance = 1;
    test.Add("edge B[stage = 0] -> F[stage = 0] distance 1", edge);
    EXPECT_NE(DagToText(test.MustBuild().dag).find("distance 1"), std::string::npos);
  }
  {
    TestProgram test = TwoStages(2);
    test.Add("edge F[stage = 5] -> F[stage = 0]",
             EdgeDirective{Sel(kPassF, {{"stage", 5}}), Sel(kPassF, {{"stage", 0}})});
    ExpectRefusal(test, "empty-selector", {"'stage' has the indices 0..2"});
  }
  {
    TestProgram test = TwoStages(2);
    Selector maybe = Sel(kPassF, {{"stage", 5}});
    maybe.optional = true;
    test.Add("edge F[stage = 5]? -> F[stage = 0]", EdgeDirective{maybe, Sel(kPassF, {{"stage", 0}})});
    test.MustBuild();
  }
}

// ---- limit
// -----------------------------------------------------------------------------------------------------

TEST(Limit, BoundsWhatIsAlive) {
  TestProgram with = TwoStages(), without = TwoStages();
  for (TestProgram* test : {&with, &without}) test->OneForwardOneBackward(2, 4);
  with.Add("limit 2 live F[stage = 0] per mb", LimitDirective{2, Sel(kPassF, {{"stage", 0}}), "mb"});
  ExpectMatters(with, without, "directive_limit.txt", {}, {"after"});
}

TEST(Limit, Refusals) {
  {
    TestProgram test = TwoStages();
    test.OneForwardOneBackward(2, 4);
    test.Add("limit 1 live F[stage = 0] per mb", LimitDirective{1, Sel(kPassF, {{"stage", 0}}), "mb"});
    ExpectRefusal(test, "bad-limit", {"at most 1 live would deadlock", "hint: the orders keep 2"});
  }
  {
    TestProgram test = TwoStages();
    test.Add("limit 0 live F", LimitDirective{0, Sel(kPassF, {}), ""});
    ExpectRefusal(test, "bad-limit", {"at least one must be able to live"});
  }
  {
    TestProgram test = TwoStages();
    test.Add("limit 2 live F per day", LimitDirective{2, Sel(kPassF, {}), "day"});
    ExpectRefusal(test, "bad-limit", {"'day' is no split index"});
  }
}

// ---- stream
// ----------------------------------------------------------------------------------------------------

TEST(Stream, MergesMessages) {
  TestProgram with = TwoStages(), without = TwoStages();
  for (TestProgram* test : {&with, &without}) test->OneForwardOneBackward(2, 4);
  with.Add("stream [send] on comm", StreamDirective{Sel(0, {{"send"}}), "comm"});
  with.Add("stream [recv] on comm", StreamDirective{Sel(0, {{"recv"}}), "comm"});
  ExpectMatters(with, without, "directive_stream.txt",
                {"\"pp[0]\" comm", "\"pp[1]\" comm", "\"pp[0]\" send", "\"pp[0]\" recv"});
}

TEST(Stream, OnComputeAttachesToProducersAndReaders) {
  TestProgram test = TwoStages(2);
  test.OneForwardOneBackward(2, 2);
  test.Add("stream [send] on compute",
           StreamDirective{Sel(0, {{"send"}}).Union(Sel(0, {{"recv"}})), "compute"});
  std::optional<BuiltDag> built = test.Build();
  ASSERT_TRUE(built) << test.Diagnostics();
  EXPECT_TRUE(VerifyDag(built->dag).empty());
  ExpectGolden("directive_stream_compute.txt", OrderText(DagToText(built->dag), "\"pp[1]\" compute"));
}

TEST(Stream, Refusals) {
  {
    TestProgram test = TwoStages(2);
    test.Add("stream [accumulate] on a2a", StreamDirective{Sel(0, {{"accumulate"}}), "a2a"});
    ExpectRefusal(test, "bad-stream", {"has no stream of its own", "put its BW on the stream"});
  }
  {
    TestProgram test = TwoStages(2);
    test.Add("stream [send] on a", StreamDirective{Sel(0, {{"send"}}), "a"});
    test.Add("stream [send] on b", StreamDirective{Sel(0, {{"send"}}), "b"});
    ExpectRefusal(test, "conflicting-directives", {"has a second stream"});
  }
  {
    TestProgram test = TwoStages(2);
    test.Add("stream [snd] on a", StreamDirective{Sel(0, {{"snd"}}), "a"});
    ExpectRefusal(test, "no-such-tag", {"did you mean 'send'?"});
  }
  {
    // Legally empty: one replica has no dp.reduce.
    TestProgram test = TwoStages(2);
    test.Add("stream [dp.reduce] on a", StreamDirective{Sel(0, {{"dp.reduce"}}), "a"});
    test.MustBuild();
  }
}

// ---- cost
// ------------------------------------------------------------------------------------------------------

CostDirective Cost(Selector select, double value, UnitKind kind) {
  CostDirective cost;
  cost.select = std::move(select);
  cost.figure = {value, kind};
  return cost;
}

TEST(Cost, TheInnermostTagCarriesTheFigure) {
  TestProgram with({2, 8}, 2), without({2, 8}, 2);
  for (TestProgram* test : {&with, &without}) test->Pipeline(2, 2);
  with.Add("cost F[stage] = 10 us", Cost(Sel(kPassF, {{"stage"}}), 10e6, UnitKind::kTime));
  with.Add("cost B[layer] = 7 ps", Cost(Sel(kPassB, {{"layer"}}), 7, UnitKind::kTime));
  with.Add("cost [send] = 1 MiB", Cost(Sel(0, {{"send"}}), 1048576, UnitKind::kBytes));
  BuiltDag built = with.MustBuild();
  Picoseconds per_stage[2] = {0, 0}, per_layer[2] = {0, 0};
  for (const NodeTemplate& node : built.dag.templates) {
    if (node.kind == NodeKind::kSend || node.kind == NodeKind::kRecv) {
      EXPECT_EQ(node.cost_bytes, 1048576);
    }
    if (node.kind != NodeKind::kCompute) continue;
    if (node.pass == Pass::kF) per_stage[node.tags[0].index] += node.cost;
    if (node.pass != Pass::kF && node.tags[1].name == "layer") per_layer[node.tags[1].index] += node.cost;
  }
  EXPECT_EQ(per_stage[0], 10'000'000);
  EXPECT_EQ(per_stage[1], 10'000'000);
  EXPECT_EQ(per_layer[0], 7);
  EXPECT_EQ(per_layer[1], 7);
  TestProgram again({2, 8}, 2);
  again.program.directives = with.program.directives;
  ExpectGolden("directive_cost.txt",
               "before:\n" + LinesWith(DagToText(without.MustBuild().dag), {"node \"F ", "node \"send"}) +
                   "after:\n" + LinesWith(DagToText(built.dag), {"node \"F ", "node \"send"}));
}

TEST(Cost, Refusals) {
  {
    TestProgram test = TwoStages(2);
    test.Add("cost F[stage] = 1 us", Cost(Sel(kPassF, {{"stage"}}), 1e6, UnitKind::kTime));
    test.Add("cost F[stage = 0] = 2 us", Cost(Sel(kPassF, {{"stage", 0}}), 2e6, UnitKind::kTime));
    ExpectRefusal(test, "conflicting-directives", {"has a second cost"});
  }
  {
    TestProgram test = TwoStages(2);
    test.Add("cost F = 1 FLOP", Cost(Sel(kPassF, {}), 1, UnitKind::kFlops));
    ExpectRefusal(test, "bad-cost", {"a cost is a time or bytes"});
  }
  {
    TestProgram test = TwoStages(2);
    test.Add("cost [stage] = 1 us", Cost(Sel(0, {{"stage"}}), 1e6, UnitKind::kTime));
    ExpectRefusal(test, "bad-cost", {"names neither a pass nor an inserted node"});
  }
  {
    TestProgram test = TwoStages(2);
    CostDirective cost;
    cost.fused = {Sel(kPassF, {}), Sel(kPassB, {})};
    cost.figure = {1e6, UnitKind::kTime};
    test.Add("cost fused(F, B) = 1 us", cost);
    ExpectRefusal(test, "bad-cost", {"no order has a fused step of these parts"});
  }
}

// ---- run, numerics, assert
// -------------------------------------------------------------------------------------

TEST(Numerics, FastFoldsReplicasInPairs) {
  TestProgram with({1, 16}, 4), without({1, 16}, 4);
  for (TestProgram* test : {&with, &without}) {
    test->Mesh({{"dp", 4}});
    test->ShardBatch({"dp"});
    test->Split(2);
  }
  with.Add("numerics fast", NumericsDirective{true});
  ExpectMatters(with, without, "directive_numerics.txt", {}, {"expression", "all_reduce"});
  // A node that does not fold as the expression says is no plan.
  Dag dag = with.MustBuild().dag;
  for (NodeTemplate& node : dag.templates) node.pairwise = false;
  std::vector<DagProblem> problems = VerifyDag(dag);
  ASSERT_FALSE(problems.empty());
  EXPECT_NE(problems[0].message.find("does not fold as the gradient expression says"), std::string::npos)
      << problems[0].message;
  TestProgram twice = TwoStages(2);
  twice.Add("numerics fast", NumericsDirective{true});
  twice.Add("numerics reproducible", NumericsDirective{false});
  ExpectRefusal(twice, "conflicting-directives", {"a second `numerics`"});
}

TEST(Assert, FormIsChecked) {
  AssertDirective assertion;
  assertion.metric = "step_tme";
  assertion.bound = {1e9, UnitKind::kTime};
  TestProgram test = TwoStages(2);
  test.Add("assert step_tme < 1 ms", assertion);
  ExpectRefusal(test, "unknown-name", {"did you mean 'step_time'?"});
  assertion.metric = "peak_memory";
  TestProgram units = TwoStages(2);
  units.Add("assert peak_memory < 1 ms", assertion);
  ExpectRefusal(units, "unit-mismatch", {"peak_memory is bytes, the bound is time"});
}

}  // namespace
}  // namespace piper::ir
