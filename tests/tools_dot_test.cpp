// The Graphviz pictures: a strict reader of the part of DOT that they use finds every edge's ends among the
// nodes, and the graphs hold what the model and the plan hold.
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "frontend/frontend.h"
#include "ir/pipeline.h"
#include "tools/graph_dot.h"

namespace piper::tools {
namespace {

// digraph "name" { [graph attributes;] [node|edge [..];] subgraph cluster_N { .. } id [..]; id -> id [..]; }
class Reader {
 public:
  struct Node {
    std::string label;
    std::vector<std::string> clusters;  // labels, outermost first
  };
  struct Edge {
    std::string from, to, label;
    bool dashed = false;
  };
  std::map<std::string, Node> nodes;
  std::vector<Edge> edges;
  std::set<std::string> clusters;

  explicit Reader(const std::string& text) : text_(text) {
    Expect("digraph");
    Next();  // the name
    Expect("{");
    Statements();
    EXPECT_EQ(Peek(), "") << "text behind the graph";
    for (const Edge& edge : edges) {
      EXPECT_EQ(nodes.count(edge.from), 1u) << edge.from << " is no node";
      EXPECT_EQ(nodes.count(edge.to), 1u) << edge.to << " is no node";
    }
  }

 private:
  std::string Peek() {
    const size_t before = at_;
    std::string token = Next();
    at_ = before;
    return token;
  }
  // An identifier, a quoted string (its content behind a '"'), "->", or one character of punctuation.
  std::string Next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    if (at_ == text_.size()) return "";
    if (text_[at_] == '"') {
      std::string token = "\"";
      for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
        if (text_[at_] == '\\') token += text_[at_++];
        token += text_[at_];
      }
      EXPECT_LT(at_, text_.size()) << "a string without an end";
      ++at_;
      return token;
    }
    if (text_.compare(at_, 2, "->") == 0) {
      at_ += 2;
      return "->";
    }
    auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    if (!word(text_[at_])) return std::string(1, text_[at_++]);
    std::string token;
    while (at_ < text_.size() && word(text_[at_])) token += text_[at_++];
    return token;
  }
  void Expect(const std::string& token) { EXPECT_EQ(Next(), token) << text_.substr(at_, 60); }

  std::map<std::string, std::string> Attributes() {
    std::map<std::string, std::string> attributes;
    if (Peek() != "[") return attributes;
    Next();
    while (true) {
      const std::string key = Next();
      EXPECT_FALSE(key.empty() || key[0] == '"') << key;
      Expect("=");
      const std::string value = Next();
      EXPECT_TRUE(attributes.emplace(key, value[0] == '"' ? value.substr(1) : value).second)
          << key << " twice";
      const std::string next = Next();
      if (next == "]") return attributes;
      EXPECT_EQ(next, ",");
      if (next != ",") return attributes;
    }
  }

  void Statements() {
    while (!::testing::Test::HasFailure()) {
      const std::string token = Next();
      if (token == "}") return;
      ASSERT_NE(token, "") << "the text ends inside of a graph";
      if (token == "subgraph") {
        const std::string name = Next();
        EXPECT_EQ(name.rfind("cluster_", 0), 0u);
        EXPECT_TRUE(clusters.insert(name).second) << name << " twice";
        Expect("{");
        open_.emplace_back();
        Statements();
        open_.pop_back();
        continue;
      }
      if (Peek() == "=") {  // an attribute of the graph or cluster
        Next();
        const std::string value = Next();
        if (token == "label" && !open_.empty()) open_.back() = value.substr(1);
        Expect(";");
        continue;
      }
      if (Peek() == "->") {
        Next();
        Edge edge{token, Next(), "", false};
        std::map<std::string, std::string> attributes = Attributes();
        edge.label = attributes["label"];
        edge.dashed = attributes["style"] == "dashed";
        edges.push_back(edge);
      } else {
        std::map<std::string, std::string> attributes = Attributes();
        if (token != "node" && token != "edge") {
          EXPECT_TRUE(nodes.emplace(token, Node{attributes["label"], open_}).second) << token << " twice";
        }
      }
      Expect(";");
    }
  }

  const std::string text_;
  size_t at_ = 0;
  std::vector<std::string> open_;
};

struct Loaded {
  std::optional<ir::Program> program;
  std::optional<ir::Plan> plan;
};

Loaded Load(int layers, const std::string& strategy, int ranks, int batch) {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  frontend::LoadOptions options;
  options.text =
      "import std.gpt\nimport std.strategies\nimport std.topologies\n"
      "model net = gpt.GPT(layers = " +
      std::to_string(layers) +
      ", embed = 16, heads = 2, vocab = 64, seq = 8)\ntrain {\n  model net\n  data random()\n"
      "  global_batch " +
      std::to_string(batch) +
      "\n  optimizer adamw(lr = 1e-3)\n  on topologies.ideal(ranks = " + std::to_string(ranks) +
      ")\n  using strategies." + strategy + "\n}\n";
  Loaded loaded;
  loaded.program = frontend::LoadProgram("x.piper", options, sources, diag);
  if (loaded.program) loaded.plan = ir::BuildPlan(*loaded.program, diag);
  EXPECT_TRUE(loaded.plan) << diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
  return loaded;
}

TEST(ModelDot, AnOperationANodeInItsRegion) {
  const Loaded loaded = Load(2, "one_f_one_b(p = 2, m = 2)", 2, 4);
  const ir::RegionGraph regions = ir::BuildRegions(loaded.program->model);
  const std::optional<std::string> text = ModelDot(regions);
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, *ModelDot(regions));
  const Reader dot(*text);
  size_t operations = 0;
  for (const ir::Region& region : regions.regions) operations += region.last - region.first;
  EXPECT_EQ(dot.nodes.size(), operations + regions.graph.inputs.size() + 1) << "and the loss";
  std::set<std::string> outer;
  for (const auto& [id, node] : dot.nodes) {
    if (!node.clusters.empty()) outer.insert(node.clusters[0]);
  }
  EXPECT_EQ(outer, (std::set<std::string>{"embed 0", "head 0", "layer 0", "layer 1"}));
  size_t uses = 0;  // of values that are no parameters
  for (const ir::Region& region : regions.regions) {
    for (ir::OpId o = region.first; o < region.last; ++o) {
      for (ir::ValueId operand : regions.graph.operations[o].operands) {
        uses += regions.graph.values[operand].source != ir::Value::Source::kParameter ? 1 : 0;
      }
    }
  }
  size_t shapes = 0;
  for (const Reader::Edge& edge : dot.edges) shapes += edge.label.find('[') != std::string::npos ? 1 : 0;
  EXPECT_GE(shapes, uses / 2) << "edges say what they carry";
  EXPECT_LE(shapes, uses);
}

TEST(ModelDot, LargeGraphsAreFolded) {
  const Loaded regions = Load(24, "single()", 1, 1);
  const std::optional<std::string> folded = ModelDot(ir::BuildRegions(regions.program->model));
  ASSERT_TRUE(folded);
  EXPECT_NE(folded->find("folded to regions"), std::string::npos);
  const Reader dot(*folded);
  EXPECT_LE(dot.nodes.size(), kDotNodes);
  bool tied = false;
  for (const Reader::Edge& edge : dot.edges) tied = tied || (edge.dashed && edge.label == "tied wte.weight");
  EXPECT_TRUE(tied) << "embedding and head share a parameter";

  const Loaded tags = Load(100, "single()", 1, 1);
  const std::optional<std::string> coarser = ModelDot(ir::BuildRegions(tags.program->model));
  ASSERT_TRUE(coarser);
  EXPECT_NE(coarser->find("folded to tags"), std::string::npos);
  EXPECT_EQ(Reader(*coarser).nodes.size(), 100u + 2 + 2 + 1)
      << "layers, embed and head, two inputs, the loss";
}

TEST(DagDot, ATemplateANodeByRankAndStage) {
  const Loaded loaded = Load(2, "one_f_one_b(p = 2, m = 4, dp = 2)", 4, 8);
  const std::optional<std::string> text = DagDot(loaded.plan->dag, *loaded.program);
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, *DagDot(loaded.plan->dag, *loaded.program));
  const Reader dot(*text);
  EXPECT_EQ(dot.nodes.size(), loaded.plan->dag.templates.size());
  int messages = 0, gathers = 0;
  for (const Reader::Edge& edge : dot.edges) {
    const Reader::Node &from = dot.nodes.at(edge.from), &to = dot.nodes.at(edge.to);
    if (from.label.find("send") == 0 && to.label.find("recv") == 0) {
      ++messages;
      EXPECT_EQ(edge.label, "512 B") << "one sample of 8 x 16 floats";
      EXPECT_NE(from.clusters[0], to.clusters[0]);
    }
    gathers += edge.label == "all 4" ? 1 : 0;
  }
  EXPECT_GE(messages, 2) << "the activation, and its cotangent";
  EXPECT_GT(gathers, 0) << "into reductions and updates";
  std::set<std::string> ranks, stages;
  for (const auto& [id, node] : dot.nodes) {
    ASSERT_FALSE(node.clusters.empty());
    ranks.insert(node.clusters[0]);
    if (node.clusters.size() > 1) stages.insert(node.clusters[1]);
  }
  EXPECT_EQ(ranks.count("pp[0]: rank 0, 1"), 1u) << *ranks.begin();
  EXPECT_EQ(stages, (std::set<std::string>{"stage 0", "stage 1"}));
}

TEST(DagDot, LargeDagsAreFoldedToPassesOfStages) {
  const Loaded loaded = Load(32, "zbv(p = 4, m = 8)", 4, 8);
  ASSERT_GT(loaded.plan->dag.templates.size(), kDotNodes);
  const std::optional<std::string> text = DagDot(loaded.plan->dag, *loaded.program);
  ASSERT_TRUE(text);
  const Reader dot(*text);
  EXPECT_LE(dot.nodes.size(), kDotNodes);
  int forwards = 0;
  for (const auto& [id, node] : dot.nodes) forwards += node.label.rfind("F\\n", 0) == 0 ? 1 : 0;
  EXPECT_EQ(forwards, 8) << "one a stage";
}

}  // namespace
}  // namespace piper::tools
