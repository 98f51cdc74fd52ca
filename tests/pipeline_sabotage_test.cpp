// Proof 3 by sabotage, on plans from `.piper` text: with tied weights, replicas, stage copies, buckets,
// clipping, frozen parts, recomputation, offloading and post-validation, every reduce and accumulate node is
// deleted, doubled, rescaled and moved before the last BW that it needs, and every term of a sum left out and
// counted twice, one edit at a time. Every one is refused. A sample of the nodes always, all under
// PIPER_SOAK=1.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "ir/check/gradients.h"
#include "ir/check/order.h"
#include "ir/dag/dag_text.h"
#include "tests/pipeline_support.h"
#include "tests/sabotage_text.h"

namespace piper::testing {
namespace {

using ir::DiagKind;

// The kind of the first error, if any.
std::optional<DiagKind> Prove(const std::string& text, const ir::RegionGraph& regions,
                              std::string* messages) {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  std::optional<ir::Dag> dag = ir::ParseDag(sources.Add("plan.ir", text), diag);
  if (dag && ir::CheckOrder(*dag, diag)) ir::CheckGradients(*dag, regions, diag);
  *messages = diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
  for (const ir::Diagnostic& d : diag.diagnostics()) {
    if (d.severity == ir::Severity::kError) return d.kind;
  }
  return std::nullopt;
}

// Rounds through the text: what is proved there is the plan itself.
int Sabotage(const std::string& program, const std::string& what) {
  std::unique_ptr<Compiled> compiled = Compile(program);
  EXPECT_TRUE(compiled->ok()) << what << "\n" << compiled->Messages();
  if (!compiled->ok()) return 0;
  const ir::Dag& dag = compiled->plan->dag;
  const ir::RegionGraph& regions = compiled->plan->regions;
  std::string text = ir::DagToText(dag), messages;
  EXPECT_EQ(Prove(text, regions, &messages), std::nullopt) << messages;
  std::vector<std::string> lines = ir::Lines(text);
  int edits = 0, index = 0;
  for (const ir::NodeTemplate& node : dag.templates) {
    if (node.kind != ir::NodeKind::kAccumulate && node.kind != ir::NodeKind::kAllReduce) continue;
    if (!Soak() && index++ % 5 != 0 && node.kind == ir::NodeKind::kAccumulate && !node.step_level()) continue;
    std::string quoted = "\"" + node.name + "\"";
    EXPECT_EQ(Prove(ir::Without(lines, quoted), regions, &messages), DiagKind::kGradientMissing)
        << what << ": deleted " << node.name << "\n"
        << messages;
    EXPECT_EQ(Prove(ir::Doubled(lines, quoted), regions, &messages), DiagKind::kGradientDouble)
        << what << ": doubled " << node.name << "\n"
        << messages;
    for (const char* scale : {"2", "0.5", "-1"}) {
      std::vector<std::string> scaled = lines;
      for (std::string& line : scaled) {
        if (line.rfind("node " + quoted, 0) == 0) line += std::string(" scale ") + scale;
      }
      EXPECT_EQ(Prove(ir::Join(scaled), regions, &messages), DiagKind::kGradientScale)
          << what << ": scaled " << node.name << "\n"
          << messages;
    }
    ++edits;
  }
  return edits;
}

TEST(PipelineSabotage, EveryReduceAndAccumulateOfATiedGptIsNeeded) {
  TrainText text;
  text.schedule = "one_f_one_b";
  text.p = 2;
  text.dp = 2;
  text.m = 4;
  text.train = "  clip 1.0\n";
  EXPECT_GE(Sabotage(text.Text(), "pp x dp"), 40);
  text.zero = "zero 0 [*] as dp { bucket 8 KiB }";
  EXPECT_GE(Sabotage(text.Text(), "pp x dp, buckets"), 10);
  text.directives = "  optimizer post_validation\n";
  EXPECT_GE(Sabotage(text.Text(), "pp x dp, validated afterwards"), 10);
}

TEST(PipelineSabotage, EveryReduceAndAccumulateOfThreeUsesAndTwoLossesIsNeeded) {
  TrainText text = Layout("skip", "interleaved", 2, 2, 2, 2);
  EXPECT_GE(Sabotage(text.Text(), "skip"), 10);
}

// ---- with everything that rewrites the step beside it

class Sabotaged {
 public:
  explicit Sabotaged(const std::string& strategy, const std::string& train = "", int ranks = 4)
      : name_(strategy + train),
        compiled_(Compile("import std.strategies\n" + Declarations() + "strategy study {\n" + strategy +
                          "\n}\ntrain {\n  model gpt_net\n  data random(32)\n  global_batch 16\n  optimizer "
                          "adamw(lr = 1e-2)\n" +
                          train + "  on topologies.local(ranks = " + std::to_string(ranks) +
                          ")\n  using study\n}\n")) {}

  // Adds test failures; the number of edits.
  int Run() {
    EXPECT_TRUE(compiled_->ok()) << name_ << "\n" << compiled_->Messages();
    if (!compiled_->ok()) return 0;
    const ir::Dag& dag = compiled_->plan->dag;
    EXPECT_EQ(Kind(dag), std::nullopt) << name_ << "\n" << messages_;
    const std::vector<std::string> lines = ir::Lines(ir::DagToText(dag));
    std::map<std::pair<ir::NodeKind, bool>, int> seen;  // by kind, and whether it is of the step
    for (ir::TemplateId t = 0; t < dag.templates.size(); ++t) {
      const ir::NodeTemplate& node = dag.templates[t];
      const bool rarely = node.kind == ir::NodeKind::kAccumulate || node.kind == ir::NodeKind::kUpdate;
      const int before = seen[{node.kind, node.step_level()}]++;
      if (!Soak() && before % (rarely ? 13 : 5) != 0) continue;
      Scale(lines, node);
      if (!Counts(node.kind)) continue;
      LeaveOutOrDouble(lines, node);
      LeaveOutTerms(dag, t);
      MoveBeforeLastBW(dag, t);
    }
    return edits_;
  }

 private:
  std::optional<DiagKind> Kind(const ir::Dag& dag) {
    ir::DiagnosticEngine diag(compiled_->sources);
    if (ir::CheckOrder(dag, diag)) ir::CheckGradients(dag, compiled_->plan->regions, diag);
    return First(diag);
  }
  std::optional<DiagKind> First(const ir::DiagnosticEngine& diag) {
    messages_ = diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
    for (const ir::Diagnostic& d : diag.diagnostics()) {
      if (d.severity == ir::Severity::kError) return d.kind;
    }
    return std::nullopt;
  }
  void Expect(const ir::Dag& dag, DiagKind kind, const std::string& what) {
    ++edits_;
    EXPECT_EQ(Kind(dag), kind) << name_ << ": " << what << "\n" << messages_;
  }
  void Refused(const ir::Dag& dag, const std::string& what) {
    ++edits_;
    EXPECT_NE(Kind(dag), std::nullopt) << name_ << ": " << what;
  }

  std::optional<DiagKind> KindOf(const std::string& text) {
    ir::DiagnosticEngine diag(compiled_->sources);
    std::optional<ir::Dag> dag = ir::ParseDag(compiled_->sources.Add("plan.ir", text), diag);
    if (dag && ir::CheckOrder(*dag, diag)) ir::CheckGradients(*dag, compiled_->plan->regions, diag);
    return First(diag);
  }

  static bool Counts(ir::NodeKind kind) {
    switch (kind) {
      case ir::NodeKind::kAccumulate:
      case ir::NodeKind::kAllReduce:
      case ir::NodeKind::kUpdate:
      case ir::NodeKind::kNorm:
      case ir::NodeKind::kClip:
      case ir::NodeKind::kSave:
      case ir::NodeKind::kValidate:
      case ir::NodeKind::kLossFold:
        return true;
      default:
        return false;
    }
  }

  // In the plan's text. Of what neither adds nor applies gradients, too.
  void Scale(const std::vector<std::string>& lines, const ir::NodeTemplate& node) {
    for (const char* scale : {"2", "0.5", "-1", "0"}) {
      std::vector<std::string> scaled = lines;
      for (std::string& line : scaled) {
        if (line.rfind("node \"" + node.name + "\"", 0) == 0) line += std::string(" scale ") + scale;
      }
      EXPECT_EQ(KindOf(ir::Join(scaled)), DiagKind::kGradientScale)
          << name_ << ": scaled " << node.name << "\n"
          << messages_;
      ++edits_;
      if (!Soak() && !Counts(node.kind)) break;
    }
  }
  void LeaveOutOrDouble(const std::vector<std::string>& lines, const ir::NodeTemplate& node) {
    const std::string quoted = "\"" + node.name + "\"";
    EXPECT_NE(KindOf(ir::Without(lines, quoted)), std::nullopt) << name_ << ": deleted " << node.name;
    EXPECT_EQ(KindOf(ir::Doubled(lines, quoted)), DiagKind::kGradientDouble)
        << name_ << ": doubled " << node.name << "\n"
        << messages_;
    edits_ += 2;
  }

  // A tied copy, a stage copy, a parameter of a bucket; or the last microbatch.
  void LeaveOutTerms(const ir::Dag& dag, ir::TemplateId t) {
    const ir::NodeTemplate& node = dag.templates[t];
    if (node.kind == ir::NodeKind::kUpdate) return;  // its one gradient is what it updates by
    for (size_t i = 0; i < node.gradients.size(); ++i) {
      ir::Dag without = dag, twice = dag;
      std::vector<ir::GradientRef>& left = without.templates[t].gradients;
      left.erase(left.begin() + static_cast<ptrdiff_t>(i));
      twice.templates[t].gradients.push_back(node.gradients[i]);
      const std::string term = " term " + std::to_string(i);
      Expect(without, DiagKind::kGradientMissing, node.name + " without" + term);
      Expect(twice, DiagKind::kGradientDouble, node.name + " twice" + term);
    }
  }

  // With what it waits for: its order is contradicted. Without: it would come too early.
  void MoveBeforeLastBW(const ir::Dag& dag, ir::TemplateId t) {
    const ir::NodeTemplate& node = dag.templates[t];
    if (node.gradients.empty() || node.kind == ir::NodeKind::kUpdate || node.kind == ir::NodeKind::kNorm)
      return;
    ir::Dag moved = dag;
    if (Reorder(&moved, t)) Refused(moved, node.name + " listed before the last BW");
    for (size_t e = 0; e < dag.edges.size(); ++e) {
      const ir::TemplateEdge& edge = dag.edges[e];
      const ir::NodeTemplate& from = dag.templates[edge.from];
      if (edge.to != t || (from.kind != ir::NodeKind::kAccumulate && from.kind != ir::NodeKind::kAllReduce &&
                           from.pass != ir::Pass::kBW))
        continue;
      ir::Dag cut = moved;
      cut.edges.erase(cut.edges.begin() + static_cast<ptrdiff_t>(e));
      if (Reaches(cut, edge.from, t)) continue;  // it waits all the same
      ++edits_;
      ir::DiagnosticEngine diag(compiled_->sources);
      ir::CheckGradients(cut, compiled_->plan->regions, diag);
      EXPECT_EQ(First(diag), DiagKind::kGradientMissing)
          << name_ << ": " << node.name << " does not wait for " << from.name << "\n"
          << messages_;
    }
  }
  // The node's last instance right before the last BW before it on its stream, if there is one.
  static bool Reorder(ir::Dag* dag, ir::TemplateId t) {
    const ir::NodeId last = dag->first_node[t + 1] - 1;
    for (ir::StreamOrder& order : dag->orders) {
      auto at = std::find_if(order.items.begin(), order.items.end(),
                             [&](const ir::OrderItem& item) { return item.node == last; });
      if (at == order.items.end()) continue;
      auto before = at;
      while (before != order.items.begin()) {
        --before;
        const ir::NodeTemplate& other = dag->templates[dag->TemplateOf(before->node)];
        if (other.kind != ir::NodeKind::kCompute || other.pass != ir::Pass::kBW) continue;
        if (dag->templates[t].step_level() || other.region == dag->templates[t].region) {
          ir::OrderItem item = *at;
          item.atomic = ir::kNone;
          order.items.erase(at);
          order.items.insert(before, item);
          return true;
        }
      }
    }
    return false;
  }
  static bool Reaches(const ir::Dag& dag, ir::TemplateId from, ir::TemplateId to) {
    std::set<ir::TemplateId> seen = {from};
    for (std::vector<ir::TemplateId> work = {from}; !work.empty();) {
      const ir::TemplateId at = work.back();
      work.pop_back();
      if (at == to) return true;
      for (const ir::TemplateEdge& edge : dag.edges) {
        if (edge.from == at && seen.insert(edge.to).second) work.push_back(edge.to);
      }
    }
    return false;
  }

  std::string name_;
  std::unique_ptr<Compiled> compiled_;
  std::string messages_;
  int edits_ = 0;
};

TEST(PipelineSabotage, StageCopiesReplicasAndTies) {
  EXPECT_GE(Sabotaged("  use strategies.dualpipe(p = 2, m = 4, dp = 2)", "  clip 1.0\n").Run(), 100);
  EXPECT_GE(Sabotaged("  use strategies.dualpipe(p = 4, m = 8)").Run(), 100);
  EXPECT_GE(Sabotaged("  use strategies.pipeline_by(schedules.one_f_one_b, p = 2, m = 4, dp = 2, bucket = 4 "
                      "KiB)\n  stream [dp.reduce] on compute")
                .Run(),
            50);
  EXPECT_GE(Sabotaged("  use strategies.data_parallel(dp = 4, m = 2)\n  numerics fast").Run(), 50);
}

TEST(PipelineSabotage, RecomputeAndOffload) {
  EXPECT_GE(Sabotaged("  use strategies.zb1p(p = 2, m = 4, dp = 2)\n  recompute [layer]").Run(), 100);
  EXPECT_GE(
      Sabotaged(
          "  use strategies.one_f_one_b(p = 2, m = 4, dp = 2)\n  offload [layer] to host { prefetch 1 }",
          "  clip 1.0\n")
          .Run(),
      100);
  EXPECT_GE(
      Sabotaged(
          "  use strategies.dualpipev(p = 2, m = 4, dp = 2)\n  recompute [stage]\n  offload [stage] to host")
          .Run(),
      100);
}

TEST(PipelineSabotage, FrozenParts) {
  EXPECT_GE(
      Sabotaged("  use strategies.zbv(p = 2, m = 4, dp = 2)\n  freeze [layer = 0..2]", "  clip 1.0\n").Run(),
      50);
  EXPECT_GE(
      Sabotaged("  use strategies.dualpipe(p = 2, m = 4, dp = 2)\n  freeze [layer = 3]\n  recompute [*]")
          .Run(),
      50);
}

TEST(PipelineSabotage, PostValidation) {
  EXPECT_GE(Sabotaged("  use strategies.zb2p_overlapped(p = 2, m = 4, dp = 2)", "  clip 1.0\n").Run(), 50);
  EXPECT_GE(Sabotaged("  use strategies.dualpipe(p = 2, m = 4, dp = 2)\n  optimizer post_validation\n  "
                      "recompute [layer]\n"
                      "  freeze [layer = 1]\n  edge [update.validate] -> BW distance 1",
                      "  clip 1.0\n")
                .Run(),
            50);
  EXPECT_GE(Sabotaged("  use strategies.interleaved(p = 2, v = 2, m = 4, dp = 2)\n  optimizer "
                      "post_validation\n  offload [stage] to host")
                .Run(),
            50);
}

}  // namespace
}  // namespace piper::testing
