// Hand-built pipeline Dags for the tests of lowering: one region a stage, its bodies without calls (formals
// and costs only), any list of steps a rank, `replicas` devices a host, and everything that gradient
// synchronisation adds. What the directive passes would build, in their conventions (dag.h).
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "ir/dag/dag.h"
#include "ir/model/body.h"
#include "ir/program/program.h"
#include "tests/pipeline_job.h"

namespace piper::ir::testing {

struct PipelineDagOptions {
  int stages = 2;
  int ranks = 2;  // stage s lies on host s % ranks
  int microbatches = 4;
  int replicas = 1;
  int64_t width = 32;  // elements of an activation a sample
  bool tied = false;   // first and last stage share a parameter
  double clip = 0;
  bool bucket = false;  // one reduce a host instead of one a parameter
  Picoseconds forward = 1, backward_input = 1, backward_weight = 1;
  std::vector<RankSteps> steps;  // kBI: whole backward
};

struct PipelineDag {
  Program program;
  RegionGraph regions;
  Dag dag;
};

inline Formal MakeFormal(FormalKind kind, const TensorType& type, std::string name, bool written = false) {
  Formal formal;
  formal.kind = kind;
  formal.type = type;
  formal.name = std::move(name);
  formal.written = written;
  return formal;
}

inline void BuildModel(const PipelineDagOptions& o, PipelineDag* out) {
  RegionGraph& regions = out->regions;
  Graph& graph = regions.graph;
  const TensorType tokens{DType::kI32, {{"batch", 2}, {"seq", 8}}};
  const TensorType activation{DType::kF32, {{"batch", 2}, {"embed", o.width}}};
  const TensorType scalar{DType::kF32, {}};
  const TensorType matrix{DType::kF32, {{"embed", o.width}, {"hidden", 8}}};
  const ValueId input = graph.AddInput({"tokens", tokens, {}});
  const ValueId targets = graph.AddInput({"targets", tokens, {}});
  std::vector<ParameterId> weight;
  for (int s = 0; s < o.stages; ++s) {
    weight.push_back(static_cast<ParameterId>(graph.parameters.size()));
    graph.AddParameter({"w" + std::to_string(s), matrix, {Initializer::Kind::kNormal, 0.02, 0}, false, {}});
  }
  const ParameterId tied = static_cast<ParameterId>(graph.parameters.size());
  if (o.tied) graph.AddParameter({"tied", matrix, {}, false, {}});
  ValueId previous = input;
  for (int s = 0; s < o.stages; ++s) {
    const bool last = s + 1 == o.stages;
    Operation operation;
    operation.kind = "stage";
    operation.operands = {previous};
    operation.tags = graph.InternTags({{"stage", s}});
    operation.path = "stage" + std::to_string(s);
    const OpId op = graph.AddOperation(operation, {last ? scalar : activation});
    Region region;
    region.id = static_cast<RegionId>(s);
    region.first = op;
    region.last = op + 1;
    region.tags = operation.tags;
    region.name = operation.path;
    region.parameters = {weight[s]};
    const bool ties = o.tied && (s == 0 || last);
    if (ties) region.parameters.push_back(tied);
    const ValueId value = graph.operations[op].results[0];
    if (last) {
      region.losses = {0};
      graph.losses.push_back({value, "loss", {}});
    }
    const auto with = [](Formal formal, ValueId v, RegionId consumer, ParameterId p, uint32_t saved) {
      formal.value = v;
      formal.consumer = consumer;
      formal.parameter = p;
      formal.saved = saved;
      return formal;
    };
    const Formal x = with(MakeFormal(FormalKind::kValue, s == 0 ? tokens : activation, "x"), previous, kNone,
                          kNone, kNone);
    const Formal w = with(MakeFormal(FormalKind::kParameter, matrix, "w"), kNone, kNone, weight[s], kNone);
    const Formal t = with(MakeFormal(FormalKind::kParameter, matrix, "tied"), kNone, kNone, tied, kNone);
    Formal saved = with(MakeFormal(FormalKind::kSaved, activation, "h", true), kNone, kNone, kNone, 0);
    Body& f = region.forward;
    f.region = region.id;
    f.formals = {x, w};
    if (ties) f.formals.push_back(t);
    if (last) {
      f.formals.push_back(
          with(MakeFormal(FormalKind::kValue, tokens, "targets"), targets, kNone, kNone, kNone));
      f.formals.push_back(MakeFormal(FormalKind::kScale, scalar, "scale"));
    }
    f.formals.push_back(with(MakeFormal(FormalKind::kOutput, last ? scalar : activation, "y", true), value,
                             kNone, kNone, kNone));
    f.formals.push_back(saved);
    f.scratch_bytes = 640;
    saved.written = false;
    Formal internal = with(MakeFormal(FormalKind::kSaved, activation, "d_h", true), kNone, kNone, kNone, 1);
    Body& bi = region.backward_input;
    bi.region = region.id;
    bi.pass = Pass::kBI;
    bi.formals = {w, saved};
    if (last) {
      bi.formals.push_back(MakeFormal(FormalKind::kScale, scalar, "scale"));
    } else {
      bi.formals.push_back(
          with(MakeFormal(FormalKind::kCotangent, activation, "d_y"), value, region.id + 1, kNone, kNone));
    }
    bi.formals.push_back(internal);
    if (s > 0) {
      bi.formals.push_back(with(MakeFormal(FormalKind::kInputCotangent, activation, "d_x", true), previous,
                                kNone, kNone, kNone));
    }
    bi.scratch_bytes = 128;
    internal.written = false;
    Body& bw = region.backward_weight;
    bw.region = region.id;
    bw.pass = Pass::kBW;
    bw.formals = {
        x, saved, internal,
        with(MakeFormal(FormalKind::kGradient, matrix, "d_w", true), kNone, kNone, weight[s], kNone)};
    if (ties)
      bw.formals.push_back(
          with(MakeFormal(FormalKind::kGradient, matrix, "d_tied", true), kNone, kNone, tied, kNone));
    regions.regions.push_back(region);
    previous = value;
  }
  regions.value_region.assign(graph.values.size(), kNone);
  for (ValueId v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].source == Value::Source::kOperation) regions.value_region[v] = graph.values[v].index;
  }
}

class PipelineDagBuilder {
 public:
  PipelineDagBuilder(const PipelineDagOptions& options, PipelineDag* out)
      : o_(options), out_(*out), dag_(out->dag), steps_(options.steps) {}

  void Build() {
    const int m = o_.microbatches;
    dag_.microbatches = m;
    dag_.replicas = o_.replicas;
    dag_.samples_per_microbatch = 2;
    dag_.device_count = static_cast<uint32_t>(o_.ranks * o_.replicas);
    Group all{"every host", {}};
    for (int r = 0; r < o_.ranks; ++r) {
      Group host{"pp[" + std::to_string(r) + "]", {}};
      for (int d = 0; d < o_.replicas; ++d) {
        host.devices.push_back(static_cast<uint32_t>(r * o_.replicas + d));
        all.devices.push_back(host.devices.back());
        dag_.device_replica.push_back(static_cast<uint32_t>(d));
      }
      dag_.groups.push_back(host);
    }
    all_ = dag_.InternGroup(all);
    Compute();
    Messages();
    Gradients();
    std::sort(dag_.edges.begin(), dag_.edges.end(), [](const TemplateEdge& a, const TemplateEdge& b) {
      return a.from != b.from ? a.from < b.from : a.to < b.to;
    });
    dag_.Renumber();
    Orders();
  }

 private:
  GroupId Host(int stage) const { return static_cast<GroupId>(stage % o_.ranks); }
  TemplateId Add(NodeKind kind, std::string name, GroupId group, const char* stream, bool step_level) {
    NodeTemplate node;
    node.kind = kind;
    node.name = std::move(name);
    node.group = group;
    node.stream = InternName(stream);
    node.mb_begin = step_level ? -1 : 0;
    node.mb_end = step_level ? 0 : o_.microbatches;
    node.cost = step_level || kind == NodeKind::kAccumulate ? 0 : -1;
    dag_.templates.push_back(node);
    return static_cast<TemplateId>(dag_.templates.size()) - 1;
  }
  void Edge(TemplateId from, TemplateId to) { dag_.edges.push_back({from, to, true, 0}); }

  void Compute() {
    const Pass passes[] = {Pass::kF, Pass::kBI, Pass::kBW};
    const char* names[] = {"F ", "BI ", "BW "};
    const Picoseconds costs[] = {o_.forward, o_.backward_input, o_.backward_weight};
    compute_.resize(o_.stages);
    for (int s = 0; s < o_.stages; ++s) {
      for (int p = 0; p < 3; ++p) {
        const TemplateId t =
            Add(NodeKind::kCompute, names[p] + ("stage" + std::to_string(s)), Host(s), "compute", false);
        NodeTemplate& node = dag_.templates[t];
        node.pass = passes[p];
        node.region = static_cast<RegionId>(s);
        node.tags = {{"stage", s}};
        node.cost = costs[p];
        compute_[s].push_back(t);
      }
      Edge(compute_[s][0], compute_[s][1]);
      Edge(compute_[s][0], compute_[s][2]);
      Edge(compute_[s][1], compute_[s][2]);
    }
  }
  void Messages() {
    for (int s = 0; s + 1 < o_.stages; ++s) {
      Boundary(s, s + 1, false);
      Boundary(s + 1, s, true);
    }
  }
  void Boundary(int from, int to, bool cotangent) {
    const int pass = cotangent ? 1 : 0;
    if (Host(from) == Host(to)) {
      Edge(compute_[from][pass], compute_[to][pass]);
      return;
    }
    const std::string ends = (cotangent ? "d " : "") + std::to_string(from) + " -> " + std::to_string(to);
    const TemplateId send = Add(NodeKind::kSend, "send " + ends, Host(from), "send", false);
    const TemplateId recv = Add(NodeKind::kRecv, "recv " + ends, Host(to), "recv", false);
    for (TemplateId t : {send, recv}) {
      NodeTemplate& node = dag_.templates[t];
      const int producer = cotangent ? to : from;
      node.value = out_.regions.graph.operations[out_.regions.regions[producer].first].results[0];
      node.cotangent = cotangent;
      node.consumer = cotangent ? static_cast<RegionId>(from) : kNone;
      node.peer_group = t == send ? Host(to) : Host(from);
      node.match = t == send ? recv : send;
    }
    Edge(compute_[from][pass], send);
    Edge(send, recv);
    Edge(recv, compute_[to][pass]);
    sends_[{from, cotangent}] = send;
  }
  void Gradients() {
    std::map<ParameterId, std::vector<std::pair<GradientRef, TemplateId>>> uses;
    std::map<ParameterId, std::vector<GroupId>> holders;
    for (int s = 0; s < o_.stages; ++s) {
      accumulates_.emplace_back();
      for (ParameterId p : out_.regions.regions[s].parameters) {
        const TemplateId t =
            Add(NodeKind::kAccumulate, "accumulate " + std::to_string(p) + " " + std::to_string(s), Host(s),
                "compute", false);
        const GradientRef ref{p, static_cast<RegionId>(s), 0};
        dag_.templates[t].region = ref.region;
        dag_.templates[t].gradients = {ref};
        dag_.templates[t].parameter = p;
        Edge(compute_[s][2], t);
        accumulates_.back().push_back(t);
        uses[p].emplace_back(ref, t);
        if (std::find(holders[p].begin(), holders[p].end(), Host(s)) == holders[p].end())
          holders[p].push_back(Host(s));
      }
    }
    if (o_.replicas > 1) {
      std::map<GroupId, TemplateId> bucket_of;
      for (auto& [p, list] : uses) {
        for (auto& [ref, ready] : list) {
          const GroupId host = Host(static_cast<int>(ref.region));
          const bool fresh = !o_.bucket || bucket_of.count(host) == 0;
          if (fresh) {
            bucket_of[host] =
                Add(NodeKind::kAllReduce, "dp.reduce " + std::to_string(p) + " " + std::to_string(ref.region),
                    host, "reduce", true);
            dag_.templates[bucket_of[host]].names = {InternName("dp.reduce")};
            dag_.templates[bucket_of[host]].cost = -1;
            step_nodes_[host].emplace_back("reduce", bucket_of[host]);
          }
          dag_.templates[bucket_of[host]].gradients.push_back(ref);
          Edge(ready, bucket_of[host]);
          ready = bucket_of[host];
        }
      }
    }
    std::map<ParameterId, TemplateId> ready;
    for (auto& [p, list] : uses) {
      ready[p] = list[0].second;
      if (list.size() == 1) continue;
      TemplateId tie;
      if (holders[p].size() == 1) {
        tie = Add(NodeKind::kAccumulate, "tie.reduce " + std::to_string(p), holders[p][0], "compute", true);
        step_nodes_[holders[p][0]].emplace_back("compute", tie);
      } else {
        Group group{"tied", {}};
        for (GroupId host : holders[p]) {
          group.devices.insert(group.devices.end(), dag_.groups[host].devices.begin(),
                               dag_.groups[host].devices.end());
        }
        tie = Add(NodeKind::kAllReduce, "tie.reduce " + std::to_string(p), dag_.InternGroup(group), "reduce",
                  true);
        dag_.templates[tie].per_replica = true;
        dag_.templates[tie].cost = -1;
        for (GroupId host : holders[p]) step_nodes_[host].emplace_back("reduce", tie);
      }
      dag_.templates[tie].names = {InternName("tie.reduce")};
      dag_.templates[tie].parameter = p;
      for (auto& [ref, before] : list) {
        dag_.templates[tie].gradients.push_back(ref);
        Edge(before, tie);
      }
      ready[p] = tie;
    }
    Loss();
    std::map<GroupId, TemplateId> clip;
    if (o_.clip > 0) Clip(holders, ready, &clip);
    for (auto& [p, hosts] : holders) {
      for (GroupId host : hosts) {
        const TemplateId update =
            Add(NodeKind::kUpdate, "update " + std::to_string(p) + " on " + std::to_string(host), host,
                "compute", true);
        dag_.templates[update].parameter = p;
        Edge(o_.clip > 0 ? clip[host] : ready[p], update);
        step_nodes_[host].emplace_back("compute", update);
      }
    }
  }
  void Loss() {
    const int last = o_.stages - 1;
    const TemplateId fold = Add(NodeKind::kLossFold, "loss.fold", Host(last), "compute", true);
    dag_.templates[fold].value = out_.regions.graph.losses[0].value;
    dag_.templates[fold].region = static_cast<RegionId>(last);
    Edge(compute_[last][0], fold);
    step_nodes_[Host(last)].emplace_back("compute", fold);
    if (dag_.device_count == 1) return;
    const TemplateId reduce = Add(NodeKind::kAllReduce, "loss.reduce", all_, "reduce", true);
    Edge(fold, reduce);
    for (int r = 0; r < o_.ranks; ++r) step_nodes_[static_cast<GroupId>(r)].emplace_back("reduce", reduce);
  }
  void Clip(const std::map<ParameterId, std::vector<GroupId>>& holders,
            const std::map<ParameterId, TemplateId>& ready, std::map<GroupId, TemplateId>* clip) {
    std::vector<TemplateId> norms;
    for (int r = 0; r < o_.ranks; ++r) {
      norms.push_back(
          Add(NodeKind::kNorm, "clip.local " + std::to_string(r), static_cast<GroupId>(r), "compute", true));
      step_nodes_[static_cast<GroupId>(r)].emplace_back("compute", norms.back());
      for (const auto& [p, hosts] : holders) {
        if (std::find(hosts.begin(), hosts.end(), static_cast<GroupId>(r)) != hosts.end())
          Edge(ready.at(p), norms.back());
      }
    }
    TemplateId total = norms[0];
    if (dag_.device_count > 1) {
      total = Add(NodeKind::kAllReduce, "clip.norm", all_, "reduce", true);
      for (TemplateId norm : norms) Edge(norm, total);
      for (int r = 0; r < o_.ranks; ++r) step_nodes_[static_cast<GroupId>(r)].emplace_back("reduce", total);
    }
    for (int r = 0; r < o_.ranks; ++r) {
      const GroupId host = static_cast<GroupId>(r);
      (*clip)[host] = Add(NodeKind::kClip, "clip.apply " + std::to_string(r), host, "compute", true);
      Edge(total, (*clip)[host]);
      step_nodes_[host].emplace_back("compute", (*clip)[host]);
    }
  }
  void Orders() {
    uint32_t atomic = 0;
    std::map<std::pair<GroupId, std::string>, std::vector<OrderItem>> streams;
    std::map<std::pair<GroupId, GroupId>, std::vector<OrderItem>> sends, recvs;  // (host, peer)
    for (int r = 0; r < o_.ranks; ++r) {
      const GroupId host = static_cast<GroupId>(r);
      std::vector<OrderItem>& compute = streams[{host, "compute"}];
      for (const PipelineStep& step : steps_[r]) {
        const bool forward = step.pass == Pass::kF;
        if (forward) {
          compute.push_back({dag_.Node(compute_[step.stage][0], step.microbatch), 0, kNone});
        } else {
          compute.push_back({dag_.Node(compute_[step.stage][1], step.microbatch), 0, atomic});
          compute.push_back({dag_.Node(compute_[step.stage][2], step.microbatch), 0, atomic});
          for (TemplateId t : accumulates_[step.stage])
            compute.push_back({dag_.Node(t, step.microbatch), 0, atomic});
          ++atomic;
        }
        auto send = sends_.find({step.stage, !forward});
        if (send == sends_.end()) continue;
        const NodeTemplate& node = dag_.templates[send->second];
        sends[{host, node.peer_group}].push_back({dag_.Node(send->second, step.microbatch), 0, kNone});
        recvs[{node.peer_group, host}].push_back({dag_.Node(node.match, step.microbatch), 0, kNone});
      }
      for (auto& [stream, t] : step_nodes_[host]) {
        const GroupId group = dag_.templates[t].group;
        std::vector<OrderItem>& items = streams[{group, stream}];
        const OrderItem item{dag_.Node(t, -1), 0, kNone};
        if (items.empty() || std::find(items.begin(), items.end(), item) == items.end())
          items.push_back(item);
      }
    }
    for (auto& [key, items] : streams)
      dag_.orders.push_back({key.first, InternName(key.second), 0, items, 0});
    for (auto& [key, items] : sends) {
      dag_.orders.push_back(
          {key.first, InternName("send"), InternName(dag_.groups[key.second].text), items, 0});
    }
    for (auto& [key, items] : recvs) {
      dag_.orders.push_back(
          {key.first, InternName("recv"), InternName(dag_.groups[key.second].text), items, 0});
    }
  }

  const PipelineDagOptions& o_;
  PipelineDag& out_;
  Dag& dag_;
  const std::vector<RankSteps>& steps_;
  GroupId all_ = 0;
  std::vector<std::vector<TemplateId>> compute_, accumulates_;
  std::map<std::pair<int, bool>, TemplateId> sends_;  // (stage, cotangent)
  std::map<GroupId, std::vector<std::pair<std::string, TemplateId>>> step_nodes_;
};

inline void BuildPipelineDag(const PipelineDagOptions& options, PipelineDag* out) {
  out->program.name = "pipeline";
  out->program.topology = FlatTopology(static_cast<uint32_t>(options.ranks * options.replicas));
  OptimizerSpec adam;
  adam.weight_decay = 0.1;
  out->program.train.optimizers = {adam};
  out->program.train.clip = options.clip;
  BuildModel(options, out);
  PipelineDagBuilder(options, out).Build();
}

}  // namespace piper::ir::testing
