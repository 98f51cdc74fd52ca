#include "ir/directives/offload.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "ir/directives/differentiate.h"
#include "ir/directives/freeze.h"
#include "ir/directives/recompute.h"
#include "ir/directives/units.h"

namespace piper::ir {

namespace {

// Claimed, in the same place, and not replayed for this reader.
bool MayFetch(const BuildContext& context, RegionId reader, RegionId producer) {
  if (context.offload.owner[producer] == nullptr) return false;
  if (reader == producer) return context.regions.regions[producer].recompute.empty();
  return !ReadsReplay(context, reader, producer) && SamePlace(context, reader, producer);
}

// Where the two share microbatches they are on different hosts.
bool Apart(const BuildContext& context, RegionId a, RegionId b) {
  bool meet = false;
  for (const RegionCopy& here : context.copies[a]) {
    for (const RegionCopy& there : context.copies[b]) {
      if (std::max(here.begin, there.begin) >= std::min(here.end, there.end)) continue;
      if (here.host == there.host) return false;
      meet = true;
    }
  }
  return meet;
}

bool ShareHost(const BuildContext& context, RegionId a, RegionId b) {
  for (const RegionCopy& here : context.copies[a]) {
    for (const RegionCopy& there : context.copies[b]) {
      if (here.host == there.host) return true;
    }
  }
  return false;
}

// Calls `visit` with (value, region that makes it) for each forward value that a body reads of other regions.
template <typename Visit>
void ForEachValue(const BuildContext& context, RegionId region, const Body& body, Visit visit) {
  for (const Formal& formal : body.formals) {
    if (formal.written || formal.kind != FormalKind::kValue || formal.value == kNone) continue;
    const RegionId producer = context.regions.value_region[formal.value];
    if (producer != kNone && producer != region) visit(formal.value, producer);
  }
}

// What arrives by messages and is read again later: who takes it along, and its values by (receiver,
// producer).
using Received = std::map<std::pair<RegionId, RegionId>, std::set<ValueId>>;
Received FindReceived(BuildContext& context) {
  const std::vector<Region>& regions = context.regions.regions;
  // The first region of each place that reads something of a producer elsewhere; places that share a host
  // with an earlier one in part keep what they receive.
  std::vector<std::vector<RegionId>> receivers(regions.size());
  for (RegionId r = 0; r < regions.size(); ++r) {
    ForEachValue(context, r, regions[r].forward, [&](ValueId, RegionId producer) {
      std::vector<RegionId>& known = receivers[producer];
      const bool beside = std::any_of(known.begin(), known.end(),
                                      [&](RegionId other) { return ShareHost(context, r, other); });
      if (!beside && Apart(context, r, producer)) known.push_back(r);
    });
  }
  Received received;
  for (RegionId r = 0; r < regions.size(); ++r) {
    for (const Body* body :
         {&regions[r].recompute, &regions[r].backward_input, &regions[r].backward_weight}) {
      ForEachValue(context, r, *body, [&](ValueId value, RegionId producer) {
        for (RegionId receiver : receivers[producer]) {
          if (context.offload.owner[receiver] == nullptr || !SamePlace(context, r, receiver)) continue;
          context.receivers[{r, producer}] = receiver;
          received[{receiver, producer}].insert(value);
        }
      });
    }
  }
  return received;
}

// Bytes that leave, per region: each value once.
std::vector<int64_t> LeavingBytes(const BuildContext& context) {
  const std::vector<Region>& regions = context.regions.regions;
  std::vector<int64_t> bytes(regions.size(), 0);
  std::set<std::pair<bool, std::pair<uint32_t, uint32_t>>> seen;
  for (RegionId r = 0; r < regions.size(); ++r) {
    for (const Body* body :
         {&regions[r].recompute, &regions[r].backward_input, &regions[r].backward_weight}) {
      for (const Formal& formal : body->formals) {
        if (formal.written || formal.value == kNone) continue;
        const bool saved = formal.kind == FormalKind::kSaved;
        RegionId producer = kNone;
        if (saved || formal.kind == FormalKind::kOutput) producer = r;
        if (formal.kind == FormalKind::kValue) producer = context.regions.value_region[formal.value];
        if (producer == kNone || !MayFetch(context, r, producer)) continue;
        auto key = saved ? std::pair(r, formal.saved) : std::pair(formal.value, kNone);
        if (seen.emplace(saved, key).second) bytes[producer] += formal.type.bytes();
      }
    }
  }
  return bytes;
}

}  // namespace

bool ReadsFetched(const BuildContext& context, RegionId reader, RegionId producer) {
  return context.leaves[producer] && MayFetch(context, reader, producer);
}

void ApplyOffload(BuildContext& context) {
  const size_t count = context.regions.regions.size();
  context.offload.unit.assign(count, kNone);
  context.offload.owner.assign(count, nullptr);
  context.leaves.assign(count, false);
  context.fetches.assign(count, {});
  if (context.forward_only) return;
  context.ForEach<OffloadDirective>([&](const Directive& directive, const OffloadDirective& offload) {
    if (offload.prefetch < 0) {
      context.diag
          .Error(directive.range, DiagKind::kBadOffload,
                 fmt::format("`prefetch {}`: copies run 0 or more units ahead", offload.prefetch))
          .Hint("with 0 they start when what reads them could; 1 hides them behind the unit before");
      return;
    }
    ClaimUnits(context, directive, offload.select, nullptr, DiagKind::kBadOffload, "offload", "offloaded",
               &context.offload);
  });
  if (context.Failed()) return;
  const std::vector<int64_t> bytes = LeavingBytes(context);
  std::set<const Directive*> useful;
  for (const auto& [ends, values] : FindReceived(context)) useful.insert(context.offload.owner[ends.first]);
  for (RegionId r = 0; r < count; ++r) {
    context.leaves[r] = bytes[r] > 0;
    if (bytes[r] > 0) useful.insert(context.offload.owner[r]);
  }
  context.ForEach<OffloadDirective>([&](const Directive& directive, const OffloadDirective& offload) {
    if (useful.count(&directive) != 0 || offload.select.optional || !Trains(context)) return;
    context.diag.Warning(directive.range, DiagKind::kNothingGivenBack,
                         fmt::format("nothing that {} keeps is read again: there is nothing to offload",
                                     offload.select.ToString()));
  });
}

void AddOffloadNodes(BuildContext& context) {
  if (context.forward_only) return;
  const std::vector<Region>& regions = context.regions.regions;
  const std::vector<int64_t> bytes = LeavingBytes(context);
  // A pair of copies behind a region's F; `value`: of a producer elsewhere, else kNone. Returns the one back.
  const auto add = [&](RegionId r, uint32_t copy, const std::string& what, int64_t moved, ValueId value) {
    const TemplateId forward = context.compute[r][copy][0];
    NodeTemplate out;
    out.kind = NodeKind::kOffload;
    out.region = r;
    out.copy = copy;
    out.name = fmt::format("offload.out {}{}", what, CopySuffix(context, r, copy));
    out.tags = context.dag.templates[forward].tags;
    out.names = {InternName("offload.out")};
    out.group = context.copies[r][copy].host;
    out.stream = InternName("offload");
    out.mb_begin = context.copies[r][copy].begin;
    out.mb_end = context.copies[r][copy].end;
    out.origin = context.dag.AddOrigin(context.offload.owner[r]->range);
    out.bytes = moved;
    out.value = value;
    NodeTemplate in = out;
    in.kind = NodeKind::kPrefetch;
    in.name = fmt::format("offload.in {}{}", what, CopySuffix(context, r, copy));
    in.names = {InternName("offload.in")};
    in.stream = InternName("prefetch");
    const TemplateId leaving = context.AddTemplate(std::move(out));
    const TemplateId back = context.AddTemplate(std::move(in));
    context.AddEdge(forward, leaving);
    context.AddEdge(leaving, back);
    return back;
  };
  for (const auto& [ends, values] : FindReceived(context)) {
    const auto& [receiver, producer] = ends;
    int64_t moved = 0;
    for (ValueId value : values) moved += context.regions.graph.Type(value).bytes();
    const std::string what = fmt::format("{} -> {}", regions[producer].name, regions[receiver].name);
    std::vector<TemplateId>& fetches = context.received_fetches[ends];
    for (uint32_t copy = 0; copy < context.copies[receiver].size(); ++copy)
      fetches.push_back(add(receiver, copy, what, moved, *values.begin()));
  }
  for (RegionId r = 0; r < regions.size(); ++r) {
    if (!context.leaves[r]) continue;
    for (uint32_t copy = 0; copy < context.copies[r].size(); ++copy) {
      const TemplateId back = add(r, copy, regions[r].name, bytes[r], kNone);
      context.fetches[r].push_back(back);
      if (!regions[r].recompute.empty()) continue;
      const auto& [f, input, weight, replay] = context.compute[r][copy];
      if (input != kNone && ReadsOwnForward(regions[r].backward_input)) context.AddEdge(back, input);
      if (weight != kNone && ReadsOwnForward(regions[r].backward_weight)) context.AddEdge(back, weight);
    }
  }
}

void BoundPrefetch(BuildContext& context) {
  if (std::find(context.leaves.begin(), context.leaves.end(), true) == context.leaves.end() &&
      context.received_fetches.empty())
    return;
  Dag& dag = context.dag;
  std::vector<std::vector<TemplateId>> fetched(dag.templates.size());  // per reader
  for (const TemplateEdge& edge : dag.edges) {
    if (dag.templates[edge.from].kind == NodeKind::kPrefetch) fetched[edge.to].push_back(edge.from);
  }
  context.ForEach<OffloadDirective>([&](const Directive& directive, const OffloadDirective& offload) {
    const OriginId origin = dag.AddOrigin(directive.range);
    for (size_t h = 0; h < context.hosts.size(); ++h) {
      const std::vector<OrderItem>& items =
          context.timelines.empty() ? context.ComputeOrder(h).items : context.timelines[h];
      struct Arrival {
        size_t start;  // of the first reader, or of the fused node that holds it
        std::vector<NodeId> copies;
      };
      std::vector<Arrival> arrivals;
      std::map<std::pair<uint32_t, int32_t>, size_t> index;  // (unit, microbatch) -> arrival
      std::set<NodeId> seen;
      size_t begin = 0;
      std::map<NodeId, size_t> part_starts;  // by first node: parts of fused nodes over several streams
      for (size_t i = 0; i < items.size(); ++i) {
        const OrderItem& item = items[i];
        if (i == 0 || item.atomic == kNone || item.atomic != items[i - 1].atomic) begin = i;
        size_t start = begin;
        if (auto part = context.part_begins.find(item.node); part != context.part_begins.end()) {
          if (part->second == item.node) part_starts[item.node] = i;
          start = part_starts.at(part->second);
        }
        const TemplateId t = dag.TemplateOf(item.node);
        if (fetched[t].empty()) continue;
        const int32_t mb = dag.templates[t].mb_begin + static_cast<int32_t>(item.node - dag.first_node[t]);
        for (TemplateId from : fetched[t]) {
          const NodeTemplate& copy = dag.templates[from];
          if (context.offload.owner[copy.region] != &directive || mb < copy.mb_begin || mb >= copy.mb_end ||
              context.Computes(copy.stream))  // there it stands where it is needed
            continue;
          const NodeId id = dag.first_node[from] + static_cast<NodeId>(mb - copy.mb_begin);
          if (!seen.insert(id).second) continue;
          auto [it, fresh] = index.try_emplace({context.offload.unit[copy.region], mb}, arrivals.size());
          if (fresh) arrivals.push_back({start, {}});
          arrivals[it->second].copies.push_back(id);
        }
      }
      const auto ahead = static_cast<size_t>(offload.prefetch);
      for (size_t i = ahead; i < arrivals.size(); ++i) {
        // What stands before that reader on its stream.
        const NameId stream = dag.templates[dag.TemplateOf(items[arrivals[i - ahead].start].node)].stream;
        size_t before = arrivals[i - ahead].start;
        while (before > 0 && dag.templates[dag.TemplateOf(items[before - 1].node)].stream != stream) --before;
        if (before == 0) continue;
        for (NodeId copy : arrivals[i].copies)
          dag.temporal.push_back({items[before - 1].node, copy, 0, origin});
      }
    }
  });
}

}  // namespace piper::ir
