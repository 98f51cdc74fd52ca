// The global training DAG: one step of the whole job. It is stored as *templates* (one per (region, pass) and
// placed copy, or per inserted operation) with their range of microbatches; the instance (template,
// microbatch) is a node with a dense NodeId. Templates are placed on device *groups*, never expanded per
// device: 16,384 ranks with 64 roles cost what 64 roles cost. Data edges are kept between templates (same
// microbatch, or all-to-one); only temporal edges and orders are stored per node, so a 64 x 1024 pipeline
// stays far below 128 bytes a node.
//
// Directives are checked rewrites of this structure (ir/directives/); communication is materialised once at
// the end; the text form (dag_text.h) prints and parses back; proofs (ir/check/) and lowering (ir/lower/)
// read it.
//
// What every built Dag holds to:
//   * Compute is placed on *hosts*: groups that are equal or disjoint, each with `replicas` devices in
//   replica order.
//     A host's devices have one program: hosts are the roles. Only collectives are placed on other groups.
//   * kAccumulate: one template a (parameter, using region, copy), right after each BW on the compute stream.
//   * [dp.reduce]: an all_reduce a bucket of (parameter, region). On one host, or, for a region with stage
//   copies, on
//     the product group: its devices in fold order, replica major, copy minor; each (parameter, region) is
//     then listed once a copy, and a device contributes the entry of the copy that it hosts. The fold is
//     flat.
//   * [tie.reduce]: sums a parameter over its using regions, one entry a region in model order. A step-level
//     kAccumulate where one host holds them all; else an all_reduce with `per_replica` over all hosts of the
//     parameter, where the entry's copy says which host contributes the term. It runs in place on the first
//     entry of the parameter that a device hosts: there the final gradient stands.
//   * [loss.fold] a (loss, copy), then [loss.reduce] over all hosts: terms are loss major, then replica, then
//   copy.
//   * With clipping: [clip.local] (kNorm) on every host, [clip.norm] over all hosts, [clip.apply] on every
//   host.
//   * With `optimizer post_validation` instead: after [clip.local] each host's [clip.partial] (kPartial) adds
//   the
//     squares of the hosts before it, which [clip.send]/[clip.recv] carry from host to host; then its
//     [update.save] (kSave) and its updates, unless that sum already says that they would be wrong;
//     [update.validate] (kValidate) on every host waits for its updates and for [clip.norm], and restores and
//     repeats them where they were wrong.
//   * kUpdate: one template a (parameter, host).
//   * Messages: one send/recv pair a (value, producing copy, destination host), a pair a partial cotangent. A
//   boundary
//     inside a host is a plain edge. Ranks pair by replica index. [edge.send]/[edge.recv] carry an `edge`
//     between hosts: no value, no bytes, temporal edges at both ends. [clip.send]/[clip.recv]: no value
//     either, but a scalar.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/model/body.h"
#include "ir/program/program.h"
#include "ir/support/units.h"

namespace piper::ir {

using NodeId = uint32_t;
using TemplateId = uint32_t;
using GroupId = uint32_t;
using OriginId = uint32_t;  // index into Dag::origins; 0 is "nowhere"

enum class NodeKind : uint8_t {
  kCompute,
  kSend,
  kRecv,
  kPermute,
  kReduce,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kAccumulate,
  kUpdate,
  kFree,
  kOffload,
  kPrefetch,
  kNorm,      // sums of squares of owned gradients (clip.norm's local part)
  kClip,      // applies the global norm
  kLossFold,  // the left fold of a rank's microbatch losses
  kSave,      // copies what the updates of a host change
  kValidate,  // judges updates by the global norm; restores the copies and repeats them where they were wrong
  kPartial,   // the squares of this host and of those before it: what an update goes by that nobody has
              // validated
};
std::string_view NodeKindName(NodeKind kind);

// A slice of a mesh: its devices in linear order of the free axes. Two groups are the same iff the lists are.
struct Group {
  std::string text;  // "pp[2]"
  std::vector<uint32_t> devices;
  friend bool operator==(const Group&, const Group&) = default;
};

// A using region's gradient of a parameter, on one stage copy: what is accumulated over microbatches.
struct GradientRef {
  ParameterId parameter = kNone;
  RegionId region = kNone;
  uint32_t copy = 0;
  friend bool operator==(const GradientRef&, const GradientRef&) = default;
  friend auto operator<=>(const GradientRef&, const GradientRef&) = default;
};

struct NodeTemplate {
  NodeKind kind = NodeKind::kCompute;
  Pass pass = Pass::kNone;
  RegionId region = kNone;    // whose body it runs, or the region that it serves (accumulate)
  uint32_t copy = 0;          // a stage placed on two groups is two copies
  std::string name;           // legible and unique: "F layer3.attn", "send layer1 -> layer2"
  TagPath tags;               // model tags plus stage; what selectors match
  std::vector<NameId> names;  // inserted-node names: [send], [dp.reduce]
  GroupId group = 0;
  NameId stream = 0;  // "compute", "send", "recv", "reduce", ..; send and recv are one stream a peer group
  int32_t mb_begin = 0, mb_end = 0;  // microbatches [begin, end); a step-level node has [-1, 0)
  OriginId origin = 0;
  Picoseconds cost = -1;    // total a node, from `cost` lines; -1: the resource model
  int64_t cost_bytes = -1;  // payload override from `cost [send] = 1 MiB`
  int64_t bytes = 0;        // payload of a message or collective, a node
  double flops = 0;

  // kSend / kRecv: the forward value, or (cotangent) the partial cotangent of `value` from region `consumer`;
  // none, without bytes: carries a temporal edge between hosts; none, with bytes: a kPartial's sum.
  // kOffload / kPrefetch: kNone: what `region` made; else what messages brought of the region that makes
  // `value`.
  ValueId value = kNone;
  bool cotangent = false;
  RegionId consumer = kNone;
  GroupId peer_group = 0;
  TemplateId match = kNone;  // the other end

  // kAccumulate: one entry; reductions: the bucket, in order (several regions of one parameter: a tied sum,
  // alone in its bucket); kUpdate: `parameter`. A reduction without entries reduces in place what its data
  // predecessor wrote: kNorm's vector or kLossFold's sum.
  std::vector<GradientRef> gradients;
  ParameterId parameter = kNone;
  double scale = 1;  // factor that the node applies; anything but 1 is a wrong gradient today
  // Collectives: one communicator a replica index (the devices of `group` with that index, in group order),
  // instead of one of all devices of `group`.
  bool per_replica = false;
  // The node runs within the step that follows its own: edges into it from nodes that do not have distance
  // one.
  bool carried = false;
  bool pairwise = false;  // reductions: terms fold as a tree of pairs (runtime::FoldKind), not from the left

  bool step_level() const { return mb_begin < 0; }
  int64_t node_count() const { return mb_end - mb_begin; }
  friend bool operator==(const NodeTemplate&, const NodeTemplate&) = default;
};

// A reduction of gradients over replicas (and copies), the [dp.reduce] of language.md; not one over regions.
bool SumsReplicas(const NodeTemplate& node);

// Between templates. Both with microbatches: instance by instance where both ranges hold it. From
// microbatches to a step-level node: all instances precede it. From step-level to microbatches: it precedes
// all.
struct TemplateEdge {
  TemplateId from = kNone, to = kNone;
  bool data = true;  // false: temporal
  OriginId origin = 0;
  friend bool operator==(const TemplateEdge&, const TemplateEdge&) = default;
};

// Between nodes, from `edge` and `limit`; distance 1 reaches into the next step.
struct TemporalEdge {
  NodeId from = 0, to = 0;
  int32_t distance = 0;
  OriginId origin = 0;
  friend bool operator==(const TemporalEdge&, const TemporalEdge&) = default;
};

// A total order on one (group, stream).
struct OrderItem {
  NodeId node = 0;
  OriginId origin = 0;  // the step that listed it; 0: attached to its neighbour
  // Equal values: one fused node; consecutive items, ids dense from 0. Besides `fused` steps, a whole B (the
  // BI and BW of a region listed by one step, with the accumulates) is one, so that its results leave
  // together.
  uint32_t atomic = kNone;
  friend bool operator==(const OrderItem&, const OrderItem&) = default;
};
struct StreamOrder {
  GroupId group = 0;
  NameId stream = 0;
  NameId peer = 0;  // send/recv streams: InternName of the peer group's text, else 0
  std::vector<OrderItem> items;
  OriginId origin = 0;  // the `order` directive, 0 for the default order
  friend bool operator==(const StreamOrder&, const StreamOrder&) = default;
};

// While tasks of two different streams of these names run at once on a device, each takes thousandths / 1000
// as long.
struct SlowdownRule {
  NameId stream = 0, with = 0;
  uint32_t thousandths = 1000;
  friend bool operator==(const SlowdownRule&, const SlowdownRule&) = default;
};

// How gradients are folded; what the reference must evaluate.
struct GradientExpression {
  int64_t replicas = 1;
  int64_t microbatches = 1;
  bool reduce_per_microbatch = false;
  bool pairwise = false;  // the fold over replicas (and copies) of gradients is a tree of pairs
  // For stage copies: per region, the copies' microbatch ranges in fold order. Empty: one copy with all.
  std::vector<std::vector<std::pair<int32_t, int32_t>>> copy_ranges;
  // Where an order's BWs are not ascending: the microbatches of that (region, copy) in fold order.
  struct Permutation {
    RegionId region = kNone;
    uint32_t copy = 0;
    std::vector<int32_t> microbatches;
    friend bool operator==(const Permutation&, const Permutation&) = default;
  };
  std::vector<Permutation> permuted;  // sorted by (region, copy)
  friend bool operator==(const GradientExpression&, const GradientExpression&) = default;
};

struct Dag {
  std::vector<Group> groups;
  std::vector<NodeTemplate> templates;
  std::vector<NodeId> first_node;   // per template; instances are consecutive by microbatch; + one end entry
  std::vector<TemplateEdge> edges;  // sorted (from, to), unique
  std::vector<TemporalEdge> temporal;
  std::vector<StreamOrder> orders;
  std::vector<SourceRange> origins = {{}};
  GradientExpression expression;
  int64_t microbatches = 1, replicas = 1, samples_per_microbatch = 1;
  std::vector<std::pair<std::string, int64_t>> split_dims;  // {"mb", 8}, major first
  uint32_t device_count = 1;
  bool forward_only = false;
  std::vector<uint32_t>
      device_replica;  // per device: linear data-parallel index (which samples); empty: all 0
  std::vector<SlowdownRule> slowdowns;  // for the clock
  std::vector<Picoseconds>
      atomic_costs;  // per OrderItem::atomic: `cost fused(..)`; -1 or absent: sum of the parts

  NodeId node_count() const { return first_node.empty() ? 0 : first_node.back(); }
  NodeId Node(TemplateId t, int32_t microbatch) const;  // PIPER_CHECKs that the template holds it
  TemplateId TemplateOf(NodeId node) const;             // O(log templates)
  int32_t MicrobatchOf(NodeId node) const;              // -1 for step-level nodes
  void Renumber();  // recomputes first_node; call before nodes are referred to
  GroupId InternGroup(Group group);
  OriginId AddOrigin(SourceRange range);
  std::string NodeName(NodeId node) const;  // "F layer3.attn mb 2"
};

// A role: the devices (ascending) that hold exactly the same templates. Every device belongs to one.
struct Role {
  std::vector<uint32_t> devices;
  std::vector<TemplateId> templates;  // ascending
  std::vector<uint32_t> orders;       // indices into Dag::orders
};
std::vector<Role> BuildRoles(const Dag& dag);

}  // namespace piper::ir
