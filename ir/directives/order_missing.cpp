#include "ir/directives/order_missing.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

namespace piper::ir {

namespace {

class MissingSteps {
 public:
  MissingSteps(BuildContext& context, const Directive& directive, GroupId host,
               const std::vector<TemplateId>& wanted, const std::vector<uint32_t>& listed, OriginId foreign)
      : context_(context),
        dag_(context.dag),
        diag_(context.diag),
        directive_(directive),
        host_(host),
        wanted_(wanted),
        listed_(listed),
        foreign_(foreign) {}

  void Report() {
    const bool complete = std::all_of(wanted_.begin(), wanted_.end(), [&](TemplateId t) {
      const auto first = listed_.begin() + dag_.first_node[t], end = listed_.begin() + dag_.first_node[t + 1];
      return std::find(first, end, 0u) == end;
    });
    if (complete) return;
    // Mostly a whole step is left out, B[stage = 0, mb = 1] say: then it is one report.
    struct Left {
      TemplateId first = 0;
      NodeId node = 0;
      int64_t nodes = 0, missing = 0;
      bool whole() const { return missing == nodes; }
    };
    std::map<std::tuple<int64_t, int32_t, Pass>, Left> steps;  // by stage, microbatch, pass
    for (TemplateId t : wanted_) {
      const NodeTemplate& node = dag_.templates[t];
      for (NodeId id = dag_.first_node[t]; id < dag_.first_node[t + 1]; ++id) {
        Left& left = steps[{StageOf(node), Microbatch(t, id), node.pass}];
        ++left.nodes;
        if (listed_[id] != 0) continue;
        if (left.missing++ == 0) left.first = t, left.node = id;
      }
    }
    constexpr size_t kShown = 3;
    size_t missing = 0;
    for (auto& [key, left] : steps) {
      if (left.missing == 0) continue;
      const auto& [stage, mb, pass] = key;
      auto other = steps.find({stage, mb, pass == Pass::kBI ? Pass::kBW : Pass::kBI});
      bool both = pass != Pass::kF && left.whole() && other != steps.end() && other->second.whole() &&
                  other->second.missing > 0;
      if (both) other->second.missing = 0;  // said here
      if (left.whole()) {
        if (++missing > kShown) continue;
        std::string name =
            fmt::format("{}[{}{}]", both ? "B" : PassName(pass),
                        stage < 0 ? "" : fmt::format("{} = {}, ", context_.stage_tag, stage), Split(mb));
        ReportOne(left.first, left.node, name);
        continue;
      }
      for (TemplateId t : wanted_) {
        const NodeTemplate& node = dag_.templates[t];
        if (node.pass != pass || StageOf(node) != stage) continue;
        if (mb < node.mb_begin || mb >= node.mb_end) continue;
        NodeId id = dag_.first_node[t] + static_cast<NodeId>(mb - node.mb_begin);
        if (listed_[id] != 0 || ++missing > kShown) continue;
        std::string tags;
        for (const TagInstance& tag : node.tags) tags += fmt::format("{} = {}, ", tag.name, tag.index);
        ReportOne(t, id, fmt::format("{}[{}{}]", PassName(pass), tags, Split(mb)));
      }
    }
    if (missing > kShown)
      diag_.Error(directive_.range, DiagKind::kOrderMissing,
                  fmt::format("{} more steps are missing from the order on {}", missing - kShown,
                              dag_.groups[host_].text));
  }

 private:
  // -1 without a cut.
  int64_t StageOf(const NodeTemplate& node) const {
    for (const TagInstance& tag : node.tags) {
      if (tag.name == context_.stage_tag) return tag.index;
    }
    return -1;
  }

  int32_t Microbatch(TemplateId t, NodeId id) const {
    return dag_.templates[t].mb_begin + static_cast<int32_t>(id - dag_.first_node[t]);
  }

  // "dir = 0, mb = 3"
  std::string Split(int64_t mb) const {
    std::string split;
    for (size_t i = dag_.split_dims.size(); i-- > 0;) {
      const auto& [name, size] = dag_.split_dims[i];
      split = fmt::format("{} = {}{}{}", name, mb % size, split.empty() ? "" : ", ", split);
      mb /= size;
    }
    return split;
  }

  // Where an order of other hosts lists a step of this one: most likely it was meant for here.
  SourceRange ListedElsewhere(TemplateId t, int32_t mb) const {
    for (const Directive& directive : context_.program.directives) {
      const auto* order = std::get_if<OrderDirective>(&directive.body);
      if (order == nullptr || &directive == &directive_) continue;
      for (const auto& [stream, schedule] : order->streams) {
        for (const Step& step : schedule.steps) {
          if (step.kind == Step::Kind::kSelect && Selects(context_, step.select, {dag_.first_node[t], t, mb}))
            return step.range;
        }
      }
    }
    return {};
  }

  void ReportOne(TemplateId t, NodeId id, const std::string& name) {
    // The nearest listed instance of the same template shows where it belongs.
    NodeId near = id;
    for (NodeId distance = 1; distance < dag_.first_node[t + 1] - dag_.first_node[t] && near == id;
         ++distance) {
      if (id >= dag_.first_node[t] + distance && listed_[id - distance] != 0)
        near = id - distance;
      else if (id + distance < dag_.first_node[t + 1] && listed_[id + distance] != 0)
        near = id + distance;
    }
    auto error = diag_.Error(directive_.range, DiagKind::kOrderMissing,
                             fmt::format("the order on {} leaves out {}{}", dag_.groups[host_].text, name,
                                         dag_.templates[t].stream == context_.compute_streams[0]
                                             ? ""
                                             : " of stream " + NameText(dag_.templates[t].stream)));
    if (const SourceRange elsewhere = ListedElsewhere(t, Microbatch(t, id)); elsewhere.valid())
      error.Note(elsewhere, "another order lists it here, which does not make it run there");
    if (near != id) {
      error.Note(dag_.origins[listed_[near] - 1], fmt::format("{} is listed here", dag_.NodeName(near)));
      error.Hint(near < id ? "it belongs after that" : "it belongs before that");
    } else {
      if (foreign_ != 0) error.Note(dag_.origins[foreign_], "this step is another group's");
      error.Hint("every F, BI and BW of an ordered compute stream is listed exactly once");
    }
  }

  BuildContext& context_;
  const Dag& dag_;
  DiagnosticEngine& diag_;
  const Directive& directive_;
  const GroupId host_;
  const std::vector<TemplateId>& wanted_;
  const std::vector<uint32_t>& listed_;
  const OriginId foreign_;
};

}  // namespace

void ReportMissingSteps(BuildContext& context, const Directive& order, GroupId host,
                        const std::vector<TemplateId>& wanted, const std::vector<uint32_t>& listed,
                        OriginId foreign) {
  MissingSteps(context, order, host, wanted, listed, foreign).Report();
}

}  // namespace piper::ir
