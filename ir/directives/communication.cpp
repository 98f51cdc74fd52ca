#include "ir/directives/communication.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "ir/directives/offload.h"
#include "ir/directives/recompute.h"
#include "ir/support/result.h"

namespace piper::ir {

namespace {

// What one destination host needs from one producing template.
struct Need {
  std::vector<TemplateId> readers;
  std::vector<std::pair<int32_t, int32_t>> ranges;
};
// (value, consumer of a partial cotangent or kNone, producing template, destination host).
using Key = std::tuple<ValueId, RegionId, TemplateId, GroupId>;

class Communication {
 public:
  explicit Communication(BuildContext& context) : context_(context), dag_(context.dag) {}

  void Run() {
    const std::vector<Region>& regions = context_.regions.regions;
    // A backward pass may read a forward value as well: it shares the message of its host.
    for (RegionId r = 0; r < regions.size(); ++r) ConnectPasses(r, FormalKind::kValue);
    Emit();
    if (context_.forward_only) return;
    for (RegionId r = static_cast<RegionId>(regions.size()); r-- > 0;)
      ConnectPasses(r, FormalKind::kCotangent);
    Emit();
  }

 private:
  void ConnectPasses(RegionId r, FormalKind kind) {
    const Region& region = context_.regions.regions[r];
    Connect(r, Pass::kF, region.forward, kind);
    if (context_.forward_only) return;
    if (!region.recompute.empty()) Connect(r, Pass::kR, region.recompute, kind);
    Connect(r, Pass::kBI, region.backward_input, kind);
    Connect(r, Pass::kBW, region.backward_weight, kind);
  }

  void Connect(RegionId r, Pass pass, const Body& body, FormalKind kind) {
    for (const Formal& formal : body.formals) {
      if (formal.written || formal.kind != kind) continue;
      if (formal.kind == FormalKind::kValue) {
        RegionId producer = formal.value == kNone ? kNone : context_.regions.value_region[formal.value];
        if (producer != kNone && producer != r) Depend(r, pass, producer, Pass::kF, formal.value, kNone);
      } else if (formal.kind == FormalKind::kCotangent) {
        Depend(r, pass, formal.consumer, Pass::kBI, formal.value, formal.consumer);
      }
    }
  }

  // Every copy of (r, pass) depends on the copies of (producer, produced) that share a microbatch with it.
  void Depend(RegionId r, Pass pass, RegionId producer, Pass produced, ValueId value, RegionId consumer) {
    for (uint32_t copy = 0; copy < context_.copies[r].size(); ++copy) {
      TemplateId reader = context_.compute[r][copy][static_cast<size_t>(pass)];
      const RegionCopy& here = context_.copies[r][copy];
      for (uint32_t other = 0; other < context_.copies[producer].size(); ++other) {
        const RegionCopy& there = context_.copies[producer][other];
        std::pair<int32_t, int32_t> range{std::max(here.begin, there.begin), std::min(here.end, there.end)};
        if (range.first >= range.second) continue;
        TemplateId writer = context_.compute[producer][other][static_cast<size_t>(produced)];
        PIPER_CHECK(writer != kNone && reader != kNone, context_.regions.regions[producer].name);
        if (here.host == there.host) {
          const bool later = pass != Pass::kF && produced == Pass::kF;
          if (later && ReadsReplay(context_, r, producer)) {
            writer = context_.compute[producer][other][static_cast<size_t>(Pass::kR)];
          } else if (later && ReadsFetched(context_, r, producer)) {
            writer = context_.fetches[producer][other];
          }
          context_.AddEdge(writer, reader);
          continue;
        }
        if (pass != Pass::kF && produced == Pass::kF) {
          if (auto found = context_.receivers.find({r, producer}); found != context_.receivers.end()) {
            context_.AddEdge(context_.received_fetches.at({found->second, producer})[copy], reader);
            continue;
          }
        }
        Key key{value, consumer, writer, here.host};
        auto [it, fresh] = index_.try_emplace(key, needs_.size());
        if (fresh) needs_.emplace_back(key, Need{});
        needs_[it->second].second.readers.push_back(reader);
        needs_[it->second].second.ranges.push_back(range);
      }
    }
  }

  // Turns the collected needs into pairs, in the order in which they came up.
  void Emit() {
    for (auto& [key, need] : needs_) {
      auto& [value, consumer, writer, destination] = key;
      GroupId source = dag_.templates[writer].group;
      if (dag_.groups[source].devices.size() != dag_.groups[destination].devices.size()) {
        ReportShapes(writer, need.readers[0]);
        return;
      }
      std::sort(need.ranges.begin(), need.ranges.end());
      std::vector<std::pair<int32_t, int32_t>> merged;
      for (auto range : need.ranges) {
        if (!merged.empty() && range.first <= merged.back().second) {
          merged.back().second = std::max(merged.back().second, range.second);
        } else {
          merged.push_back(range);
        }
      }
      for (auto range : merged) EmitPair(value, consumer, writer, destination, range, need.readers);
    }
    needs_.clear();
    index_.clear();
  }

  void EmitPair(ValueId value, RegionId consumer, TemplateId writer, GroupId destination,
                std::pair<int32_t, int32_t> range, const std::vector<TemplateId>& readers) {
    TemplateId reader = kNone;
    for (TemplateId candidate : readers) {
      const NodeTemplate& node = dag_.templates[candidate];
      bool shares = node.mb_begin < range.second && range.first < node.mb_end;
      if (shares && (reader == kNone || node.region < dag_.templates[reader].region)) reader = candidate;
    }
    const NodeTemplate& from = dag_.templates[writer];
    const NodeTemplate& to = dag_.templates[reader];
    const std::vector<Region>& regions = context_.regions.regions;
    NodeTemplate send;
    send.kind = NodeKind::kSend;
    send.pass = consumer == kNone ? Pass::kF : Pass::kBI;
    send.region = from.region;
    send.copy = from.copy;
    std::string ends = fmt::format("{} -> {}", regions[from.region].name, regions[to.region].name);
    if (context_.copies[from.region].size() > 1)
      ends += fmt::format(" from {}", dag_.groups[from.group].text);
    send.name = fmt::format("send {}{}", consumer == kNone ? "" : "d ", ends);
    send.tags = from.tags;
    send.names = {InternName("send")};
    send.group = from.group;
    send.stream = InternName("send");
    send.mb_begin = range.first;
    send.mb_end = range.second;
    send.origin = from.origin;
    send.bytes = context_.regions.graph.Type(value).bytes();
    send.value = value;
    send.cotangent = consumer != kNone;
    send.consumer = consumer;
    send.peer_group = destination;
    NodeTemplate recv = send;
    recv.kind = NodeKind::kRecv;
    recv.region = to.region;
    recv.copy = to.copy;
    recv.name = fmt::format("recv {}{}", consumer == kNone ? "" : "d ", ends);
    recv.tags = to.tags;
    recv.names = {InternName("recv")};
    recv.group = destination;
    recv.stream = InternName("recv");
    recv.origin = to.origin;
    recv.peer_group = send.group;
    TemplateId send_id = context_.AddTemplate(std::move(send));
    TemplateId recv_id = context_.AddTemplate(std::move(recv));
    dag_.templates[send_id].match = recv_id;
    dag_.templates[recv_id].match = send_id;
    context_.AddEdge(writer, send_id);
    context_.AddEdge(send_id, recv_id);
    for (TemplateId candidate : readers) {
      const NodeTemplate& node = dag_.templates[candidate];
      if (node.mb_begin < range.second && range.first < node.mb_end) context_.AddEdge(recv_id, candidate);
    }
  }

  void ReportShapes(TemplateId writer, TemplateId reader) {
    const NodeTemplate& from = dag_.templates[writer];
    const NodeTemplate& to = dag_.templates[reader];
    context_.diag
        .Error(dag_.origins[to.origin], DiagKind::kUnsupported,
               fmt::format("{} has {} devices, {} that feeds it has {}: messages pair ranks one to one",
                           dag_.groups[to.group].text, dag_.groups[to.group].devices.size(),
                           dag_.groups[from.group].text, dag_.groups[from.group].devices.size()))
        .Note(dag_.origins[from.origin], "placed here")
        .Hint("place both on slices of the same shape");
  }

  BuildContext& context_;
  Dag& dag_;
  std::vector<std::pair<Key, Need>> needs_;
  std::map<Key, size_t> index_;
};

}  // namespace

void AddCommunication(BuildContext& context) {
  context.vocabulary.AddInserted(InternName("send"));
  context.vocabulary.AddInserted(InternName("recv"));
  Communication(context).Run();
}

}  // namespace piper::ir
