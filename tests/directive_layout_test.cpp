// mesh, cut, split, place, shard, freeze, zero: what each does to the DAG (goldens show the region under test
// before and after), that taking the line out changes it, and what each refuses.
#include <gtest/gtest.h>

#include "ir/dag/dag_text.h"
#include "ir/directives/cut.h"
#include "tests/dag_test_support.h"

namespace piper::ir {
namespace {

// The text of a build with and without the last directive, and a golden of the lines that matter.
void ExpectMatters(TestProgram& with, TestProgram& without, const std::string& golden,
                   const std::vector<std::string>& words) {
  std::string after = DagToText(with.MustBuild().dag);
  std::string before = DagToText(without.MustBuild().dag);
  EXPECT_NE(after, before) << golden;
  ExpectGolden(golden, "before:\n" + LinesWith(before, words) + "after:\n" + LinesWith(after, words));
}

void ExpectRefusal(TestProgram& test, const std::string& kind, const std::vector<std::string>& parts) {
  std::string text = test.Refusal();
  EXPECT_NE(text.find("[" + kind + "]"), std::string::npos) << text;
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "missing: " << part << "\n" << text;
}

// ---- mesh
// ------------------------------------------------------------------------------------------------------

TEST(Mesh, NamesSlicesOfDevices) {
  TestProgram with({2, 8}, 4), without({2, 8}, 4);
  for (TestProgram* test : {&with, &without}) {
    if (test == &with) {
      test->Mesh({{"pp", 2}, {"dp", 2}});
    } else {
      test->Mesh({{"dp", 2}, {"pp", 2}});
    }
    test->ShardBatch({"dp"});
    test->Cut(2);
    test->Place(0, "pp", 0);
    test->Place(1, "pp", 1);
  }
  ExpectMatters(with, without, "directive_mesh.txt", {"group", "node \"F "});
}

TEST(Mesh, AllTakesTheRest) {
  TestProgram test({2, 24}, 6);
  test.Mesh({{"pp", 2}, {"dp", -1}});
  test.ShardBatch({"dp"});
  test.Cut(2);
  test.Place(0, "pp", 0);
  test.Place(1, "pp", 1);
  EXPECT_EQ(test.MustBuild().dag.replicas, 3);
}

TEST(Mesh, NoneIsOneDeviceAndIdleOnesAreNoted) {
  TestProgram test({2, 8}, 3);
  EXPECT_EQ(test.MustBuild().dag.groups[0].devices, std::vector<uint32_t>{0});
  EXPECT_NE(test.Diagnostics().find("2 of 3 devices belong to no mesh and stay idle"), std::string::npos);
}

TEST(Mesh, Refusals) {
  {
    TestProgram test({2, 8}, 4);
    test.Mesh({{"pp", 3}, {"dp", 2}});
    ExpectRefusal(test, "bad-mesh", {"needs more devices than the 4", "hint: dp = 1 fits"});
  }
  {
    TestProgram test({2, 8}, 4);
    test.Mesh({{"pp", 3}, {"dp", -1}});
    ExpectRefusal(test, "bad-mesh", {"4 devices do not divide by the 3", "hint: dp = 1 uses 3 of them"});
  }
  {
    TestProgram test({2, 8}, 4);
    test.Mesh({{"pp", 2}, {"pp", 2}});
    ExpectRefusal(test, "bad-mesh", {"axis 'pp' is named twice"});
  }
  {
    TestProgram test({2, 8}, 4);
    MeshDirective mesh;
    mesh.axes = {{"pp", 2, "", {}}, {"tp", 2, "rack", {}}};
    test.Add("mesh (pp = 2, tp = 2 within rack)", mesh);
    ExpectRefusal(test, "bad-mesh", {"the topology has no level 'rack'", "its levels are node"});
  }
  {
    TestProgram test({2, 8}, 4);
    MeshDirective mesh;
    mesh.axes = {{"pp", 2, "", {}}};
    mesh.devices = {1, 1};
    test.Add("mesh (pp = 2) on devices[1, 1]", mesh);
    ExpectRefusal(test, "bad-mesh", {"device 1 is listed twice"});
  }
  {
    TestProgram test({2, 8}, 4);
    test.Mesh({{"pp", 4}});
    test.Mesh({{"dp", 4}});
    ExpectRefusal(test, "conflicting-directives", {"a second mesh without a name", "the first one is here"});
  }
}

// ---- cut
// -------------------------------------------------------------------------------------------------------

std::vector<int64_t> Sizes(const std::vector<int64_t>& cost, size_t parts) {
  return BalancedPartition(std::vector<std::vector<int64_t>>(parts, cost));
}

TEST(Cut, BalancedPartitions) {
  using V = std::vector<int64_t>;
  EXPECT_EQ(Sizes(V(8, 10), 4), (V{2, 2, 2, 2}));
  EXPECT_EQ(Sizes(V(10, 7), 4), (V{2, 2, 3, 3}));
  EXPECT_EQ(Sizes({1, 10, 10, 10, 10, 1}, 2), (V{3, 3}));
  EXPECT_EQ(Sizes({5, 1, 1, 1, 1, 1}, 2), (V{1, 5}));
  EXPECT_EQ(Sizes({3}, 1), (V{1}));
  // The second device is twice as fast: half the cost there.
  EXPECT_EQ(BalancedPartition({V(9, 2), V(9, 1)}), (V{3, 6}));
}

TEST(Cut, BalancedIsOptimal) {
  // All partitions of small random instances.
  uint64_t state = 3;
  for (int round = 0; round < 200; ++round) {
    auto next = [&] { return (state = state * 6364136223846793005ull + 1442695040888963407ull) >> 40; };
    size_t units = 1 + next() % 8, parts = 1 + next() % units;
    std::vector<std::vector<int64_t>> cost(parts, std::vector<int64_t>(units));
    for (auto& row : cost) {
      for (int64_t& c : row) c = static_cast<int64_t>(next() % 9);
    }
    int64_t best = INT64_MAX;
    for (uint32_t cuts = 0; cuts < (1u << (units - 1)); ++cuts) {
      if (static_cast<size_t>(__builtin_popcount(cuts)) != parts - 1) continue;
      int64_t worst = 0, sum = 0;
      size_t part = 0;
      for (size_t u = 0; u < units; ++u) {
        sum += cost[part][u];
        worst = std::max(worst, sum);
        if (u + 1 < units && (cuts >> u & 1)) {
          ++part;
          sum = 0;
        }
      }
      best = std::min(best, worst);
    }
    std::vector<int64_t> sizes = BalancedPartition(cost);
    int64_t worst = 0;
    size_t unit = 0;
    for (size_t part = 0; part < parts; ++part) {
      int64_t sum = 0;
      ASSERT_GE(sizes[part], 1);
      for (int64_t i = 0; i < sizes[part]; ++i) sum += cost[part][unit++];
      worst = std::max(worst, sum);
    }
    EXPECT_EQ(unit, units);
    EXPECT_EQ(worst, best);
  }
}

TEST(Cut, TagsEveryRegion) {
  TestProgram with({4, 8, 4, false, false, true}, 1), without({4, 8, 4, false, false, true}, 1);
  with.Cut(3);
  ExpectMatters(with, without, "directive_cut.txt", {"node \"F ", "node \"BW "});
}

TEST(Cut, ExplicitListIsAnExactCover) {
  TestProgram test({4, 8}, 1);
  CutDirective cut;
  for (const char* tag : {"embed", "layer", "head"}) cut.tags.push_back({tag, {}});
  cut.explicit_parts = {{{"embed", 1}, {"layer", 3}}, {{"layer", 1}, {"head", 1}}};
  cut.parts = 2;
  test.Add("cut embed, layer, head into [embed + 3*layer, layer + head] as stage", cut);
  std::string text = DagToText(test.MustBuild().dag);
  EXPECT_NE(text.find("\"F stage0.layer2\""), std::string::npos) << text;
  EXPECT_NE(text.find("tags { stage 1 layer 3 }"), std::string::npos) << text;
}

TEST(Cut, DeviceRatesDecide) {
  TestProgram test({10, 8, 8}, 2);
  test.program.topology.kinds.push_back({"slow", 0, 0, {{"f32", 0.25e12}}, {}});
  test.program.topology.device_kind = {0, 1};
  test.Pipeline(2, 1);
  BuiltDag built = test.MustBuild();
  int64_t on_fast = 0;
  for (const NodeTemplate& node : built.dag.templates)
    on_fast += node.kind == NodeKind::kCompute && node.pass == Pass::kF && node.tags[0].index == 0;
  EXPECT_GE(on_fast, 8);  // of 12 units, about four in five
}

TEST(Cut, Refusals) {
  {
    TestProgram test({30, 8}, 1);
    CutDirective cut;
    cut.tags = {{"layer", {}}};
    cut.explicit_parts = {{{"layer", 8}}, {{"layer", 8}}, {{"layer", 8}}};
    cut.parts = 3;
    test.Add("cut layer into [8*layer, 8*layer, 8*layer] as stage", cut);
    ExpectRefusal(test, "bad-cut",
                  {"covers 24 of 30 units; layer24 is the first that is left over",
                   "hint: [10*layer, 10*layer, 10*layer] covers them all"});
  }
  {
    TestProgram test({2, 8}, 1);
    test.Cut(5);
    ExpectRefusal(test, "bad-cut", {"4 units cannot be cut into 5 stages", "hint: 4 is the most"});
  }
  {
    TestProgram test({2, 8}, 1);
    CutDirective cut;
    cut.tags = {{"layr", {}}};
    cut.parts = 2;
    test.Add("cut layr into 2 as stage", cut);
    ExpectRefusal(test, "no-such-tag", {"no tag 'layr'", "did you mean 'layer'?"});
  }
  {
    TestProgram test({2, 8}, 1);
    test.Cut(2);
    test.Cut(2);
    ExpectRefusal(test, "conflicting-directives", {"a second `cut`"});
  }
  {
    TestProgram test({3, 8}, 1);
    CutDirective cut;
    cut.tags = {{"layer", {}}};
    cut.explicit_parts = {{{"layer", 3}}, {{"layer", 1}}};
    cut.parts = 2;
    test.Add("cut layer into [3*layer, layer] as stage", cut);
    ExpectRefusal(test, "bad-cut", {"asks for 1 more 'layer', but the model has no more units"});
  }
}

// ---- split
// -----------------------------------------------------------------------------------------------------

TEST(Split, MakesMicrobatches) {
  TestProgram with({2, 8}, 1), without({2, 8}, 1);
  with.Split(4);
  ExpectMatters(with, without, "directive_split.txt", {"dag ", "split", "node \"F ", "node \"accumulate w"});
}

TEST(Split, TwoDimensionsAreLinearInTheOrderWritten) {
  TestProgram test({2, 8}, 1);
  SplitDirective split;
  split.dim = "batch";
  split.parts = {{2, "dir"}, {4, "mb"}};
  test.Add("split batch into 2 as dir, 4 as mb", split);
  EdgeDirective edge{Sel(kPassF, {{"head"}, {"dir", 0}, {"mb", 3}}),
                     Sel(kPassF, {{"embed"}, {"dir", 1}, {"mb", 1}})};
  test.Add("edge F[head, dir = 0, mb = 3] -> F[embed, dir = 1, mb = 1]", edge);
  std::string text = DagToText(test.MustBuild().dag);
  EXPECT_NE(text.find("after \"F head\" 3 -> \"F embed\" 5"), std::string::npos) << text;
}

TEST(Split, Refusals) {
  {
    TestProgram test({2, 30}, 1);
    test.Split(4);
    ExpectRefusal(test, "batch-divide",
                  {"a global batch of 30 does not divide into 4 microbatches",
                   "a global batch of 28 or 32 divides; so does a split into 3"});
  }
  {
    TestProgram test({2, 8}, 1);
    SplitDirective split;
    split.dim = "hidden";
    split.parts = {{2, "mb"}};
    test.Add("split hidden into 2 as mb", split);
    ExpectRefusal(test, "unsupported", {"splitting dimension 'hidden'", "`split batch into m as mb` is"});
  }
  {
    TestProgram test({2, 8}, 1);
    SplitDirective split;
    split.dim = "batch";
    split.parts = {{2, "layer"}};
    test.Add("split batch into 2 as layer", split);
    ExpectRefusal(test, "bad-split", {"'layer' is a tag of the model"});
  }
  {
    TestProgram test({2, 8}, 1);
    SplitDirective split;
    split.dim = "batsch";
    split.parts = {{2, "mb"}};
    test.Add("split batsch into 2 as mb", split);
    ExpectRefusal(test, "unknown-dim", {"no tensor has a dimension 'batsch'"});
  }
}

// ---- place
// -----------------------------------------------------------------------------------------------------

TEST(Place, RecordsDevicesAndMakesMessages) {
  TestProgram with({2, 8}, 2), without({2, 8}, 2);
  for (TestProgram* test : {&with, &without}) {
    test->Mesh({{"pp", 2}});
    test->Cut(2);
  }
  with.Place(0, "pp", 1);
  with.Place(1, "pp", 0);
  // Without any `place` stage s is on pp[s].
  ExpectMatters(with, without, "directive_place.txt", {"node \"F ", "node \"send", "node \"recv"});
}

TEST(Place, CopiesOfAStageAreSynchronised) {
  TestProgram test = Bidirectional(1);
  BuiltDag built = test.MustBuild();
  ExpectGolden("directive_place_copies.txt",
               LinesWith(DagToText(built.dag), {"group", "node \"F ", "node \"accumulate wte", "reduce",
                                                "node \"update wte", "copies"}));
  EXPECT_EQ(built.dag.expression.copy_ranges[0], (std::vector<std::pair<int32_t, int32_t>>{{0, 2}, {2, 4}}));
  TestProgram replicated = Bidirectional(2);
  std::string text = DagToText(replicated.MustBuild().dag);
  // Fold order: replica major, copy minor.
  EXPECT_NE(text.find("group \"pp[0] + pp[1]\" 0 2 1 3"), std::string::npos) << text;
}

TEST(Place, ManyReplicasCostWhatOneDoes) {
  TestProgram test({6, 32768, 4, true}, 16384);
  test.program.train.clip = 1;
  test.Pipeline(4, 8, 4096);
  test.OneForwardOneBackward(4, 8);
  BuiltDag built = test.MustBuild();
  EXPECT_EQ(BuildRoles(built.dag).size(), 4u);
  TestProgram small({6, 16, 4, true}, 8);
  small.program.train.clip = 1;
  small.Pipeline(4, 8, 2);
  small.OneForwardOneBackward(4, 8);
  EXPECT_EQ(built.dag.node_count(), small.MustBuild().dag.node_count());
}

TEST(Place, OverrideReplaces) {
  TestProgram test({2, 8}, 2);
  test.Mesh({{"pp", 2}});
  test.Cut(2);
  test.Place(0, "pp", 0);
  test.Place(1, "pp", 1);
  test.Place(1, "pp", 0);
  test.program.directives.back().overrides = true;
  BuiltDag built = test.MustBuild();
  for (const NodeTemplate& node : built.dag.templates)
    EXPECT_EQ(built.dag.groups[node.group].devices, std::vector<uint32_t>{0});
}

TEST(Place, SeveralStagesOfOneRankNeedNoMessage) {
  TestProgram test({2, 8}, 2);
  test.Mesh({{"pp", 2}});
  test.Cut(4);
  for (int64_t s = 0; s < 4; ++s) test.Place(s, "pp", s < 2 ? 0 : 1);
  BuiltDag built = test.MustBuild();
  int sends = 0;
  for (const NodeTemplate& node : built.dag.templates) sends += node.kind == NodeKind::kSend;
  EXPECT_EQ(sends, 2);  // one boundary, both ways
}

TEST(Place, Refusals) {
  {
    TestProgram test({2, 8}, 2);
    test.Mesh({{"pp", 2}});
    test.Cut(2);
    test.Place(0, "pp", 0);
    ExpectRefusal(test, "unplaced",
                  {"stage1.layer1 is placed nowhere", "hint: `place [stage = 1] on pp[0]`"});
  }
  {
    TestProgram test({2, 8}, 2);
    test.Mesh({{"pp", 2}});
    test.Cut(2);
    test.Place(0, "pp", 0);
    test.Place(0, "pp", 1);
    test.Place(1, "pp", 1);
    ExpectRefusal(
        test, "double-place",
        {"is placed a second time, on pp[1]", "it is placed on pp[0] here", "`override place` replaces"});
  }
  {
    TestProgram test({2, 8}, 2);
    test.Mesh({{"pp", 2}});
    test.Cut(2);
    test.Place(0, "pp", 2);
    ExpectRefusal(test, "bad-place", {"pp[2] is out of range", "the last one is pp[1]"});
  }
  {
    TestProgram test({2, 8}, 2);
    test.Mesh({{"pp", 2}});
    test.Cut(2);
    test.Place(0, "qp", 0);
    ExpectRefusal(test, "unknown-axis", {"no axis 'qp'", "did you mean 'pp'?"});
  }
  {
    TestProgram test({2, 8}, 2);
    test.Mesh({{"pp", 2}});
    test.Cut(2);
    test.Place(7, "pp", 0);
    ExpectRefusal(test, "empty-selector", {"[stage = 7] selects nothing", "'stage' has the indices 0..2"});
  }
  {
    TestProgram test({2, 8}, 2);
    test.Mesh({{"pp", 2}});
    test.Cut(2);
    test.Add("place [stag = 0] on pp[0]", PlaceDirective{Sel(0, {{"stag", 0}}), test.At("pp", 0)});
    ExpectRefusal(test, "no-such-tag", {"nothing is called 'stag'", "did you mean 'stage'?"});
  }
  {
    TestProgram test({2, 8}, 4);
    test.Mesh({{"pp", 2}, {"dp", 2}});
    test.Cut(2);
    test.Place(0, "pp", 0);
    test.Place(1, "pp", 1);
    ExpectRefusal(test, "bad-place",
                  {"2 positions on axis 'dp', but nothing is sharded over it", "`shard batch over dp`"});
  }
  {
    TestProgram test({2, 8}, 2);
    test.Mesh({{"pp", 2}});
    test.Cut(2);
    test.Place(0, "pp", 0);
    test.program.directives.back().overrides = true;
    test.Place(1, "pp", 1);
    ExpectRefusal(test, "bad-override", {"there is nothing to override"});
  }
  {
    TestProgram test({2, 8}, 4);
    test.Mesh({{"pp", 4}});
    test.Cut(2);
    ExpectRefusal(test, "unplaced", {"no `place` says where the 2 stages run"});
  }
}

// ---- shard
// -----------------------------------------------------------------------------------------------------

TEST(Shard, BatchIsDataParallelism) {
  TestProgram with({1, 8}, 2), without({1, 8}, 1);
  with.Mesh({{"dp", 2}});
  with.ShardBatch({"dp"});
  ExpectMatters(with, without, "directive_shard.txt", {"dag ", "replica", "node \"F ", "reduce"});
}

TEST(Shard, Refusals) {
  {
    TestProgram test({1, 8}, 2);
    test.Mesh({{"tp", 2}});
    ShardDirective shard;
    shard.dims = {"hidden"};
    shard.axes = {"tp"};
    test.Add("shard hidden over tp", shard);
    ExpectRefusal(test, "unsupported",
                  {"sharding dimension 'hidden' is not supported yet", "`shard batch over axis`"});
  }
  {
    TestProgram test({1, 8}, 2);
    test.Mesh({{"dp", 2}});
    test.ShardBatch({"pd"});
    ExpectRefusal(test, "unknown-axis", {"no axis 'pd'", "did you mean 'dp'?"});
  }
  {
    TestProgram test({1, 8}, 2);
    test.Mesh({{"dp", 2}});
    test.ShardBatch({"dp"});
    test.ShardBatch({"dp"});
    ExpectRefusal(test, "conflicting-directives", {"'batch' is sharded twice"});
  }
  {
    TestProgram test({1, 8}, 2);
    test.Mesh({{"dp", 2}});
    test.ShardBatch({"dp", "dp"});
    ExpectRefusal(test, "bad-shard", {"axis 'dp' is named twice"});
  }
}

// ---- optimizer
// -------------------------------------------------------------------------------------------------

TEST(OptimizerStep, ValidatesAfterTheUpdates) {
  TestProgram with({2, 8}, 2), without({2, 8}, 2);
  for (TestProgram* test : {&with, &without}) {
    test->Pipeline(2, 2);
    test->program.train.clip = 1;
  }
  with.Add("optimizer post_validation", OptimizerDirective{true});
  ExpectMatters(with, without, "directive_optimizer.txt",
                {"node \"clip", "node \"update.", "-> \"clip", "-> \"update"});
  TestProgram twice({2, 8}, 1);
  twice.Add("optimizer post_validation", OptimizerDirective{true});
  twice.Add("optimizer synchronised", OptimizerDirective{false});
  ExpectRefusal(twice, "conflicting-directives", {"a second `optimizer`"});
}

// ---- freeze
// ----------------------------------------------------------------------------------------------------

TEST(Freeze, TakesBackwardNodesOut) {
  TestProgram with({2, 8}, 1), without({2, 8}, 1);
  with.Add("freeze [embed] ", FreezeDirective{Sel(0, {{"embed"}}).Union(Sel(0, {{"layer", 0}}))});
  ExpectMatters(with, without, "directive_freeze.txt", {"node \"B", "node \"accumulate", "node \"update"});
}

TEST(Freeze, Refusals) {
  {
    TestProgram test({2, 8, 4, true}, 1);
    test.Add("freeze [embed]", FreezeDirective{Sel(0, {{"embed"}})});
    ExpectRefusal(test, "bad-freeze",
                  {"'wte' is also used outside of [embed]", "a tied parameter is frozen with all its uses"});
  }
  {
    TestProgram test({2, 8}, 1);
    test.Add("freeze [*]", FreezeDirective{Selector::All()});
    ExpectRefusal(test, "bad-freeze", {"nothing is left to train"});
  }
  {
    TestProgram test({2, 8}, 1);
    test.Add("freeze [embd]", FreezeDirective{Sel(0, {{"embd"}})});
    ExpectRefusal(test, "no-such-tag", {"did you mean 'embed'?"});
  }
}

// ---- recompute
// -------------------------------------------------------------------------------------------------

TEST(Recompute, PutsReplaysBeforeTheBackward) {
  TestProgram with({2, 8}, 1), without({2, 8}, 1);
  for (TestProgram* test : {&with, &without}) test->Split(2);
  with.Add("recompute [layer]", RecomputeDirective{Sel(0, {{"layer"}}), {}});
  ExpectMatters(
      with, without, "directive_recompute.txt",
      {"node \"F layer", "node \"R", "node \"BI layer", "-> \"BI layer", "-> \"BW layer", "-> \"R", "order"});
}

TEST(Recompute, Refusals) {
  {
    TestProgram test({2, 8}, 1);
    test.Add("recompute [layre]", RecomputeDirective{Sel(0, {{"layre"}}), {}});
    ExpectRefusal(test, "no-such-tag", {"did you mean 'layer'?"});
  }
  {
    TestProgram test({2, 8}, 1);
    test.Add("recompute [layer = 5]", RecomputeDirective{Sel(0, {{"layer", 5}}), {}});
    ExpectRefusal(test, "empty-selector", {"'layer' has the indices 0..2"});
  }
  {
    TestProgram test({2, 8}, 1);
    test.Split(2);
    test.Add("recompute [layer, mb = 0]", RecomputeDirective{Sel(0, {{"layer"}, {"mb", 0}}), {}});
    ExpectRefusal(test, "bad-recompute", {"names a pass or a microbatch"});
  }
  {
    TestProgram test({2, 8}, 1);
    test.Add("recompute [send]", RecomputeDirective{Sel(0, {{"send"}}), {}});
    ExpectRefusal(test, "bad-recompute", {"names an inserted node"});
  }
  {
    TestProgram test({2, 8}, 1);
    test.Add("recompute [layer]", RecomputeDirective{Sel(0, {{"layer"}}), {}});
    test.Add("recompute [*]", RecomputeDirective{Selector::All(), {}});
    ExpectRefusal(test, "conflicting-directives", {"layer0 is recomputed twice", "the first time here"});
  }
}

// ---- offload
// ---------------------------------------------------------------------------------------------------

TEST(Offload, PutsCopiesBetweenForwardAndBackward) {
  TestProgram with({2, 8}, 1), without({2, 8}, 1);
  for (TestProgram* test : {&with, &without}) test->Split(2);
  with.Add("offload [layer] to host", OffloadDirective{Sel(0, {{"layer"}}), 1});
  ExpectMatters(with, without, "directive_offload.txt",
                {"node \"F layer", "node \"offload", "node \"BI layer", "-> \"BI layer", "-> \"BW layer",
                 "-> \"offload", "after", "order"});
}

TEST(Offload, Refusals) {
  {
    TestProgram test({2, 8}, 1);
    test.Add("offload [layer] to host { prefetch -1 }", OffloadDirective{Sel(0, {{"layer"}}), -1});
    ExpectRefusal(test, "bad-offload", {"copies run 0 or more units ahead"});
  }
  {
    TestProgram test({2, 8}, 1);
    test.Add("offload F[layer] to host", OffloadDirective{Sel(kPassF, {{"layer"}}), 1});
    ExpectRefusal(test, "bad-offload", {"names a pass or a microbatch"});
  }
  {
    TestProgram test({2, 8}, 1);
    test.Add("offload [layer = 1] to host", OffloadDirective{Sel(0, {{"layer", 1}}), 1});
    test.Add("offload [layer] to host", OffloadDirective{Sel(0, {{"layer"}}), 1});
    ExpectRefusal(test, "conflicting-directives", {"layer1 is offloaded twice", "the first time here"});
  }
}

// ---- zero
// ------------------------------------------------------------------------------------------------------

ZeroDirective Zero(int64_t level, int64_t bucket) {
  ZeroDirective zero;
  zero.level = level;
  zero.select = Selector::All();
  zero.bucket_bytes = bucket;
  return zero;
}

TEST(Zero, BucketsReduces) {
  TestProgram with({2, 8}, 2), without({2, 8}, 2);
  for (TestProgram* test : {&with, &without}) {
    test->Mesh({{"dp", 2}});
    test->ShardBatch({"dp"});
  }
  with.Add("zero 0 [*] as dp { bucket 256 B }", Zero(0, 256));
  ExpectMatters(with, without, "directive_zero.txt", {"node \"dp.reduce"});
}

TEST(Zero, Refusals) {
  {
    TestProgram test({2, 8}, 1);
    test.Add("zero 2 [*]", Zero(2, 0));
    ExpectRefusal(test, "unsupported", {"`zero 2` is not supported yet"});
  }
  {
    TestProgram test({2, 8}, 1);
    test.Add("zero 4 [*]", Zero(4, 0));
    ExpectRefusal(test, "bad-zero", {"the levels are 0 to 3"});
  }
  {
    TestProgram test({2, 8}, 1);
    test.Add("zero 0 [*]", Zero(0, 0));
    test.Add("zero 0 [*] { bucket 1 MiB }", Zero(0, 1 << 20));
    ExpectRefusal(test, "conflicting-directives", {"have a second `zero`"});
  }
}

// ---- what is not there yet
// -------------------------------------------------------------------------------------

TEST(Unsupported, IsLocatedAndNamed) {
  {
    TestProgram test({2, 8}, 1);
    RunDirective run;
    run.ready = true;
    test.Add("run ready", run);
    ExpectRefusal(test, "unsupported", {"`run ready` is not supported yet"});
  }
}

TestProgram Replicated() {
  TestProgram test({2, 8}, 2);
  test.Mesh({{"dp", 2}});
  test.ShardBatch({"dp"});
  return test;
}

TEST(Slowdown, IsInThePlansTextAndRefusesWhatItCannotMean) {
  {
    TestProgram test = Replicated();
    test.Add("slowdown compute with reduce = 1.2", SlowdownDirective{"compute", "reduce", 1.2});
    BuiltDag built = test.MustBuild();
    ASSERT_EQ(built.dag.slowdowns.size(), 1u);
    EXPECT_EQ(built.dag.slowdowns[0].thousandths, 1200u);
    const std::string text = DagToText(built.dag);
    EXPECT_NE(text.find("slowdown compute reduce 1200"), std::string::npos) << text;
    SourceManager sources;
    DiagnosticEngine diag(sources);
    std::optional<Dag> again = ParseDag(sources.Add("plan.ir", text), diag);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->slowdowns, built.dag.slowdowns);
  }
  const std::pair<SlowdownDirective, std::pair<const char*, const char*>> refused[] = {
      {{"compute", "redcue", 1.2}, {"bad-slowdown", "did you mean 'reduce'?"}},
      {{"compute", "compute", 1.2}, {"bad-slowdown", "does not run beside itself"}},
      {{"compute", "reduce", 2.5}, {"bad-slowdown", "the most is 2"}}};
  for (const auto& [slowdown, expected] : refused) {
    TestProgram test = Replicated();
    test.Add("slowdown ..", slowdown);
    ExpectRefusal(test, expected.first, {expected.second, "test.piper:1:1"});
  }
  TestProgram test = Replicated();
  test.Add("slowdown compute with reduce = 1.2", SlowdownDirective{"compute", "reduce", 1.2});
  test.Add("slowdown reduce with compute = 1.3", SlowdownDirective{"reduce", "compute", 1.3});
  ExpectRefusal(test, "conflicting-directives", {"have a second slowdown", "the first one is here"});
}

// ---- derived synchronisation
// -----------------------------------------------------------------------------------

TEST(GradientSync, TiedWeightsAndClipping) {
  TestProgram test({2, 16, 4, true}, 4);
  test.program.train.clip = 1;
  test.Pipeline(2, 2, 2);
  ExpectGolden("gradient_sync.txt", LinesWith(DagToText(test.MustBuild().dag),
                                              {"tie.reduce", "clip.", "reduce wte", "-> \"update wte"}));
}

TEST(ForwardOnly, HasTheSamePlacementAndNoGradients) {
  TestProgram test({2, 8}, 2);
  test.Pipeline(2, 4);
  test.OneForwardOneBackward(2, 4);
  std::optional<BuiltDag> built = test.Build(true);
  ASSERT_TRUE(built) << test.Diagnostics();
  EXPECT_TRUE(VerifyDag(built->dag).empty());
  EXPECT_TRUE(CheckOrder(built->dag, test.diag()));
  EXPECT_TRUE(CheckGradients(built->dag, built->regions, test.diag())) << test.Diagnostics();
  for (const NodeTemplate& node : built->dag.templates) {
    EXPECT_TRUE(node.kind == NodeKind::kCompute || node.kind == NodeKind::kSend ||
                node.kind == NodeKind::kRecv || node.kind == NodeKind::kLossFold ||
                node.kind == NodeKind::kAllReduce);
    EXPECT_TRUE(node.kind != NodeKind::kCompute || node.pass == Pass::kF);
  }
}

}  // namespace
}  // namespace piper::ir
