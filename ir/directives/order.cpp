#include "ir/directives/order.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>

#include "ir/directives/order_missing.h"
#include "ir/support/result.h"

namespace piper::ir {

namespace {

constexpr size_t kMaxReports = 5;  // an order

bool IsBackward(const NodeTemplate& node) {
  return node.kind == NodeKind::kCompute && (node.pass == Pass::kBI || node.pass == Pass::kBW);
}

bool IsWholeBackward(const NodeTemplate& input, const NodeTemplate& weight) {
  return IsBackward(input) && IsBackward(weight) && input.pass == Pass::kBI && weight.pass == Pass::kBW &&
         input.region == weight.region && input.copy == weight.copy && input.stream == weight.stream;
}

// What a step `name = index, ..` lists for one microbatch, whichever it is: found once, then only looked up.
// Unusable where the general way is needed: other streams, other hosts' nodes, ranges that differ.
struct IndexedStep {
  PassSet passes = 0;
  size_t count = 0;
  StepSelector::Index key[StepSelector::kMostIndices];  // indices of split dimensions count as 0
  NameId stream = 0;
  bool usable = false;
  struct Entry {
    NodeId first = 0;    // of microbatch 0, were there one
    bool pairs = false;  // one whole B with the next entry
  };
  std::vector<Entry> entries;
  int32_t mb_begin = 0, mb_end = 0;
  OriginId origin = 0;
};

// Templates of one host that a clause's tags and passes admit, in the order of a step.
struct Matched {
  SelectorClause clause;
  std::vector<TemplateId> forward, backward, other;
  PassSet backward_passes = 0;
};

class OrderReader {
 public:
  OrderReader(BuildContext& context, AtomicMarker& marker)
      : context_(context),
        dag_(context.dag),
        diag_(context.diag),
        marker_(marker),
        compute_(InternName("compute")),
        send_(InternName("send")),
        recv_(InternName("recv")),
        listed_(context.dag.node_count(), 0) {}

  void Read(const Directive& directive, const OrderDirective& order, size_t host_index) {
    directive_ = &directive;
    host_ = context_.hosts[host_index];
    result_ = &context_.host_orders[host_index];
    origin_ = dag_.AddOrigin(directive.range);
    templates_.clear();
    cache_.clear();
    indexed_.clear();
    foreign_.clear();
    foreign_origin_ = 0;
    reports_ = 0;
    const std::vector<uint32_t>& devices = dag_.groups[host_].devices;
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      if (dag_.templates[t].group == host_ ||
          Covers(dag_.groups[dag_.templates[t].group].devices, devices.front()))
        templates_.push_back(t);
    }
    collectives_.clear();
    host_index_ = host_index;
    greedy_ = {};
    for (const auto& [stream, schedule] : order.streams) ReadSteps(schedule.steps, stream);
    CheckComplete();
  }

 private:
  static bool Covers(const std::vector<uint32_t>& devices, uint32_t device) {
    return std::find(devices.begin(), devices.end(), device) != devices.end();
  }

  void ReadSteps(const std::vector<Step>& steps, NameId stream) {
    Listed(stream).items.reserve(Listed(stream).items.size() + 2 * steps.size());
    for (const Step& step : steps) {
      if (reports_ >= kMaxReports) return;
      step_range_ = step.range.valid() ? step.range : directive_->range;
      switch (step.kind) {
        case Step::Kind::kSelect:
          if (ReadIndexed(step.select, stream)) break;
          if (HasUnknownNames(step.select)) break;
          Expand(step.select);
          if (expanded_.empty() && AddForeign(step.select, stream)) break;
          if (expanded_.empty() && !step.select.optional()) ReportNothing(step.select);
          Append(stream, kNone);
          break;
        case Step::Kind::kFused:
          ReadFused(step, stream);
          break;
        case Step::Kind::kBarrier:
          // Whatever stands last on each stream so far precedes what comes next on the others.
          for (ListedStream& listed : result_->streams) {
            if (!OfPairs(listed.stream) && !listed.items.empty())
              barrier_[{listed.stream, 0}] = listed.items.back().node;
          }
          for (const auto& [pair, last] : last_of_pair_) barrier_[pair] = last;
          barrier_origin_ = dag_.AddOrigin(step_range_);
          crossed_.clear();
          break;
        case Step::Kind::kLanes:
          for (const auto& [lane, inner] : step.lanes) ReadSteps(inner, lane);
          break;
        case Step::Kind::kGreedy:
          ReadGreedy(step, stream);
          break;
      }
    }
  }

  // An alternative that nothing has is a mistake also where another one matches.
  bool HasUnknownNames(const Selector& selector) {
    if (selector.any_of.size() < 2) return false;
    if (!context_.vocabulary.ReportUnknownNames(selector, step_range_, diag_)) return false;
    ++reports_;
    return true;
  }

  // The common step. False, and nothing done, where it takes the general way.
  bool ReadIndexed(const StepSelector& select, NameId stream) {
    if (!select.indexed() || !barrier_.empty() || !foreign_.empty()) return false;
    // The microbatch, and what is left to look up.
    StepSelector::Index key[StepSelector::kMostIndices];
    const std::span<const StepSelector::Index> indices = select.indices();
    const std::vector<SplitIndex::Dim>& dims = context_.split.dims();
    int64_t mb = 0;
    size_t found = 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      key[i] = indices[i];
      for (const SplitIndex::Dim& dim : dims) {
        if (dim.name != key[i].name) continue;
        if (key[i].index < 0 || key[i].index >= dim.size) return false;
        mb += key[i].index * dim.stride;
        key[i].index = 0;
        ++found;
      }
    }
    if (found != dims.size()) return false;
    const auto same = [&](const IndexedStep& known) {
      return known.passes == select.passes() && known.count == indices.size() && known.stream == stream &&
             std::equal(key, key + known.count, known.key);
    };
    auto known = std::find_if(indexed_.begin(), indexed_.end(), same);
    if (known == indexed_.end()) {
      IndexedStep fresh;
      fresh.passes = select.passes();
      fresh.count = indices.size();
      std::copy(key, key + indices.size(), fresh.key);
      fresh.stream = stream;
      FindEntries(select, &fresh);
      indexed_.push_back(std::move(fresh));
      known = std::prev(indexed_.end());
    }
    if (!known->usable || mb < known->mb_begin || mb >= known->mb_end) return false;
    for (const IndexedStep::Entry& entry : known->entries) {
      if (listed_[entry.first + static_cast<NodeId>(mb)] != 0) return false;
    }
    // As AddOrigin finds it, which looks at the last few.
    constexpr size_t kRecent = 16;
    if (known->origin == 0 || dag_.origins.size() - known->origin > kRecent ||
        dag_.origins[known->origin] != step_range_) {
      known->origin = dag_.AddOrigin(step_range_);
    }
    const OriginId origin = known->origin;
    std::vector<OrderItem>& items = Listed(stream).items;
    uint32_t atomic = kNone;
    for (const IndexedStep::Entry& entry : known->entries) {
      const NodeId node = entry.first + static_cast<NodeId>(mb);
      listed_[node] = origin + 1;
      if (entry.pairs) atomic = marker_.Next();
      items.push_back({node, origin, atomic});
      if (!entry.pairs) atomic = kNone;
    }
    return true;
  }

  void FindEntries(const StepSelector& select, IndexedStep* step) {
    const Selector selector = select;
    const std::vector<SplitIndex::Dim>& dims = context_.split.dims();
    for (size_t i = 0; i < dims.size(); ++i) {  // each once
      for (size_t k = i + 1; k < dims.size(); ++k) {
        if (dims[i].name == dims[k].name) return;
      }
      size_t terms = 0;
      for (size_t k = 0; k < step->count; ++k) terms += step->key[k].name == dims[i].name;
      if (terms != 1) return;
    }
    const Matched matched = FindMatched(selector.any_of[0], templates_);
    if (!matched.other.empty() || matched.forward.size() + matched.backward.size() == 0) return;
    const bool whole = matched.backward_passes == kPassB;
    for (const auto* templates : {&matched.forward, &matched.backward}) {
      for (size_t i = 0; i < templates->size(); ++i) {
        const NodeTemplate& node = dag_.templates[(*templates)[i]];
        if (node.stream != step->stream || node.group != host_) return;
        if (step->entries.empty()) {
          step->mb_begin = node.mb_begin;
          step->mb_end = node.mb_end;
        }
        if (node.mb_begin != step->mb_begin || node.mb_end != step->mb_end) return;
        IndexedStep::Entry entry;
        entry.first = dag_.first_node[(*templates)[i]] - static_cast<NodeId>(node.mb_begin);
        const bool second = !step->entries.empty() && step->entries.back().pairs;
        entry.pairs = templates == &matched.backward && whole && !second && i + 1 < templates->size() &&
                      IsWholeBackward(node, dag_.templates[(*templates)[i + 1]]);
        step->entries.push_back(entry);
      }
    }
    step->usable = true;
  }

  // The steps are found later, when all other orders are known (greedy.h).
  void ReadGreedy(const Step& step, NameId stream) {
    if (stream != compute_) {
      ReportOnce(fmt::format("`greedy(..)` on stream {}: it orders F, BI and BW", NameText(stream)),
                 "list it under compute; other streams follow", {}, "");
      return;
    }
    if (context_.compute_streams.size() > 1) {
      ReportOnce(
          fmt::format("`greedy(..)` beside stream {}, which computes as well",
                      NameText(context_.compute_streams[1])),
          "it finds the order of one compute stream a group: list the steps, or leave out the `stream` "
          "line",
          {}, "");
      return;
    }
    if (greedy_.valid()) {
      ReportOnce("a second `greedy(..)` in one order", "one orders every step of the group", greedy_,
                 "the first one is here");
      return;
    }
    greedy_ = step_range_;
    context_.greedy_orders.push_back(
        {host_index_, step.greedy.get(), step_range_, dag_.AddOrigin(step_range_)});
  }

  // What does not depend on the host is said for the first one.
  void ReportOnce(std::string message, std::string hint, SourceRange note, std::string note_text) {
    if (std::find(said_.begin(), said_.end(), step_range_) != said_.end()) {
      ++reports_;
      return;
    }
    said_.push_back(step_range_);
    Report(DiagKind::kBadGreedy, std::move(message), std::move(hint), note, std::move(note_text));
  }

  void ReadFused(const Step& step, NameId stream) {
    std::vector<std::vector<ExpandedNode>> parts;
    std::vector<NameId> streams;  // of the parts, by first appearance
    size_t count = 0;
    bool computes = true;
    for (const Selector& part : step.fused) {
      Expand(part);
      if (expanded_.empty() && !part.optional) ReportNothing(part);
      for (const ExpandedNode& node : expanded_) {
        const NodeTemplate& what = dag_.templates[node.node_template];
        if (!CanFuse(what)) {
          Report(
              DiagKind::kBadFused, fmt::format("{} cannot be part of a fused step", what.name),
              "F, BI, BW, R, U, messages, reductions and the copies of `offload` fuse; what runs right after "
              "one of them goes with it");
          return;
        }
        computes = computes && what.kind == NodeKind::kCompute;
        if (std::find(streams.begin(), streams.end(), what.stream) == streams.end())
          streams.push_back(what.stream);
      }
      count += expanded_.size();
      parts.push_back(expanded_);
    }
    if (count == 0) return;
    // A part that is legally empty might have been there.
    const bool empty = std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part.empty(); });
    if (!empty && std::find(streams.begin(), streams.end(), stream) == streams.end()) {
      Report(DiagKind::kBadFused,
             fmt::format("`fused` on stream {}, where none of its parts runs", NameText(stream)),
             fmt::format("list it under `{}:`", NameText(streams[0])));
      return;
    }
    const uint32_t atomic = marker_.Next();
    const FusedCost* priced = FindFusedCost(parts);
    if (computes && streams.size() == 1 && streams[0] == stream && context_.Computes(stream)) {
      for (const std::vector<ExpandedNode>& part : parts) {
        expanded_ = part;
        whole_backward_ = false;
        Append(stream, atomic);
      }
      if (priced == nullptr) return;
      if (dag_.atomic_costs.size() <= atomic) dag_.atomic_costs.resize(atomic + 1, -1);
      dag_.atomic_costs[atomic] = std::llround(priced->cost->figure.value);
      return;
    }
    if (priced != nullptr) {
      diag_
          .Error(priced->directive->range, DiagKind::kBadCost,
                 "a figure for a fused step whose parts run on several streams")
          .Note(step_range_, "the fused step is here")
          .Hint(
              "its parts cost what they cost, at once: give figures to them, and a `slowdown` to their "
              "streams");
      return;
    }
    // Every part stands on its own stream; what holds them together are temporal edges (fused.h).
    FusedNode fused{host_index_, dag_.AddOrigin(step_range_), {}};
    for (const std::vector<ExpandedNode>& part : parts) {
      for (NameId of : streams) {
        expanded_.clear();
        PassSet backward = 0;
        for (const ExpandedNode& node : part) {
          const NodeTemplate& what = dag_.templates[node.node_template];
          if (what.stream != of) continue;
          expanded_.push_back(node);
          fused.members.push_back(node.node);
          if (IsBackward(what)) backward = static_cast<PassSet>(backward | PassBit(what.pass));
        }
        if (expanded_.empty()) continue;
        whole_backward_ = backward == kPassB;
        Append(of, kNone);
      }
    }
    context_.fused_nodes.push_back(std::move(fused));
  }

  static bool CanFuse(const NodeTemplate& node) {
    switch (node.kind) {
      case NodeKind::kAccumulate:
      case NodeKind::kLossFold:
      case NodeKind::kNorm:
      case NodeKind::kPartial:
      case NodeKind::kClip:
      case NodeKind::kSave:
      case NodeKind::kValidate:
        return false;
      default:
        return !node.carried;
    }
  }

  // `cost fused(a, b)`: each part within the selector at its place.
  const FusedCost* FindFusedCost(const std::vector<std::vector<ExpandedNode>>& parts) {
    for (FusedCost& fused : context_.fused_costs) {
      if (fused.cost->fused.size() != parts.size()) continue;
      bool fits = true;
      for (size_t i = 0; i < parts.size() && fits; ++i) {
        fits = !parts[i].empty();
        for (const ExpandedNode& node : parts[i])
          fits = fits && Selects(context_, fused.cost->fused[i], node);
      }
      if (!fits) continue;
      fused.used = true;
      return &fused;
    }
    return nullptr;
  }

  // The host's templates for a clause; split indices aside. Steps of a loop share the entry.
  const Matched& Match(const SelectorClause& clause) { return Match(clause, templates_, cache_); }
  using Cache = std::unordered_multimap<uint64_t, Matched>;
  const Matched& Match(const SelectorClause& clause, const std::vector<TemplateId>& templates, Cache& cache) {
    uint64_t hash = clause.passes + 0x9e3779b97f4a7c15ull;
    for (const SelectorTerm& term : clause.terms) {
      if (context_.split.IsSplit(term.name)) continue;
      for (uint64_t part :
           {static_cast<uint64_t>(term.name) * 2 + term.negated,
            static_cast<uint64_t>(term.has_range ? term.begin + 1 : 0), static_cast<uint64_t>(term.end)}) {
        hash = (hash ^ part) * 0xff51afd7ed558ccdull;
        hash ^= hash >> 32;
      }
    }
    auto [first, last] = cache.equal_range(hash);
    for (auto it = first; it != last; ++it) {
      if (SameTags(it->second.clause, clause)) return it->second;
    }
    return cache.emplace(hash, FindMatched(clause, templates))->second;
  }

  Matched FindMatched(const SelectorClause& clause, const std::vector<TemplateId>& templates) const {
    Matched matched;
    matched.clause = clause;
    for (TemplateId t : templates) {
      if (!context_.TemplateMatches(clause, t)) continue;
      const NodeTemplate& node = dag_.templates[t];
      if (node.kind == NodeKind::kCompute && node.pass == Pass::kF) {
        matched.forward.push_back(t);
      } else if (IsBackward(node)) {
        matched.backward.push_back(t);
        matched.backward_passes = static_cast<PassSet>(matched.backward_passes | PassBit(node.pass));
      } else {
        matched.other.push_back(t);
      }
    }
    auto region = [&](TemplateId t) { return dag_.templates[t].region; };
    std::sort(matched.forward.begin(), matched.forward.end(), [&](TemplateId a, TemplateId b) {
      return std::tuple(region(a), a) < std::tuple(region(b), b);
    });
    std::sort(matched.backward.begin(), matched.backward.end(), [&](TemplateId a, TemplateId b) {
      return std::tuple(~region(a), dag_.templates[a].pass, a) <
             std::tuple(~region(b), dag_.templates[b].pass, b);
    });
    return matched;
  }

  bool SameTags(const SelectorClause& a, const SelectorClause& b) const {
    if (a.passes != b.passes) return false;
    size_t i = 0, j = 0;
    auto skip = [&](const SelectorClause& clause, size_t& at) {
      while (at < clause.terms.size() && context_.split.IsSplit(clause.terms[at].name)) ++at;
    };
    for (;; ++i, ++j) {
      skip(a, i);
      skip(b, j);
      if (i == a.terms.size() || j == b.terms.size()) return i == a.terms.size() && j == b.terms.size();
      const SelectorTerm& x = a.terms[i];
      const SelectorTerm& y = b.terms[j];
      if (x.name != y.name || x.negated != y.negated || x.has_range != y.has_range) return false;
      if (x.has_range && (x.begin != y.begin || x.end != y.end || x.more != y.more)) return false;
    }
  }

  void AddInstances(const std::vector<TemplateId>& templates, const std::vector<int32_t>& microbatches,
                    std::vector<ExpandedNode>* out) {
    for (int32_t mb : microbatches) {
      for (TemplateId t : templates) {
        const NodeTemplate& node = dag_.templates[t];
        if (mb >= node.mb_begin && mb < node.mb_end)
          out->push_back({dag_.first_node[t] + static_cast<NodeId>(mb - node.mb_begin), t, mb});
      }
    }
  }

  // Fills expanded_ and whole_backward_ with what the selector matches here.
  void Expand(const Selector& selector) { Expand(selector, templates_, cache_); }
  void Expand(const Selector& selector, const std::vector<TemplateId>& templates, Cache& cache) {
    expanded_.clear();
    whole_backward_ = false;
    PassSet backward = 0;
    std::vector<ExpandedNode> backward_nodes, others;
    for (const SelectorClause& clause : selector.any_of) {
      const Matched& matched = Match(clause, templates, cache);
      microbatches_.clear();
      context_.split.Collect(clause, 0, static_cast<int32_t>(dag_.microbatches), &microbatches_);
      AddInstances(matched.forward, microbatches_, &expanded_);
      if (!matched.backward.empty()) {
        AddInstances(matched.backward, microbatches_, &backward_nodes);
        backward = static_cast<PassSet>(backward | matched.backward_passes);
      }
      for (TemplateId t : matched.other) {
        if (dag_.templates[t].step_level()) others.push_back({dag_.first_node[t], t, -1});
      }
      if (!matched.other.empty()) AddInstances(matched.other, microbatches_, &others);
    }
    if (selector.any_of.size() > 1) {
      // Alternatives may overlap: put the union back into the order of a step.
      auto region = [&](const ExpandedNode& n) { return dag_.templates[n.node_template].region; };
      auto unique = [](std::vector<ExpandedNode>* nodes) {
        nodes->erase(std::unique(nodes->begin(), nodes->end(),
                                 [](const auto& a, const auto& b) { return a.node == b.node; }),
                     nodes->end());
      };
      std::sort(expanded_.begin(), expanded_.end(), [&](const auto& a, const auto& b) {
        return std::tuple(a.microbatch, region(a), a.node) < std::tuple(b.microbatch, region(b), b.node);
      });
      std::sort(backward_nodes.begin(), backward_nodes.end(), [&](const auto& a, const auto& b) {
        return std::tuple(a.microbatch, ~region(a), dag_.templates[a.node_template].pass, a.node) <
               std::tuple(b.microbatch, ~region(b), dag_.templates[b.node_template].pass, b.node);
      });
      std::sort(others.begin(), others.end(), [](const auto& a, const auto& b) {
        return std::tuple(a.microbatch, a.node) < std::tuple(b.microbatch, b.node);
      });
      unique(&expanded_);
      unique(&backward_nodes);
      unique(&others);
    }
    whole_backward_ = backward == kPassB;
    expanded_.insert(expanded_.end(), backward_nodes.begin(), backward_nodes.end());
    expanded_.insert(expanded_.end(), others.begin(), others.end());
  }

  // A step of other hosts: it claims a place between what stands before and after it on the stream.
  bool AddForeign(const Selector& selector, NameId stream) {
    if (everything_.empty()) {
      for (TemplateId t = 0; t < dag_.templates.size(); ++t) everything_.push_back(t);
    }
    Expand(selector, everything_, foreign_cache_);
    if (expanded_.empty()) return false;
    const OriginId origin = dag_.AddOrigin(step_range_);
    auto [last, fresh] = foreign_.try_emplace(stream, kNone);
    if (fresh || last->second == kNone) {
      const ListedStream& listed = Listed(stream);
      last->second = listed.items.empty() ? kNone : listed.items.back().node;
    }
    for (const ExpandedNode& node : expanded_) {
      if (last->second == node.node) {
        Report(DiagKind::kOrderRepeated, fmt::format("{} is listed twice", dag_.NodeName(node.node)),
               "list it once");
        break;
      }
      if (last->second != kNone) context_.claims.push_back({last->second, node.node, origin});
      last->second = node.node;
    }
    foreign_origin_ = origin;
    expanded_.clear();
    return true;
  }

  void ReportNothing(const Selector& selector) {
    // Something of another group?
    std::vector<int32_t> microbatches;
    for (const SelectorClause& clause : selector.any_of) {
      for (TemplateId t : context_.MatchTemplates(clause)) {
        const NodeTemplate& node = dag_.templates[t];
        microbatches.clear();
        if (!node.step_level()) context_.split.Collect(clause, node.mb_begin, node.mb_end, &microbatches);
        if (microbatches.empty() && !node.step_level()) continue;
        const std::string& owner = dag_.groups[node.group].text;
        Report(DiagKind::kOrderForeign,
               fmt::format("{} is on {}; this order is on {}", selector.ToString(), owner,
                           dag_.groups[host_].text),
               fmt::format("list it in `order on {}`", owner), dag_.origins[node.origin], "placed here");
        return;
      }
    }
    if (context_.ReportIfEmpty(selector, step_range_)) ++reports_;
  }

  // Checks what Expand found and puts it on the stream.
  void Append(NameId stream, uint32_t atomic) {
    OriginId origin = dag_.AddOrigin(step_range_);
    for (const ExpandedNode& node : expanded_) {
      const NodeTemplate& t = dag_.templates[node.node_template];
      if (t.stream != stream) {
        Report(DiagKind::kBadOrder,
               fmt::format("{} runs on stream {}, not on {}", dag_.NodeName(node.node), NameText(t.stream),
                           NameText(stream)),
               stream == compute_
                   ? fmt::format("list it under `{}:`, or put it on compute by `stream`", NameText(t.stream))
                   : fmt::format("list it under `{}:`", NameText(t.stream)),
               StreamLine(node.node_template), "it was put there here");
        return;
      }
      uint32_t* seen = &listed_[node.node];
      if (t.group != host_) seen = &collectives_[node.node];  // listed once a host
      if (*seen != 0) {
        Report(DiagKind::kOrderRepeated, fmt::format("{} is listed twice", dag_.NodeName(node.node)),
               "each node has one place in its stream's order", dag_.origins[*seen - 1],
               "the first time here");
        return;
      }
      *seen = origin + 1;
    }
    if (expanded_.empty()) return;
    if (!foreign_.empty()) {
      if (auto last = foreign_.find(stream); last != foreign_.end() && last->second != kNone) {
        context_.claims.push_back({last->second, expanded_.front().node, foreign_origin_});
        last->second = kNone;
      }
    }
    ListedStream& listed = Listed(stream);
    size_t before = listed.items.size();
    marker_.Append(expanded_, origin, atomic, whole_backward_, &listed.items);
    if (barrier_.empty() && !OfPairs(stream)) return;
    for (size_t i = before; i < listed.items.size(); ++i) {
      const NodeId node = listed.items[i].node;
      const PairStream key = StreamOfPair(stream, node);
      if (OfPairs(stream)) last_of_pair_[key] = node;
      if (!barrier_.empty() && crossed_.insert(key).second) {
        for (const auto& [other, last] : barrier_) {
          if (other != key) dag_.temporal.push_back({last, node, 0, barrier_origin_});
        }
      }
      if (!OfPairs(stream)) break;  // the rest follows the first
    }
  }

  // `send` and `recv` stand for a stream a pair of hosts.
  using PairStream = std::pair<NameId, GroupId>;
  bool OfPairs(NameId stream) const { return stream == send_ || stream == recv_; }
  PairStream StreamOfPair(NameId stream, NodeId node) const {
    return {stream, OfPairs(stream) ? dag_.templates[dag_.TemplateOf(node)].peer_group : 0};
  }

  ListedStream& Listed(NameId stream) {
    for (ListedStream& listed : result_->streams) {
      if (listed.stream == stream) return listed;
    }
    result_->streams.push_back({stream, origin_, {}});
    return result_->streams.back();
  }

  // This order lists steps of a stream.
  bool Orders(NameId stream) const {
    return std::any_of(result_->streams.begin(), result_->streams.end(),
                       [&](const ListedStream& l) { return l.stream == stream; });
  }

  // Every F, BI, BW of the host is listed, if its stream is ordered at all.
  void CheckComplete() {
    barrier_.clear();
    crossed_.clear();
    last_of_pair_.clear();
    const std::vector<NameId>& streams = context_.compute_streams;
    const bool ordered = std::any_of(streams.begin(), streams.end(), [&](NameId s) { return Orders(s); });
    if (!ordered || reports_ > 0) return;
    if (greedy_.valid()) {
      const std::vector<OrderItem>& beside = Listed(compute_).items;
      const OriginId origin = beside.empty() ? foreign_origin_ : beside[0].origin;
      if (origin == 0) return;
      step_range_ = dag_.origins[origin];
      Report(DiagKind::kBadGreedy,
             fmt::format("{} stands beside `greedy(..)`, which orders every step of {}",
                         beside.empty() ? "a step of another group" : dag_.NodeName(beside[0].node),
                         dag_.groups[host_].text),
             "remove one of the two", greedy_, "the order is found here");
      return;
    }
    std::vector<TemplateId> wanted;
    for (TemplateId t : templates_) {
      const NodeTemplate& node = dag_.templates[t];
      if (node.kind == NodeKind::kCompute && node.pass != Pass::kR && Orders(node.stream))
        wanted.push_back(t);
    }
    ReportMissingSteps(context_, *directive_, host_, wanted, listed_, foreign_origin_);
  }

  // The `stream` line that moved a node; nothing where it stands by default.
  SourceRange StreamLine(TemplateId node) const {
    SourceRange line;
    context_.ForEach<StreamDirective>([&](const Directive& directive, const StreamDirective& spec) {
      if (InternName(spec.stream) != dag_.templates[node].stream) return;
      for (const SelectorClause& clause : spec.select.any_of) {
        const std::vector<TemplateId> moved = context_.MatchTemplates(clause);
        if (std::find(moved.begin(), moved.end(), node) != moved.end()) line = directive.range;
      }
    });
    return line;
  }

  void Report(DiagKind kind, std::string message, std::string hint, SourceRange note = {},
              std::string note_text = {}) {
    ++reports_;
    auto error = diag_.Error(step_range_, kind, std::move(message));
    if (!note_text.empty() && note.valid()) error.Note(note, std::move(note_text));
    error.Hint(std::move(hint));
  }

  BuildContext& context_;
  Dag& dag_;
  DiagnosticEngine& diag_;
  AtomicMarker& marker_;
  const NameId compute_, send_, recv_;
  std::vector<uint32_t> listed_;            // per node: origin of the step that listed it, plus 1
  std::map<NodeId, uint32_t> collectives_;  // the same for nodes of several hosts, this host's listing
  const Directive* directive_ = nullptr;
  GroupId host_ = 0;
  HostOrder* result_ = nullptr;
  OriginId origin_ = 0;
  size_t host_index_ = 0;
  SourceRange greedy_;  // of this order's `greedy(..)`
  std::vector<SourceRange> said_;
  SourceRange step_range_;
  std::vector<TemplateId> templates_;
  Cache cache_;
  std::vector<IndexedStep> indexed_;
  std::vector<TemplateId> everything_;  // with foreign_cache_: what steps of other hosts match
  Cache foreign_cache_;
  std::map<NameId, NodeId>
      foreign_;  // per stream: the step of another host that was listed last; kNone: an own one
  OriginId foreign_origin_ = 0;
  std::vector<int32_t> microbatches_;
  std::vector<ExpandedNode> expanded_;
  bool whole_backward_ = false;
  size_t reports_ = 0;
  std::map<PairStream, NodeId> barrier_;       // per stream: the last node before the barrier
  std::map<PairStream, NodeId> last_of_pair_;  // of the streams `send` and `recv`: the last node listed
  std::set<PairStream> crossed_;               // streams that listed something after the barrier
  OriginId barrier_origin_ = 0;
};

}  // namespace

void AtomicMarker::Append(const std::vector<ExpandedNode>& nodes, OriginId origin, uint32_t atomic,
                          bool whole_backward, std::vector<OrderItem>* items) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    items->push_back({nodes[i].node, origin, atomic});
    if (atomic != kNone || !whole_backward || i + 1 == nodes.size() ||
        nodes[i].microbatch != nodes[i + 1].microbatch)
      continue;
    const NodeTemplate& input = templates_[nodes[i].node_template];
    const NodeTemplate& weight = templates_[nodes[i + 1].node_template];
    if (!IsWholeBackward(input, weight)) continue;
    items->back().atomic = next_++;
    items->push_back({nodes[i + 1].node, origin, items->back().atomic});
    ++i;
  }
}

bool Selects(const BuildContext& context, const Selector& selector, const ExpandedNode& node) {
  std::vector<int32_t> microbatches;
  for (const SelectorClause& clause : selector.any_of) {
    if (!context.TemplateMatches(clause, node.node_template)) continue;
    microbatches.clear();
    context.split.Collect(clause, node.microbatch, node.microbatch + 1, &microbatches);
    if (!microbatches.empty()) return true;
  }
  return false;
}

void ApplyOrder(BuildContext& context, AtomicMarker& marker) {
  context.host_orders.resize(context.hosts.size());
  OrderReader reader(context, marker);
  std::vector<const Directive*> owner(context.hosts.size());
  context.ForEach<OrderDirective>([&](const Directive& directive, const OrderDirective& order) {
    SourceRange range = order.group.range.valid() ? order.group.range : directive.range;
    std::optional<Group> group = context.ResolveGroup(order.group, directive.range, DiagKind::kBadOrder);
    if (!group) return;
    for (GroupId host : context.HostsWithin(*group, range, DiagKind::kBadOrder)) {
      auto index = static_cast<size_t>(std::find(context.hosts.begin(), context.hosts.end(), host) -
                                       context.hosts.begin());
      if (owner[index] != nullptr) {
        context.diag
            .Error(directive.range, DiagKind::kConflict,
                   fmt::format("{} has a second order", context.dag.groups[host].text))
            .Note(owner[index]->range, "the first one is here");
        continue;
      }
      owner[index] = &directive;
      reader.Read(directive, order, index);
    }
  });
  // Hosts whose compute stream no order mentions: F then B per microbatch.
  NameId compute = InternName("compute");
  Dag& dag = context.dag;
  for (size_t index = 0; index < context.hosts.size() && !context.Failed(); ++index) {
    HostOrder& order = context.host_orders[index];
    bool ordered = std::any_of(order.streams.begin(), order.streams.end(),
                               [&](const ListedStream& l) { return l.stream == compute; });
    if (ordered) continue;
    std::vector<TemplateId> forward, backward;
    for (TemplateId t = 0; t < dag.templates.size(); ++t) {
      if (dag.templates[t].group != context.hosts[index] || dag.templates[t].kind != NodeKind::kCompute ||
          dag.templates[t].pass == Pass::kR || dag.templates[t].stream != compute)
        continue;
      (dag.templates[t].pass == Pass::kF ? forward : backward)
          .push_back(t);  // backward ones were made last region first
    }
    ListedStream listed{compute, 0, {}};
    std::vector<ExpandedNode> nodes;
    for (int32_t mb = 0; mb < dag.microbatches; ++mb) {
      for (const auto* templates : {&forward, &backward}) {
        nodes.clear();
        for (TemplateId t : *templates) {
          if (mb >= dag.templates[t].mb_begin && mb < dag.templates[t].mb_end)
            nodes.push_back({dag.Node(t, mb), t, mb});
        }
        marker.Append(nodes, 0, kNone, templates == &backward, &listed.items);
      }
    }
    order.streams.insert(order.streams.begin(), std::move(listed));
  }
}

}  // namespace piper::ir
