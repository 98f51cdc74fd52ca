#include "ir/schedule_csv/from_dag.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "ir/dag/stage_copies.h"

namespace piper::ir::schedule_csv {
namespace {

class Exporter {
 public:
  Exporter(const Dag& dag, const Program& program, DiagnosticEngine& diag) : dag_(dag), diag_(diag) {
    const std::vector<StageCopy> copies = ListStageCopies(dag, program, &key_of_);
    for (const StageCopy& copy : copies) {
      stage_of_.push_back(static_cast<int32_t>(std::max<int64_t>(copy.stage, 0)));
      copied_ = copied_ || copy.copy > 0;
    }
    for (TemplateId t = 0; t < dag.templates.size(); ++t) {
      if (key_of_[t] == kNone) continue;
      const Pass pass = dag.templates[t].pass;
      if (pass == Pass::kBI) has_inputs_.insert(stage_of_[key_of_[t]]);
      if (pass == Pass::kBW) has_weights_.insert(stage_of_[key_of_[t]]);
    }
  }

  std::optional<Export> Run() {
    if (copied_) {
      Refuse(FirstPlace(), "a stage has two copies, and an export has one rank a stage")
          .Hint("dualpipev has each stage once");
      return std::nullopt;
    }
    std::vector<const StreamOrder*> orders;
    std::map<GroupId, const StreamOrder*> of_group;
    for (const StreamOrder& order : dag_.orders) {
      if (!std::any_of(order.items.begin(), order.items.end(),
                       [&](const OrderItem& item) { return Computes(item); }))
        continue;
      const auto [other, fresh] = of_group.emplace(order.group, &order);
      if (!fresh) {
        Refuse(dag_.origins[order.origin],
               fmt::format("{} computes on two streams, {} and {}", dag_.groups[order.group].text,
                           NameText(other->second->stream), NameText(order.stream)))
            .Hint("an export has one order a rank");
        return std::nullopt;
      }
      orders.push_back(&order);
    }
    std::stable_sort(orders.begin(), orders.end(), [&](const StreamOrder* a, const StreamOrder* b) {
      return dag_.groups[a->group].devices < dag_.groups[b->group].devices;
    });
    for (const StreamOrder* order : orders) {
      out_.hosts.push_back(order->group);
      out_.streams.push_back(order->stream);
      if (!Row(*order)) return std::nullopt;
    }
    WarnOfOmitted();
    out_.extent.microbatches = static_cast<int32_t>(dag_.microbatches);
    out_.reduced.resize(static_cast<size_t>(out_.extent.stages));
    const NameId reduce_kind = InternName("tie.reduce");
    for (const NodeTemplate& node : dag_.templates) {
      if (node.kind != NodeKind::kAllReduce || node.gradients.empty()) continue;
      if (std::find(node.names.begin(), node.names.end(), reduce_kind) != node.names.end()) continue;
      for (const GradientRef& gradient : node.gradients) MarkReduced(gradient.region);
    }
    return std::move(out_);
  }

 private:
  DiagnosticEngine::Builder Refuse(SourceRange range, std::string message) {
    return diag_.Error(range, DiagKind::kNotExpressible, std::move(message));
  }
  SourceRange FirstPlace() const {
    for (const NodeTemplate& node : dag_.templates) {
      if (node.kind == NodeKind::kCompute && node.copy > 0) return dag_.origins[node.origin];
    }
    return {};
  }
  const NodeTemplate& TemplateOf(const OrderItem& item) const {
    return dag_.templates[dag_.TemplateOf(item.node)];
  }
  bool Computes(const OrderItem& item) const {
    const NodeTemplate& node = TemplateOf(item);
    return node.kind == NodeKind::kCompute && node.pass != Pass::kR;
  }
  // What an order may list beside what computes is derived again from what is exported, perhaps at another
  // place.
  void WarnOfOmitted() {
    for (const StreamOrder& order : dag_.orders) {
      for (const OrderItem& item : order.items) {
        const NodeTemplate& node = TemplateOf(item);
        if (item.origin == 0 || Computes(item) || node.kind == NodeKind::kAccumulate) continue;
        diag_
            .Warning(dag_.origins[item.origin], DiagKind::kNotExpressible,
                     fmt::format("{} is listed here, and an export lists F, BI and BW only", node.name))
            .Hint("read back, it stands where it would without being listed");
        return;
      }
    }
  }
  void MarkReduced(RegionId region) {
    for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
      if (key_of_[t] != kNone && dag_.templates[t].region == region) {
        out_.reduced[static_cast<size_t>(stage_of_[key_of_[t]])] = true;
      }
    }
  }

  Step StepOf(const OrderItem& item, TemplateId t) const {
    const NodeTemplate& node = dag_.templates[t];
    Step step;
    step.stage = stage_of_[key_of_[t]];
    step.microbatch = dag_.MicrobatchOf(item.node);
    step.range = dag_.origins[item.origin];
    if (node.pass == Pass::kF) return step;
    const bool split = has_inputs_.count(step.stage) != 0 && has_weights_.count(step.stage) != 0;
    step.action = !split                   ? Action::kFullBackward
                  : node.pass == Pass::kBI ? Action::kBackwardInput
                                           : Action::kBackwardWeight;
    return step;
  }

  static bool SameStep(const Step& a, const Step& b) {
    return a.stage == b.stage && a.microbatch == b.microbatch &&
           (a.action == b.action || (IsBackward(a.action) && IsBackward(b.action)));
  }

  // Parts of one atomic run of items; false if there are too many.
  bool Unit(const StreamOrder& order, size_t begin, size_t end, Cell* cell) {
    for (size_t i = begin; i < end; ++i) {
      if (!Computes(order.items[i])) continue;
      const Step step = StepOf(order.items[i], dag_.TemplateOf(order.items[i].node));
      Step* same = nullptr;
      for (uint8_t part = 0; part < cell->count; ++part) {
        if (SameStep(cell->steps[part], step)) same = &cell->steps[part];
      }
      if (same != nullptr) {
        if (same->action != step.action) same->action = Action::kFullBackward;
      } else if (cell->count == 2) {
        Refuse(step.range, "a fused step of more than two parts")
            .Hint("the CSV fuses a forward and a backward");
        return false;
      } else {
        cell->steps[cell->count++] = step;
      }
    }
    if (cell->count == 2 &&
        (cell->steps[0].action == Action::kForward) == (cell->steps[1].action == Action::kForward)) {
      Refuse(cell->steps[1].range, "a fused step that is not a forward and a backward")
          .Hint("the CSV fuses a forward and a backward");
      return false;
    }
    return true;
  }

  // The next region of the step that the cell before began.
  static bool Continues(const Cell& before, const Cell& next) {
    if (before.count != next.count) return false;
    for (uint8_t part = 0; part < next.count; ++part) {
      const Step &a = before.steps[part], &b = next.steps[part];
      if (!SameStep(a, b)) return false;
      if (a.action != b.action && a.action != Action::kFullBackward && b.action != Action::kFullBackward)
        return false;
    }
    return true;
  }

  bool Row(const StreamOrder& order) {
    const auto rank = static_cast<uint32_t>(out_.table.ranks.size());
    std::vector<Cell>& row = out_.table.ranks.emplace_back();
    for (size_t begin = 0; begin < order.items.size();) {
      size_t end = begin + 1;
      const uint32_t atomic = order.items[begin].atomic;
      while (atomic != kNone && end < order.items.size() && order.items[end].atomic == atomic) ++end;
      Cell cell;
      if (!Unit(order, begin, end, &cell)) return false;
      begin = end;
      if (cell.count == 0) continue;
      if (!row.empty() && Continues(row.back(), cell)) {
        for (uint8_t part = 0; part < cell.count; ++part) {
          Step& step = row.back().steps[part];
          if (step.action != cell.steps[part].action) step.action = Action::kFullBackward;
        }
      } else {
        row.push_back(cell);
      }
    }
    std::set<std::tuple<Action, int32_t, int32_t>> seen;
    for (const Cell& cell : row) {
      for (const Step& step : cell) {
        out_.extent.stages = std::max(out_.extent.stages, step.stage + 1);
        out_.extent.rank_of.resize(static_cast<size_t>(out_.extent.stages), rank);
        out_.extent.rank_of[static_cast<size_t>(step.stage)] = rank;
        if (seen.insert({step.action, step.stage, step.microbatch}).second) continue;
        Refuse(step.range,
               fmt::format("the regions of {} are not one step: others stand between them", StepText(step)))
            .Hint("the CSV lists whole stages");
        return false;
      }
    }
    return true;
  }

  const Dag& dag_;
  DiagnosticEngine& diag_;
  std::vector<uint32_t> key_of_;
  std::vector<int32_t> stage_of_;  // per key
  std::set<int32_t> has_inputs_, has_weights_;
  bool copied_ = false;
  Export out_;
};

}  // namespace

std::optional<Export> FromDag(const Dag& dag, const Program& program, DiagnosticEngine& diag) {
  return Exporter(dag, program, diag).Run();
}

}  // namespace piper::ir::schedule_csv
