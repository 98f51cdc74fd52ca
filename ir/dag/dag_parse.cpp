#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>

#include "ir/dag/dag_text.h"
#include "ir/dag/verifier.h"

namespace piper::ir {

namespace {

constexpr NodeKind kKinds[] = {NodeKind::kCompute,   NodeKind::kSend,          NodeKind::kRecv,
                               NodeKind::kPermute,   NodeKind::kReduce,        NodeKind::kAllReduce,
                               NodeKind::kAllGather, NodeKind::kReduceScatter, NodeKind::kAllToAll,
                               NodeKind::kBroadcast, NodeKind::kAccumulate,    NodeKind::kUpdate,
                               NodeKind::kFree,      NodeKind::kOffload,       NodeKind::kPrefetch,
                               NodeKind::kNorm,      NodeKind::kClip,          NodeKind::kLossFold,
                               NodeKind::kSave,      NodeKind::kValidate,      NodeKind::kPartial};
// No honest plan has more; a text that asks for more is refused before it is allocated.
constexpr int64_t kMaxNodes = int64_t{1} << 28;
constexpr int64_t kMaxDevices = int64_t{1} << 24;

struct Token {
  enum class Kind : uint8_t { kWord, kString, kNumber, kPunctuation, kEndOfLine, kEnd } kind = Kind::kEnd;
  std::string text;  // unescaped
  SourceRange range;
};

class Parser {
 public:
  Parser(FileId file, DiagnosticEngine& diag) : file_(file), text_(diag.sources().Text(file)), diag_(diag) {
    Advance();
  }

  std::optional<Dag> Parse() {
    while (!failed_ && token_.kind != Token::Kind::kEnd) {
      if (token_.kind == Token::Kind::kEndOfLine) {
        Advance();
        continue;
      }
      ParseStatement();
    }
    if (failed_) return std::nullopt;
    if (!numbered_) NumberNodes();
    if (failed_) return std::nullopt;
    std::vector<DagProblem> problems = VerifyDag(dag_);
    for (const DagProblem& problem : problems) {
      SourceRange at = problem.at != kNone ? node_ranges_[problem.at] : first_line_;
      diag_.Error(at, DiagKind::kBadIrText, problem.message);
    }
    if (!problems.empty()) return std::nullopt;
    return std::move(dag_);
  }

 private:
  // ---- tokens
  // ---------------------------------------------------------------------------------------------------

  SourceRange Range(size_t begin, size_t end) const {
    return {file_, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
  }

  void Advance() {
    while (at_ < text_.size()) {
      char c = text_[at_];
      if (c == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '/') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++at_;
      } else {
        break;
      }
    }
    size_t begin = at_;
    token_.text.clear();
    if (at_ == text_.size()) {
      token_.kind = Token::Kind::kEnd;
      token_.range = Range(begin, begin);
      return;
    }
    char c = text_[at_];
    if (c == '\n') {
      ++at_;
      token_.kind = Token::Kind::kEndOfLine;
    } else if (c == '"') {
      token_.kind = Token::Kind::kString;
      for (++at_; at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n'; ++at_) {
        if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
          ++at_;
          token_.text += text_[at_] == 'n' ? '\n' : text_[at_];
        } else {
          token_.text += text_[at_];
        }
      }
      if (at_ == text_.size() || text_[at_] != '"') {
        token_.range = Range(begin, at_);
        Fail("this name is not closed", "names end in a double quote on the same line");
        return;
      }
      ++at_;
    } else if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
      token_.kind = Token::Kind::kWord;
      while (at_ < text_.size() &&
             (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' || text_[at_] == '.'))
        ++at_;
      token_.text = text_.substr(begin, at_ - begin);
    } else if (std::isdigit(static_cast<unsigned char>(c)) ||
               (c == '-' && at_ + 1 < text_.size() &&
                std::isdigit(static_cast<unsigned char>(text_[at_ + 1])))) {
      token_.kind = Token::Kind::kNumber;
      for (++at_; at_ < text_.size(); ++at_) {
        char d = text_[at_];
        bool exponent_sign = (d == '+' || d == '-') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E');
        if (!std::isalnum(static_cast<unsigned char>(d)) && d != '.' && !exponent_sign) break;
      }
      token_.text = text_.substr(begin, at_ - begin);
    } else {
      token_.kind = Token::Kind::kPunctuation;
      at_ += c == '-' && at_ + 1 < text_.size() && text_[at_ + 1] == '>' ? 2 : 1;
      token_.text = text_.substr(begin, at_ - begin);
    }
    token_.range = Range(begin, at_);
  }

  void Fail(std::string message, std::string hint = "") {
    FailAt(token_.range, std::move(message), std::move(hint));
  }

  void FailAt(SourceRange range, std::string message, std::string hint = "") {
    if (failed_) return;
    failed_ = true;
    auto error = diag_.Error(range, DiagKind::kBadIrText, std::move(message));
    if (!hint.empty()) error.Hint(std::move(hint));
  }

  bool Is(std::string_view text) const {
    return (token_.kind == Token::Kind::kWord || token_.kind == Token::Kind::kPunctuation) &&
           token_.text == text;
  }
  bool Accept(std::string_view text) {
    if (failed_ || !Is(text)) return false;
    Advance();
    return true;
  }
  void Expect(std::string_view text) {
    if (!Accept(text)) Fail(fmt::format("expected '{}'", text));
  }
  bool AtNumber() const { return !failed_ && token_.kind == Token::Kind::kNumber; }

  int64_t Int(int64_t low = INT64_MIN, int64_t high = INT64_MAX) {
    int64_t value = 0;
    if (failed_) return low > 0 ? low : 0;
    const char* begin = token_.text.data();
    const char* end = begin + token_.text.size();
    auto result = std::from_chars(begin, end, value);
    if (token_.kind != Token::Kind::kNumber || result.ec != std::errc() || result.ptr != end) {
      Fail("expected an integer");
      return low > 0 ? low : 0;
    }
    if (value < low || value > high) {
      Fail(fmt::format("{} is out of range", value), fmt::format("it lies between {} and {}", low, high));
      return low > 0 ? low : 0;
    }
    Advance();
    return value;
  }

  double Number() {
    double value = 0;
    if (failed_) return 0;
    const char* begin = token_.text.data();
    const char* end = begin + token_.text.size();
    auto result = std::from_chars(begin, end, value);
    if (token_.kind != Token::Kind::kNumber || result.ec != std::errc() || result.ptr != end ||
        !std::isfinite(value)) {
      Fail("expected a number");
      return 0;
    }
    Advance();
    return value;
  }

  std::string Name() {
    if (failed_) return "";
    if (token_.kind != Token::Kind::kString && token_.kind != Token::Kind::kWord) {
      Fail("expected a name");
      return "";
    }
    std::string name = std::move(token_.text);
    Advance();
    return name;
  }

  GroupId GroupNamed() {
    SourceRange range = token_.range;
    std::string name = Name();
    auto it = groups_.find(name);
    if (it != groups_.end()) return it->second;
    FailAt(range, fmt::format("no group is called '{}'", name));
    return 0;
  }

  TemplateId NodeNamed() {
    SourceRange range = token_.range;
    std::string name = Name();
    auto it = nodes_.find(name);
    if (it != nodes_.end()) return it->second;
    FailAt(range, fmt::format("no node is called '{}'", name));
    return kNone;
  }

  OriginId OriginNamed() {
    return static_cast<OriginId>(Int(0, static_cast<int64_t>(dag_.origins.size()) - 1));
  }

  void EndLine() {
    if (failed_) return;
    if (token_.kind != Token::Kind::kEndOfLine && token_.kind != Token::Kind::kEnd)
      Fail("expected the end of the line");
  }

  // ---- statements
  // -----------------------------------------------------------------------------------------------

  void ParseStatement() {
    if (!first_line_.valid()) first_line_ = token_.range;
    if (Accept("dag")) return ParseHeader();
    if (Accept("split")) {
      std::string name = Name();
      dag_.split_dims.emplace_back(std::move(name), Int(1));
    } else if (Accept("replica")) {
      while (AtNumber()) dag_.device_replica.push_back(static_cast<uint32_t>(Int(0, kMaxDevices)));
    } else if (Accept("origin")) {
      ParseOrigin();
    } else if (Accept("group")) {
      ParseGroup();
    } else if (Accept("node")) {
      ParseNode();
    } else if (Accept("edge")) {
      ParseEdge();
    } else if (Accept("after")) {
      ParseAfter();
    } else if (Accept("slowdown")) {
      const NameId stream = InternName(Name()), with = InternName(Name());
      dag_.slowdowns.push_back({stream, with, static_cast<uint32_t>(Int(1000, 2000))});
    } else if (Accept("order")) {
      ParseOrder();
    } else if (Accept("expression")) {
      Expect("replicas");
      dag_.expression.replicas = Int(1);
      Expect("microbatches");
      dag_.expression.microbatches = Int(1);
      dag_.expression.reduce_per_microbatch = Accept("per_microbatch");
      dag_.expression.pairwise = Accept("pairwise");
    } else if (Accept("copies")) {
      Int(static_cast<int64_t>(dag_.expression.copy_ranges.size()),
          static_cast<int64_t>(dag_.expression.copy_ranges.size()));
      dag_.expression.copy_ranges.emplace_back();
      while (AtNumber()) {
        auto begin = static_cast<int32_t>(Int(0, INT32_MAX));
        dag_.expression.copy_ranges.back().emplace_back(begin, static_cast<int32_t>(Int(begin, INT32_MAX)));
      }
    } else if (Accept("permuted")) {
      GradientExpression::Permutation permutation;
      permutation.region = static_cast<RegionId>(Int(0, UINT32_MAX - 1));
      Expect("copy");
      permutation.copy = static_cast<uint32_t>(Int(0, UINT32_MAX - 1));
      while (AtNumber()) permutation.microbatches.push_back(static_cast<int32_t>(Int(0, INT32_MAX)));
      dag_.expression.permuted.push_back(std::move(permutation));
    } else {
      Fail("expected a statement",
           "statements are dag, split, replica, origin, group, node, edge, after, order, expression, copies "
           "and permuted");
    }
    EndLine();
  }

  void ParseHeader() {
    Expect("devices");
    dag_.device_count = static_cast<uint32_t>(Int(1, kMaxDevices));
    Expect("replicas");
    dag_.replicas = Int(1, kMaxDevices);
    Expect("microbatches");
    dag_.microbatches = Int(1, INT32_MAX);
    Expect("samples");
    dag_.samples_per_microbatch = Int(0);
    dag_.forward_only = Accept("forward_only");
    EndLine();
  }

  void ParseOrigin() {
    Int(static_cast<int64_t>(dag_.origins.size()), static_cast<int64_t>(dag_.origins.size()));
    if (Accept("nowhere")) {
      dag_.origins.emplace_back();
      return;
    }
    std::string name = Name();
    auto begin = static_cast<uint32_t>(Int(0, UINT32_MAX));
    auto end = static_cast<uint32_t>(Int(begin, UINT32_MAX));
    SourceRange range;
    const SourceManager& sources = diag_.sources();
    for (FileId file = 0; file < sources.file_count() && !range.valid(); ++file) {
      if (sources.Name(file) == name && end <= sources.Text(file).size()) range = {file, begin, end};
    }
    dag_.origins.push_back(range);
  }

  void ParseGroup() {
    Group group;
    SourceRange range = token_.range;
    group.text = Name();
    while (AtNumber()) group.devices.push_back(static_cast<uint32_t>(Int(0, kMaxDevices)));
    if (!groups_.emplace(group.text, static_cast<GroupId>(dag_.groups.size())).second)
      FailAt(range, fmt::format("two groups are called '{}'", group.text));
    dag_.groups.push_back(std::move(group));
  }

  void ParseNode() {
    NodeTemplate node;
    SourceRange range = token_.range;
    node.name = Name();
    std::string kind = Name();
    auto found = std::find_if(std::begin(kKinds), std::end(kKinds),
                              [&](NodeKind k) { return NodeKindName(k) == kind; });
    if (found == std::end(kKinds)) return Fail(fmt::format("there is no kind of node called '{}'", kind));
    node.kind = *found;
    std::string match;
    SourceRange match_range;
    while (!failed_ && token_.kind == Token::Kind::kWord) {
      SourceRange at = token_.range;
      std::string key = Name();
      if (key == "pass") {
        std::string pass = Name();
        for (Pass candidate : {Pass::kF, Pass::kBI, Pass::kBW, Pass::kR, Pass::kU}) {
          if (PassName(candidate) == pass) node.pass = candidate;
        }
        if (node.pass == Pass::kNone) FailAt(at, fmt::format("there is no pass '{}'", pass));
      } else if (key == "region") {
        node.region = Id();
      } else if (key == "copy") {
        node.copy = Id();
      } else if (key == "on") {
        node.group = GroupNamed();
      } else if (key == "stream") {
        node.stream = InternName(Name());
      } else if (key == "step") {
        node.mb_begin = -1;
        node.mb_end = 0;
      } else if (key == "mb") {
        node.mb_begin = static_cast<int32_t>(Int(0, INT32_MAX));
        node.mb_end = static_cast<int32_t>(Int(0, INT32_MAX));
      } else if (key == "names") {
        Expect("{");
        while (!failed_ && !Accept("}")) node.names.push_back(InternName(Name()));
      } else if (key == "tags") {
        Expect("{");
        while (!failed_ && !Accept("}")) {
          std::string tag = Name();
          node.tags.push_back({std::move(tag), Int(0)});
        }
      } else if (key == "value") {
        node.value = Id();
      } else if (key == "cotangent") {
        node.cotangent = true;
      } else if (key == "consumer") {
        node.consumer = Id();
      } else if (key == "peer") {
        node.peer_group = GroupNamed();
      } else if (key == "match") {
        match_range = token_.range;
        match = Name();
      } else if (key == "parameter") {
        node.parameter = Id();
      } else if (key == "gradients") {
        Expect("{");
        while (!failed_ && !Accept("}")) {
          GradientRef gradient;
          Expect("(");
          gradient.parameter = Id();
          gradient.region = Id();
          gradient.copy = Id();
          Expect(")");
          node.gradients.push_back(gradient);
        }
      } else if (key == "per_replica") {
        node.per_replica = true;
      } else if (key == "carried") {
        node.carried = true;
      } else if (key == "pairwise") {
        node.pairwise = true;
      } else if (key == "scale") {
        node.scale = Number();
      } else if (key == "cost") {
        node.cost = Int(0);
      } else if (key == "cost_bytes") {
        node.cost_bytes = Int(0);
      } else if (key == "bytes") {
        node.bytes = Int(0);
      } else if (key == "flops") {
        node.flops = Number();
      } else if (key == "origin") {
        node.origin = OriginNamed();
      } else {
        FailAt(at, fmt::format("a node has no attribute '{}'", key));
      }
    }
    if (failed_) return;
    if (numbered_) return FailAt(range, "nodes come before `after` and `order`");
    nodes_total_ += std::max<int64_t>(node.node_count(), 0);
    if (nodes_total_ > kMaxNodes) return FailAt(range, fmt::format("more than {} nodes", kMaxNodes));
    auto id = static_cast<TemplateId>(dag_.templates.size());
    if (!nodes_.emplace(node.name, id).second)
      return FailAt(range, fmt::format("two nodes are called '{}'", node.name));
    if (!match.empty()) matches_.emplace_back(id, match, match_range);
    dag_.templates.push_back(std::move(node));
    node_ranges_.push_back(range);
  }

  uint32_t Id() { return static_cast<uint32_t>(Int(0, UINT32_MAX - 1)); }

  void ParseEdge() {
    TemplateEdge edge;
    edge.from = NodeNamed();
    Expect("->");
    edge.to = NodeNamed();
    edge.data = !Accept("temporal");
    if (Accept("origin")) edge.origin = OriginNamed();
    dag_.edges.push_back(edge);
  }

  // Resolves what refers to later nodes; from here on nodes have ids.
  void NumberNodes() {
    for (const auto& [id, name, range] : matches_) {
      auto it = nodes_.find(name);
      if (it == nodes_.end()) return FailAt(range, fmt::format("no node is called '{}'", name));
      dag_.templates[id].match = it->second;
    }
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      if (dag_.templates[t].mb_end <= dag_.templates[t].mb_begin)
        return FailAt(node_ranges_[t], fmt::format("'{}' has no instances", dag_.templates[t].name));
    }
    auto key = [](const TemplateEdge& e) { return std::tuple(e.from, e.to, !e.data, e.origin); };
    std::sort(dag_.edges.begin(), dag_.edges.end(),
              [&](const TemplateEdge& a, const TemplateEdge& b) { return key(a) < key(b); });
    dag_.Renumber();
    numbered_ = true;
  }

  NodeId Instance(int64_t shift = 0) {
    SourceRange range = token_.range;
    TemplateId t = NodeNamed();
    if (failed_) return 0;
    const NodeTemplate& node = dag_.templates[t];
    if (node.step_level()) {
      if (AtNumber()) Fail(fmt::format("'{}' has no microbatches", node.name));
      return dag_.first_node[t];
    }
    int64_t mb = Int(INT32_MIN, INT32_MAX) + shift;
    if (!failed_ && (mb < node.mb_begin || mb >= node.mb_end)) {
      FailAt(range, fmt::format("'{}' has no microbatch {}", node.name, mb),
             fmt::format("it has {}..{}", node.mb_begin, node.mb_end));
      return 0;
    }
    return failed_ ? 0 : dag_.first_node[t] + static_cast<NodeId>(mb - node.mb_begin);
  }

  void ParseAfter() {
    if (!numbered_) NumberNodes();
    TemporalEdge edge;
    edge.from = Instance();
    Expect("->");
    edge.to = Instance();
    if (Accept("distance")) edge.distance = static_cast<int32_t>(Int(0, 1));
    if (Accept("origin")) edge.origin = OriginNamed();
    dag_.temporal.push_back(edge);
  }

  // ---- orders
  // ---------------------------------------------------------------------------------------------------

  struct Piece {
    std::vector<OrderItem> items;
    bool atomic = false;
    Picoseconds cost = -1;
    SourceRange range;
  };

  void SkipLines() {
    while (!failed_ && token_.kind == Token::Kind::kEndOfLine) Advance();
  }

  OrderItem Item() {
    OrderItem item;
    item.node = Instance();
    if (Accept("@")) item.origin = OriginNamed();
    return item;
  }

  Piece ParsePiece() {
    Piece piece;
    piece.range = token_.range;
    if (!Accept("[")) {
      piece.items.push_back(Item());
      return piece;
    }
    piece.atomic = true;
    do {
      piece.items.push_back(Item());
    } while (Accept(";"));
    Expect("]");
    if (Accept("cost")) piece.cost = Int(0);
    return piece;
  }

  // Lists the piece once more, its microbatches `shift` higher.
  void Emit(const Piece& piece, int64_t shift, StreamOrder* order) {
    if (piece.atomic) {
      if (piece.cost >= 0) {
        dag_.atomic_costs.resize(std::max<size_t>(dag_.atomic_costs.size(), next_atomic_ + 1), -1);
        dag_.atomic_costs[next_atomic_] = piece.cost;
        priced_ = true;
      }
      ++next_atomic_;
    }
    for (OrderItem item : piece.items) {
      TemplateId t = dag_.TemplateOf(item.node);
      const NodeTemplate& node = dag_.templates[t];
      if (!node.step_level() && shift != 0) {
        int64_t id = static_cast<int64_t>(item.node) + shift;
        if (id < dag_.first_node[t] || id >= dag_.first_node[t + 1]) {
          int64_t mb = node.mb_begin + (id - dag_.first_node[t]);
          return FailAt(piece.range, fmt::format("'{}' has no microbatch {}", node.name, mb),
                        fmt::format("it has {}..{}", node.mb_begin, node.mb_end));
        }
        item.node = static_cast<NodeId>(id);
      }
      if (piece.atomic) item.atomic = next_atomic_ - 1;
      order->items.push_back(item);
    }
    items_total_ += static_cast<int64_t>(piece.items.size());
    if (items_total_ > kMaxNodes)
      FailAt(piece.range, fmt::format("the orders list more than {} nodes", kMaxNodes));
  }

  void ParseOrder() {
    if (!numbered_) NumberNodes();
    StreamOrder order;
    order.group = GroupNamed();
    order.stream = InternName(Name());
    if (Accept("peer")) order.peer = InternName(Name());
    if (Accept("origin")) order.origin = OriginNamed();
    Expect("{");
    SkipLines();
    while (!failed_ && !Accept("}")) {
      if (Accept("repeat")) {
        int64_t count = Int(1, kMaxNodes);
        Expect("stride");
        int64_t stride = Int(INT32_MIN, INT32_MAX);
        Expect("{");
        std::vector<Piece> pieces;
        do {
          SkipLines();
          pieces.push_back(ParsePiece());
        } while (Accept(";"));
        SkipLines();
        Expect("}");
        for (int64_t i = 0; i < count && !failed_; ++i) {
          for (const Piece& piece : pieces) {
            if (!failed_) Emit(piece, stride * i, &order);
          }
        }
      } else {
        Piece piece = ParsePiece();
        if (!failed_) Emit(piece, 0, &order);
      }
      if (failed_) return;
      if (!Is("}") && !Accept(";") && token_.kind != Token::Kind::kEndOfLine)
        Fail("expected the next item of the order, or '}'");
      SkipLines();
    }
    if (priced_) dag_.atomic_costs.resize(next_atomic_, -1);
    dag_.orders.push_back(std::move(order));
  }

  FileId file_;
  std::string_view text_;
  DiagnosticEngine& diag_;
  size_t at_ = 0;
  Token token_;
  bool failed_ = false;
  SourceRange first_line_;
  Dag dag_;
  std::unordered_map<std::string, GroupId> groups_;
  std::unordered_map<std::string, TemplateId> nodes_;
  std::vector<SourceRange> node_ranges_;
  std::vector<std::tuple<TemplateId, std::string, SourceRange>> matches_;
  bool numbered_ = false;
  int64_t nodes_total_ = 0, items_total_ = 0;
  uint32_t next_atomic_ = 0;
  bool priced_ = false;
};

}  // namespace

std::optional<Dag> ParseDag(FileId file, DiagnosticEngine& diag) { return Parser(file, diag).Parse(); }

}  // namespace piper::ir
