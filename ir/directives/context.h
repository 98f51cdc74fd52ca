// What the directive passes share while a Dag is built: the program, the meshes, the model graph as it is
// rewritten, the regions and where their copies are placed, and the Dag itself. Each pass is one file pair in
// this directory; it reads its directives in file order, reports located errors, and leaves what its header
// says.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ir/dag/dag.h"
#include "ir/directives/match.h"
#include "ir/program/program.h"
#include "ir/support/diagnostics.h"

namespace piper::ir {

struct MeshAxis {
  std::string name;
  int64_t size = 1;
};

// Axes over devices; `devices` is row-major over the axes, the last one innermost.
struct Mesh {
  std::string name;
  SourceRange range;
  std::vector<MeshAxis> axes;
  std::vector<uint32_t> devices;
  size_t FindAxis(std::string_view axis) const;  // axes.size() if there is none
};

// A copy of a region: the microbatches [begin, end) of it that one host computes.
struct RegionCopy {
  int32_t begin = 0, end = 0;
  GroupId host = 0;
  SourceRange placed_by;
};

// What `order` directives list for a host, per stream, in order.
struct ListedStream {
  NameId stream = 0;
  OriginId origin = 0;
  std::vector<OrderItem> items;
};
struct HostOrder {
  std::vector<ListedStream> streams;
};

// An order lists `first` before `second`, at least one of which is another host's (foreign_steps.h).
struct OrderClaim {
  NodeId first = 0, second = 0;
  OriginId origin = 0;  // the step that lists the foreign one
};

// A fused step whose parts stand on several streams, or move data (fused.h).
struct FusedNode {
  size_t host = 0;  // index into BuildContext::hosts
  OriginId origin = 0;
  std::vector<NodeId> members;  // as listed
};

// `order on host { greedy(..) }`, still to be resolved.
struct GreedyOrder {
  size_t host = 0;  // index into BuildContext::hosts
  const GreedySpec* spec = nullptr;
  SourceRange range;
  OriginId origin = 0;
};

// Regions that `recompute` or `offload` has claimed, by units (units.h).
struct Units {
  std::vector<uint32_t> unit;           // per region, or kNone
  std::vector<const Directive*> owner;  // per region, or nullptr
  uint32_t count = 0;
};

// `cost fused(f, b) = q`, applied to the fused steps of orders.
struct FusedCost {
  const Directive* directive = nullptr;
  const CostDirective* cost = nullptr;
  bool used = false;
};

// A node, whether nodes are numbered yet or not.
struct Instance {
  TemplateId node_template = 0;
  int32_t microbatch = -1;
  friend bool operator==(const Instance&, const Instance&) = default;
  friend auto operator<=>(const Instance&, const Instance&) = default;
};

struct BuildContext {
  BuildContext(const Program& p, bool forward, DiagnosticEngine& d)
      : program(p), diag(d), forward_only(forward), errors_before_(d.error_count()) {}

  // This build has reported an error; what was in `diag` before does not count.
  bool Failed() const { return diag.error_count() != errors_before_; }

  const Program& program;
  DiagnosticEngine& diag;
  bool forward_only;

  std::vector<Mesh> meshes;             // mesh.h; at least one afterwards
  std::vector<std::string> batch_axes;  // shard.h
  SourceRange sharded_by;
  SplitIndex split;       // split.h
  std::string stage_tag;  // cut.h; empty: no cut
  Graph graph;            // the model at the slice's shapes, with stage tags and frozen parameters
  RegionGraph regions;
  std::vector<TagSet> region_tags;               // per region
  std::vector<std::vector<RegionCopy>> copies;   // place.h; per region, ascending by microbatch
  std::vector<GroupId> hosts;                    // place.h; ascending by first device
  Units recompute, offload;                      // units.h; what is replayed, what leaves for the host
  std::vector<bool> leaves;                      // offload.h; per region: something of it does leave
  std::vector<std::vector<TemplateId>> fetches;  // offload.h; [region][copy]: its [offload.in], or empty
  std::map<std::pair<RegionId, RegionId>, RegionId>
      receivers;  // offload.h; (reader, producer elsewhere): the region with which the values leave
  std::map<std::pair<RegionId, RegionId>, std::vector<TemplateId>>
      received_fetches;  // offload.h; (receiver, producer)[copy]: the [offload.in]
  // differentiate.h; [region][copy]: the templates of F, BI, BW and R, or kNone.
  std::vector<std::vector<std::array<TemplateId, 4>>> compute;
  // stream.h; those on which some F, BI, BW, R or U runs, `compute` first.
  std::vector<NameId> compute_streams;
  bool Computes(NameId stream) const {
    return stream == compute_streams[0] ||
           (compute_streams.size() > 1 &&
            std::find(compute_streams.begin() + 1, compute_streams.end(), stream) != compute_streams.end());
  }
  // next_step.h; per host, ascending: nodes before which the check of the step before must have happened.
  std::vector<std::vector<NodeId>> checked_before;
  std::vector<HostOrder> host_orders;  // order.h; per host
  // timeline.h; per host, where several streams compute: what all of them run, in one legal order. Else
  // empty.
  std::vector<std::vector<OrderItem>> timelines;
  // Of the stream `compute`, once stream_order.h has made it.
  const StreamOrder& ComputeOrder(size_t host) const;
  std::vector<OrderClaim> claims;      // order.h
  std::vector<FusedNode> fused_nodes;  // order.h
  std::map<NodeId, NodeId>
      part_begins;  // fused.h; of every node of theirs, the first one of its stream's part
  std::vector<GreedyOrder> greedy_orders;  // order.h; in file order
  std::vector<FusedCost> fused_costs;      // cost.h
  Vocabulary vocabulary;
  Dag dag;
  std::vector<TagSet> template_tags;  // per template, once they are complete (IndexTemplates)

  template <typename T, typename F>
  void ForEach(F visit) const {
    for (const Directive& directive : program.directives) {
      if (const T* body = std::get_if<T>(&directive.body)) visit(directive, *body);
    }
  }
  // The one directive of a kind; a second one is an error that cites both. nullptr if there is none.
  template <typename T>
  const Directive* Single(const char* what) const {
    const Directive* found = nullptr;
    ForEach<T>([&](const Directive& directive, const T&) {
      if (found == nullptr) {
        found = &directive;
        return;
      }
      diag.Error(directive.range, DiagKind::kConflict, std::string("a second ") + what)
          .Note(found->range, "the first one is here");
    });
    return found;
  }

  // A legible name that no template has yet.
  std::string UniqueName(std::string name);
  TemplateId AddTemplate(NodeTemplate node);
  void AddEdge(TemplateId from, TemplateId to);
  // Sorts and dedupes the edges, numbers the nodes, fills template_tags and the vocabulary. Idempotent.
  void IndexTemplates();

  // The devices that an expression names, in mesh order. Nothing after an error (`kind` for ranges out of
  // bounds).
  std::optional<Group> ResolveGroup(const GroupExpr& expr, SourceRange fallback, DiagKind kind);
  // The hosts that lie within a group; an error if it covers one only in part or none at all.
  std::vector<GroupId> HostsWithin(const Group& group, SourceRange range, DiagKind kind);

  // Templates that a clause's tags, names and pass admit (split indices aside), ascending.
  std::vector<TemplateId> MatchTemplates(const SelectorClause& clause) const;
  bool TemplateMatches(const SelectorClause& clause, TemplateId t) const;
  // The nodes that a selector names, ascending; of one of the step the microbatch is -1. Nodes need not be
  // numbered.
  std::vector<Instance> SelectInstances(const Selector& selector) const;
  // Reports when a selector matches no template though it should: unless it is optional, about nodes that
  // this plan's sizes do not insert (a strategy's [dp.reduce] with dp = 1), or about a pass that its regions
  // lack (a frozen BW). True after an error.
  bool ReportIfEmpty(const Selector& selector, SourceRange fallback);

 private:
  size_t errors_before_;
  std::map<std::string, uint32_t> names_;
};

// The tags up to the innermost one that the clause names: what tells instances apart. Empty: none is named.
TagPath InstanceOf(const BuildContext& context, const SelectorClause& clause, const TagPath& tags);
// `region` matches by tags (passes and split indices aside).
bool RegionMatches(const BuildContext& context, const Selector& selector, RegionId region);

}  // namespace piper::ir
