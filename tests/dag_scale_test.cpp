// Scale: 64 stages x 1,024 microbatches from a ready Program. Times are printed and bounded loosely
// (sanitizer builds and busy machines pass as well); the bytes a node are exact.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "tests/dag_test_support.h"

namespace piper::ir {
namespace {

double Milliseconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since).count();
}

size_t Bytes(const Dag& dag) {
  size_t bytes =
      dag.first_node.capacity() * sizeof(NodeId) + dag.edges.capacity() * sizeof(TemplateEdge) +
      dag.temporal.capacity() * sizeof(TemporalEdge) + dag.templates.capacity() * sizeof(NodeTemplate) +
      dag.origins.capacity() * sizeof(SourceRange) + dag.atomic_costs.capacity() * sizeof(Picoseconds);
  for (const NodeTemplate& node : dag.templates) {
    bytes += node.name.capacity() + node.tags.capacity() * sizeof(TagInstance) +
             node.names.capacity() * sizeof(NameId) + node.gradients.capacity() * sizeof(GradientRef);
  }
  for (const StreamOrder& order : dag.orders)
    bytes += sizeof(StreamOrder) + order.items.capacity() * sizeof(OrderItem);
  for (const Group& group : dag.groups) bytes += sizeof(Group) + group.devices.capacity() * sizeof(uint32_t);
  return bytes;
}

TEST(Scale, SixtyFourStagesOfAThousandMicrobatches) {
  double last = 0;
  for (int64_t m : {256, 512, 1024}) {
    TestProgram test({62, 1024, 4}, 64);
    test.Pipeline(64, m);
    test.OneForwardOneBackward(64, m);
    auto start = std::chrono::steady_clock::now();
    std::optional<BuiltDag> built = test.Build();
    double build = Milliseconds(start);
    ASSERT_TRUE(built) << test.Diagnostics();
    start = std::chrono::steady_clock::now();
    EXPECT_TRUE(CheckOrder(built->dag, test.diag())) << test.Diagnostics();
    double order = Milliseconds(start);
    start = std::chrono::steady_clock::now();
    EXPECT_TRUE(CheckGradients(built->dag, built->regions, test.diag())) << test.Diagnostics();
    double gradients = Milliseconds(start);
    start = std::chrono::steady_clock::now();
    std::string text = DagToText(built->dag);
    double print = Milliseconds(start);
    start = std::chrono::steady_clock::now();
    EXPECT_TRUE(VerifyDag(built->dag).empty());
    double verify = Milliseconds(start);
    double bytes = static_cast<double>(Bytes(built->dag)) / built->dag.node_count();
    std::printf(
        "64 x %ld: %u nodes, %.1f bytes a node; build %.1f ms, order %.1f, gradients %.1f, print %.1f (%zu "
        "kB), verify %.1f\n",
        static_cast<long>(m), built->dag.node_count(), bytes, build, order, gradients, print,
        text.size() / 1024, verify);
    EXPECT_LE(bytes, 128);
    last = build;
  }
  EXPECT_LT(last, 5000);
}

}  // namespace
}  // namespace piper::ir
