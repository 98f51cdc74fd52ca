// Selector values: intersection, union, complement in disjunctive normal form, and their spelling.
#include <gtest/gtest.h>

#include "ir/program/program.h"

namespace piper::ir {
namespace {

SelectorTerm Term(std::string_view name) {
  SelectorTerm term;
  term.name = InternName(name);
  return term;
}
SelectorTerm Term(std::string_view name, int64_t begin, int64_t end) {
  SelectorTerm term = Term(name);
  term.has_range = true;
  term.begin = begin;
  term.end = end;
  return term;
}
Selector One(PassSet passes, std::vector<SelectorTerm> terms) {
  Selector selector;
  selector.any_of.push_back({passes, std::move(terms)});
  return selector;
}

TEST(Names, EqualTextEqualId) {
  EXPECT_EQ(InternName(""), 0u);
  EXPECT_EQ(InternName("layer"), InternName("layer"));
  EXPECT_EQ(NameText(InternName("layer")), "layer");
}

TEST(Selector, Spelling) {
  EXPECT_EQ(Selector::All().ToString(), "[*]");
  EXPECT_EQ(One(PassBit(Pass::kF), {Term("stage", 2, 3), Term("mb", 3, 4)}).ToString(),
            "F[stage = 2, mb = 3]");
  EXPECT_EQ(One(kPassB, {Term("layer", 4, 6)}).ToString(), "B[layer = 4..6]");
  SelectorTerm list = Term("mb", 1, 2);
  list.more = {{4, 6}};
  EXPECT_EQ(One(0, {list}).ToString(), "[mb = [1, 4..6]]");
  EXPECT_TRUE(list.Contains(5));
  EXPECT_FALSE(list.Contains(2));
}

TEST(Selector, IntersectionKeepsCommonPasses) {
  Selector b = One(kPassB, {Term("attn")});
  EXPECT_EQ(b.Intersect(One(PassBit(Pass::kBW), {Term("layer", 1, 2)})).ToString(), "BW[attn, layer = 1]");
  EXPECT_TRUE(b.Intersect(One(PassBit(Pass::kF), {})).any_of.empty());
  EXPECT_EQ(b.Intersect(Selector::All()).ToString(), "B[attn]");
}

TEST(Selector, UnionDropsDuplicates) {
  Selector a = One(0, {Term("attn")});
  EXPECT_EQ(a.Union(a).ToString(), "[attn]");
  EXPECT_EQ(a.Union(One(0, {Term("mlp")})).ToString(), "[attn] or [mlp]");
}

TEST(Selector, ComplementByDeMorgan) {
  Selector a = One(0, {Term("attn"), Term("layer", 0, 2)});
  EXPECT_EQ(a.Complement()->ToString(), "[not attn] or [not layer = 0..2]");
  EXPECT_EQ(a.Complement()->Complement()->ToString(), "[attn, layer = 0..2]");
  EXPECT_TRUE(Selector::All().Complement()->any_of.empty());
  EXPECT_EQ(Selector().Complement()->ToString(), "[*]");
  EXPECT_TRUE(a.Intersect(*a.Complement()).any_of.empty());
}

TEST(Selector, ComplementIsBounded) {
  Selector big;
  for (int i = 0; i < 20; ++i) {
    big.any_of.push_back({0, {Term("a", 2 * i, 2 * i + 1), Term("b", 2 * i, 2 * i + 1)}});
  }
  EXPECT_FALSE(big.Complement());
}

TEST(Topology, InnermostLevelThatHoldsBoth) {
  Topology t;
  t.kinds.resize(1);
  t.device_kind.assign(8, 0);
  t.levels.push_back({"node", {{0, 4, {50, 1, 1}}, {4, 4, {50, 1, 1}}}});
  t.levels.push_back({"cluster", {{0, 8, {10, 2, 1}}}});
  EXPECT_EQ(t.Between(1, 3).bandwidth, 50);
  EXPECT_EQ(t.Between(5, 4).latency, 1);
  EXPECT_EQ(t.Between(3, 4).bandwidth, 10);
  EXPECT_EQ(t.Between(2, 2).bandwidth, 0);
}

}  // namespace
}  // namespace piper::ir
