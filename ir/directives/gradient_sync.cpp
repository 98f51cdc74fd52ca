#include "ir/directives/gradient_sync.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "ir/directives/differentiate.h"
#include "ir/support/result.h"

namespace piper::ir {

namespace {

NodeTemplate StepNode(NodeKind kind, std::string name, GroupId group, const char* stream) {
  NodeTemplate node;
  node.kind = kind;
  node.name = std::move(name);
  node.group = group;
  node.stream = InternName(stream);
  node.mb_begin = -1;
  node.mb_end = 0;
  return node;
}

class GradientSync {
 public:
  GradientSync(BuildContext& context, const std::vector<ReducePolicy>& policies, bool post_validates)
      : context_(context),
        policies_(policies),
        post_validates_(post_validates),
        parameters_(context.regions.graph.parameters.size()) {}

  void Run() {
    AddAccumulates();
    AddReduces();
    FindHolders();
    for (ParameterId p = 0; p < parameters_.size(); ++p) AddTie(p);
    // Without clipping the norm of all ranks still says whether every gradient is finite.
    if (context_.program.train.clip > 0 || post_validates_) AddNorm();
    AddUpdates();
    if (post_validates_) AddValidations();
  }

 private:
  // A region's gradient of a parameter: per copy, the node after which that copy's accumulator is complete.
  struct Use {
    RegionId region = kNone;
    std::vector<TemplateId> ready;
  };
  struct ParameterState {
    std::vector<Use> uses;         // with a gradient; model order
    std::vector<GroupId> holders;  // hosts that read the parameter, ascending by first device
    // Per holder: the nodes after which the final gradient stands there.
    std::vector<std::vector<TemplateId>> final_ready;
  };

  int64_t Bytes(ParameterId p) const { return context_.regions.graph.parameters[p].type.bytes(); }
  const std::string& Name(ParameterId p) const { return context_.regions.graph.parameters[p].name; }
  const RegionCopy& Copy(RegionId region, uint32_t copy) const { return context_.copies[region][copy]; }

  void AddAccumulates() {
    const std::vector<Region>& regions = context_.regions.regions;
    for (RegionId r = 0; r < regions.size(); ++r) {
      for (const Formal& formal : regions[r].backward_weight.formals) {
        if (formal.kind != FormalKind::kGradient) continue;
        Use use;
        use.region = r;
        for (uint32_t copy = 0; copy < context_.copies[r].size(); ++copy) {
          NodeTemplate node;
          node.kind = NodeKind::kAccumulate;
          node.region = r;
          node.copy = copy;
          node.name = fmt::format("accumulate {} {}{}", Name(formal.parameter), regions[r].name,
                                  CopySuffix(context_, r, copy));
          node.tags = context_.regions.graph.tag_paths[regions[r].tags];
          node.names = {InternName("accumulate")};
          node.group = Copy(r, copy).host;
          node.stream = InternName("compute");
          node.mb_begin = Copy(r, copy).begin;
          node.mb_end = Copy(r, copy).end;
          node.bytes = Bytes(formal.parameter);
          node.origin = context_.dag.AddOrigin(Copy(r, copy).placed_by);
          node.gradients = {{formal.parameter, r, copy}};
          node.parameter = formal.parameter;
          TemplateId accumulate = context_.AddTemplate(std::move(node));
          context_.AddEdge(context_.compute[r][copy][static_cast<size_t>(Pass::kBW)], accumulate);
          use.ready.push_back(accumulate);
        }
        parameters_[formal.parameter].uses.push_back(std::move(use));
      }
    }
  }

  // Replica major, copy minor: the fold order.
  GroupId ProductGroup(RegionId region) {
    const std::vector<RegionCopy>& copies = context_.copies[region];
    if (copies.size() == 1) return copies[0].host;
    Group group;
    for (const RegionCopy& copy : copies) {
      if (!group.text.empty()) group.text += " + ";
      group.text += context_.dag.groups[copy.host].text;
    }
    for (size_t replica = 0; replica < static_cast<size_t>(context_.dag.replicas); ++replica) {
      for (const RegionCopy& copy : copies)
        group.devices.push_back(context_.dag.groups[copy.host].devices[replica]);
    }
    return context_.dag.InternGroup(std::move(group));
  }

  void AddReduces() {
    struct Bucket {
      GroupId group = 0;
      const ReducePolicy* policy = nullptr;
      std::vector<std::pair<ParameterId, size_t>> members;  // (parameter, index of the use)
      int64_t bytes = 0;
    };
    std::vector<Bucket> buckets;
    std::map<std::pair<GroupId, const Directive*>, size_t> open;
    // Gradients become ready from the last region to the first.
    std::vector<std::pair<RegionId, std::pair<ParameterId, size_t>>> uses;
    for (ParameterId p = 0; p < parameters_.size(); ++p) {
      for (size_t u = 0; u < parameters_[p].uses.size(); ++u)
        uses.push_back({parameters_[p].uses[u].region, {p, u}});
    }
    std::sort(uses.begin(), uses.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    for (const auto& [region, member] : uses) {
      if (context_.dag.replicas * static_cast<int64_t>(context_.copies[region].size()) == 1) continue;
      const ReducePolicy& policy = policies_[region];
      GroupId group = ProductGroup(region);
      int64_t bytes = Bytes(member.first);
      auto [it, fresh] = open.try_emplace({group, policy.directive}, buckets.size());
      bool fits =
          !fresh && policy.bucket_bytes > 0 && buckets[it->second].bytes + bytes <= policy.bucket_bytes;
      // Two uses of one parameter stay apart: a reduction over several regions of one is a tied sum.
      if (fits) {
        const auto& members = buckets[it->second].members;
        fits = std::none_of(members.begin(), members.end(),
                            [parameter = member.first](const auto& m) { return m.first == parameter; });
      }
      if (!fits) {
        it->second = buckets.size();
        buckets.push_back({group, &policy, {}, 0});
      }
      buckets[it->second].members.push_back(member);
      buckets[it->second].bytes += bytes;
    }
    for (const Bucket& bucket : buckets) {
      const Use& first = parameters_[bucket.members[0].first].uses[bucket.members[0].second];
      std::string what =
          fmt::format("{} {}", Name(bucket.members[0].first), context_.regions.regions[first.region].name);
      if (bucket.members.size() > 1) what += fmt::format(" and {} more", bucket.members.size() - 1);
      NodeTemplate node =
          StepNode(NodeKind::kAllReduce, fmt::format("{}.reduce {}", bucket.policy->name, what), bucket.group,
                   "reduce");
      node.names = {InternName(bucket.policy->name + ".reduce")};
      node.bytes = bucket.bytes;
      SourceRange origin = bucket.policy->range;
      if (!origin.valid()) origin = context_.sharded_by;
      if (!origin.valid()) origin = Copy(first.region, 0).placed_by;
      node.origin = context_.dag.AddOrigin(origin);
      std::vector<RegionId> regions;
      for (auto [p, u] : bucket.members) {
        RegionId region = parameters_[p].uses[u].region;
        regions.push_back(region);
        for (uint32_t copy = 0; copy < context_.copies[region].size(); ++copy)
          node.gradients.push_back({p, region, copy});
      }
      node.tags = UnionTags(context_, regions);
      TemplateId reduce = context_.AddTemplate(std::move(node));
      for (auto [p, u] : bucket.members) {
        for (TemplateId& ready : parameters_[p].uses[u].ready) {
          context_.AddEdge(ready, reduce);
          ready = reduce;
        }
      }
    }
  }

  void FindHolders() {
    const std::vector<Region>& regions = context_.regions.regions;
    for (GroupId host : context_.hosts) {
      for (RegionId r = 0; r < regions.size(); ++r) {
        bool here = std::any_of(context_.copies[r].begin(), context_.copies[r].end(),
                                [&](const RegionCopy& copy) { return copy.host == host; });
        if (!here) continue;
        for (ParameterId p : regions[r].parameters) {
          std::vector<GroupId>& holders = parameters_[p].holders;
          if (holders.empty() || holders.back() != host) holders.push_back(host);
        }
      }
    }
  }

  // The copy of a use that a host holds, or kNone.
  uint32_t CopyOn(const Use& use, GroupId host) const {
    for (uint32_t copy = 0; copy < use.ready.size(); ++copy) {
      if (Copy(use.region, copy).host == host) return copy;
    }
    return kNone;
  }

  void AddTie(ParameterId p) {
    ParameterState& state = parameters_[p];
    if (state.uses.empty()) return;
    bool everywhere = true;
    for (GroupId holder : state.holders) {
      for (const Use& use : state.uses) everywhere &= CopyOn(use, holder) != kNone;
    }
    std::vector<RegionId> regions;
    for (const Use& use : state.uses) regions.push_back(use.region);
    OriginId origin = context_.dag.AddOrigin(context_.regions.graph.parameters[p].range);
    NameId name = InternName("tie.reduce");
    state.final_ready.resize(state.holders.size());
    if (everywhere) {
      for (size_t h = 0; h < state.holders.size(); ++h) {
        GroupId host = state.holders[h];
        if (state.uses.size() == 1) {
          state.final_ready[h] = {state.uses[0].ready[CopyOn(state.uses[0], host)]};
          continue;
        }
        std::string text = fmt::format("tie.reduce {}", Name(p));
        if (state.holders.size() > 1) text += fmt::format(" on {}", context_.dag.groups[host].text);
        NodeTemplate node = StepNode(NodeKind::kAccumulate, text, host, "compute");
        node.names = {name};
        node.tags = UnionTags(context_, regions);
        node.parameter = p;
        node.bytes = Bytes(p);
        node.origin = origin;
        for (const Use& use : state.uses) node.gradients.push_back({p, use.region, CopyOn(use, host)});
        TemplateId tie = context_.AddTemplate(std::move(node));
        for (const Use& use : state.uses) context_.AddEdge(use.ready[CopyOn(use, host)], tie);
        state.final_ready[h] = {tie};
      }
      return;
    }
    Group group;
    for (GroupId holder : state.holders) {
      const Group& g = context_.dag.groups[holder];
      if (!group.text.empty()) group.text += " + ";
      group.text += g.text;
      group.devices.insert(group.devices.end(), g.devices.begin(), g.devices.end());
    }
    NodeTemplate node = StepNode(NodeKind::kAllReduce, fmt::format("tie.reduce {}", Name(p)),
                                 context_.dag.InternGroup(std::move(group)), "reduce");
    node.names = {name};
    node.tags = UnionTags(context_, regions);
    node.parameter = p;
    node.bytes = Bytes(p);
    node.per_replica = true;
    node.origin = origin;
    for (const Use& use : state.uses) node.gradients.push_back({p, use.region, 0});
    TemplateId tie = context_.AddTemplate(std::move(node));
    for (const Use& use : state.uses) {
      for (TemplateId ready : use.ready) context_.AddEdge(ready, tie);
    }
    for (auto& ready : state.final_ready) ready = {tie};
  }

  // The norm of all ranks, and what stands between it and the updates.
  void AddNorm() {
    SourceRange range = context_.program.train.range;
    OriginId origin = context_.dag.AddOrigin(range);
    GroupId all = AllHosts(context_);
    std::vector<TemplateId> norms;
    for (GroupId host : context_.hosts) {
      NodeTemplate node = StepNode(
          NodeKind::kNorm, fmt::format("clip.local {}", context_.dag.groups[host].text), host, "compute");
      node.names = {InternName("clip.local")};
      node.origin = origin;
      // Each parameter is counted once: by its first holder.
      for (ParameterId p = 0; p < parameters_.size(); ++p) {
        const ParameterState& state = parameters_[p];
        if (state.uses.empty() || state.holders[0] != host) continue;
        const Use* here = nullptr;
        for (const Use& use : state.uses) {
          if (here == nullptr && CopyOn(use, host) != kNone) here = &use;
        }
        node.gradients.push_back({p, here != nullptr ? here->region : state.uses[0].region,
                                  here != nullptr ? CopyOn(*here, host) : 0});
        node.bytes += Bytes(p);
      }
      norms.push_back(context_.AddTemplate(std::move(node)));
      for (const ParameterState& state : parameters_) {
        for (size_t h = 0; h < state.final_ready.size(); ++h) {
          if (state.holders[h] != host) continue;
          for (TemplateId ready : state.final_ready[h]) context_.AddEdge(ready, norms.back());
        }
      }
    }
    TemplateId total = norms[0];
    if (context_.dag.groups[all].devices.size() > 1) {
      NodeTemplate reduce = StepNode(NodeKind::kAllReduce, "clip.norm", all, "reduce");
      reduce.names = {InternName("clip.norm")};
      reduce.origin = origin;
      // One f64 a parameter of the model.
      reduce.bytes = static_cast<int64_t>(parameters_.size()) * 8;
      total = context_.AddTemplate(std::move(reduce));
      for (TemplateId norm : norms) context_.AddEdge(norm, total);
    }
    norm_ = total;
    if (post_validates_) {
      AddPartials(norms);
      return;
    }
    for (GroupId host : context_.hosts) {
      NodeTemplate node = StepNode(
          NodeKind::kClip, fmt::format("clip.apply {}", context_.dag.groups[host].text), host, "compute");
      node.names = {InternName("clip.apply")};
      node.origin = origin;
      for (const ParameterState& state : parameters_) {
        for (size_t h = 0; h < state.final_ready.size(); ++h) {
          if (state.holders[h] == host)
            node.bytes += Bytes(static_cast<ParameterId>(&state - parameters_.data()));
        }
      }
      TemplateId clip = context_.AddTemplate(std::move(node));
      context_.AddEdge(total, clip);
      for (ParameterState& state : parameters_) {
        for (size_t h = 0; h < state.final_ready.size(); ++h) {
          if (state.holders[h] == host) state.final_ready[h] = {clip};
        }
      }
    }
  }

  // The `optimizer` directive.
  OriginId ValidatedBy() {
    OriginId origin = context_.dag.AddOrigin(context_.program.train.range);
    context_.ForEach<OptimizerDirective>([&](const Directive& directive, const OptimizerDirective&) {
      origin = context_.dag.AddOrigin(directive.range);
    });
    return origin;
  }

  // What each host goes by when it updates: the squares of its own gradients and of the hosts before it. The
  // sum travels from host to host in the order of the pipeline, replica by replica; hosts of another shape
  // have chains of their own.
  void AddPartials(const std::vector<TemplateId>& norms) {
    const OriginId origin = ValidatedBy();
    std::map<size_t, std::pair<GroupId, TemplateId>> last;  // per number of devices: host, its partial sum
    for (size_t h = 0; h < context_.hosts.size(); ++h) {
      const GroupId host = context_.hosts[h];
      const size_t devices = context_.dag.groups[host].devices.size();
      TemplateId received = kNone;
      if (auto before = last.find(devices); before != last.end())
        received = PassOn(before->second.second, before->second.first, host, origin);
      NodeTemplate node =
          StepNode(NodeKind::kPartial, fmt::format("clip.partial {}", context_.dag.groups[host].text), host,
                   "compute");
      node.names = {InternName("clip.partial")};
      node.origin = origin;
      node.bytes = 8;
      const TemplateId partial = context_.AddTemplate(std::move(node));
      context_.AddEdge(norms[h], partial);
      if (received != kNone) context_.AddEdge(received, partial);
      last[devices] = {host, partial};
      AddSave(host, partial, origin);
    }
  }

  // The message of a partial sum to the next host; returns its receive.
  TemplateId PassOn(TemplateId partial, GroupId from, GroupId to, OriginId origin) {
    const std::string ends =
        fmt::format("{} -> {}", context_.dag.groups[from].text, context_.dag.groups[to].text);
    NodeTemplate send = StepNode(NodeKind::kSend, "clip.send " + ends, from, "send");
    send.names = {InternName("clip.send")};
    send.peer_group = to;
    send.bytes = 8;
    send.origin = origin;
    NodeTemplate recv = StepNode(NodeKind::kRecv, "clip.recv " + ends, to, "recv");
    recv.names = {InternName("clip.recv")};
    recv.peer_group = from;
    recv.bytes = 8;
    recv.origin = origin;
    const TemplateId send_id = context_.AddTemplate(std::move(send));
    const TemplateId recv_id = context_.AddTemplate(std::move(recv));
    context_.dag.templates[send_id].match = recv_id;
    context_.dag.templates[recv_id].match = send_id;
    context_.AddEdge(partial, send_id);
    context_.AddEdge(send_id, recv_id);
    return recv_id;
  }

  // The copy of all that the host's updates change; they wait for it alone.
  void AddSave(GroupId host, TemplateId partial, OriginId origin) {
    NodeTemplate node = StepNode(
        NodeKind::kSave, fmt::format("update.save {}", context_.dag.groups[host].text), host, "compute");
    node.names = {InternName("update.save")};
    node.origin = origin;
    for (ParameterId p = 0; p < parameters_.size(); ++p) {
      const ParameterState& state = parameters_[p];
      for (size_t h = 0; h < state.final_ready.size(); ++h) {
        if (state.holders[h] == host) node.bytes += Bytes(p);
      }
    }
    if (node.bytes == 0) return;  // nothing to train here
    TemplateId save = context_.AddTemplate(std::move(node));
    context_.AddEdge(partial, save);
    for (ParameterState& state : parameters_) {
      for (size_t h = 0; h < state.final_ready.size(); ++h) {
        if (state.holders[h] == host) state.final_ready[h] = {save};
      }
    }
  }

  // Judges a host's updates by the norm of all ranks, after them.
  void AddValidations() {
    const OriginId origin = ValidatedBy();
    const TemplateId updates = static_cast<TemplateId>(context_.dag.templates.size());
    for (GroupId host : context_.hosts) {
      NodeTemplate node =
          StepNode(NodeKind::kValidate, fmt::format("update.validate {}", context_.dag.groups[host].text),
                   host, "compute");
      node.names = {InternName("update.validate")};
      node.origin = origin;
      TemplateId validate = context_.AddTemplate(std::move(node));
      context_.AddEdge(norm_, validate);
      for (TemplateId t = 0; t < updates; ++t) {
        const NodeTemplate& update = context_.dag.templates[t];
        if (update.kind == NodeKind::kUpdate && update.group == host) context_.AddEdge(t, validate);
      }
    }
  }

  void AddUpdates() {
    std::vector<std::vector<RegionId>> readers(parameters_.size());
    for (RegionId r = 0; r < context_.copies.size(); ++r) {
      for (ParameterId p : context_.regions.regions[r].parameters) {
        if (readers[p].empty() || readers[p].back() != r) readers[p].push_back(r);
      }
    }
    for (ParameterId p = 0; p < parameters_.size(); ++p) {
      const ParameterState& state = parameters_[p];
      if (state.uses.empty()) continue;
      for (size_t h = 0; h < state.holders.size(); ++h) {
        std::string text = fmt::format("update {}", Name(p));
        if (state.holders.size() > 1)
          text += fmt::format(" on {}", context_.dag.groups[state.holders[h]].text);
        NodeTemplate node = StepNode(NodeKind::kUpdate, text, state.holders[h], "compute");
        node.pass = Pass::kU;
        node.names = {InternName("update")};
        node.parameter = p;
        node.bytes = Bytes(p);
        node.origin = context_.dag.AddOrigin(context_.regions.graph.parameters[p].range);
        std::vector<RegionId> regions;
        for (RegionId r : readers[p]) {
          for (const RegionCopy& copy : context_.copies[r]) {
            if (copy.host == state.holders[h]) regions.push_back(r);
          }
        }
        node.tags = UnionTags(context_, regions);
        TemplateId update = context_.AddTemplate(std::move(node));
        for (TemplateId ready : state.final_ready[h]) context_.AddEdge(ready, update);
      }
    }
  }

  BuildContext& context_;
  const std::vector<ReducePolicy>& policies_;
  const bool post_validates_;
  TemplateId norm_ = kNone;  // after it the norm of all ranks stands everywhere
  std::vector<ParameterState> parameters_;
};

}  // namespace

void AddGradientSync(BuildContext& context, const std::vector<ReducePolicy>& policies, bool post_validates) {
  if (!context.forward_only) GradientSync(context, policies, post_validates).Run();
}

}  // namespace piper::ir
