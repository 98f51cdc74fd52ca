#include "ir/directives/greedy_problem.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "ir/cost/resource_model.h"
#include "ir/dag/region_body.h"
#include "ir/directives/offload.h"
#include "ir/directives/recompute.h"
#include "ir/support/result.h"

namespace piper::ir {

namespace {

using Pass3 = ListProblem::Pass;
using Queue = ListProblem::Queue;
using Unit = ListProblem::Unit;
using Way = ListProblem::Way;

// What a buffer between passes holds, as lowering names them (FormalKind in ir/model/body.h).
using Held = std::tuple<int, uint32_t, uint32_t>;

class Builder {
 public:
  explicit Builder(const BuildContext& context)
      : context_(context), dag_(context.dag), compute_(InternName("compute")) {}

  GreedyProblem Run() {
    const size_t hosts = context_.hosts.size();
    list().hosts.resize(hosts);
    spec_.assign(hosts, nullptr);
    host_of_group_.assign(dag_.groups.size(), UINT32_MAX);
    for (uint32_t h = 0; h < hosts; ++h) host_of_group_[context_.hosts[h]] = h;
    for (const GreedyOrder& order : context_.greedy_orders) {
      spec_[order.host] = order.spec;
      list().hosts[order.host].free = true;
      if (context_.forward_only) continue;
      if (order.spec->in_flight > 0) list().hosts[order.host].cap[kInFlight] = order.spec->in_flight;
      if (order.spec->memory > 0) list().hosts[order.host].cap[kBytes] = order.spec->memory;
    }
    queue_of_.assign(dag_.templates.size(), UINT32_MAX);
    lead_.assign(dag_.templates.size(), 0);
    trail_.assign(dag_.templates.size(), 0);
    IndexAccumulates();
    CollectUnits();
    for (const Members& members : units_) AddUnit(members);
    PlanCopies();
    for (uint32_t u = 0; u < units_.size(); ++u) TakeBytes(u, units_[u]);
    AddGivenOrders();
    AddWaits();
    SortArcs();
    RankOperations();
    ScaleDown();
    return std::move(problem_);
  }

 private:
  // A unit's regions, as (region, copy), in model order.
  struct Members {
    uint32_t host = 0;
    int64_t stage = -1;
    int32_t begin = 0, end = 0;
    std::vector<std::pair<RegionId, uint32_t>> regions;
  };

  ListProblem& list() { return problem_.list; }

  TemplateId TemplateOf(RegionId region, uint32_t copy, Pass pass) const {
    return context_.compute[region][copy][static_cast<size_t>(pass)];
  }

  int64_t StageOf(TemplateId t) const {
    for (const TagInstance& tag : dag_.templates[t].tags) {
      if (tag.name == context_.stage_tag) return tag.index;
    }
    return -1;
  }

  // ---- what passes cost

  // Gradients are added right after the BW that makes them.
  void IndexAccumulates() {
    accumulates_.assign(dag_.templates.size(), 0);
    for (const TemplateEdge& edge : dag_.edges) {
      const NodeTemplate& from = dag_.templates[edge.from];
      const NodeTemplate& to = dag_.templates[edge.to];
      if (from.kind != NodeKind::kCompute || to.kind != NodeKind::kAccumulate || to.step_level()) continue;
      const Parameter& parameter = context_.regions.graph.parameters[to.gradients.at(0).parameter];
      const Picoseconds cost = to.cost >= 0 ? to.cost : AccumulateCost(KindOf(from), parameter.type.bytes());
      accumulates_[edge.from] = SaturatingAdd(accumulates_[edge.from], cost);
    }
  }

  const DeviceKind& KindOf(const NodeTemplate& node) const {
    return context_.program.topology.Kind(dag_.groups[node.group].devices.front());
  }

  Picoseconds CostOf(TemplateId t) const {
    const NodeTemplate& node = dag_.templates[t];
    const Picoseconds own =
        node.cost >= 0 ? node.cost : BodyCost(KindOf(node), BodyOf(context_.regions, node));
    return SaturatingAdd(own, accumulates_[t]);
  }

  // ---- units

  // Consecutive regions of one stage on one host, for the same microbatches.
  void CollectUnits() {
    std::vector<size_t> latest(context_.hosts.size(), SIZE_MAX);
    for (RegionId r = 0; r < context_.copies.size(); ++r) {
      for (uint32_t copy = 0; copy < context_.copies[r].size(); ++copy) {
        const RegionCopy& placed = context_.copies[r][copy];
        const uint32_t h = host_of_group_[placed.host];
        if (!list().hosts[h].free) continue;
        const int64_t stage = StageOf(TemplateOf(r, copy, Pass::kF));
        const bool joins = latest[h] != SIZE_MAX && units_[latest[h]].stage == stage &&
                           units_[latest[h]].begin == placed.begin && units_[latest[h]].end == placed.end &&
                           units_[latest[h]].regions.back().first + 1 == r;
        if (!joins) {
          latest[h] = units_.size();
          units_.push_back({h, stage, placed.begin, placed.end, {}});
        }
        units_[latest[h]].regions.emplace_back(r, copy);
      }
    }
  }

  void AddUnit(const Members& members) {
    const auto u = static_cast<uint32_t>(list().units.size());
    const bool whole = KeepsBackwardWhole(*spec_[members.host]);
    std::vector<TemplateId> passes[3];
    for (auto [region, copy] : members.regions) passes[0].push_back(TemplateOf(region, copy, Pass::kF));
    for (size_t i = members.regions.size(); i-- > 0;) {
      const auto [region, copy] = members.regions[i];
      for (Pass pass : {Pass::kBI, Pass::kBW}) {
        const TemplateId t = TemplateOf(region, copy, pass);
        if (t != kNone) passes[whole || pass == Pass::kBI ? 1 : 2].push_back(t);
      }
    }
    Unit unit;
    unit.host = members.host;
    unit.mb_begin = members.begin;
    unit.mb_end = members.end;
    list().units.push_back(unit);
    // What is recomputed runs right before the first pass that needs it.
    std::vector<TemplateId> replays;
    for (auto [region, copy] : members.regions) {
      const TemplateId t = TemplateOf(region, copy, Pass::kR);
      if (t != kNone) replays.push_back(t);
    }
    for (int pass = 0; pass < 3; ++pass) {
      if (passes[pass].empty()) continue;
      AddQueue(u, static_cast<Pass3>(pass), passes[pass], pass == 0 ? std::vector<TemplateId>() : replays,
               whole);
      if (pass > 0) replays.clear();
    }
    TakeInFlight(u);
  }

  void AddQueue(uint32_t u, Pass3 pass, const std::vector<TemplateId>& templates,
                const std::vector<TemplateId>& replays, bool whole) {
    Unit& unit = list().units[u];
    const auto q = static_cast<uint32_t>(list().queues.size());
    Queue queue;
    queue.host = unit.host;
    queue.unit = u;
    queue.pass = pass;
    queue.first = list().size();
    queue.count = static_cast<uint32_t>(unit.mb_end - unit.mb_begin);
    unit.queues[static_cast<int>(pass)] = q;
    list().queues.push_back(queue);
    Picoseconds total = 0;
    for (TemplateId t : replays) {
      queue_of_[t] = q;
      total = SaturatingAdd(total, CostOf(t));
    }
    for (TemplateId t : templates) {
      queue_of_[t] = q;
      lead_[t] = total;
      total = SaturatingAdd(total, CostOf(t));
      trail_[t] = total;  // its end, for now
    }
    for (size_t i = 0; i < templates.size(); ++i) {
      // The BI and BW of a region are one node in a whole B: results leave at its end.
      const bool paired = whole && pass == Pass3::kBackward && i + 1 < templates.size() &&
                          dag_.templates[templates[i]].region == dag_.templates[templates[i + 1]].region;
      trail_[templates[i]] = total - trail_[templates[paired ? i + 1 : i]];
    }
    AddOperations(unit.host, queue.count, total, q);
    problem_.pass_templates.push_back(templates);
  }

  void AddOperations(uint32_t host, uint32_t count, Picoseconds cost, uint32_t queue) {
    const size_t size = list().size() + count;
    list().host_of.resize(size, host);
    list().cost.resize(size, cost);
    list().queue_of.resize(size, queue);
    list().priority.resize(size, 0);
  }

  void TakeInFlight(uint32_t u) {
    const Unit& unit = list().units[u];
    list().queues[unit.queues[0]].take[kInFlight] = 1;
    const uint32_t last = unit.queues[1] != UINT32_MAX   ? unit.queues[1]
                          : unit.queues[2] != UINT32_MAX ? unit.queues[2]
                                                         : unit.queues[0];
    list().queues[last].give[kInFlight] = 1;
  }

  // ---- what passes hold for later ones

  static Held KeyOf(const Formal& formal, RegionId region, bool replayed = false) {
    const int again = replayed ? 10 : 0;
    switch (formal.kind) {
      case FormalKind::kSaved:
        return {1 + again, region, formal.saved};
      case FormalKind::kCotangent:
        return {2, formal.value, formal.consumer};
      case FormalKind::kInputCotangent:
        return {2, formal.value, region};
      default:
        return {again, formal.value, 0};
    }
  }

  // A buffer that one name forwards to another is held once.
  const Held& Root(const Held& key) const {
    auto found = forwarded_.find(key);
    return found == forwarded_.end() ? key : Root(found->second);
  }

  void Forward(const Body& body, RegionId r, bool replayed) {
    for (const Formal& formal : body.formals) {
      if (!formal.written || formal.alias_of == kNone) continue;
      const Formal& other = body.formals[formal.alias_of];
      const Held to = Root(KeyOf(other, r, replayed && MadeAgain(other, r)));
      const Held from = Root(KeyOf(formal, r, replayed));
      if (to != from) forwarded_.emplace(from, to);
    }
  }

  // Later passes of the region read what R makes, not what F made.
  bool MadeAgain(const Formal& formal, RegionId r) const {
    if (formal.written) return true;
    if (formal.kind == FormalKind::kSaved || formal.kind == FormalKind::kOutput)
      return !context_.regions.regions[r].recompute.empty();
    if (formal.kind != FormalKind::kValue || formal.value == kNone) return false;
    const RegionId producer = context_.regions.value_region[formal.value];
    return producer != kNone && ReadsReplay(context_, r, producer);
  }

  // A later pass of region r reads what came back from host memory.
  bool ComesBack(const Formal& formal, RegionId r) const {
    if (formal.kind != FormalKind::kValue) return ReadsFetched(context_, r, r);
    const RegionId producer = context_.regions.value_region[formal.value];
    if (producer == kNone) return false;
    return ReadsFetched(context_, r, producer) || context_.receivers.count({r, producer}) != 0;
  }

  // What of host memory's copies the bound can count on. Caps look at sequences of operations, not at times:
  // where copies out are no longer than the shortest operation of their host, the last operation's values at
  // most are still on their way at the next one's start; `prefetch` says how many units come back before they
  // are needed. Where copies are longer, or stand on other streams, what leaves is counted as if it stayed.
  void PlanCopies() {
    const size_t hosts = context_.hosts.size();
    problem_.reserve.assign(hosts, 0);
    leaves_in_time_.assign(hosts, false);
    if (context_.forward_only) return;
    std::vector<Picoseconds> shortest(hosts, INT64_MAX);
    for (const Queue& queue : list().queues)
      shortest[queue.host] = std::min(shortest[queue.host], list().cost[queue.first]);
    struct Copies {
      bool elsewhere = false;
      int64_t prefetch = 0;
      std::map<int64_t, Picoseconds> out;  // per stage
      std::map<int64_t, int64_t> left;     // per stage: bytes
      std::map<uint32_t, int64_t> back;    // per unit of `offload`: bytes
    };
    std::vector<Copies> copies(hosts);
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const NodeTemplate& node = dag_.templates[t];
      const bool out = node.kind == NodeKind::kOffload;
      if (!out && node.kind != NodeKind::kPrefetch) continue;
      Copies& here = copies[host_of_group_[node.group]];
      here.elsewhere = here.elsewhere || node.stream != InternName(out ? "offload" : "prefetch");
      const auto& directive = std::get<OffloadDirective>(context_.offload.owner[node.region]->body);
      here.prefetch = std::max<int64_t>(here.prefetch, directive.prefetch);
      if (!out) {
        here.back[context_.offload.unit[node.region]] += node.bytes;
        continue;
      }
      const int64_t bytes = node.cost_bytes >= 0 ? node.cost_bytes : node.bytes;
      Picoseconds& cost = here.out[StageOf(t)];
      cost = SaturatingAdd(cost, node.cost >= 0 ? node.cost : HostCopyCost(KindOf(node), bytes));
      here.left[StageOf(t)] += node.bytes;
    }
    for (size_t h = 0; h < hosts; ++h) {
      const Copies& here = copies[h];
      int64_t leaving = 0, coming = 0;
      bool in_time = !here.elsewhere;
      for (const auto& [stage, cost] : here.out) {
        in_time = in_time && cost <= shortest[h];
        if (cost > 0) leaving = std::max(leaving, here.left.at(stage));
      }
      for (const auto& [unit, bytes] : here.back) coming = std::max(coming, bytes);
      if (here.out.empty() || !in_time) continue;
      leaves_in_time_[h] = true;
      problem_.reserve[h] =
          here.prefetch > kNoCap / 2 / std::max<int64_t>(coming, 1) ? kNoCap / 2 : here.prefetch * coming;
      problem_.reserve[h] = SaturatingAdd(problem_.reserve[h], leaving);
      int64_t& cap = list().hosts[h].cap[kBytes];
      if (list().hosts[h].free && cap != kNoCap) cap -= problem_.reserve[h];
    }
  }

  // What a unit holds between its passes, and at most within its first backward pass.
  void TakeBytes(uint32_t u, const Members& members) {
    if (context_.forward_only) return;
    // A buffer, and from which region's turn in the first backward pass to which it is there.
    struct Life {
      int64_t bytes = 0;
      int first = INT32_MAX, last = 0;
      bool stays = false;  // from F on; else, if `leaves`, until F's end and again from `first` on
      bool leaves = false;
      bool by_weight = false;
    };
    std::map<Held, Life> lives;
    const Unit& unit = list().units[u];
    const bool split = unit.queues[1] != UINT32_MAX && unit.queues[2] != UINT32_MAX;
    const int turns = static_cast<int>(members.regions.size());
    std::map<RegionId, int> turn_of;
    std::map<uint32_t, int> turn_of_replays;  // per unit of `recompute`: the first of its regions
    for (int i = 0; i < turns; ++i) {
      const RegionId r = members.regions[static_cast<size_t>(i)].first;
      const Region& region = context_.regions.regions[r];
      Forward(region.forward, r, false);
      Forward(region.recompute, r, true);
      Forward(region.backward_input, r, false);
      turn_of[r] = turns - 1 - i;
      turn_of_replays[context_.recompute.unit[r]] = turns - 1 - i;
    }
    for (auto [r, copy] : members.regions) {
      const Region& region = context_.regions.regions[r];
      for (const Body* body : {&region.recompute, &region.backward_input, &region.backward_weight}) {
        const bool weight = body == &region.backward_weight;
        for (const Formal& formal : body->formals) {
          if (formal.written) continue;
          const int turn = turn_of[r];
          bool again = false, stays = false, leaves = false;
          int first = turn;
          switch (formal.kind) {
            case FormalKind::kValue:
            case FormalKind::kOutput:
            case FormalKind::kSaved:
              if (formal.value == kNone) {  // what BI saves for BW
                if (!weight || !split) continue;
                break;
              }
              if (formal.kind == FormalKind::kValue &&
                  context_.regions.graph.values[formal.value].source == ir::Value::Source::kParameter)
                continue;
              again = MadeAgain(formal, r);
              leaves = !again && leaves_in_time_[members.host] && ComesBack(formal, r);
              stays = !again && !leaves;
              if (again) first = turn_of_replays[context_.recompute.unit[r]];
              break;
            case FormalKind::kCotangent:
            case FormalKind::kInputCotangent: {
              if (!weight || !split) continue;
              // Made by the consumer's BI, or received.
              const auto made = turn_of.find(formal.kind == FormalKind::kCotangent ? formal.consumer : r);
              first = made == turn_of.end() ? 0 : std::min(made->second, turn);
              break;
            }
            default:
              continue;
          }
          Life& life = lives[Root(KeyOf(formal, r, again))];
          life.bytes = std::max(life.bytes, formal.type.bytes());
          life.first = std::min(life.first, first);
          life.last = std::max(life.last, weight && split ? turns : turn);
          life.stays = life.stays || stays;
          life.leaves = life.leaves || leaves;
          life.by_weight = life.by_weight || weight;
        }
      }
    }
    int64_t kept = 0, away = 0, later = 0;
    std::vector<int64_t> change(static_cast<size_t>(turns) + 2, 0);
    for (const auto& [key, life] : lives) {
      if (life.stays) kept = SaturatingAdd(kept, life.bytes);
      if (life.leaves && !life.stays) away = SaturatingAdd(away, life.bytes);
      if (life.by_weight) later = SaturatingAdd(later, life.bytes);
      change[static_cast<size_t>(life.stays ? 0 : life.first)] += life.bytes;
      change[static_cast<size_t>(life.last) + 1] -= life.bytes;
    }
    int64_t now = 0, most = kept;
    for (int turn = 0; turn < turns; ++turn) most = std::max(most, now += change[static_cast<size_t>(turn)]);
    list().queues[unit.queues[0]].take[kBytes] = SaturatingAdd(kept, away);
    list().queues[unit.queues[0]].give[kBytes] = away;
    if (split) {
      list().queues[unit.queues[1]].take[kBytes] = most - kept;
      list().queues[unit.queues[1]].give[kBytes] = most - later;
      list().queues[unit.queues[2]].give[kBytes] = later;
    } else if (unit.queues[1] != UINT32_MAX || unit.queues[2] != UINT32_MAX) {
      const uint32_t last = unit.queues[1] != UINT32_MAX ? unit.queues[1] : unit.queues[2];
      list().queues[last].take[kBytes] = most - kept;
      list().queues[last].give[kBytes] = most;
    } else {
      list().queues[unit.queues[0]].give[kBytes] = SaturatingAdd(kept, away);
    }
  }

  // ---- orders that are given

  void AddGivenOrders() {
    bool any = false;
    for (const ListProblem::Host& host : list().hosts) any = any || !host.free;
    if (!any) return;
    op_of_node_.assign(dag_.node_count(), UINT32_MAX);
    for (uint32_t h = 0; h < context_.hosts.size(); ++h) {
      if (list().hosts[h].free) continue;
      for (const ListedStream& listed : context_.host_orders[h].streams) {
        if (listed.stream == compute_) AddGiven(h, listed.items);
      }
    }
  }

  void AddGiven(uint32_t h, const std::vector<OrderItem>& items) {
    TemplateId t = 0;
    std::set<TemplateId> listed_replays;
    for (const OrderItem& item : items) {
      if (item.node < dag_.first_node[t] || item.node >= dag_.first_node[t + 1])
        t = dag_.TemplateOf(item.node);
      if (dag_.templates[t].pass == Pass::kR) listed_replays.insert(t);
    }
    // Before the first pass of its region that could need it, where no order lists it.
    const auto replay_cost = [&](TemplateId of) -> Picoseconds {
      const NodeTemplate& node = dag_.templates[of];
      if (node.pass != Pass::kBI && node.pass != Pass::kBW) return 0;
      const TemplateId replay = TemplateOf(node.region, node.copy, Pass::kR);
      const bool first = node.pass == Pass::kBI || TemplateOf(node.region, node.copy, Pass::kBI) == kNone;
      return replay == kNone || !first || listed_replays.count(replay) != 0 ? 0 : CostOf(replay);
    };
    for (size_t i = 0; i < items.size();) {
      size_t end = i + 1;
      while (items[i].atomic != kNone && end < items.size() && items[end].atomic == items[i].atomic) ++end;
      Picoseconds cost = 0, replays = 0;
      const uint32_t op = list().size();
      bool computes = false;
      for (size_t k = i; k < end; ++k) {
        if (items[k].node < dag_.first_node[t] || items[k].node >= dag_.first_node[t + 1])
          t = dag_.TemplateOf(items[k].node);
        if (dag_.templates[t].kind != NodeKind::kCompute) continue;
        computes = true;
        op_of_node_[items[k].node] = op;
        cost = SaturatingAdd(cost, CostOf(t));
        replays = SaturatingAdd(replays, replay_cost(t));
      }
      const uint32_t atomic = items[i].atomic;
      if (atomic != kNone && atomic < dag_.atomic_costs.size() && dag_.atomic_costs[atomic] >= 0)
        cost = dag_.atomic_costs[atomic];
      if (computes) {
        AddOperations(h, 1, SaturatingAdd(cost, replays), UINT32_MAX);
        list().hosts[h].order.push_back(op);
      }
      i = end;
    }
  }

  // ---- what waits for what

  uint32_t OperationOf(TemplateId t, int32_t mb) const {
    const NodeTemplate& node = dag_.templates[t];
    if (queue_of_[t] != UINT32_MAX)
      return list_().queues[queue_of_[t]].first + static_cast<uint32_t>(mb - node.mb_begin);
    return op_of_node_.empty() ? UINT32_MAX
                               : op_of_node_[dag_.first_node[t] + static_cast<NodeId>(mb - node.mb_begin)];
  }
  const ListProblem& list_() const { return problem_.list; }

  void AddWaits() {
    std::vector<std::vector<TemplateId>> writers(dag_.templates.size()), readers(dag_.templates.size());
    for (const TemplateEdge& edge : dag_.edges) {
      const NodeTemplate& from = dag_.templates[edge.from];
      const NodeTemplate& to = dag_.templates[edge.to];
      if (from.kind == NodeKind::kCompute && to.kind == NodeKind::kCompute) {
        Connect(edge.from, edge.to, from.mb_begin, from.mb_end, Way{});
      } else if (from.kind == NodeKind::kCompute && to.kind == NodeKind::kSend) {
        writers[edge.to].push_back(edge.from);
      } else if (from.kind == NodeKind::kRecv && to.kind == NodeKind::kCompute) {
        readers[edge.from].push_back(edge.to);
      }
    }
    for (TemplateId s = 0; s < dag_.templates.size(); ++s) {
      const NodeTemplate& send = dag_.templates[s];
      if (send.kind != NodeKind::kSend) continue;
      // The first that reads it pays for the channel; for the others it is there as early.
      std::vector<TemplateId>& all = readers[send.match];
      std::stable_sort(all.begin(), all.end(), [&](TemplateId a, TemplateId b) {
        return dag_.templates[a].pass < dag_.templates[b].pass;
      });
      Way way = WayOf(send);
      for (TemplateId reader : all) {
        for (TemplateId writer : writers[s]) Connect(writer, reader, send.mb_begin, send.mb_end, way);
        way.latency += way.occupancy;
        way.occupancy = 0;
        way.channel = UINT32_MAX;
      }
    }
    AddEdges();
  }

  // `edge` lines: within a host, and those that a message carries to another.
  void AddEdges() {
    std::map<NodeId, std::vector<NodeId>> before, after;  // of the two ends of such a message
    for (const TemporalEdge& edge : dag_.temporal) {
      if (edge.distance != 0) continue;
      const TemplateId from = dag_.TemplateOf(edge.from), to = dag_.TemplateOf(edge.to);
      const NodeKind source = dag_.templates[from].kind, target = dag_.templates[to].kind;
      if (source == NodeKind::kCompute && target == NodeKind::kCompute) {
        AddArc(OperationOf(edge.from), OperationOf(edge.to), WayIndex(Way{}));
      } else if (source == NodeKind::kCompute && target == NodeKind::kSend) {
        before[edge.to].push_back(edge.from);
      } else if (source == NodeKind::kRecv && target == NodeKind::kCompute) {
        after[edge.from].push_back(edge.to);
      }
    }
    for (const auto& [node, writers] : before) {
      const TemplateId s = dag_.TemplateOf(node);
      const auto readers = after.find(dag_.first_node[dag_.templates[s].match] + (node - dag_.first_node[s]));
      if (readers == after.end()) continue;
      const uint32_t way = WayIndex(WayOf(dag_.templates[s]));
      for (NodeId writer : writers) {
        for (NodeId reader : readers->second) AddArc(OperationOf(writer), OperationOf(reader), way);
      }
    }
  }

  uint32_t OperationOf(NodeId node) const {
    return OperationOf(dag_.TemplateOf(node), dag_.MicrobatchOf(node));
  }

  // The level of the topology whose port a message leaves by: the innermost that holds both ends.
  uint32_t LevelOf(const NodeTemplate& send) const {
    const uint32_t from = dag_.groups[send.group].devices.front();
    const uint32_t to = dag_.groups[send.peer_group].devices.front();
    const std::vector<Level>& levels = context_.program.topology.levels;
    for (uint32_t level = 0; level < levels.size(); ++level) {
      for (const Level::Group& group : levels[level].groups) {
        if (from - group.first < group.count && to - group.first < group.count) return level;
      }
    }
    return 0;
  }

  Way WayOf(const NodeTemplate& send) {
    Way way;
    if (send.cost >= 0) {
      way.latency = send.cost;
      return way;
    }
    const Link link = context_.program.topology.Between(dag_.groups[send.group].devices.front(),
                                                        dag_.groups[send.peer_group].devices.front());
    const TransferCost cost = MessageCost(link, send.cost_bytes >= 0 ? send.cost_bytes : send.bytes);
    way.latency = cost.latency;
    way.occupancy = cost.occupancy;
    if (cost.occupancy > 0) {
      way.channel = channels_.try_emplace({send.group, LevelOf(send)}, list().channels).first->second;
      list().channels = static_cast<uint32_t>(channels_.size());
    }
    return way;
  }

  void Connect(TemplateId from, TemplateId to, int32_t begin, int32_t end, Way way) {
    const NodeTemplate& writer = dag_.templates[from];
    const NodeTemplate& reader = dag_.templates[to];
    begin = std::max({begin, writer.mb_begin, reader.mb_begin});
    end = std::min({end, writer.mb_end, reader.mb_end});
    const uint32_t q = queue_of_[from], r = queue_of_[to];
    if (writer.group != reader.group) {
      way.early = trail_[from];
      way.late = lead_[to];
    }
    if (q != UINT32_MAX && r != UINT32_MAX) {
      if (q == r) return;
      // Regions of two passes are often joined by several edges: one is enough.
      const std::tuple key(q, r, begin, end, way.channel, way.early, way.occupancy, way.latency, way.late);
      if (!connected_.insert(key).second) return;
    }
    const uint32_t index = WayIndex(way);
    for (int32_t mb = begin; mb < end; ++mb) AddArc(OperationOf(from, mb), OperationOf(to, mb), index);
  }

  uint32_t WayIndex(const Way& way) {
    const std::tuple key(way.channel, way.early, way.occupancy, way.latency, way.late);
    const auto [found, added] = way_index_.try_emplace(key, static_cast<uint32_t>(list().ways.size()));
    if (added) list().ways.push_back(way);
    return found->second;
  }

  void AddArc(uint32_t from, uint32_t to, uint32_t way) {
    if (from == UINT32_MAX || to == UINT32_MAX || from == to) return;
    waits_.push_back({from, {to, way}});
  }

  // By sender; a sender's messages in the order in which they were made.
  void SortArcs() {
    list().first_arc.assign(list().size() + 1, 0);
    for (const auto& [from, arc] : waits_) ++list().first_arc[from + 1];
    for (uint32_t op = 0; op < list().size(); ++op) list().first_arc[op + 1] += list().first_arc[op];
    std::vector<uint32_t> next(list().first_arc.begin(), list().first_arc.end() - 1);
    list().arcs.resize(waits_.size());
    for (const auto& [from, arc] : waits_) list().arcs[next[from]++] = arc;
    waits_ = {};
  }

  // ---- priorities

  void RankOperations() {
    std::vector<int32_t> microbatches;
    for (uint32_t q = 0; q < list().queues.size(); ++q) {
      const Queue& queue = list().queues[q];
      const GreedySpec& spec = *spec_[queue.host];
      const bool whole = KeepsBackwardWhole(spec);
      const int32_t begin = list().units[queue.unit].mb_begin;
      const auto last = static_cast<uint16_t>(std::min<size_t>(spec.priority.size(), UINT16_MAX));
      const auto first = list().priority.begin() + queue.first;
      std::fill(first, first + queue.count, last);
      for (uint16_t rank = last; rank-- > 0;) {
        for (const SelectorClause& clause : spec.priority[rank].any_of) {
          SelectorClause narrowed = clause;
          if (!whole && narrowed.passes == kPassB) narrowed.passes = PassBit(Pass::kBI);
          const std::vector<TemplateId>& templates = problem_.pass_templates[q];
          if (std::none_of(templates.begin(), templates.end(),
                           [&](TemplateId t) { return context_.TemplateMatches(narrowed, t); }))
            continue;
          microbatches.clear();
          context_.split.Collect(clause, begin, begin + static_cast<int32_t>(queue.count), &microbatches);
          for (int32_t mb : microbatches) first[mb - begin] = rank;
        }
      }
    }
  }

  // Sums of figures stay far below the largest number; the order does not change for it.
  void ScaleDown() {
    double total = 0;
    for (Picoseconds cost : list().cost) total += static_cast<double>(cost);
    for (const ListProblem::Arc& arc : list().arcs) {
      const Way& way = list().ways[arc.way];
      total += static_cast<double>(way.occupancy) + static_cast<double>(way.latency);
    }
    int shift = 0;
    while (total > 0x1p60) total /= 2, ++shift;
    if (shift == 0) return;
    for (Picoseconds& cost : list().cost) cost >>= shift;
    for (Way& way : list().ways) {
      for (Picoseconds* figure : {&way.early, &way.occupancy, &way.latency, &way.late}) *figure >>= shift;
    }
  }

  const BuildContext& context_;
  const Dag& dag_;
  const NameId compute_;
  GreedyProblem problem_;
  std::vector<const GreedySpec*> spec_;  // per host
  std::vector<uint32_t> host_of_group_;
  std::vector<Members> units_;
  std::vector<Picoseconds> accumulates_;  // per BW template
  std::vector<uint32_t> queue_of_;        // per template
  std::vector<Picoseconds> lead_,
      trail_;                         // per template: how far behind its operation's start, before its end
  std::vector<uint32_t> op_of_node_;  // of given orders; empty if there are none
  std::map<Held, Held> forwarded_;
  std::vector<bool>
      leaves_in_time_;  // per host: what `offload` moves does not count between F and its return
  std::map<std::pair<GroupId, uint32_t>, uint32_t> channels_;  // by host and port
  std::set<std::tuple<uint32_t, uint32_t, int32_t, int32_t, uint32_t, Picoseconds, Picoseconds, Picoseconds,
                      Picoseconds>>
      connected_;
  std::map<std::tuple<uint32_t, Picoseconds, Picoseconds, Picoseconds, Picoseconds>, uint32_t> way_index_;
  std::vector<std::pair<uint32_t, ListProblem::Arc>> waits_;
};

}  // namespace

bool KeepsBackwardWhole(const GreedySpec& spec) {
  return std::none_of(spec.priority.begin(), spec.priority.end(), [](const Selector& selector) {
    return std::any_of(selector.any_of.begin(), selector.any_of.end(), [](const SelectorClause& clause) {
      return (clause.passes & kPassB) == PassBit(Pass::kBW);
    });
  });
}

GreedyProblem BuildGreedyProblem(const BuildContext& context) { return Builder(context).Run(); }

}  // namespace piper::ir
