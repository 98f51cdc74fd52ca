#include "ir/directives/directives.h"

#include <algorithm>

#include "ir/directives/assertion.h"
#include "ir/directives/communication.h"
#include "ir/directives/context.h"
#include "ir/directives/cost.h"
#include "ir/directives/cut.h"
#include "ir/directives/differentiate.h"
#include "ir/directives/edge.h"
#include "ir/directives/expression.h"
#include "ir/directives/foreign_steps.h"
#include "ir/directives/freeze.h"
#include "ir/directives/fused.h"
#include "ir/directives/gradient_sync.h"
#include "ir/directives/greedy.h"
#include "ir/directives/limit.h"
#include "ir/directives/mesh.h"
#include "ir/directives/next_step.h"
#include "ir/directives/offload.h"
#include "ir/directives/order.h"
#include "ir/directives/place.h"
#include "ir/directives/post_validation.h"
#include "ir/directives/recompute.h"
#include "ir/directives/run.h"
#include "ir/directives/shard.h"
#include "ir/directives/slowdown.h"
#include "ir/directives/split.h"
#include "ir/directives/stream.h"
#include "ir/directives/stream_order.h"
#include "ir/directives/timeline.h"
#include "ir/directives/zero.h"
#include "ir/model/operations.h"

namespace piper::ir {

namespace {

// Names that inserted nodes can have in some plan: a selector that names one may match nothing in this one.
constexpr const char* kInsertedNames[] = {"send",       "recv",         "accumulate",      "update",
                                          "dp.reduce",  "tie.reduce",   "loss.fold",       "loss.reduce",
                                          "clip.local", "clip.norm",    "clip.apply",      "edge.send",
                                          "edge.recv",  "update.save",  "update.validate", "offload.out",
                                          "offload.in", "clip.partial", "clip.send",       "clip.recv"};

// Some of them, and R, are there only where a directive asks for them: to name them without it is a mistake.
// The others depend on sizes, placement, the model and the train block, which a strategy need not know.
void FindAbsent(BuildContext& context) {
  bool validated = false, offloads = false, replays = false, edges = false;
  for (const Directive& directive : context.program.directives) {
    if (const auto* optimizer = std::get_if<OptimizerDirective>(&directive.body))
      validated = validated || optimizer->post_validation;
    if (const auto* edge = std::get_if<EdgeDirective>(&directive.body)) edges = edges || edge->distance == 0;
    offloads = offloads || std::holds_alternative<OffloadDirective>(directive.body);
    replays = replays || std::holds_alternative<RecomputeDirective>(directive.body);
  }
  const auto absent = [&](bool there, std::initializer_list<const char*> names, std::string_view hint) {
    for (const char* name : names) {
      if (!there) context.vocabulary.AddAbsent(InternName(name), hint);
    }
  };
  absent(validated, {"update.save", "update.validate", "clip.partial", "clip.send", "clip.recv"},
         "`optimizer post_validation` inserts it");
  absent(offloads, {"offload.out", "offload.in"}, "`offload [..] to host` inserts it");
  absent(edges, {"edge.send", "edge.recv"}, "an `edge` between two hosts inserts it");
  if (!replays) context.vocabulary.AddAbsent(Pass::kR, "`recompute [..]` inserts it");
}

// What directives that apply to finished nodes select, names first: an alternative that nothing has is a
// mistake also where another one matches.
void CheckNames(BuildContext& context) {
  for (const Directive& directive : context.program.directives) {
    const auto check = [&](const Selector& selector) {
      context.vocabulary.ReportUnknownNames(selector, directive.range, context.diag);
    };
    if (const auto* edge = std::get_if<EdgeDirective>(&directive.body)) {
      check(edge->from);
      check(edge->to);
    } else if (const auto* cost = std::get_if<CostDirective>(&directive.body)) {
      if (cost->fused.empty()) check(cost->select);
      std::for_each(cost->fused.begin(), cost->fused.end(), check);
    } else if (const auto* stream = std::get_if<StreamDirective>(&directive.body)) {
      check(stream->select);
    } else if (const auto* limit = std::get_if<LimitDirective>(&directive.body)) {
      check(limit->select);
    } else if (const auto* assertion = std::get_if<AssertDirective>(&directive.body)) {
      if (assertion->select) check(*assertion->select);
    }
  }
}

// A plan that no machine holds is refused before it is built.
constexpr int64_t kMaxNodes = int64_t{1} << 26;

bool CheckSize(BuildContext& context, int64_t count, const char* what) {
  if (count <= kMaxNodes / context.dag.microbatches) return true;
  SourceRange range = context.program.train.range;
  context.ForEach<SplitDirective>(
      [&](const Directive& directive, const SplitDirective&) { range = directive.range; });
  context.diag
      .Error(range, DiagKind::kBadSplit,
             std::to_string(context.dag.microbatches) + " microbatches of " + std::to_string(count) + " " +
                 what + " make a plan of more than " + std::to_string(kMaxNodes) + " nodes")
      .Hint(std::to_string(kMaxNodes / count) + " microbatches are the most");
  return false;
}

}  // namespace

std::optional<BuiltDag> BuildDagWith(const Program& program, bool forward_only, DiagnosticEngine& diag,
                                     const std::function<RegionGraph(const Graph&)>& build_regions) {
  // Each phase reports what it finds and the build stops at its end.
  BuildContext context(program, forward_only, diag);
  context.graph = program.model;
  for (const char* name : kInsertedNames) context.vocabulary.AddInserted(InternName(name));
  FindAbsent(context);

  ApplyMesh(context);  // axes over devices
  if (context.Failed()) return std::nullopt;
  ApplyShard(context);  // which axes replicate
  ApplySplit(context);  // microbatches; the graph is at the slice's shapes
  if (context.Failed()) return std::nullopt;
  ApplyCut(context, build_regions);  // every operation has a stage
  if (context.Failed()) return std::nullopt;
  ApplyFreeze(context);  // parameters marked
  if (context.Failed()) return std::nullopt;
  // Evaluation keeps every region and its place; dropout alone passes its input through.
  context.regions = build_regions(forward_only ? WithoutDropout(context.graph) : context.graph);
  context.graph = Graph();
  if (!CheckSize(context, static_cast<int64_t>(context.regions.regions.size()), "regions"))
    return std::nullopt;
  ApplyPlace(context);  // every (region, microbatch) has one host
  if (context.Failed()) return std::nullopt;
  ApplyRecompute(context);  // what is replayed has a body for that
  ApplyOffload(context);    // which values leave, and who reads them when they are back
  if (context.Failed()) return std::nullopt;
  std::vector<ReducePolicy> policies = ApplyZero(context);
  if (context.Failed()) return std::nullopt;

  // All nodes: compute, messages, gradient synchronisation, the loss.
  AddComputeNodes(context);
  AddOffloadNodes(context);
  AddCommunication(context);
  if (context.Failed()) return std::nullopt;
  AddGradientSync(context, policies, PostValidates(context));
  AddLossNodes(context);
  if (!CheckSize(context, static_cast<int64_t>(context.dag.templates.size()), "nodes a microbatch"))
    return std::nullopt;
  context.IndexTemplates();
  CheckNames(context);
  if (context.Failed()) return std::nullopt;
  ApplyEdge(context);  // with the messages that carry edges between hosts
  if (context.Failed()) return std::nullopt;

  // Attributes of nodes.
  ApplyCost(context);
  ApplyStream(context);
  ApplyRun(context);
  ApplyNumerics(context);
  ApplySlowdown(context);
  CheckAssertions(context);
  if (context.Failed()) return std::nullopt;

  // Orders: what is listed, then every stream completely.
  ApplyNextStepEdges(context);
  AtomicMarker marker(context.dag.templates);
  ApplyOrder(context, marker);
  if (context.Failed()) return std::nullopt;
  ResolveGreedy(context, marker);
  if (context.Failed()) return std::nullopt;
  CheckFusedCosts(context);
  MergeComputeStreams(context, marker);
  BuildStreamOrders(context);
  ApplyFused(context);
  BoundPrefetch(context);
  if (!forward_only) ApplyLimit(context);
  CheckForeignSteps(context);
  RecordExpression(context);
  if (context.Failed()) return std::nullopt;
  context.dag.forward_only = forward_only;
  // They live as long as the plan.
  context.dag.templates.shrink_to_fit();
  context.dag.edges.shrink_to_fit();
  return BuiltDag{std::move(context.regions), std::move(context.dag)};
}

}  // namespace piper::ir
