#include "tools/graph_dot.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "ir/dag/stage_copies.h"
#include "ir/support/units.h"

namespace piper::tools {
namespace {

std::string Quote(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    }
  }
  return out + '"';
}

// A graph in the making: nodes in nested clusters, then edges; the same edge twice is one with a count.
class DotWriter {
 public:
  DotWriter(std::string_view name, std::string_view title) {
    text_ = fmt::format(
        "digraph {} {{\n  label={}; labelloc=t; fontname=\"Helvetica\"; rankdir=TB; compound=true;\n"
        "  node [shape=box, style=\"filled,rounded\", fillcolor=\"#f4f5f7\", color=\"#8a9099\", "
        "fontname=\"Helvetica\", "
        "fontsize=11];\n"
        "  edge [color=\"#59636e\", fontname=\"Helvetica\", fontsize=9];\n",
        Quote(name), Quote(title));
  }
  void Open(std::string_view label) {
    Indent();
    text_ += fmt::format("subgraph cluster_{} {{\n", clusters_++);
    ++depth_;
    Indent();
    text_ += fmt::format("label={}; color=\"#c3c9d2\"; fontsize=12;\n", Quote(label));
  }
  void Close() {
    --depth_;
    Indent();
    text_ += "}\n";
  }
  void Node(const std::string& id, std::string_view label, std::string_view more = "") {
    Indent();
    text_ += fmt::format("{} [label={}{}{}];\n", id, Quote(label), more.empty() ? "" : ", ", more);
  }
  void Edge(const std::string& from, const std::string& to, const std::string& label, bool dashed = false) {
    if (from == to) return;
    const auto key = std::tuple(from, to, label, dashed);
    const auto [it, fresh] = edge_at_.emplace(key, edges_.size());
    if (fresh) {
      edges_.push_back({from, to, label, dashed, 1});
    } else {
      ++edges_[it->second].count;
    }
  }
  std::string Finish() {
    for (const EdgeRow& edge : edges_) {
      std::string label = edge.label;
      if (edge.count > 1 && !label.empty()) label += fmt::format(" (x{})", edge.count);
      std::string more = label.empty() ? "" : "label=" + Quote(label);
      if (edge.dashed) more += fmt::format("{}style=dashed", more.empty() ? "" : ", ");
      text_ += fmt::format("  {} -> {}{};\n", edge.from, edge.to, more.empty() ? "" : " [" + more + "]");
    }
    return text_ + "}\n";
  }

 private:
  struct EdgeRow {
    std::string from, to, label;
    bool dashed;
    int count;
  };
  void Indent() { text_.append(static_cast<size_t>(2 * depth_), ' '); }

  std::string text_;
  int depth_ = 1, clusters_ = 0;
  std::vector<EdgeRow> edges_;
  std::map<std::tuple<std::string, std::string, std::string, bool>, size_t> edge_at_;
};

constexpr std::string_view kGreen = "fillcolor=\"#cfe8d5\"", kBlue = "fillcolor=\"#d5e3fb\"",
                           kTeal = "fillcolor=\"#cdebeb\"", kAmber = "fillcolor=\"#fdecc8\"",
                           kPink = "fillcolor=\"#f8dcea\"", kGrey = "fillcolor=\"#e2e5ea\"";

std::string LastPart(const std::string& name) { return name.substr(name.rfind('.') + 1); }

// ---- the model

class ModelWriter {
 public:
  explicit ModelWriter(const ir::RegionGraph& regions) : regions_(regions), graph_(regions.graph) {}

  std::optional<std::string> Write() {
    std::string outer_of_before;
    for (const ir::Region& region : regions_.regions) {
      const ir::TagPath& path = graph_.tag_paths[region.tags];
      const std::string outer = path.empty() ? "no tag" : path[0].name + " " + std::to_string(path[0].index);
      // An instance of a tag is one run in model order, however many regions it has.
      if (outers_.empty() || outer != outer_of_before) outers_.push_back(outer);
      outer_of_before = outer;
      outer_of_.push_back(outers_.size() - 1);
    }
    const size_t inputs = graph_.inputs.size();
    size_t operations = 0;
    for (const ir::Region& region : regions_.regions) operations += region.last - region.first;
    form_ = operations + inputs <= kDotNodes                ? Form::kOperations
            : regions_.regions.size() + inputs <= kDotNodes ? Form::kRegions
                                                            : Form::kTags;
    if (outers_.size() + inputs > kMaxDotNodes) return std::nullopt;
    DotWriter dot(graph_.name, graph_.name + Title(operations));
    for (ir::InputId i = 0; i < inputs; ++i) {
      dot.Node(fmt::format("input{}", i), graph_.inputs[i].name + "\n" + graph_.inputs[i].type.ToString(),
               "shape=parallelogram");
    }
    Nodes(&dot);
    for (const ir::Region& region : regions_.regions) Edges(region, &dot);
    for (size_t l = 0; l < graph_.losses.size(); ++l) {
      const std::string id = fmt::format("loss{}", l);
      dot.Node(id, graph_.losses[l].name, fmt::format("shape=ellipse, {}", kPink));
      dot.Edge(IdOf(graph_.losses[l].value), id, "");
    }
    if (form_ != Form::kOperations) Ties(&dot);
    return dot.Finish();
  }

 private:
  enum class Form { kOperations, kRegions, kTags };

  std::string Title(size_t operations) const {
    switch (form_) {
      case Form::kOperations:
        return "";
      case Form::kRegions:
        return fmt::format(": {} operations, folded to regions", operations);
      default:
        return fmt::format(": {} operations in {} regions, folded to tags", operations,
                           regions_.regions.size());
    }
  }

  std::string RegionId(ir::RegionId region) const {
    return form_ == Form::kTags ? fmt::format("tag{}", outer_of_[region]) : fmt::format("region{}", region);
  }
  // The node that computes a value; inputs have their own, parameters none ("").
  std::string IdOf(ir::ValueId id) const {
    const ir::Value& value = graph_.values[id];
    if (value.source == ir::Value::Source::kInput) return fmt::format("input{}", value.index);
    if (value.source == ir::Value::Source::kParameter) return "";
    if (form_ == Form::kOperations) return fmt::format("op{}", value.index);
    const ir::RegionId region = regions_.value_region[id];
    return region == ir::kNone ? "" : RegionId(region);
  }

  std::string ParameterText(const std::set<ir::ParameterId>& parameters) const {
    int64_t elements = 0;
    for (ir::ParameterId parameter : parameters) elements += graph_.parameters[parameter].type.elements();
    return parameters.empty() ? "" : fmt::format("\n{} parameters, {} elements", parameters.size(), elements);
  }

  void Nodes(DotWriter* dot) {
    for (size_t r = 0; r < regions_.regions.size();) {
      const size_t outer = outer_of_[r];
      size_t end = r;
      while (end < regions_.regions.size() && outer_of_[end] == outer) ++end;
      if (form_ == Form::kTags) {
        std::set<ir::ParameterId> parameters;
        for (size_t i = r; i < end; ++i) {
          parameters.insert(regions_.regions[i].parameters.begin(), regions_.regions[i].parameters.end());
        }
        dot->Node(fmt::format("tag{}", outer), outers_[outer] + ParameterText(parameters), kBlue);
      } else {
        dot->Open(outers_[outer]);
        for (size_t i = r; i < end; ++i) RegionNodes(regions_.regions[i], dot);
        dot->Close();
      }
      r = end;
    }
  }

  void RegionNodes(const ir::Region& region, DotWriter* dot) {
    if (form_ == Form::kRegions) {
      dot->Node(fmt::format("region{}", region.id),
                region.name + ParameterText({region.parameters.begin(), region.parameters.end()}), kBlue);
      return;
    }
    dot->Open(region.name);
    for (ir::OpId o = region.first; o < region.last; ++o) {
      const ir::Operation& operation = graph_.operations[o];
      std::string label = operation.kind;
      std::string weights;
      for (ir::ValueId operand : operation.operands) {
        if (graph_.values[operand].source != ir::Value::Source::kParameter) continue;
        weights +=
            (weights.empty() ? "" : ", ") + LastPart(graph_.parameters[graph_.values[operand].index].name);
      }
      if (!weights.empty()) label += "\n" + weights;
      dot->Node(fmt::format("op{}", o), label, weights.empty() ? "" : kBlue);
    }
    dot->Close();
  }

  void Edges(const ir::Region& region, DotWriter* dot) {
    for (ir::OpId o = region.first; o < region.last; ++o) {
      const std::string to = form_ == Form::kOperations ? fmt::format("op{}", o) : RegionId(region.id);
      for (ir::ValueId operand : graph_.operations[o].operands) {
        const std::string from = IdOf(operand);
        if (!from.empty()) dot->Edge(from, to, graph_.values[operand].type.ToString());
      }
    }
  }

  // A parameter that several nodes use.
  void Ties(DotWriter* dot) {
    std::map<ir::ParameterId, std::vector<std::string>> users;
    for (const ir::Region& region : regions_.regions) {
      for (ir::ParameterId parameter : region.parameters) {
        std::vector<std::string>& of = users[parameter];
        if (of.empty() || of.back() != RegionId(region.id)) of.push_back(RegionId(region.id));
      }
    }
    for (const auto& [parameter, of] : users) {
      for (size_t i = 1; i < of.size(); ++i) {
        dot->Edge(of[0], of[i], "tied " + graph_.parameters[parameter].name, true);
      }
    }
  }

  const ir::RegionGraph& regions_;
  const ir::Graph& graph_;
  std::vector<std::string> outers_;
  std::vector<size_t> outer_of_;  // per region
  Form form_ = Form::kOperations;
};

// ---- the DAG

class DagWriter {
 public:
  DagWriter(const ir::Dag& dag, const ir::Program& program)
      : dag_(dag), stage_tag_(ir::StageTag(program)), name_(program.name) {}

  std::optional<std::string> Write() {
    folded_ = dag_.templates.size() > kDotNodes;
    // (group, stage) -> nodes, each once, in the order of their first template.
    std::map<ir::GroupId, std::map<int64_t, std::vector<ir::TemplateId>>> clusters;
    std::map<std::string, size_t> count;
    for (ir::TemplateId t = 0; t < dag_.templates.size(); ++t) {
      const std::string id = IdOf(t);
      if (++count[id] == 1) clusters[dag_.templates[t].group][StageOf(dag_.templates[t])].push_back(t);
    }
    if (count.size() > kMaxDotNodes) return std::nullopt;
    std::string title = fmt::format("{}: {} microbatches", name_, dag_.microbatches);
    if (folded_) title += fmt::format(", {} templates folded to passes of stages", dag_.templates.size());
    DotWriter dot(name_, title);
    for (const auto& [group, stages] : clusters) {
      dot.Open(GroupText(group));
      for (const auto& [stage, templates] : stages) {
        if (stage >= 0) dot.Open(fmt::format("{} {}", stage_tag_, stage));
        for (ir::TemplateId t : templates)
          dot.Node(IdOf(t), Label(t, count[IdOf(t)]), Look(dag_.templates[t]));
        if (stage >= 0) dot.Close();
      }
      dot.Close();
    }
    for (const ir::TemplateEdge& edge : dag_.edges) AddEdge(edge.from, edge.to, edge.data, 0, &dot);
    for (const ir::TemporalEdge& edge : dag_.temporal) {
      AddEdge(dag_.TemplateOf(edge.from), dag_.TemplateOf(edge.to), false, edge.distance, &dot);
    }
    return dot.Finish();
  }

 private:
  int64_t StageOf(const ir::NodeTemplate& node) const {
    for (const ir::TagInstance& tag : node.tags) {
      if (tag.name == stage_tag_) return tag.index;
    }
    return -1;
  }
  std::string Word(const ir::NodeTemplate& node) const {
    switch (node.kind) {
      case ir::NodeKind::kCompute:
        switch (node.pass) {
          case ir::Pass::kF:
            return "F";
          case ir::Pass::kBI:
            return "BI";
          case ir::Pass::kBW:
            return "BW";
          default:
            return "R";
        }
      case ir::NodeKind::kSend:
      case ir::NodeKind::kRecv:
        return std::string(ir::NodeKindName(node.kind)) + (node.cotangent ? " cotangent" : " value");
      default:
        return std::string(ir::NodeKindName(node.kind));
    }
  }
  std::string IdOf(ir::TemplateId t) const {
    if (!folded_) return fmt::format("t{}", t);
    const ir::NodeTemplate& node = dag_.templates[t];
    std::string word = Word(node);
    std::replace_if(
        word.begin(), word.end(), [](char c) { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z'); }, '_');
    return fmt::format("g{}_s{}_c{}_{}", node.group, StageOf(node) + 1, node.copy, word);
  }
  std::string Label(ir::TemplateId t, size_t templates) const {
    const ir::NodeTemplate& node = dag_.templates[t];
    std::string text = folded_ ? Word(node) : node.name;
    if (folded_ && templates > 1) text += fmt::format("\n{} templates", templates);
    if (!node.step_level()) {
      text += node.node_count() == 1 ? fmt::format("\nmb {}", node.mb_begin)
                                     : fmt::format("\nmb {}..{}", node.mb_begin, node.mb_end);
    }
    return text;
  }
  static std::string_view Look(const ir::NodeTemplate& node) {
    switch (node.kind) {
      case ir::NodeKind::kCompute:
        return node.pass == ir::Pass::kF    ? kBlue
               : node.pass == ir::Pass::kBI ? kTeal
               : node.pass == ir::Pass::kBW ? kAmber
                                            : kGrey;
      case ir::NodeKind::kSend:
      case ir::NodeKind::kRecv:
        return "shape=ellipse";
      case ir::NodeKind::kAccumulate:
      case ir::NodeKind::kUpdate:
        return kGreen;
      default:
        return "shape=hexagon, style=filled";
    }
  }
  std::string GroupText(ir::GroupId group) const {
    const ir::Group& g = dag_.groups[group];
    std::string text = g.text + ": rank ";
    for (size_t i = 0; i < g.devices.size(); ++i) {
      if (i == 8) return text + ", ..";
      text += fmt::format("{}{}", i == 0 ? "" : ", ", g.devices[i]);
    }
    return text;
  }

  void AddEdge(ir::TemplateId from, ir::TemplateId to, bool data, int32_t distance, DotWriter* dot) {
    const ir::NodeTemplate &a = dag_.templates[from], &b = dag_.templates[to];
    std::string label;
    if (!data) {
      label = distance > 0 ? "next step" : "before";
    } else if (a.kind == ir::NodeKind::kSend && b.kind == ir::NodeKind::kRecv) {
      label = ir::FormatBytes(a.cost_bytes >= 0 ? a.cost_bytes : a.bytes);
    } else if (!a.step_level() && b.step_level() && a.node_count() > 1) {
      label = fmt::format("all {}", a.node_count());
    }
    dot->Edge(IdOf(from), IdOf(to), label, !data);
  }

  const ir::Dag& dag_;
  std::string stage_tag_, name_;
  bool folded_ = false;
};

}  // namespace

std::optional<std::string> ModelDot(const ir::RegionGraph& regions) { return ModelWriter(regions).Write(); }

std::optional<std::string> DagDot(const ir::Dag& dag, const ir::Program& program) {
  return DagWriter(dag, program).Write();
}

}  // namespace piper::tools
