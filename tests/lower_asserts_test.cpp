// What `assert` measures, on hand-built pipelines with known figures.
#include <gtest/gtest.h>

#include "ir/check/asserts.h"
#include "ir/lower/lower.h"
#include "tests/pipeline_dag.h"

namespace piper::ir {
namespace {

class Asserts : public ::testing::Test {
 protected:
  // 1F1B of 4 stages, 8 microbatches, unit passes, 2 replicas: mesh (pp = 4, dp = 2).
  void SetUp() override {
    testing::PipelineDagOptions options;
    options.stages = options.ranks = 4;
    options.microbatches = 8;
    options.replicas = 2;
    options.steps = testing::OneFOneB(4, 8);
    options.forward = options.backward_input = options.backward_weight = 1000;
    testing::BuildPipelineDag(options, &input_);
    input_.program.topology = testing::FlatTopology(8, Link{0, 100, 1});
    input_.program.topology.kinds[0].compute["f32"] = 1e12;
    for (NodeTemplate& node : input_.dag.templates) {
      if (node.kind == NodeKind::kCompute) node.flops = 500;
    }
    Directive mesh;
    mesh.body = MeshDirective{"", {{"pp", 4, "", {}}, {"dp", -1, "", {}}}, {}, ""};
    input_.program.directives.push_back(mesh);
    lowered_ = Lower(input_.program, input_.regions, input_.dag, nullptr, nullptr, diag_);
    ASSERT_TRUE(lowered_);
  }
  double Value(const std::string& metric, const std::string& axis = "", const std::string& name = "") {
    AssertDirective assertion;
    assertion.metric = metric;
    assertion.axis = axis;
    if (!name.empty()) {
      SelectorTerm term;
      term.name = InternName(name);
      assertion.select = Selector{{SelectorClause{0, {term}}}, false, {}};
    }
    return Measure(View(), assertion).value().value;
  }
  PlanView View() {
    return {input_.program, input_.regions, input_.dag, lowered_->job->job(), lowered_->simulation};
  }

  SourceManager sources_;
  DiagnosticEngine diag_{sources_};
  testing::PipelineDag input_;
  std::optional<Lowered> lowered_;
};

TEST_F(Asserts, TimeBubbleAndMemory) {
  // 16 boundary crossings on the critical path (docs/schedules.md); the loss and gradient reductions follow.
  const double step = Value("step_time");
  EXPECT_EQ(step, lowered_->simulation.makespan);
  EXPECT_GE(step, 33'000 + 16 * 100);
  EXPECT_DOUBLE_EQ(Value("bubble"), lowered_->simulation.bubble());
  int64_t peak = 0;
  for (const runtime::RankProgram& program : lowered_->job->job().train)
    peak = std::max(peak, program.arena_bytes);
  EXPECT_EQ(Value("peak_memory"), static_cast<double>(peak));
}

TEST_F(Asserts, BytesByAxis) {
  // 3 boundaries, both ways, 8 microbatches, 2 replicas, activations of 2 x 32 floats.
  const double messages = 3 * 2 * 8 * 2 * (2 * 32 * 4);
  // loss.reduce spans every axis: 4 bytes of each of the 8 ranks; dp.reduce a parameter of 32 x 8 floats a
  // rank.
  EXPECT_EQ(Value("bytes", "pp"), messages + 8 * 4);
  EXPECT_EQ(Value("bytes", "dp"), 8 * 4 + 8 * (32 * 8 * 4));
}

TEST_F(Asserts, ExposedIsWhatNoComputeCovers) {
  // One all-reduce over two ranks: 2 latencies, after all compute of its rank but the updates.
  const double makespan = static_cast<double>(lowered_->simulation.makespan);
  EXPECT_NEAR(Value("exposed", "", "dp.reduce") * makespan, 200, 1e-6);
  // Microbatch messages of 100 ps hide under compute but for the waits of warm-up and drain.
  EXPECT_GT(Value("exposed", "", "dp.reduce"), 0);
  EXPECT_EQ(Value("exposed", "", "tie.reduce"), 0);
}

TEST_F(Asserts, ModelFlopsUtilisation) {
  const double flops = 500.0 * 3 * 4 * 8 * 2,
               seconds = static_cast<double>(lowered_->simulation.makespan) * 1e-12;
  EXPECT_NEAR(Value("mfu"), flops / (8 * 1e12 * seconds), 1e-12);
  // What runs divide is what the assertion divides.
  EXPECT_EQ(lowered_->job->job().step_flops, flops);
  EXPECT_EQ(lowered_->job->job().peak_flops, 8 * 1e12);
}

TEST_F(Asserts, AFailureNamesTheFigures) {
  Directive directive;
  AssertDirective assertion;
  assertion.metric = "step_time";
  assertion.bound = {1000, UnitKind::kTime};
  directive.body = assertion;
  input_.program.directives.push_back(directive);
  EXPECT_FALSE(CheckAsserts(View(), diag_));
  ASSERT_EQ(diag_.diagnostics().size(), 1u);
  EXPECT_EQ(diag_.diagnostics()[0].message,
            "step_time is " + FormatTime(lowered_->simulation.makespan) + ", which is not < 1 ns");
  std::get<AssertDirective>(input_.program.directives.back().body).compare =
      AssertDirective::Compare::kGreater;
  diag_.Clear();
  EXPECT_TRUE(CheckAsserts(View(), diag_));
}

}  // namespace
}  // namespace piper::ir
