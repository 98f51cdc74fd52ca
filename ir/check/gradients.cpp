#include "ir/check/gradients.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

namespace piper::ir {

namespace {

// Gradients of a region's copy over microbatches [begin, end), counted `count` times at `scale`: of the
// device's own replica, or of every replica.
struct Term {
  RegionId region = kNone;
  int32_t begin = 0, end = 0;
  bool all = false;
  int64_t count = 1;
  double scale = 1;
};
using Multiset = std::vector<Term>;
using BufferKey = std::pair<RegionId, uint32_t>;  // (using region, copy) of one parameter

class GradientCheck {
 public:
  GradientCheck(const Dag& dag, const RegionGraph& regions, DiagnosticEngine& diag)
      : dag_(dag), regions_(regions), diag_(diag) {}

  bool Run() {
    size_t before = diag_.error_count();
    Index();
    CheckScales();
    CheckLoss();
    if (!dag_.forward_only) {
      CheckClip();
      for (ParameterId p = 0; p < regions_.graph.parameters.size(); ++p) CheckParameter(p);
    }
    return diag_.error_count() == before;
  }

 private:
  // ---- what stands where
  // ----------------------------------------------------------------------------------------

  void Index() {
    incoming_.resize(dag_.templates.size());
    outgoing_.resize(dag_.templates.size());
    for (const TemplateEdge& edge : dag_.edges) {
      incoming_[edge.to].push_back(edge.from);
      outgoing_[edge.from].push_back(edge.to);
    }
    touching_.resize(regions_.graph.parameters.size());
    readers_.resize(regions_.graph.parameters.size());
    updates_.resize(regions_.graph.parameters.size());
    users_.resize(regions_.graph.parameters.size());
    for (const Region& region : regions_.regions) {
      for (const Formal& formal : region.backward_weight.formals) {
        if (formal.kind == FormalKind::kGradient) users_[formal.parameter].push_back(region.id);
      }
    }
    std::set<GroupId> hosts;
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const NodeTemplate& node = dag_.templates[t];
      if (node.kind == NodeKind::kCompute) {
        hosts.insert(node.group);
        if (node.region < regions_.regions.size()) {
          copies_[{node.region, node.copy}] = node.group;
          if (node.pass == Pass::kBW) weights_[{node.region, node.copy}] = t;
          for (ParameterId p : regions_.regions[node.region].parameters) readers_[p].insert(node.group);
        }
      }
      std::set<ParameterId> parameters;
      for (const GradientRef& gradient : node.gradients) {
        if (gradient.parameter < touching_.size()) parameters.insert(gradient.parameter);
      }
      bool changes = node.kind == NodeKind::kAccumulate || node.kind == NodeKind::kAllReduce ||
                     node.kind == NodeKind::kReduce;
      if (changes) {
        for (ParameterId p : parameters) touching_[p].push_back(t);
      }
      if (node.kind == NodeKind::kClip || node.kind == NodeKind::kValidate) clips_.push_back(t);
      if (node.kind == NodeKind::kSave) saves_.push_back(t);
      if (node.kind == NodeKind::kUpdate && node.parameter < updates_.size())
        updates_[node.parameter].push_back(t);
    }
    hosts_.assign(hosts.begin(), hosts.end());
    for (GroupId host : hosts_) device_count_ += dag_.groups[host].devices.size();
    // Topological ranks of templates; what a cycle holds keeps rank 0 and is proof 1's business.
    rank_.assign(dag_.templates.size(), 0);
    std::vector<uint32_t> indegree(dag_.templates.size());
    std::vector<TemplateId> ready;
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      indegree[t] = static_cast<uint32_t>(incoming_[t].size());
      if (indegree[t] == 0) ready.push_back(t);
    }
    for (size_t i = 0; i < ready.size(); ++i) {
      rank_[ready[i]] = static_cast<uint32_t>(i + 1);
      for (TemplateId next : outgoing_[ready[i]]) {
        if (--indegree[next] == 0) ready.push_back(next);
      }
    }
  }

  SourceRange Origin(TemplateId t) const { return dag_.origins[dag_.templates[t].origin]; }
  const std::string& ParameterName(ParameterId p) const { return regions_.graph.parameters[p].name; }
  const std::string& RegionName(RegionId r) const { return regions_.regions[r].name; }
  const std::string& GroupName(GroupId g) const { return dag_.groups[g].text; }

  // Everything but compute that must be done before a template starts.
  const std::vector<bool>& Ancestors(TemplateId t) {
    auto [it, fresh] = ancestors_.try_emplace(t);
    if (!fresh) return it->second;
    std::vector<bool>& found = it->second;
    found.resize(dag_.templates.size());
    std::vector<TemplateId> work = incoming_[t];
    while (!work.empty()) {
      TemplateId at = work.back();
      work.pop_back();
      if (dag_.templates[at].kind == NodeKind::kCompute || found[at]) continue;
      found[at] = true;
      work.insert(work.end(), incoming_[at].begin(), incoming_[at].end());
    }
    return found;
  }
  static bool WaitsForNorm(NodeKind kind) { return kind == NodeKind::kClip || kind == NodeKind::kSave; }
  bool Precedes(TemplateId a, TemplateId b) {
    // With a norm all updates of a host wait for one node: they share what comes before it.
    if (incoming_[b].size() == 1 && WaitsForNorm(dag_.templates[incoming_[b][0]].kind)) {
      return a == incoming_[b][0] || Ancestors(incoming_[b][0])[a];
    }
    return Ancestors(b)[a];
  }

  // The hosts whose devices a group holds exactly; empty if it cuts one, repeats one or adds others.
  const std::vector<GroupId>& HostsOf(GroupId group) {
    auto [it, fresh] = hosts_of_.try_emplace(group);
    if (fresh) it->second = FindHosts(group);
    return it->second;
  }
  std::vector<GroupId> FindHosts(GroupId group) const {
    std::vector<uint32_t> members = dag_.groups[group].devices;
    std::sort(members.begin(), members.end());
    std::vector<GroupId> hosts;
    size_t count = 0;
    for (GroupId host : hosts_) {
      const auto& devices = dag_.groups[host].devices;
      auto inside = static_cast<size_t>(std::count_if(devices.begin(), devices.end(), [&](uint32_t d) {
        return std::binary_search(members.begin(), members.end(), d);
      }));
      if (inside == 0) continue;
      if (inside != devices.size()) return {};
      hosts.push_back(host);
      count += inside;
    }
    return count == members.size() ? hosts : std::vector<GroupId>{};
  }

  // ---- symbolic evaluation
  // --------------------------------------------------------------------------------------

  static void Add(const Multiset& from, double scale, Multiset* to) {
    for (Term term : from) {
      term.scale *= scale;
      to->push_back(term);
    }
  }

  // A sum over a host's replicas: what was the device's own becomes everybody's; what was everybody's already
  // is counted once more a replica.
  Multiset OverReplicas(const Multiset& terms) const {
    Multiset reduced = terms;
    for (Term& term : reduced) {
      if (term.all) term.count *= dag_.replicas;
      term.all = true;
    }
    return reduced;
  }

  bool Missing(TemplateId at, std::string message, std::string hint = "") {
    auto error = diag_.Error(Origin(at), DiagKind::kGradientMissing, std::move(message));
    if (!hint.empty()) error.Hint(std::move(hint));
    return false;
  }

  // Applies one node to the buffers of parameter p; false after an error.
  bool Apply(ParameterId p, TemplateId t, std::map<BufferKey, Multiset>* buffers) {
    const NodeTemplate& node = dag_.templates[t];
    std::vector<BufferKey> entries;
    for (const GradientRef& gradient : node.gradients) {
      if (gradient.parameter != p) continue;
      BufferKey key{gradient.region, gradient.copy};
      if (!copies_.count(key))
        return Missing(t, fmt::format("'{}' is about region {} copy {}, which is placed nowhere", node.name,
                                      gradient.region, gradient.copy));
      entries.push_back(key);
    }
    if (node.kind == NodeKind::kAccumulate) {
      if (!node.step_level()) return Accumulate(t, entries, buffers);
      return SumLocally(p, t, entries, buffers);
    }
    if (node.kind != NodeKind::kAllReduce)
      return Missing(t, fmt::format("'{}' leaves the sum on one rank only", node.name));
    return node.per_replica ? SumAcross(p, t, entries, buffers) : Reduce(p, t, entries, buffers);
  }

  bool Accumulate(TemplateId t, const std::vector<BufferKey>& entries,
                  std::map<BufferKey, Multiset>* buffers) {
    const NodeTemplate& node = dag_.templates[t];
    for (const BufferKey& key : entries) {
      auto weight = weights_.find(key);
      bool fed = weight != weights_.end() &&
                 std::find(incoming_[t].begin(), incoming_[t].end(), weight->second) != incoming_[t].end();
      if (!fed) return Missing(t, fmt::format("'{}' does not wait for the BW that it adds", node.name));
      const NodeTemplate& source = dag_.templates[weight->second];
      if (source.group != node.group)
        return Missing(t, fmt::format("'{}' is on {}, its BW on {}", node.name, GroupName(node.group),
                                      GroupName(source.group)));
      if (node.mb_begin < source.mb_begin || node.mb_end > source.mb_end) {
        return Missing(t, fmt::format("'{}' has the microbatches {}..{}, its BW {}..{}", node.name,
                                      node.mb_begin, node.mb_end, source.mb_begin, source.mb_end));
      }
      (*buffers)[key].push_back({key.first, node.mb_begin, node.mb_end, dag_.replicas == 1, 1, node.scale});
    }
    return true;
  }

  // The buffer in which a host keeps the parameter's final gradient: of its first using region there.
  BufferKey FinalBuffer(ParameterId p, GroupId host) const {
    for (RegionId r : users_[p]) {
      for (auto it = copies_.lower_bound({r, 0}); it != copies_.end() && it->first.first == r; ++it) {
        if (it->second == host) return it->first;
      }
    }
    return {kNone, host};  // of its own: the host has no gradient to add
  }

  bool SumLocally(ParameterId p, TemplateId t, const std::vector<BufferKey>& entries,
                  std::map<BufferKey, Multiset>* buffers) {
    const NodeTemplate& node = dag_.templates[t];
    Multiset sum;
    for (const BufferKey& key : entries) {
      if (copies_[key] != node.group)
        return Missing(t, fmt::format("'{}' is on {}, but {} is on {}", node.name, GroupName(node.group),
                                      RegionName(key.first), GroupName(copies_[key])));
      Add((*buffers)[key], node.scale, &sum);
    }
    (*buffers)[FinalBuffer(p, node.group)] = std::move(sum);
    return true;
  }

  bool Reduce(ParameterId p, TemplateId t, const std::vector<BufferKey>& entries,
              std::map<BufferKey, Multiset>* buffers) {
    const NodeTemplate& node = dag_.templates[t];
    const std::vector<GroupId>& hosts = HostsOf(node.group);
    std::map<RegionId, std::vector<BufferKey>> by_region;
    for (const BufferKey& key : entries) by_region[key.first].push_back(key);
    for (const auto& [region, keys] : by_region) {
      std::set<GroupId> covered;
      Multiset sum;
      for (const BufferKey& key : keys) {
        covered.insert(copies_[key]);
        Add(OverReplicas((*buffers)[key]), node.scale, &sum);
      }
      if (covered.size() != keys.size()) {
        diag_.Error(Origin(t), DiagKind::kGradientDouble,
                    fmt::format("'{}' adds the gradient of {} by {} twice", node.name, ParameterName(p),
                                RegionName(region)));
        return false;
      }
      if (hosts.empty() || covered != std::set<GroupId>(hosts.begin(), hosts.end())) {
        return Missing(t, fmt::format("'{}' is over {}, which is not exactly where {} is placed", node.name,
                                      GroupName(node.group), RegionName(region)));
      }
      for (const BufferKey& key : keys) (*buffers)[key] = sum;
    }
    return true;
  }

  bool SumAcross(ParameterId p, TemplateId t, const std::vector<BufferKey>& entries,
                 std::map<BufferKey, Multiset>* buffers) {
    const NodeTemplate& node = dag_.templates[t];
    const std::vector<GroupId>& hosts = HostsOf(node.group);
    Multiset sum;
    for (const BufferKey& key : entries) {
      if (std::find(hosts.begin(), hosts.end(), copies_[key]) == hosts.end()) {
        return Missing(t, fmt::format("'{}' is over {}, where {} is not placed as a whole", node.name,
                                      GroupName(node.group), RegionName(key.first)));
      }
      Add((*buffers)[key], node.scale, &sum);
    }
    for (GroupId host : hosts) (*buffers)[FinalBuffer(p, host)] = sum;
    return true;
  }

  // ---- the claims
  // -----------------------------------------------------------------------------------------------

  void CheckParameter(ParameterId p) {
    if (users_[p].empty()) {
      for (TemplateId update : updates_[p])
        Missing(update, fmt::format("'{}' has no gradient: nothing trainable uses {}",
                                    dag_.templates[update].name, ParameterName(p)));
      return;
    }
    std::map<GroupId, TemplateId> update_on;
    for (TemplateId update : updates_[p]) {
      const NodeTemplate& node = dag_.templates[update];
      if (!update_on.emplace(node.group, update).second) {
        diag_.Error(Origin(update), DiagKind::kGradientDouble,
                    fmt::format("{} is updated twice on {}", ParameterName(p), GroupName(node.group)));
        return;
      }
      if (!readers_[p].count(node.group)) {
        Missing(update, fmt::format("'{}' is on {}, which does not hold {}", node.name, GroupName(node.group),
                                    ParameterName(p)));
        return;
      }
    }
    for (GroupId host : readers_[p]) {
      auto update = update_on.find(host);
      if (update == update_on.end()) {
        diag_
            .Error(regions_.graph.parameters[p].range, DiagKind::kGradientMissing,
                   fmt::format("{} holds {} but never updates it", GroupName(host), ParameterName(p)))
            .Hint("every copy of a parameter takes every step");
        return;
      }
      if (!CheckUpdate(p, update->second)) return;
    }
  }

  bool CheckUpdate(ParameterId p, TemplateId update) {
    GroupId host = dag_.templates[update].group;
    std::vector<TemplateId> before;
    for (TemplateId t : touching_[p]) {
      if (Precedes(t, update)) {
        before.push_back(t);
        continue;
      }
      // A node of another host concerns this update only if that host's gradients flow here; then it would
      // precede.
      const auto& devices = dag_.groups[dag_.templates[t].group].devices;
      const auto& here = dag_.groups[host].devices;
      if (std::find(devices.begin(), devices.end(), here.front()) != devices.end())
        return Missing(t, fmt::format("'{}' changes the gradient of {}, but '{}' does not wait for it",
                                      dag_.templates[t].name, ParameterName(p), dag_.templates[update].name));
    }
    std::sort(before.begin(), before.end(),
              [&](TemplateId a, TemplateId b) { return std::pair(rank_[a], a) < std::pair(rank_[b], b); });
    std::map<BufferKey, Multiset> buffers;
    // A whole-buffer node reads what was accumulated until then: later accumulates would be lost to others.
    for (size_t i = 0; i < before.size(); ++i) {
      const NodeTemplate& node = dag_.templates[before[i]];
      if (node.step_level()) {
        for (TemplateId other : before) {
          const NodeTemplate& accumulate = dag_.templates[other];
          if (accumulate.kind != NodeKind::kAccumulate || accumulate.step_level() ||
              Precedes(other, before[i]))
            continue;
          for (const GradientRef& g : node.gradients) {
            if (g.parameter == p && std::find(accumulate.gradients.begin(), accumulate.gradients.end(), g) !=
                                        accumulate.gradients.end()) {
              return Missing(before[i],
                             fmt::format("'{}' does not wait for '{}': it would reduce before the last BW",
                                         node.name, accumulate.name));
            }
          }
        }
      }
      if (!Apply(p, before[i], &buffers)) return false;
    }
    double clip_scale = 1;
    for (TemplateId clip : clips_) {
      // What validates scales the gradient that it repeats the update with.
      const bool validates = dag_.templates[clip].kind == NodeKind::kValidate;
      if (dag_.templates[clip].group == host && (validates || Precedes(clip, update)))
        clip_scale *= dag_.templates[clip].scale;
    }
    Multiset final;
    Add(buffers[FinalBuffer(p, host)], clip_scale * dag_.templates[update].scale, &final);
    for (RegionId r : users_[p]) {
      if (!CheckRegion(p, r, update, final, before)) return false;
    }
    return true;
  }

  // Each microbatch of each replica exactly once, at scale 1.
  bool CheckRegion(ParameterId p, RegionId r, TemplateId update, const Multiset& final,
                   const std::vector<TemplateId>& before) {
    const NodeTemplate& node = dag_.templates[update];
    auto describe = [&](int32_t mb) {
      return fmt::format("the gradient of {} by {}{}", ParameterName(p), RegionName(r),
                         dag_.microbatches > 1 ? fmt::format(" for mb {}", mb) : "");
    };
    std::vector<int32_t> cuts = {0, static_cast<int32_t>(dag_.microbatches)};
    for (const Term& term : final) {
      if (term.region != r) continue;
      cuts.push_back(term.begin);
      cuts.push_back(term.end);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      int64_t count = 0;
      bool own = false, scaled = false;
      double scale = 1;
      for (const Term& term : final) {
        if (term.region != r || term.begin > cuts[i] || term.end < cuts[i + 1]) continue;
        count += term.count;
        own |= !term.all;
        if (term.scale != 1) {
          scaled = true;
          scale = term.scale;
        }
      }
      if (count == 0) {
        return Missing(update, fmt::format("{} never reaches '{}'", describe(cuts[i]), node.name),
                       fmt::format("its accumulate, reduce and tied sum must precede the update on {}",
                                   GroupName(node.group)));
      }
      if (own)
        return Missing(update,
                       fmt::format("{} reaches '{}' from its own replica only", describe(cuts[i]), node.name),
                       fmt::format("a reduce over the {} replicas is missing", dag_.replicas));
      if (scaled) {
        auto error = diag_.Error(
            Origin(update), DiagKind::kGradientScale,
            fmt::format("{} reaches '{}' at {} times its value", describe(cuts[i]), node.name, scale));
        for (TemplateId t : before) {
          if (dag_.templates[t].scale != 1)
            error.Note(Origin(t),
                       fmt::format("'{}' scales by {}", dag_.templates[t].name, dag_.templates[t].scale));
        }
        return false;
      }
      if (count > 1) {
        diag_
            .Error(Origin(update), DiagKind::kGradientDouble,
                   fmt::format("{} is counted {} times before '{}'", describe(cuts[i]), count, node.name))
            .Hint("each sample counts once: an accumulate or a reduce stands twice");
        return false;
      }
    }
    return true;
  }

  // Nodes that neither add nor apply gradients: what they pass on must be what they got.
  void CheckScales() {
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const NodeTemplate& node = dag_.templates[t];
      if (node.scale == 1) continue;
      switch (node.kind) {
        case NodeKind::kAccumulate:
        case NodeKind::kReduce:
        case NodeKind::kAllReduce:
        case NodeKind::kUpdate:
        case NodeKind::kClip:
        case NodeKind::kValidate:
        case NodeKind::kNorm:
        case NodeKind::kLossFold:
          break;  // where they count
        default:
          ScaleError(t);
      }
    }
  }

  // Reductions without gradients: of loss folds, and of norms.
  void CheckLoss() {
    std::vector<TemplateId> folds, reduces;
    std::map<ValueId, std::vector<std::pair<int32_t, int32_t>>> folded;
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const NodeTemplate& node = dag_.templates[t];
      if (node.kind == NodeKind::kLossFold) {
        folds.push_back(t);
        for (TemplateId f : incoming_[t]) {
          const NodeTemplate& forward = dag_.templates[f];
          if (forward.kind == NodeKind::kCompute && forward.pass == Pass::kF && forward.region == node.region)
            folded[node.value].emplace_back(forward.mb_begin, forward.mb_end);
        }
        if (node.scale != 1) ScaleError(t);
      } else if (node.kind == NodeKind::kAllReduce && node.gradients.empty() &&
                 Reduces(t, NodeKind::kLossFold)) {
        reduces.push_back(t);
        if (node.scale != 1) ScaleError(t);
      }
    }
    for (const Loss& loss : regions_.graph.losses) {
      if (regions_.value_region[loss.value] == kNone) continue;
      auto& ranges = folded[loss.value];
      std::sort(ranges.begin(), ranges.end());
      int32_t next = 0;
      for (auto [begin, end] : ranges) {
        if (begin < next) {
          diag_.Error(loss.range, DiagKind::kGradientDouble,
                      fmt::format("the loss '{}' is folded twice for mb {}", loss.name, begin));
          return;
        }
        if (begin > next) break;
        next = end;
      }
      if (next != dag_.microbatches) {
        diag_.Error(loss.range, DiagKind::kGradientMissing,
                    fmt::format("no fold counts the loss '{}' of mb {}", loss.name, next));
        return;
      }
    }
    if (folds.empty() || (device_count_ == 1 && folds.size() == 1)) return;
    if (reduces.size() > 1) {
      diag_
          .Error(Origin(reduces[1]), DiagKind::kGradientDouble,
                 fmt::format("'{}' reduces the loss a second time", dag_.templates[reduces[1]].name))
          .Note(Origin(reduces[0]), "the first one is here");
    } else if (reduces.empty()) {
      Missing(folds[0], "the loss is never reduced: no rank knows it",
              "an all_reduce of the loss folds over every host");
    } else {
      CheckCovers(reduces[0], folds, "loss");
    }
  }

  bool Reduces(TemplateId t, NodeKind kind) const {
    return std::any_of(incoming_[t].begin(), incoming_[t].end(),
                       [&](TemplateId from) { return dag_.templates[from].kind == kind; });
  }

  void ScaleError(TemplateId t) {
    diag_
        .Error(Origin(t), DiagKind::kGradientScale,
               fmt::format("'{}' scales by {}", dag_.templates[t].name, dag_.templates[t].scale))
        .Hint("nothing but 1 is right");
  }

  // A reduction waits for all of its terms and is over every host.
  void CheckCovers(TemplateId reduce, const std::vector<TemplateId>& terms, std::string_view what) {
    for (TemplateId term : terms) {
      if (std::find(incoming_[reduce].begin(), incoming_[reduce].end(), term) == incoming_[reduce].end()) {
        Missing(reduce, fmt::format("'{}' does not wait for '{}'", dag_.templates[reduce].name,
                                    dag_.templates[term].name));
        return;
      }
    }
    if (HostsOf(dag_.templates[reduce].group).size() != hosts_.size())
      Missing(reduce, fmt::format("'{}' is over {}: the {} concerns every host", dag_.templates[reduce].name,
                                  GroupName(dag_.templates[reduce].group), what));
  }

  void CheckClip() {
    if (clips_.empty() && saves_.empty()) return;
    std::vector<TemplateId> norms;
    std::map<ParameterId, TemplateId> counted;
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const NodeTemplate& node = dag_.templates[t];
      if (node.kind != NodeKind::kNorm) continue;
      norms.push_back(t);
      if (node.scale != 1) ScaleError(t);
      for (const GradientRef& g : node.gradients) {
        if (g.parameter >= users_.size() || counted.emplace(g.parameter, t).second) continue;
        diag_.Error(Origin(t), DiagKind::kGradientDouble,
                    fmt::format("the norm counts {} twice", ParameterName(g.parameter)));
        return;
      }
    }
    for (ParameterId p = 0; p < users_.size(); ++p) {
      if (users_[p].empty() || counted.count(p)) continue;
      diag_.Error(regions_.graph.parameters[p].range, DiagKind::kGradientMissing,
                  fmt::format("the norm leaves out {}", ParameterName(p)));
      return;
    }
    // A host takes its part of the norm, scales its gradients and saves its copy once: two clips would scale
    // twice.
    std::map<std::pair<NodeKind, GroupId>, TemplateId> once;
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const NodeTemplate& node = dag_.templates[t];
      if (node.kind != NodeKind::kNorm && node.kind != NodeKind::kClip && node.kind != NodeKind::kSave)
        continue;
      auto [first, fresh] = once.try_emplace({node.kind, node.group}, t);
      if (fresh) continue;
      diag_
          .Error(Origin(t), DiagKind::kGradientDouble,
                 fmt::format("'{}' does again what '{}' does", node.name, dag_.templates[first->second].name))
          .Note(Origin(first->second), "the first one is here")
          .Hint(fmt::format("once is right on {}", GroupName(node.group)));
      return;
    }
    std::set<TemplateId> totals;
    for (TemplateId clip : clips_) {
      TemplateId total = kNone;
      for (TemplateId from : incoming_[clip]) {
        bool reduce = dag_.templates[from].kind == NodeKind::kAllReduce && Reduces(from, NodeKind::kNorm);
        if (reduce || (dag_.templates[from].kind == NodeKind::kNorm && device_count_ == 1)) {
          if (total != kNone) {
            diag_.Error(Origin(from), DiagKind::kGradientDouble,
                        fmt::format("'{}' clips by two norms", dag_.templates[clip].name));
            return;
          }
          total = from;
        }
      }
      if (total == kNone) {
        Missing(clip, fmt::format("'{}' has no norm to clip by", dag_.templates[clip].name),
                "the norms of all hosts, reduced");
        return;
      }
      if (totals.insert(total).second && dag_.templates[total].kind == NodeKind::kAllReduce) {
        CheckCovers(total, norms, "norm");
        if (dag_.templates[total].scale != 1) ScaleError(total);
      }
    }
    if (totals.size() > 1)
      diag_.Error(Origin(*totals.rbegin()), DiagKind::kGradientDouble, "hosts clip by different norms");
    if (!saves_.empty() && !CheckPartials()) return;
    for (ParameterId p = 0; p < updates_.size(); ++p) {
      for (TemplateId update : updates_[p]) {
        if (!saves_.empty() && !CheckValidated(update)) return;
        bool clipped = !saves_.empty() || std::any_of(clips_.begin(), clips_.end(), [&](TemplateId clip) {
          return dag_.templates[clip].group == dag_.templates[update].group &&
                 std::find(incoming_[update].begin(), incoming_[update].end(), clip) !=
                     incoming_[update].end();
        });
        if (!clipped) {
          Missing(update, fmt::format("'{}' does not wait for the clipping of its gradient",
                                      dag_.templates[update].name));
          return;
        }
      }
    }
  }

  // The sums that ranks go by until an update is validated: each has its own part before it, and the messages
  // that pass them on stand between two of them.
  bool CheckPartials() {
    const auto waits = [&](TemplateId t, NodeKind kind) {
      return std::any_of(incoming_[t].begin(), incoming_[t].end(), [&](TemplateId from) {
        return dag_.templates[from].kind == kind && dag_.templates[from].group == dag_.templates[t].group;
      });
    };
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const NodeTemplate& node = dag_.templates[t];
      const bool passes_on = node.value == kNone && node.bytes > 0;
      std::string lacks;
      if (node.kind == NodeKind::kPartial && !waits(t, NodeKind::kNorm))
        lacks = "the squares of its own host";
      if (node.kind == NodeKind::kSave && !waits(t, NodeKind::kPartial))
        lacks = "the squares as far as known";
      if (node.kind == NodeKind::kSend && passes_on && !waits(t, NodeKind::kPartial))
        lacks = "the sum that it passes on";
      if (node.kind == NodeKind::kRecv && passes_on) {
        const bool read = std::any_of(outgoing_[t].begin(), outgoing_[t].end(), [&](TemplateId to) {
          return dag_.templates[to].kind == NodeKind::kPartial && dag_.templates[to].group == node.group;
        });
        if (!read) return Missing(t, fmt::format("nothing adds to what '{}' brings", node.name));
        if (std::find(incoming_[t].begin(), incoming_[t].end(), node.match) == incoming_[t].end())
          lacks = "its send";
      }
      if (!lacks.empty()) return Missing(t, fmt::format("'{}' does not wait for {}", node.name, lacks));
    }
    return true;
  }

  // Post-validation: an update starts from a saved copy, which one node judges once update and norm are
  // there.
  bool CheckValidated(TemplateId update) {
    const NodeTemplate& node = dag_.templates[update];
    const auto waits = [&](TemplateId t, TemplateId before) {
      return std::find(incoming_[t].begin(), incoming_[t].end(), before) != incoming_[t].end();
    };
    const bool saved = std::any_of(saves_.begin(), saves_.end(), [&](TemplateId save) {
      return dag_.templates[save].group == node.group && waits(update, save);
    });
    if (!saved) return Missing(update, fmt::format("'{}' changes what no copy was saved of", node.name));
    size_t judges = 0;
    for (TemplateId clip : clips_)
      judges += dag_.templates[clip].kind == NodeKind::kValidate &&
                dag_.templates[clip].group == node.group && waits(clip, update);
    if (judges == 0) return Missing(update, fmt::format("nothing validates '{}'", node.name));
    if (!CheckCarried(node.group)) return false;
    if (judges > 1) {
      diag_.Error(Origin(update), DiagKind::kGradientDouble,
                  fmt::format("'{}' is validated twice", node.name));
      return false;
    }
    return true;
  }

  // A check within the next step: with the norm, before gradients are overwritten there.
  bool CheckCarried(GroupId host) {
    for (TemplateId clip : clips_) {
      const NodeTemplate& node = dag_.templates[clip];
      if (node.kind != NodeKind::kValidate || node.group != host) continue;
      for (TemplateId before : incoming_[clip]) {
        if (dag_.templates[before].carried && !node.carried)
          return Missing(clip, fmt::format("'{}' judges by '{}' of the step before", node.name,
                                           dag_.templates[before].name));
      }
      if (!node.carried) continue;
      for (const StreamOrder& order : dag_.orders) {
        if (order.group != host || order.stream != node.stream) continue;
        for (const OrderItem& item : order.items) {
          if (item.node == dag_.first_node[clip]) break;
          const NodeTemplate& earlier = dag_.templates[dag_.TemplateOf(item.node)];
          const bool overwrites = earlier.pass == Pass::kBW || earlier.kind == NodeKind::kAccumulate ||
                                  earlier.kind == NodeKind::kSave || earlier.kind == NodeKind::kUpdate;
          if (overwrites)
            return Missing(clip, fmt::format("'{}' comes after '{}', which overwrites what it judges",
                                             node.name, earlier.name));
        }
      }
    }
    return true;
  }

  const Dag& dag_;
  const RegionGraph& regions_;
  DiagnosticEngine& diag_;
  std::vector<std::vector<TemplateId>> incoming_, outgoing_;
  std::vector<std::vector<TemplateId>> touching_, updates_;  // per parameter
  std::vector<std::set<GroupId>> readers_;                   // per parameter: hosts that hold it
  std::vector<std::vector<RegionId>> users_;  // per parameter: regions with a gradient, model order
  std::map<BufferKey, GroupId> copies_;       // where each region's copies are
  std::map<BufferKey, TemplateId> weights_;   // their BW
  std::vector<TemplateId> clips_;             // kClip, or kValidate: what judges by the norm
  std::vector<TemplateId> saves_;
  std::vector<GroupId> hosts_;
  std::map<GroupId, std::vector<GroupId>> hosts_of_;  // per group, as asked for
  size_t device_count_ = 0;
  std::vector<uint32_t> rank_;
  std::map<TemplateId, std::vector<bool>> ancestors_;
};

}  // namespace

bool CheckGradients(const Dag& dag, const RegionGraph& regions, DiagnosticEngine& diag) {
  return GradientCheck(dag, regions, diag).Run();
}

}  // namespace piper::ir
