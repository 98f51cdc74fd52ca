#include "ir/dag/dag_text.h"

#include <algorithm>
#include <cctype>
#include <map>

#include <fmt/format.h>

namespace piper::ir {

namespace {

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n') {
      quoted += "\\n";
      continue;
    }
    quoted += c;
  }
  return quoted + "\"";
}

// Bare if it reads as one word, quoted otherwise.
std::string Word(std::string_view text) {
  bool bare = !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '_');
  for (char c : text) bare = bare && (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.');
  return bare ? std::string(text) : Quoted(text);
}

// One node or one atomic node of an order.
struct Piece {
  uint32_t shape = 0;  // equal for pieces that differ by a shift of their microbatches only
  int32_t base = -1;   // the first microbatch in it, or -1
  size_t begin = 0, end = 0;
};

class Printer {
 public:
  Printer(const Dag& dag, const SourceManager* sources) : dag_(dag), sources_(sources) {}

  std::string Print() {
    PrintHeader();
    for (const Group& group : dag_.groups) {
      Line("group {} {}", Quoted(group.text), fmt::join(group.devices, " "));
    }
    for (const NodeTemplate& node : dag_.templates) PrintNode(node);
    for (const TemplateEdge& edge : dag_.edges) {
      Line("edge {} -> {}{}{}", Quoted(dag_.templates[edge.from].name), Quoted(dag_.templates[edge.to].name),
           edge.data ? "" : " temporal", Origin(edge.origin));
    }
    for (const TemporalEdge& edge : dag_.temporal) {
      std::string distance = edge.distance == 0 ? "" : fmt::format(" distance {}", edge.distance);
      Line("after {} -> {}{}{}", Node(edge.from), Node(edge.to), distance, Origin(edge.origin));
    }
    for (const SlowdownRule& rule : dag_.slowdowns)
      Line("slowdown {} {} {}", Word(NameText(rule.stream)), Word(NameText(rule.with)), rule.thousandths);
    for (const StreamOrder& order : dag_.orders) PrintOrder(order);
    PrintExpression();
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void Line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  std::string Origin(OriginId origin) const {
    return sources_ == nullptr || origin == 0 ? "" : fmt::format(" origin {}", origin);
  }

  std::string Node(NodeId id) const {
    TemplateId t = dag_.TemplateOf(id);
    const NodeTemplate& node = dag_.templates[t];
    if (node.step_level()) return Quoted(node.name);
    return fmt::format("{} {}", Quoted(node.name),
                       node.mb_begin + static_cast<int32_t>(id - dag_.first_node[t]));
  }

  void PrintHeader() {
    Line("dag devices {} replicas {} microbatches {} samples {}{}", dag_.device_count, dag_.replicas,
         dag_.microbatches, dag_.samples_per_microbatch, dag_.forward_only ? " forward_only" : "");
    for (const auto& [name, size] : dag_.split_dims) Line("split {} {}", Word(name), size);
    if (!dag_.device_replica.empty()) Line("replica {}", fmt::join(dag_.device_replica, " "));
    if (sources_ == nullptr) return;
    for (OriginId id = 1; id < dag_.origins.size(); ++id) {
      const SourceRange& range = dag_.origins[id];
      if (!range.valid()) {
        Line("origin {} nowhere", id);
        continue;
      }
      LineColumn at = sources_->Position(range.file, range.begin);
      Line("origin {} {} {} {}  // line {}", id, Quoted(sources_->Name(range.file)), range.begin, range.end,
           at.line);
    }
  }

  void PrintNode(const NodeTemplate& node) {
    std::string line = fmt::format("node {} {}", Quoted(node.name), NodeKindName(node.kind));
    auto add = [&](std::string text) { line += " " + std::move(text); };
    if (node.pass != Pass::kNone) add(fmt::format("pass {}", PassName(node.pass)));
    if (node.region != kNone) add(fmt::format("region {}", node.region));
    if (node.copy != 0) add(fmt::format("copy {}", node.copy));
    add(fmt::format("on {} stream {}", Quoted(dag_.groups[node.group].text), Word(NameText(node.stream))));
    if (node.step_level()) {
      add("step");
    } else {
      add(fmt::format("mb {} {}", node.mb_begin, node.mb_end));
    }
    if (!node.names.empty()) {
      std::string names;
      for (NameId name : node.names) names += Word(NameText(name)) + " ";
      add("names { " + names + "}");
    }
    if (!node.tags.empty()) {
      std::string tags;
      for (const TagInstance& tag : node.tags) tags += fmt::format("{} {} ", Word(tag.name), tag.index);
      add("tags { " + tags + "}");
    }
    if (node.value != kNone) add(fmt::format("value {}", node.value));
    if (node.cotangent) add("cotangent");
    if (node.consumer != kNone) add(fmt::format("consumer {}", node.consumer));
    if (node.match != kNone)
      add(fmt::format("peer {} match {}", Quoted(dag_.groups[node.peer_group].text),
                      Quoted(dag_.templates[node.match].name)));
    if (node.parameter != kNone) add(fmt::format("parameter {}", node.parameter));
    if (!node.gradients.empty()) {
      std::string gradients;
      for (const GradientRef& g : node.gradients)
        gradients += fmt::format("({} {} {}) ", g.parameter, g.region, g.copy);
      add("gradients { " + gradients + "}");
    }
    if (node.per_replica) add("per_replica");
    if (node.carried) add("carried");
    if (node.pairwise) add("pairwise");
    if (node.scale != 1) add(fmt::format("scale {}", node.scale));
    if (node.cost >= 0) add(fmt::format("cost {}", node.cost));
    if (node.cost_bytes >= 0) add(fmt::format("cost_bytes {}", node.cost_bytes));
    if (node.bytes != 0) add(fmt::format("bytes {}", node.bytes));
    if (node.flops != 0) add(fmt::format("flops {}", node.flops));
    Line("{}{}", line, Origin(node.origin));
  }

  // ---- orders
  // ---------------------------------------------------------------------------------------------------

  std::vector<Piece> Pieces(const std::vector<OrderItem>& items) {
    std::vector<Piece> pieces;
    shapes_.clear();
    std::vector<int64_t> key;
    for (size_t i = 0; i < items.size();) {
      Piece piece;
      piece.begin = i;
      piece.end = i + 1;
      uint32_t atomic = items[i].atomic;
      while (atomic != kNone && piece.end < items.size() && items[piece.end].atomic == atomic) ++piece.end;
      key.clear();
      key.push_back(atomic != kNone ? 1 : 0);
      key.push_back(atomic != kNone && atomic < dag_.atomic_costs.size() ? dag_.atomic_costs[atomic] : -1);
      for (; i < piece.end; ++i) {
        TemplateId t = dag_.TemplateOf(items[i].node);
        const NodeTemplate& node = dag_.templates[t];
        int32_t mb =
            node.step_level() ? -1 : node.mb_begin + static_cast<int32_t>(items[i].node - dag_.first_node[t]);
        if (mb >= 0 && piece.base < 0) piece.base = mb;
        key.push_back(t);
        key.push_back(sources_ == nullptr ? 0 : items[i].origin);
        key.push_back(mb < 0 ? INT64_MIN : mb - piece.base);
      }
      piece.shape = shapes_.try_emplace(key, static_cast<uint32_t>(shapes_.size())).first->second;
      pieces.push_back(piece);
    }
    return pieces;
  }

  std::string PieceText(const std::vector<OrderItem>& items, const Piece& piece) const {
    auto item_text = [&](const OrderItem& item) {
      return Node(item.node) +
             (sources_ != nullptr && item.origin != 0 ? fmt::format(" @{}", item.origin) : "");
    };
    uint32_t atomic = items[piece.begin].atomic;
    if (atomic == kNone) return item_text(items[piece.begin]);
    std::string text = "[ ";
    for (size_t i = piece.begin; i < piece.end; ++i)
      text += (i > piece.begin ? "; " : "") + item_text(items[i]);
    text += " ]";
    if (atomic < dag_.atomic_costs.size() && dag_.atomic_costs[atomic] >= 0)
      text += fmt::format(" cost {}", dag_.atomic_costs[atomic]);
    return text;
  }

  void PrintOrder(const StreamOrder& order) {
    std::string peer = order.peer == 0 ? "" : fmt::format(" peer {}", Quoted(NameText(order.peer)));
    Line("order {} {}{}{} {{", Quoted(dag_.groups[order.group].text), Word(NameText(order.stream)), peer,
         Origin(order.origin));
    std::vector<Piece> pieces = Pieces(order.items);
    // Where each shape comes next: a repetition's period is the distance to one of its next occurrences.
    std::vector<size_t> next(pieces.size(), SIZE_MAX);
    std::vector<size_t> last(shapes_.size(), SIZE_MAX);
    for (size_t i = pieces.size(); i-- > 0;) {
      next[i] = last[pieces[i].shape];
      last[pieces[i].shape] = i;
    }
    constexpr size_t kCandidates = 4, kMaxPeriod = 256;
    for (size_t i = 0; i < pieces.size();) {
      size_t best_period = 0, best_count = 1;
      int32_t best_stride = 0;
      size_t j = next[i];
      for (size_t tried = 0; tried < kCandidates && j != SIZE_MAX && j - i <= kMaxPeriod;
           ++tried, j = next[j]) {
        size_t period = j - i;
        int32_t stride = pieces[j].base - pieces[i].base;
        size_t count = 1;
        for (bool same = true; same;) {
          size_t at = i + count * period;
          if (at + period > pieces.size()) break;
          for (size_t k = 0; same && k < period; ++k) {
            const Piece& a = pieces[i + k];
            const Piece& b = pieces[at + k];
            int32_t shift = a.base < 0 ? 0 : stride * static_cast<int32_t>(count);
            same = a.shape == b.shape && b.base - a.base == shift;
          }
          if (same) ++count;
        }
        if (count > 1 && count * period > best_count * best_period) {
          best_period = period;
          best_count = count;
          best_stride = stride;
        }
      }
      if (best_period > 0) {
        std::string body;
        for (size_t k = 0; k < best_period; ++k)
          body += (k ? "; " : "") + PieceText(order.items, pieces[i + k]);
        Line("  repeat {} stride {} {{ {} }}", best_count, best_stride, body);
        i += best_count * best_period;
      } else {
        Line("  {}", PieceText(order.items, pieces[i]));
        ++i;
      }
    }
    Line("}}");
  }

  void PrintExpression() {
    const GradientExpression& e = dag_.expression;
    Line("expression replicas {} microbatches {}{}{}", e.replicas, e.microbatches,
         e.reduce_per_microbatch ? " per_microbatch" : "", e.pairwise ? " pairwise" : "");
    for (size_t region = 0; region < e.copy_ranges.size(); ++region) {
      std::string ranges;
      for (auto [begin, end] : e.copy_ranges[region]) ranges += fmt::format(" {} {}", begin, end);
      Line("copies {}{}", region, ranges);
    }
    for (const GradientExpression::Permutation& p : e.permuted)
      Line("permuted {} copy {} {}", p.region, p.copy, fmt::join(p.microbatches, " "));
  }

  const Dag& dag_;
  const SourceManager* sources_;
  std::string out_;
  std::map<std::vector<int64_t>, uint32_t> shapes_;
};

}  // namespace

std::string DagToText(const Dag& dag, const SourceManager* sources) { return Printer(dag, sources).Print(); }

}  // namespace piper::ir
