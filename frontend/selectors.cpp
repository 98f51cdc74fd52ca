// Selectors, schedules and groups: `F[stage = s, mb = i]`, `x by -layer`, `steps "..."`, `pp[0..2]`.
#include <algorithm>

#include <fmt/format.h>

#include "frontend/interpreter.h"

namespace piper::frontend {

using ir::DiagKind;

ir::PassSet PassesOf(Pass pass) {
  switch (pass) {
    case Pass::kNone:
      return 0;
    case Pass::kF:
      return ir::PassBit(ir::Pass::kF);
    case Pass::kB:
      return ir::kPassB;
    case Pass::kBI:
      return ir::PassBit(ir::Pass::kBI);
    case Pass::kBW:
      return ir::PassBit(ir::Pass::kBW);
    case Pass::kR:
      return ir::PassBit(ir::Pass::kR);
    case Pass::kU:
      return ir::PassBit(ir::Pass::kU);
  }
  return 0;
}

ir::NameId Interpreter::FindIrName(NameId name) {
  if (name >= ir_names_.size()) ir_names_.resize(std::max<size_t>(name + 1, program_.ast.names.size()), 0);
  if (ir_names_[name] == 0) ir_names_[name] = ir::InternName(program_.ast.names.Text(name));
  return ir_names_[name];
}

void Interpreter::BuildSelector(BracketExpr& expr, ir::Selector* out) {
  out->range = expr.range;
  AddItems(expr.items, out);
  NarrowToPass(expr, out);
}

void Interpreter::NarrowToPass(BracketExpr& expr, ir::Selector* out) {
  if (expr.pass == Pass::kNone) return;
  ir::PassSet passes = PassesOf(expr.pass);
  if (out->any_of.size() == 1 && out->any_of[0].passes == 0) {
    out->any_of[0].passes = passes;
    return;
  }
  ir::Selector pass;
  pass.any_of.push_back({passes, {}});
  ir::Selector narrowed = out->Intersect(pass);
  narrowed.range = expr.range;
  *out = std::move(narrowed);
}

void Interpreter::BuildStepSelector(BracketExpr& expr, ir::StepSelector* out) {
  if (expr.indexed == BracketExpr::Indexed::kUnknown) {
    bool indexed = expr.items.size() <= ir::StepSelector::kMostIndices;
    for (const Item& item : expr.items) {
      indexed =
          indexed && item.key.name != kNoName && !item.negated &&
          (item.value->kind == ExprKind::kNumber || item.value->kind == ExprKind::kChain ||
           (item.value->kind == ExprKind::kName && As<NameExpr>(*item.value).frame != kFrameUnresolved));
    }
    expr.indexed = indexed ? BracketExpr::Indexed::kYes : BracketExpr::Indexed::kNo;
  }
  if (expr.indexed == BracketExpr::Indexed::kNo) {
    ir::Selector selector;
    BuildSelector(expr, &selector);
    *out = ir::StepSelector(std::move(selector));
    return;
  }
  out->Clear(0, expr.range);
  for (Item& item : expr.items) {
    int64_t index = 0;
    if (EvalInt(*item.value, &index) && index >= INT32_MIN && index < INT32_MAX) {
      out->AddIndex(IrName(item.key.name), static_cast<int32_t>(index));
      continue;
    }
    const Value value = Eval(*item.value);
    if (value.is(ValueKind::kInt) && value.integer() >= INT32_MIN && value.integer() < INT32_MAX) {
      out->AddIndex(IrName(item.key.name), static_cast<int32_t>(value.integer()));
      continue;
    }
    // A range or a list after all: on with the general form.
    ir::Selector selector = out->Full();
    ir::SelectorTerm& term = selector.any_of[0].terms.emplace_back();
    term.name = IrName(item.key.name);
    AddIndexValue(value, item.value->range, program_.ast.names.Text(item.key.name), &term);
    Item* rest = &item + 1;
    AddItems({rest, static_cast<size_t>(expr.items.data() + expr.items.size() - rest)}, &selector);
    NarrowToPass(expr, &selector);
    *out = ir::StepSelector(std::move(selector));
    return;
  }
  out->set_passes(PassesOf(expr.pass));
}

bool Interpreter::ListsTags(const BracketExpr& list) const {
  // The parts of a cut are sums of tags: there `[embed, layer, head]` is a list of three.
  if (list.items.empty() || cut_ != nullptr) return false;
  for (const Item& item : list.items) {
    const Expr* root = item.value;
    while (root != nullptr && root->kind == ExprKind::kMember) root = As<MemberExpr>(*root).base;
    if (root == nullptr || root->kind != ExprKind::kName || As<NameExpr>(*root).frame != kFrameUnresolved)
      return false;
    if (FindAxis(program_.ast.names.Text(As<NameExpr>(*root).name)) != nullptr && root == item.value)
      return false;
  }
  return true;
}

// Items of a bracket, as one conjunction where they allow it.
void Interpreter::AddItems(List<Item> items, ir::Selector* out) {
  out->any_of.resize(1);
  std::vector<ir::SelectorTerm>* terms = &out->any_of[0].terms;
  terms->reserve(items.size());
  for (Item& item : items) {
    if (item.star) continue;  // everything: no term
    if (item.key.name != kNoName) {
      ir::SelectorTerm& term = terms->emplace_back();
      term.name = IrName(item.key.name);
      term.negated = item.negated;
      AddIndices(*item.value, program_.ast.names.Text(item.key.name), &term);
      continue;
    }
    ir::Selector part = ItemSelector(*item.value);
    if (part.any_of.size() == 1 && part.any_of[0].passes == 0 && part.any_of[0].terms.size() == 1) {
      terms->push_back(std::move(part.any_of[0].terms[0]));
      continue;
    }
    ir::Selector both = out->Intersect(part);
    both.range = out->range;
    *out = std::move(both);
    if (out->any_of.empty()) return;  // contradictory: matches nothing
    if (out->any_of.size() > 1) {
      // Later items narrow every alternative.
      for (Item* rest = &item + 1; rest != items.data() + items.size(); ++rest) {
        ir::Selector single;
        AddItems({rest, 1}, &single);
        ir::Selector narrowed = out->Intersect(single);
        narrowed.range = out->range;
        *out = std::move(narrowed);
      }
      return;
    }
    terms = &out->any_of[0].terms;
  }
}

// `3`, `1..4`, `[0, 2..4]`, `last`.
void Interpreter::AddIndices(Expr& expr, std::string_view key, ir::SelectorTerm* term) {
  if (expr.kind == ExprKind::kName) {
    auto& name = As<NameExpr>(expr);
    if (name.frame == kFrameUnresolved && name.name == names::kLast) {
      int64_t count = CountOfTag(key, expr.range);
      AddIndexValue(Value::Int(count - 1), expr.range, key, term);
      return;
    }
  }
  AddIndexValue(Eval(expr), expr.range, key, term);
}

void Interpreter::AddIndexValue(const Value& index, SourceRange range, std::string_view key,
                                ir::SelectorTerm* term) {
  auto add = [&](int64_t begin, int64_t end) {
    if (!term->has_range) {
      term->has_range = true;
      term->begin = begin;
      term->end = end;
    } else {
      term->more.emplace_back(begin, end);
    }
  };
  auto add_value = [&](auto& self, const Value& value) -> void {
    if (value.is(ValueKind::kInt)) {
      // No tag or slice has an index as large as the last number.
      add(std::min(value.integer(), INT64_MAX - 1), std::min(value.integer(), INT64_MAX - 1) + 1);
    } else if (value.is(ValueKind::kRange)) {
      add(value.as<RangeObject>().begin, value.as<RangeObject>().end);
    } else if (value.is(ValueKind::kList)) {
      BurnLoop(static_cast<int64_t>(ItemsOf(value).size()), range);
      for (const Value& item : ItemsOf(value)) {
        if (item.is(ValueKind::kList)) FailType(range, "an index", "an int or a range", item);
        self(self, item);
      }
      if (!term->has_range) {  // an empty list selects no index
        term->has_range = true;
        term->begin = term->end = 0;
      }
    } else {
      FailType(range, fmt::format("the index of '{}'", key), "an int, a range or a list of them", value);
    }
  };
  add_value(add_value, index);
}

ir::Selector Interpreter::ItemSelector(Expr& expr) {
  auto named = [&](std::string_view text) {
    ir::Selector selector;
    selector.range = expr.range;
    ir::SelectorTerm term;
    term.name = ir::InternName(text);
    selector.any_of.resize(1);
    selector.any_of[0].terms.push_back(std::move(term));
    return selector;
  };
  switch (expr.kind) {
    case ExprKind::kName: {
      // A name is a tag, unless it is a local that holds a selector or a tag's name.
      auto& name = As<NameExpr>(expr);
      if (name.frame == kFrameLocal) {
        const Value& value = current_->slots[name.slot];
        if (value.is(ValueKind::kPoison)) throw Abort{};
        if (value.is(ValueKind::kSelector)) return value.as<SelectorObject>().selector;
        if (value.is(ValueKind::kString)) return named(TextOf(value));
      }
      return named(program_.ast.names.Text(name.name));
    }
    case ExprKind::kString:
      return named(As<StringExpr>(expr).value);
    case ExprKind::kMember: {
      // `ep.dispatch`, `ep.*`
      std::string text;
      const Expr* part = &expr;
      while (part->kind == ExprKind::kMember) {
        text = "." + Text(As<MemberExpr>(*part).member.name) + text;
        part = As<MemberExpr>(*part).base;
      }
      if (part->kind == ExprKind::kName) {
        auto& name = As<NameExpr>(*part);
        if (name.frame != kFrameLocal) return named(Text(name.name) + text);
        // As above: with a parameter `dp`, `[dp.reduce]` still means the node.
        const Value& value = current_->slots[name.slot];
        if (value.is(ValueKind::kPoison)) throw Abort{};
        if (value.is(ValueKind::kString)) return named(TextOf(value) + text);
        if (value.is(ValueKind::kInt) || value.is(ValueKind::kAxis)) return named(Text(name.name) + text);
      }
      break;
    }
    case ExprKind::kSelector: {
      ir::Selector selector;
      BuildSelector(As<BracketExpr>(expr), &selector);
      return selector;
    }
    case ExprKind::kList: {
      ir::Selector selector;
      BuildSelector(As<BracketExpr>(expr), &selector);
      return selector;
    }
    case ExprKind::kUnary: {
      if (As<UnaryExpr>(expr).op != UnaryOp::kNot) break;
      std::optional<ir::Selector> complement = ItemSelector(*As<UnaryExpr>(expr).operand).Complement();
      if (!complement) {
        Fail(expr.range, DiagKind::kFuelExhausted,
             "the complement of this selector has too many alternatives");
      }
      complement->range = expr.range;
      return std::move(*complement);
    }
    case ExprKind::kChain: {
      auto& chain = As<ChainExpr>(expr);
      BinaryOp op = chain.rest[0].op;
      if (op != BinaryOp::kOr && op != BinaryOp::kAnd) break;
      ir::Selector result = ItemSelector(*chain.first);
      for (ChainLink& link : chain.rest) {
        ir::Selector right = ItemSelector(*link.operand);
        result = op == BinaryOp::kOr ? result.Union(right) : result.Intersect(right);
        Burn(static_cast<int64_t>(result.any_of.size()), expr.range);
      }
      result.range = expr.range;
      return result;
    }
    default:
      break;
  }
  return SelectorOf(Eval(expr), expr.range);
}

ir::Selector Interpreter::SelectorOf(const Value& value, SourceRange range) {
  if (value.is(ValueKind::kSelector)) return value.as<SelectorObject>().selector;
  if (value.is(ValueKind::kSchedule)) {
    const auto& steps = value.as<ScheduleObject>().schedule.steps;
    if (steps.size() == 1 && steps[0].kind == ir::Step::Kind::kSelect) return steps[0].select;
  }
  FailType(range, "this", "a selector", value);
}

ir::Selector Interpreter::EvalSelector(Expr& expr) {
  if (expr.kind == ExprKind::kList || expr.kind == ExprKind::kSelector) {
    ir::Selector selector;
    BuildSelector(As<BracketExpr>(expr), &selector);
    return selector;
  }
  ir::Selector selector = expr.kind == ExprKind::kOptional ? EvalSelector(*As<OptionalExpr>(expr).operand)
                                                           : SelectorOf(Eval(expr), expr.range);
  if (expr.kind == ExprKind::kOptional) {
    selector.optional = true;
    for (ir::SelectorClause& clause : selector.any_of) clause.optional = true;
  }
  selector.range = expr.range;
  return selector;
}

// `x by layer`: one selector an index of the tag, ascending; `by -layer`: descending.
Value Interpreter::EvalBy(const Value& left, const Expr& right, SourceRange range) {
  ir::Selector selector = SelectorOf(left, range);
  bool descending = right.kind == ExprKind::kUnary && As<UnaryExpr>(right).op == UnaryOp::kNegate;
  const Expr& tag_expr = descending ? *As<UnaryExpr>(right).operand : right;
  if (tag_expr.kind != ExprKind::kName) {
    Fail(right.range, DiagKind::kTypeMismatch, "what stands behind 'by' is a tag, or '-' and a tag");
  }
  std::string tag = Text(As<NameExpr>(tag_expr).name);
  int64_t count = CountOfTag(tag, tag_expr.range);
  BurnLoop(count, range);
  std::vector<Value> items;
  for (int64_t k = 0; k < count; ++k) {
    int64_t index = descending ? count - 1 - k : k;
    ir::SelectorTerm term;
    term.name = ir::InternName(tag);
    term.has_range = true;
    term.begin = index;
    term.end = index + 1;
    // Indices that the selector itself excludes have no place in the list.
    bool excluded = !selector.any_of.empty();
    for (const ir::SelectorClause& clause : selector.any_of) {
      bool allows = true;
      for (const ir::SelectorTerm& t : clause.terms) {
        if (t.name == term.name && t.has_range && t.Contains(index) == t.negated) allows = false;
      }
      excluded = excluded && !allows;
    }
    if (excluded) continue;
    ir::Selector one;
    one.any_of.resize(1);
    one.any_of[0].terms.push_back(std::move(term));
    ir::Selector narrowed = selector.Intersect(one);
    narrowed.range = range;
    items.push_back(MakeSelector(std::move(narrowed)));
  }
  return MakeList(std::move(items));
}

// ---- steps

// By value: what a call returned and nobody else holds is moved out of.
void Interpreter::Yield(Value value, SourceRange range, ir::Schedule* sink) {  // NOLINT(performance-*)
  Burn(1, range);
  if (value.is(ValueKind::kSelector)) {
    ir::StepSelector& selector = value.as<SelectorObject>().selector;
    if (selector.empty() && selector.optional()) return;  // an empty selector of `zip(.., pad)` is no step
    if (++steps_ > kMaxSteps) OutOfFuel(range);
    ir::Step& step = sink->steps.emplace_back();
    step.range = range;
    if (value.unique()) {
      step.select = std::move(selector);  // nobody else will read it
    } else {
      step.select = selector;
    }
    return;
  }
  auto& steps = value.as<ScheduleObject>().schedule.steps;
  if (value.unique()) {  // a call's result: nobody else will read it
    if (sink->steps.empty()) {
      sink->steps = std::move(steps);
    } else {
      sink->steps.insert(sink->steps.end(), std::make_move_iterator(steps.begin()),
                         std::make_move_iterator(steps.end()));
    }
    return;
  }
  Burn(static_cast<int64_t>(steps.size()), range);
  steps_ += static_cast<int64_t>(steps.size());
  if (steps_ > kMaxSteps) OutOfFuel(range);
  sink->steps.insert(sink->steps.end(), steps.begin(), steps.end());
}

Value Interpreter::EvalFused(const CallExpr& call) {
  ir::Step step;
  step.kind = ir::Step::Kind::kFused;
  step.range = call.range;
  for (const Arg& arg : call.args) {
    if (arg.key.name != kNoName)
      Fail(arg.range, DiagKind::kBadArguments, "fused takes selectors, without names");
    step.fused.push_back(EvalSelector(*arg.value));
  }
  if (step.fused.size() < 2) {
    Fail(call.range, DiagKind::kBadFused,
         fmt::format("fused joins two steps or more, not {}", step.fused.size()));
  }
  ir::Schedule schedule;
  schedule.steps.push_back(std::move(step));
  return MakeSchedule(std::move(schedule));
}

std::vector<std::pair<ir::NameId, std::vector<ir::Step>>> Interpreter::EvalLanes(List<Lane> lanes) {
  std::vector<std::pair<ir::NameId, std::vector<ir::Step>>> result;
  for (Lane& lane : lanes) {
    ir::NameId stream = IrName(lane.stream.name);
    for (const auto& [other, _] : result) {
      if (other != stream) continue;
      Fail(lane.stream.range, DiagKind::kDuplicateName,
           fmt::format("stream '{}' has two orders here", Text(lane.stream.name)),
           "list its steps in one lane");
    }
    ir::Schedule steps;
    {
      Restore<ir::Schedule*> sink(&current_->sink, &steps);
      Value ignored;
      if (ExecBlock(lane.steps, false, &ignored) == Flow::kReturn) {
        Fail(lane.stream.range, DiagKind::kBadOrder, "a lane does not return");
      }
    }
    result.emplace_back(stream, std::move(steps.steps));
  }
  return result;
}

// The selector of one step of a literal: its stage, or the only one of the group; its microbatch, or the
// next.
ir::Selector Interpreter::RunStepSelector(const StepRun& run, const ir::Selector* within, SourceRange range) {
  const std::string stage_tag = strategy_ != nullptr ? strategy_->stage : "stage";
  const std::string microbatch_tag = strategy_ != nullptr ? strategy_->microbatch : "mb";
  int64_t stage = run.stage;
  ir::NameId stage_name = ir::InternName(stage_tag);
  bool names_stage = false;
  if (within != nullptr) {
    for (const ir::SelectorClause& clause : within->any_of) {
      for (const ir::SelectorTerm& term : clause.terms) {
        if (term.name != stage_name) continue;
        names_stage = true;
        if (stage < 0 && term.has_range && term.end == term.begin + 1) stage = term.begin;
      }
    }
  }
  if (stage < 0 && !names_stage) {
    std::vector<int64_t> here;
    if (strategy_ != nullptr && order_group_ != nullptr) {
      for (const StrategySession::Placement& placement : strategy_->placements) {
        if (placement.group.mesh != order_group_->mesh ||
            placement.group.slices.size() != order_group_->slices.size()) {
          continue;
        }
        bool same = true;
        for (size_t i = 0; i < placement.group.slices.size(); ++i) {
          const auto& a = placement.group.slices[i];
          const auto& b = order_group_->slices[i];
          same = same && a.axis == b.axis && a.begin == b.begin && a.end == b.end;
        }
        if (same) here.push_back(placement.stage);
      }
    }
    if (here.size() != 1) {
      Fail(range, DiagKind::kBadOrder,
           fmt::format("a step of this literal names no stage, but {} stages are placed on the group",
                       here.size()),
           "write the stage before the pass, `2F`, or behind the literal, `[stage = s]`");
    }
    stage = here[0];
  }
  int64_t microbatch = run.microbatch;
  auto counter = [&](Pass pass) -> int64_t& {
    for (StepCounter& known : step_counters_) {
      if (known.stage == stage && known.pass == pass) return known.next;
    }
    step_counters_.push_back({stage, pass, 0});
    return step_counters_.back().next;
  };
  Pass first = run.pass == Pass::kB ? Pass::kBI : run.pass;
  if (microbatch < 0) microbatch = counter(first);
  if (run.microbatch < 0 || microbatch >= counter(first)) {
    counter(first) = microbatch + 1;
    if (run.pass == Pass::kB) counter(Pass::kBW) = microbatch + 1;
  }
  ir::Selector selector;
  selector.range = range;
  selector.any_of.resize(1);
  selector.any_of[0].passes = PassesOf(run.pass);
  auto add = [&](ir::NameId name, int64_t index) {
    ir::SelectorTerm term;
    term.name = name;
    term.has_range = true;
    term.begin = index;
    term.end = index + 1;
    selector.any_of[0].terms.push_back(std::move(term));
  };
  if (stage >= 0 && !(names_stage && run.stage < 0)) add(stage_name, stage);
  add(ir::InternName(microbatch_tag), microbatch);
  if (within == nullptr) return selector;
  ir::Selector both = within->Intersect(selector);
  both.range = range;
  return both;
}

void Interpreter::ExpandRun(const StepRun& run, const ir::Selector* within, SourceRange range,
                            std::vector<ir::Step>* out) {
  BurnLoop(run.repeat, range);
  for (uint32_t i = 0; i < run.repeat; ++i) {
    if (run.fused) {
      ir::Step step;
      step.kind = ir::Step::Kind::kFused;
      step.range = range;
      for (const StepRun& child : run.children) step.fused.push_back(RunStepSelector(child, within, range));
      out->push_back(std::move(step));
    } else if (run.pass == Pass::kNone) {
      for (const StepRun& child : run.children) ExpandRun(child, within, range, out);
    } else {
      ir::Step step;
      step.range = range;
      step.select = RunStepSelector(run, within, range);
      out->push_back(std::move(step));
    }
    if (steps_ + static_cast<int64_t>(out->size()) > kMaxSteps) OutOfFuel(range);
  }
}

void Interpreter::YieldSteps(StepsStmt& steps) {
  std::optional<ir::Selector> within;
  if (steps.within != nullptr) within = EvalSelector(*steps.within);
  std::vector<ir::Step> expanded;
  for (const StepRun& run : steps.runs) ExpandRun(run, within ? &*within : nullptr, steps.range, &expanded);
  steps_ += static_cast<int64_t>(expanded.size());
  auto& sink = current_->sink->steps;
  sink.insert(sink.end(), std::make_move_iterator(expanded.begin()), std::make_move_iterator(expanded.end()));
}

// ---- groups

const AxisObject::Axis* Interpreter::FindAxis(std::string_view name) const {
  if (strategy_ == nullptr) return nullptr;
  for (const AxisObject::Axis& axis : strategy_->axes) {
    if (axis.name == name) return &axis;
  }
  return nullptr;
}

std::optional<Value> Interpreter::PreferAxis(const NameExpr& expr) const {
  if (strategy_ == nullptr || expr.frame != kFrameLocal || !current_->slots[expr.slot].is(ValueKind::kInt)) {
    return std::nullopt;
  }
  const AxisObject::Axis* axis = FindAxis(program_.ast.names.Text(expr.name));
  if (axis == nullptr) return std::nullopt;
  auto* object = new AxisObject;
  object->axes.push_back(*axis);
  return Value::Of(ValueKind::kAxis, object);
}

Value Interpreter::IndexAxis(const AxisObject& axis, List<Item> items, SourceRange range) {
  if (items.size() != 1 || items[0].value == nullptr || items[0].key.name != kNoName) {
    Fail(range, DiagKind::kBadArguments, "an axis is indexed by one int or range");
  }
  if (axis.axes.size() != 1) {
    Fail(range, DiagKind::kTypeMismatch, "a product of axes is not indexed; write pp[s] * tp[t]");
  }
  Value index = Eval(*items[0].value);
  int64_t begin = 0, end = 0;
  if (index.is(ValueKind::kRange)) {
    begin = index.as<RangeObject>().begin;
    end = index.as<RangeObject>().end;
  } else {
    begin = IntOf(index, items[0].range, fmt::format("the index of axis '{}'", axis.axes[0].name));
    end = begin < INT64_MAX ? begin + 1 : begin;
  }
  if (begin < 0 || end > axis.axes[0].size || begin >= end) {
    Fail(items[0].range, DiagKind::kOutOfRange,
         begin < INT64_MAX && end == begin + 1
             ? fmt::format("{}[{}] lies outside the axis, which has {} positions", axis.axes[0].name, begin,
                           axis.axes[0].size)
             : fmt::format("{}[{}..{}] is empty or lies outside the axis, which has {} positions",
                           axis.axes[0].name, begin, end, axis.axes[0].size),
         fmt::format("the positions are 0..{}", axis.axes[0].size));
  }
  auto* object = new GroupObject;
  object->group.mesh = axis.axes[0].mesh;
  object->group.range = range;
  object->group.slices.push_back({axis.axes[0].name, begin, end, range});
  return Value::Of(ValueKind::kGroup, object);
}

void Interpreter::CheckAxisName(const Expr& expr) {
  if (expr.kind == ExprKind::kIndex) return CheckAxisName(*As<IndexExpr>(expr).base);
  if (expr.kind == ExprKind::kChain) {
    CheckAxisName(*As<ChainExpr>(expr).first);
    for (const ChainLink& link : As<ChainExpr>(expr).rest) CheckAxisName(*link.operand);
    return;
  }
  if (expr.kind != ExprKind::kName) return;
  const auto& name = As<NameExpr>(expr);
  if (name.frame != kFrameUnresolved || name.name == names::kAll || FindAxis(Text(name.name)) != nullptr)
    return;
  SilentIfLost(Text(name.name));
  std::vector<std::string> axes;
  for (const AxisObject::Axis& axis : strategy_->axes) axes.push_back(axis.name);
  FailNearest(expr.range, DiagKind::kUnknownAxis, fmt::format("no mesh has an axis '{}'", Text(name.name)),
              Text(name.name), axes,
              axes.empty() ? "there is no mesh yet: write `mesh (pp = 4)` first"
                           : fmt::format("the axes are {}", fmt::join(axes, ", ")));
}

ir::GroupExpr Interpreter::GroupOf(Expr& expr) {
  CheckAxisName(expr);
  Restore<bool> wanted(&axis_wanted_, true);
  Value value = Eval(expr);
  if (value.is(ValueKind::kGroup)) {
    ir::GroupExpr group = value.as<GroupObject>().group;
    group.range = expr.range;
    return group;
  }
  // A whole axis: every device of its mesh.
  if (value.is(ValueKind::kAxis) && value.as<AxisObject>().axes.size() == 1) {
    ir::GroupExpr group;
    group.mesh = value.as<AxisObject>().axes[0].mesh;
    group.range = expr.range;
    return group;
  }
  FailType(expr.range, "this", "a group of devices such as pp[0]", value);
}

}  // namespace piper::frontend
