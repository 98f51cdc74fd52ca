// Proof 1 against brute force: shuffled orders of small pipelines are judged by CheckOrder and by a plain
// search over the expanded graph that shares no code with it; where both refuse, the reported cycle is as
// short as the shortest one.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tests/dag_test_support.h"

namespace piper::ir {
namespace {

// Adjacency between contracted nodes, expanded one edge at a time.
std::map<int, std::set<int>> Expand(const Dag& dag) {
  std::map<int, int> contracted;
  int atomics = 0;
  for (const StreamOrder& order : dag.orders) {
    for (const OrderItem& item : order.items) {
      if (item.atomic != kNone)
        contracted[static_cast<int>(item.node)] = 1'000'000 + static_cast<int>(item.atomic);
      atomics += item.atomic != kNone;
    }
  }
  auto id = [&](NodeId node) {
    auto it = contracted.find(static_cast<int>(node));
    return it == contracted.end() ? static_cast<int>(node) : it->second;
  };
  std::map<int, std::set<int>> next;
  auto add = [&](NodeId a, NodeId b) {
    if (id(a) != id(b)) next[id(a)].insert(id(b));
  };
  for (const TemplateEdge& edge : dag.edges) {
    const NodeTemplate& from = dag.templates[edge.from];
    const NodeTemplate& to = dag.templates[edge.to];
    for (int32_t a = from.mb_begin; a < from.mb_end; ++a) {
      for (int32_t b = to.mb_begin; b < to.mb_end; ++b) {
        if (a < 0 || b < 0 || a == b) add(dag.Node(edge.from, a), dag.Node(edge.to, b));
      }
    }
  }
  for (const StreamOrder& order : dag.orders) {
    for (size_t i = 0; i + 1 < order.items.size(); ++i) add(order.items[i].node, order.items[i + 1].node);
  }
  for (const TemporalEdge& edge : dag.temporal) add(edge.from, edge.to);
  return next;
}

// The number of nodes on the shortest cycle; 0 if there is none.
size_t ShortestCycle(const std::map<int, std::set<int>>& next) {
  size_t best = 0;
  for (const auto& [start, unused] : next) {
    std::map<int, size_t> distance = {{start, 0}};
    std::vector<int> queue = {start};
    for (size_t i = 0; i < queue.size(); ++i) {
      auto out = next.find(queue[i]);
      if (out == next.end()) continue;
      for (int to : out->second) {
        if (to == start) {
          size_t length = distance[queue[i]] + 1;
          if (best == 0 || length < best) best = length;
        }
        if (distance.emplace(to, distance[queue[i]] + 1).second) queue.push_back(to);
      }
    }
  }
  return best;
}

TEST(CheckOrder, AgreesWithBruteForceOnShuffledOrders) {
  std::mt19937 random(11);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 300; ++round) {
    int64_t p = 2 + round % 3, m = 2 + round % 2;
    TestProgram test({2, 12, 2}, p);
    test.program.train.global_batch = 12;
    test.Pipeline(p, m);
    for (int64_t s = 0; s < p; ++s) {
      std::vector<std::pair<bool, int64_t>> steps;
      for (int64_t i = 0; i < m; ++i) steps.push_back({true, i});
      for (int64_t i = 0; i < m; ++i) steps.push_back({false, i});
      // A few swaps: about half of them stay legal.
      for (int swap = 0; swap < round % 3; ++swap) {
        size_t at = random() % (steps.size() - 1);
        std::swap(steps[at], steps[at + 1]);
      }
      std::vector<Step> listed;
      for (auto [forward, mb] : steps) listed.push_back(test.Do(forward ? F(s, mb) : B(s, mb)));
      test.Order("pp", s, std::move(listed));
    }
    std::optional<BuiltDag> built = test.Build();
    ASSERT_TRUE(built) << test.Diagnostics();
    size_t shortest = ShortestCycle(Expand(built->dag));
    bool ordered = CheckOrder(built->dag, test.diag());
    ASSERT_EQ(ordered, shortest == 0) << test.Diagnostics();
    ++(ordered ? accepted : refused);
    if (!ordered) {
      std::string text = std::to_string(shortest) + " nodes wait for each other in a cycle";
      EXPECT_NE(test.Diagnostics().find(text), std::string::npos) << shortest << "\n" << test.Diagnostics();
    }
  }
  EXPECT_GT(accepted, 60);
  EXPECT_GT(refused, 60);
}

TEST(CheckOrder, EdgesAcrossMicrobatchesAgreeToo) {
  std::mt19937 random(5);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 200; ++round) {
    TestProgram test({2, 8, 2}, 2);
    test.Pipeline(2, 4);
    test.OneForwardOneBackward(2, 4);
    for (int e = 0; e < 2; ++e) {
      auto pick = [&] {
        return Sel(random() % 2 ? kPassF : kPassBW,
                   {{"stage", 0}, {"mb", static_cast<int64_t>(random() % 4)}});
      };
      Selector from = pick(), to = pick();
      if (from.ToString() == to.ToString()) continue;
      test.Add("edge", EdgeDirective{from, to});
    }
    std::optional<BuiltDag> built = test.Build();
    ASSERT_TRUE(built) << test.Diagnostics();
    bool ordered = CheckOrder(built->dag, test.diag());
    ASSERT_EQ(ordered, ShortestCycle(Expand(built->dag)) == 0) << test.Diagnostics();
    ++(ordered ? accepted : refused);
  }
  EXPECT_GT(accepted, 20);
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace piper::ir
