// Directives: evaluates each statement of a strategy that is one and records it with its range.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "frontend/interpreter.h"
#include "ir/support/divisors.h"

namespace piper::frontend {

using ir::DiagKind;
using ir::UnitKind;

void Interpreter::ExecDirective(Stmt& statement) {
  switch (statement.kind) {
    case StmtKind::kMesh:
      Emit(statement, Mesh(As<MeshStmt>(statement)));
      return;
    case StmtKind::kCut:
      Emit(statement, Cut(As<CutStmt>(statement)));
      return;
    case StmtKind::kSplit:
      Split(As<SplitStmt>(statement));
      return;
    case StmtKind::kPlace:
      Emit(statement, Place(As<PlaceStmt>(statement)));
      return;
    case StmtKind::kShard:
      Emit(statement, Shard(As<ShardStmt>(statement)));
      return;
    case StmtKind::kZero:
      Emit(statement, Zero(As<ZeroStmt>(statement)));
      return;
    case StmtKind::kOrder:
      Emit(statement, Order(As<OrderStmt>(statement)));
      return;
    case StmtKind::kEdge: {
      auto& edge = As<EdgeStmt>(statement);
      ir::EdgeDirective body;
      body.from = DirectiveSelector(*edge.from);
      body.to = DirectiveSelector(*edge.to);
      if (edge.distance != nullptr) {
        body.distance = IntOf(Eval(*edge.distance), edge.distance->range, "the distance of an edge");
        if (body.distance < 0) {
          Fail(edge.distance->range, DiagKind::kBadEdge,
               fmt::format("an edge cannot lead {} steps back", -body.distance),
               "an edge leads forward in time: `edge a -> b`, to the next step `edge a -> b distance 1`");
        }
      }
      Emit(statement, std::move(body));
      return;
    }
    case StmtKind::kLimit: {
      auto& limit = As<LimitStmt>(statement);
      ir::LimitDirective body;
      body.count = IntOf(Eval(*limit.count), limit.count->range, "a limit");
      if (body.count < 1) {
        Fail(limit.count->range, DiagKind::kBadLimit,
             fmt::format("a limit of {} leaves nothing to run", body.count), "the least is 1");
      }
      body.select = DirectiveSelector(*limit.selector);
      if (limit.per.name != kNoName) body.per = Text(limit.per.name);
      Emit(statement, std::move(body));
      return;
    }
    case StmtKind::kStream: {
      auto& stream = As<StreamStmt>(statement);
      Emit(statement, ir::StreamDirective{DirectiveSelector(*stream.selector), Text(stream.stream.name)});
      return;
    }
    case StmtKind::kRecompute: {
      auto& recompute = As<RecomputeStmt>(statement);
      ir::RecomputeDirective body;
      body.select = DirectiveSelector(*recompute.selector);
      if (recompute.keep != nullptr) body.keep = DirectiveSelector(*recompute.keep);
      Emit(statement, std::move(body));
      return;
    }
    case StmtKind::kOffload: {
      auto& offload = As<OffloadStmt>(statement);
      ir::OffloadDirective body;
      body.select = DirectiveSelector(*offload.selector);
      if (Text(offload.to.name) != "host") {
        Fail(offload.to.range, DiagKind::kUnsupported,
             fmt::format("cannot offload to '{}'", Text(offload.to.name)), "write `to host`");
      }
      for (Field& field : offload.settings) {
        std::string name = Text(field.name.name);
        if (name != "prefetch" || field.value == nullptr) {
          FailNearest(field.range, DiagKind::kBadArguments, fmt::format("offload has no setting '{}'", name),
                      name, {"prefetch"});
        }
        body.prefetch = IntOf(Eval(*field.value), field.value->range, "prefetch");
      }
      Emit(statement, std::move(body));
      return;
    }
    case StmtKind::kFreeze:
      Emit(statement, ir::FreezeDirective{DirectiveSelector(*As<FreezeStmt>(statement).selector)});
      return;
    case StmtKind::kRun:
      Emit(statement, Run(As<RunStmt>(statement)));
      return;
    case StmtKind::kOptimizer: {
      auto& optimizer = As<OptimizerStmt>(statement);
      std::string mode = Text(optimizer.mode.name);
      if (mode != "post_validation" && mode != "synchronised") {
        FailNearest(optimizer.mode.range, DiagKind::kBadOptimizer,
                    fmt::format("there is no optimizer step '{}'", mode), mode,
                    {"post_validation", "synchronised"},
                    "post_validation updates first and checks later; synchronised (the default) waits for "
                    "the norm of "
                    "all ranks");
      }
      Emit(statement, ir::OptimizerDirective{mode == "post_validation"});
      return;
    }
    case StmtKind::kNumerics: {
      auto& numerics = As<NumericsStmt>(statement);
      std::string mode = Text(numerics.mode.name);
      if (mode != "reproducible" && mode != "fast") {
        FailNearest(numerics.mode.range, DiagKind::kBadNumerics,
                    fmt::format("there are no numerics '{}'", mode), mode, {"reproducible", "fast"},
                    "they are reproducible or fast");
      }
      Emit(statement, ir::NumericsDirective{mode == "fast"});
      return;
    }
    case StmtKind::kCost:
      Emit(statement, Cost(As<CostStmt>(statement)));
      return;
    case StmtKind::kSlowdown: {
      auto& slowdown = As<SlowdownStmt>(statement);
      ir::SlowdownDirective body;
      body.stream = Text(slowdown.stream.name);
      body.with = Text(slowdown.with.name);
      body.factor = NumberOf(Eval(*slowdown.value), slowdown.value->range, "a slowdown");
      if (!(body.factor >= 1) || !std::isfinite(body.factor)) {
        Fail(slowdown.value->range, DiagKind::kOutOfRange,
             fmt::format("a slowdown of {} is below 1", body.factor),
             "1 is no slowdown at all, 2 the most that two streams can cost each other");
      }
      Emit(statement, std::move(body));
      return;
    }
    case StmtKind::kAssert:
      Emit(statement, Assert(As<AssertStmt>(statement)));
      return;
    case StmtKind::kUse: {
      auto& use = As<UseStmt>(statement);
      Value value = Eval(*use.strategy);
      if (value.is(ValueKind::kStrategyDecl)) {
        auto* object = new StrategyObject;
        object->info = value.as<StrategyDeclObject>().info;
        value = Value::Of(ValueKind::kStrategy, object);
        Given given(object->info->function.params.size());
        object->arguments.resize(given.size());
        FinishStrategy(object, use.strategy->range, given);
      }
      if (!value.is(ValueKind::kStrategy))
        FailType(use.strategy->range, "what `use` applies", "a strategy", value);
      RunStrategy(value.as<StrategyObject>(), use.strategy->range, false);
      return;
    }
    default:
      PIPER_CHECK(false, "not a directive");
  }
}

ir::DirectiveBody Interpreter::Mesh(MeshStmt& mesh) {
  ir::MeshDirective body;
  if (mesh.name.name != kNoName) body.name = Text(mesh.name.name);
  if (std::find(strategy_->meshes.begin(), strategy_->meshes.end(), body.name) != strategy_->meshes.end()) {
    Fail(mesh.range, DiagKind::kBadMesh,
         body.name.empty() ? "there is a mesh already; a second one needs a name"
                           : fmt::format("there is a mesh '{}' already", body.name));
  }
  int64_t available = strategy_->topology->devices();
  if (mesh.devices != nullptr) {
    // `on devices[0..8]`: the indices themselves.
    Expr& devices = *mesh.devices;
    bool slice = devices.kind == ExprKind::kIndex && As<IndexExpr>(devices).base->kind == ExprKind::kName &&
                 As<NameExpr>(*As<IndexExpr>(devices).base).name == program_.ast.names.Find("devices");
    if (!slice && devices.kind != ExprKind::kList) {
      Fail(devices.range, DiagKind::kBadMesh, "a mesh lies on devices[..] or on a list of device numbers");
    }
    std::vector<Value> list;
    if (slice) {
      for (Item& item : As<IndexExpr>(devices).items) {
        if (item.value == nullptr) Fail(item.range, DiagKind::kBadMesh, "a device is named by its number");
        Value value = Eval(*item.value);
        if (value.is(ValueKind::kInt)) {
          list.push_back(value);
        } else {
          for (Value& element : Elements(value, item.range, "devices")) list.push_back(std::move(element));
        }
      }
    } else {
      list = Elements(Eval(devices), devices.range, "devices");
    }
    std::vector<int64_t> sorted;
    for (const Value& value : list) {
      int64_t device = IntOf(value, devices.range, "a device");
      if (device < 0 || device >= available) {
        Fail(devices.range, DiagKind::kBadMesh,
             fmt::format("there is no device {}: the topology has {}", device, available));
      }
      body.devices.push_back(device);
    }
    sorted = body.devices;
    std::sort(sorted.begin(), sorted.end());
    if (auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
      Fail(devices.range, DiagKind::kBadMesh, fmt::format("device {} is listed twice", *twice));
    }
    available = static_cast<int64_t>(body.devices.size());
  }
  int64_t product = 1;
  size_t all = mesh.axes.size();
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    MeshAxis& axis = mesh.axes[i];
    ir::MeshDirective::Axis entry;
    entry.name = Text(axis.name.name);
    entry.range = axis.range;
    if (axis.within.name != kNoName) {
      entry.within = Text(axis.within.name);
      std::vector<std::string> levels;
      for (const ir::Level& level : strategy_->topology->levels) levels.push_back(level.name);
      if (std::find(levels.begin(), levels.end(), entry.within) == levels.end()) {
        FailNearest(axis.within.range, DiagKind::kBadMesh,
                    fmt::format("the topology has no level '{}'", entry.within), entry.within, levels,
                    fmt::format("its levels are {}", fmt::join(levels, ", ")));
      }
    }
    for (const ir::MeshDirective::Axis& other : body.axes) {
      if (other.name != entry.name) continue;
      auto error = Report(axis.range, DiagKind::kBadMesh,
                          fmt::format("the mesh has an axis '{}' already", entry.name));
      error.Note(other.range, "the first one");
      Throw();
    }
    if (axis.size->kind == ExprKind::kName && As<NameExpr>(*axis.size).frame == kFrameUnresolved &&
        As<NameExpr>(*axis.size).name == names::kAll) {
      if (all != mesh.axes.size()) {
        Fail(axis.range, DiagKind::kBadMesh, "only one axis can take all devices that are left");
      }
      all = i;
      entry.size = -1;
    } else {
      entry.size =
          IntOf(Eval(*axis.size), axis.size->range, fmt::format("the size of axis '{}'", entry.name));
      if (entry.size < 1) {
        Fail(axis.size->range, DiagKind::kBadMesh,
             fmt::format("the axis '{}' has {} positions", entry.name, entry.size),
             "an axis has at least one");
      }
      if (__builtin_mul_overflow(product, entry.size, &product) || product > kMaxDevices) {
        Fail(mesh.range, DiagKind::kTooManyRanks,
             fmt::format("the mesh would have more than {} ranks: {} alone is {}", kMaxDevices, entry.name,
                         entry.size));
      }
    }
    body.axes.push_back(std::move(entry));
  }
  if (all != mesh.axes.size()) {
    if (available % product != 0) {
      Fail(mesh.range, DiagKind::kBadMesh,
           fmt::format("the other axes take {} devices, which does not divide the {} that there are", product,
                       available));
    }
    body.axes[all].size = available / product;
    product = available;
  }
  if (product > available) {
    auto error = Report(
        mesh.range, DiagKind::kBadMesh,
        fmt::format("the mesh needs {} devices, the topology{} has {}", product,
                    strategy_->topology->name.empty() ? "" : " " + strategy_->topology->name, available));
    error.Note(strategy_->topology->range, "the topology").Hint("make an axis smaller, or run on more ranks");
    Throw();
  }
  if (mesh.folds.name != kNoName) {
    body.folds = Text(mesh.folds.name);
    if (std::find(strategy_->meshes.begin(), strategy_->meshes.end(), body.folds) ==
        strategy_->meshes.end()) {
      FailNearest(mesh.folds.range, DiagKind::kBadMesh,
                  fmt::format("there is no mesh '{}' to fold", body.folds), body.folds, strategy_->meshes,
                  "a mesh folds one that stands before it");
    }
  }
  strategy_->meshes.push_back(body.name);
  for (const ir::MeshDirective::Axis& axis : body.axes) {
    if (const AxisObject::Axis* known = FindAxis(axis.name)) {
      if (known->size != axis.size) {
        Fail(axis.range, DiagKind::kBadMesh,
             fmt::format("the axis '{}' has {} positions here and {} in another mesh", axis.name, axis.size,
                         known->size),
             "a shared axis must agree; give this one another name");
      }
      continue;
    }
    strategy_->axes.push_back({body.name, axis.name, axis.size});
  }
  return body;
}

std::vector<ir::CutDirective::Term> Interpreter::TagSum(const Value& value, SourceRange range) {
  if (value.is(ValueKind::kTagSum)) return value.as<TagSumObject>().terms;
  FailType(range, "a part of a cut", "a sum of tags such as embed + 2 * layer", value);
}

ir::DirectiveBody Interpreter::Cut(CutStmt& cut) {
  ir::CutDirective body;
  body.as = Text(cut.as.name);
  for (const NameRef& tag : cut.tags) {
    CheckTag(Text(tag.name), tag.range);
    for (const auto& [other, first] : body.tags) {
      if (other != Text(tag.name)) continue;
      Fail(tag.range, DiagKind::kBadCut, fmt::format("the cut lists the tag '{}' twice", other));
    }
    body.tags.emplace_back(Text(tag.name), tag.range);
  }
  Restore<const CutStmt*> tags(&cut_, &cut);
  Value into = Eval(*cut.into);
  int64_t parts = 0;
  if (ToInt(into, &parts)) {
    if (parts < 1)
      Fail(cut.into->range, DiagKind::kBadCut, fmt::format("a cut into {} parts", parts), "the least is 1");
    int64_t available = 0;
    for (const auto& [tag, range] : body.tags) available += CountOfTag(tag, range);
    if (parts > available) {
      Fail(cut.into->range, DiagKind::kBadCut,
           fmt::format("cannot cut {} regions into {} parts", available, parts),
           fmt::format("the most is {}", available));
    }
    body.parts = parts;
  } else if (into.is(ValueKind::kList)) {
    const auto& items = ItemsOf(into);
    if (items.empty()) Fail(cut.into->range, DiagKind::kBadCut, "a cut into no parts");
    for (const Value& item : items) body.explicit_parts.push_back(TagSum(item, cut.into->range));
    body.parts = static_cast<int64_t>(items.size());
    for (const auto& [tag, range] : body.tags) {
      int64_t total = 0, have = CountOfTag(tag, range);
      for (const auto& part : body.explicit_parts) {
        for (const auto& term : part) {
          if (term.tag == tag && __builtin_add_overflow(total, term.count, &total)) total = INT64_MAX;
        }
      }
      if (total != have) {
        std::string listed;
        for (const auto& part : body.explicit_parts) {
          int64_t count = 0;
          for (const auto& term : part) count += term.tag == tag ? term.count : 0;
          listed += (listed.empty() ? "" : " + ") + std::to_string(count);
        }
        auto error =
            Report(cut.into->range, DiagKind::kBadCut,
                   fmt::format("the parts list {} = {} of '{}', the model has {}", listed, total, tag, have));
        error.Hint(total < have
                       ? fmt::format("{} more must go somewhere: the parts are an exact cover", have - total)
                       : fmt::format("take {} away: the parts are an exact cover", total - have));
        Throw();
      }
    }
  } else {
    FailType(cut.into->range, "what a cut goes into", "a number of parts, or a list of sums of tags", into);
  }
  for (auto& [name, count] : strategy_->counts) {
    if (name == body.as) {
      Fail(cut.as.range, DiagKind::kBadCut,
           fmt::format("'{}' is already made by another directive", body.as));
    }
  }
  strategy_->counts.emplace_back(body.as, body.parts);
  strategy_->stage = body.as;
  return body;
}

void Interpreter::Split(SplitStmt& split) {
  // Parts of one dimension make one directive; the region is that of the statement.
  std::optional<ir::Selector> region;
  if (split.within != nullptr) region = DirectiveSelector(*split.within);
  if (split.by.name != kNoName) {
    Fail(split.by.range, DiagKind::kUnsupported,
         fmt::format("a split by '{}' is not built yet", Text(split.by.name)),
         "leave it out: parts have equal numbers of samples");
  }
  std::vector<ir::SplitDirective> directives;
  for (SplitPart& part : split.parts) {
    std::string dim = Text(part.dim.name);
    int64_t count = IntOf(Eval(*part.into), part.into->range, "the number of parts");
    std::string as = Text(part.as.name);
    if (count < 1) Fail(part.into->range, DiagKind::kBadSplit, fmt::format("a split into {} parts", count));
    if (part.uneven) {
      Fail(part.range, DiagKind::kUnsupported, "uneven splits are not built yet",
           "choose a number that divides");
    }
    int64_t size = SizeOfDim(dim, part.dim.range);
    int64_t pieces = count;
    for (const ir::SplitDirective& other : directives) {
      if (other.dim != dim) continue;
      for (const auto& p : other.parts) {
        if (__builtin_mul_overflow(pieces, p.count, &pieces)) pieces = INT64_MAX;
      }
    }
    if (size % pieces != 0) {
      int64_t others = pieces / count;
      std::string legal = size % others == 0 ? ir::DescribeNearestDivisors(size / others, count) : "";
      Fail(part.into->range, DiagKind::kBatchDivide,
           fmt::format("the {} '{}' of the {} do not divide into {} equal parts", size, dim,
                       dim == "batch" ? "global batch" : "model", pieces),
           legal.empty() ? fmt::format("the number of parts must divide {}", size)
                         : fmt::format("the nearest that divide: {}", legal));
    }
    for (const auto& [name, _] : strategy_->counts) {
      if (name == as) {
        Fail(part.as.range, DiagKind::kBadSplit,
             fmt::format("'{}' is already made by another directive", as));
      }
    }
    strategy_->counts.emplace_back(as, count);
    if (!region) strategy_->microbatch = as;
    if (directives.empty() || directives.back().dim != dim) {
      directives.emplace_back();
      directives.back().dim = dim;
      directives.back().region = region;
    }
    directives.back().parts.push_back({count, as});
  }
  for (ir::SplitDirective& directive : directives) Emit(split, std::move(directive));
}

ir::DirectiveBody Interpreter::Place(PlaceStmt& place) {
  ir::PlaceDirective body;
  body.select = DirectiveSelector(*place.selector);
  body.group = GroupOf(*place.group);
  // Remembered for literals of orders, which may leave the stage out.
  ir::NameId stage = ir::InternName(strategy_->stage);
  for (const ir::SelectorClause& clause : body.select.any_of) {
    for (const ir::SelectorTerm& term : clause.terms) {
      if (term.name != stage || !term.has_range || term.negated) continue;
      for (int64_t s = term.begin; s < term.end && s - term.begin < 4096; ++s) {
        strategy_->placements.push_back({body.group, s});
      }
    }
  }
  return body;
}

ir::DirectiveBody Interpreter::Shard(ShardStmt& shard) {
  ir::ShardDirective body;
  for (const NameRef& dim : shard.dims) {
    body.dims.push_back(Text(dim.name));
    (void)SizeOfDim(body.dims.back(), dim.range);
  }
  CheckAxisName(*shard.axis);
  Value axis;
  {
    Restore<bool> wanted(&axis_wanted_, true);
    axis = Eval(*shard.axis);
  }
  if (!axis.is(ValueKind::kAxis)) {
    Fail(shard.axis->range, DiagKind::kUnknownAxis,
         fmt::format("a dimension is sharded over an axis of a mesh, not {}", DescribeValue(axis)));
  }
  for (const AxisObject::Axis& part : axis.as<AxisObject>().axes) {
    body.axes.push_back(part.name);
    body.as += (body.as.empty() ? "" : ".") + part.name;
  }
  if (shard.where != nullptr) body.where = DirectiveSelector(*shard.where);
  if (shard.as.name != kNoName) body.as = Text(shard.as.name);
  if (shard.via.name != kNoName) {
    body.via = Text(shard.via.name);
    if (body.via != "flat" && body.via != "hierarchical") {
      FailNearest(shard.via.range, DiagKind::kBadShard, fmt::format("there is no way '{}'", body.via),
                  body.via, {"flat", "hierarchical"}, "collectives go via flat or hierarchical");
    }
  }
  if (shard.capacity != nullptr) {
    Fail(shard.capacity->range, DiagKind::kUnsupported, "expert capacity is not built yet");
  }
  if (shard.operation.name != kNoName) {
    Fail(shard.operation.range, DiagKind::kUnsupported,
         fmt::format("'{} by ..' is not built yet", Text(shard.operation.name)));
  }
  return body;
}

ir::DirectiveBody Interpreter::Zero(ZeroStmt& zero) {
  ir::ZeroDirective body;
  body.level = IntOf(Eval(*zero.level), zero.level->range, "the level of zero");
  if (body.level < 0 || body.level > 3) {
    Fail(zero.level->range, DiagKind::kBadZero, fmt::format("there is no zero {}", body.level),
         "the levels are 0 to 3");
  }
  body.select = zero.selector != nullptr ? DirectiveSelector(*zero.selector) : ir::Selector::All();
  if (!body.select.range.valid()) body.select.range = zero.range;
  if (zero.per.name != kNoName) {
    body.per_tag = Text(zero.per.name);
    CheckTag(body.per_tag, zero.per.range);
  }
  if (zero.as.name != kNoName) body.as = Text(zero.as.name);
  for (Field& field : zero.settings) {
    std::string name = Text(field.name.name);
    if (name == "bucket" && field.value != nullptr) {
      Value value = Eval(*field.value);
      if (!value.is(ValueKind::kQuantity) || value.unit() != UnitKind::kBytes) {
        FailType(field.value->range, "a bucket", "bytes", value);
      }
      if (!(value.real() >= 1) || value.real() > 1e15) {
        Fail(field.value->range, DiagKind::kBadZero, "a bucket holds at least a byte");
      }
      body.bucket_bytes = std::llround(value.real());
    } else if (name == "reduce" && field.per.name != kNoName) {
      std::string per = Text(field.per.name);
      if (per != "step" && per != strategy_->microbatch) {
        FailNearest(field.per.range, DiagKind::kBadZero,
                    fmt::format("gradients are not reduced per '{}'", per), per,
                    {"step", strategy_->microbatch},
                    fmt::format("write `per step` or `per {}`", strategy_->microbatch));
      }
      body.reduce_per_microbatch = per != "step";
    } else if (name == "keep" && field.value != nullptr) {
      body.keep = DirectiveSelector(*field.value);
    } else {
      FailNearest(field.range, DiagKind::kBadZero, fmt::format("zero has no setting '{}'", name), name,
                  {"bucket", "reduce", "keep"},
                  "the settings are `bucket 25 MiB`, `reduce per step` and `keep [..]`");
    }
  }
  return body;
}

ir::DirectiveBody Interpreter::Order(OrderStmt& order) {
  ir::OrderDirective body;
  body.group = GroupOf(*order.group);
  Restore<const ir::GroupExpr*> group(&order_group_, &body.group);
  step_counters_.clear();
  if (!order.lanes.empty()) {
    for (auto& [stream, steps] : EvalLanes(order.lanes))
      body.streams.emplace_back(stream, ir::Schedule{std::move(steps)});
    return body;
  }
  ir::Schedule schedule;
  {
    Restore<ir::Schedule*> sink(&current_->sink, &schedule);
    Value ignored;
    if (ExecBlock(order.body->statements, false, &ignored) == Flow::kReturn) {
      Fail(order.range, DiagKind::kBadOrder, "an order does not return; its steps are listed");
    }
  }
  if (schedule.steps.empty()) {
    Fail(order.range, DiagKind::kBadOrder, "the order lists no steps",
         "leave the directive out for the default: forward, then backward, per microbatch");
  }
  body.streams.emplace_back(ir::InternName("compute"), std::move(schedule));
  return body;
}

ir::DirectiveBody Interpreter::Run(RunStmt& run) {
  ir::RunDirective body;
  std::string mode = Text(run.mode.name);
  if (mode != "strict" && mode != "ready") {
    FailNearest(run.mode.range, DiagKind::kBadArguments, fmt::format("there is no mode '{}'", mode), mode,
                {"strict", "ready"}, "the modes are strict and ready");
  }
  body.ready = mode == "ready";
  if (run.hint != nullptr) {
    if (run.hint->kind != ExprKind::kList && run.hint->kind != ExprKind::kSelector) {
      Fail(run.hint->range, DiagKind::kTypeMismatch, "a hint is a list of passes, [B, F, W]");
    }
    for (Item& item : As<BracketExpr>(*run.hint).items) {
      std::string pass;
      if (item.value != nullptr && item.value->kind == ExprKind::kSelector) {
        pass = std::string(PassName(As<BracketExpr>(*item.value).pass));
      } else if (item.value != nullptr && item.value->kind == ExprKind::kName) {
        pass = Text(As<NameExpr>(*item.value).name);
      }
      if (pass != "F" && pass != "B" && pass != "BI" && pass != "BW" && pass != "W" && pass != "R" &&
          pass != "U") {
        Fail(item.range, DiagKind::kTypeMismatch, "a hint lists passes: F, B, BI, BW (or W), R, U");
      }
      body.hint.push_back(pass == "W" ? "BW" : pass);
    }
  }
  if (run.where != nullptr) body.select = DirectiveSelector(*run.where);
  return body;
}

ir::DirectiveBody Interpreter::Cost(CostStmt& cost) {
  ir::CostDirective body;
  Expr& target = *cost.target;
  bool fused = target.kind == ExprKind::kCall && As<CallExpr>(target).callee->kind == ExprKind::kName &&
               As<NameExpr>(*As<CallExpr>(target).callee).name == names::kFused;
  if (fused) {
    Value value = EvalFused(As<CallExpr>(target));
    body.fused = value.as<ScheduleObject>().schedule.steps[0].fused;
    body.select.range = target.range;
  } else {
    body.select = DirectiveSelector(target);
  }
  Value value = Eval(*cost.value);
  bool zero = value.is(ValueKind::kInt) && value.integer() == 0;
  if (zero) {
    body.figure = {0, UnitKind::kTime};
    return body;
  }
  if (!value.is(ValueKind::kQuantity) ||
      (value.unit() != UnitKind::kTime && value.unit() != UnitKind::kBytes)) {
    FailType(cost.value->range, "a cost", "a time such as 100 us, or bytes for messages", value);
  }
  if (!(value.real() >= 0) || value.real() > 9e18) {
    Fail(cost.value->range, DiagKind::kBadCost, fmt::format("a cost of {}", ValueText(value)),
         value.real() > 0 ? "a cost is at most 9000000 s or 8000000 TiB" : "costs are not negative");
  }
  body.figure = value.quantity();
  return body;
}

ir::DirectiveBody Interpreter::Assert(AssertStmt& statement) {
  Expr& condition = *statement.condition;
  constexpr std::string_view kForm = "write for example `assert peak_memory < 70 GiB`";
  if (condition.kind != ExprKind::kChain || As<ChainExpr>(condition).rest.size() != 1) {
    Fail(condition.range, DiagKind::kTypeMismatch, "an assert compares a figure of the plan with a bound",
         std::string(kForm));
  }
  auto& chain = As<ChainExpr>(condition);
  ir::AssertDirective body;
  using Compare = ir::AssertDirective::Compare;
  switch (chain.rest[0].op) {
    case BinaryOp::kLess:
      body.compare = Compare::kLess;
      break;
    case BinaryOp::kLessEqual:
      body.compare = Compare::kLessEqual;
      break;
    case BinaryOp::kGreater:
      body.compare = Compare::kGreater;
      break;
    case BinaryOp::kGreaterEqual:
      body.compare = Compare::kGreaterEqual;
      break;
    case BinaryOp::kEqual:
      body.compare = Compare::kEqual;
      break;
    default:
      Fail(condition.range, DiagKind::kTypeMismatch, "an assert compares a figure of the plan with a bound",
           std::string(kForm));
  }
  struct Metric {
    std::string_view name;
    UnitKind unit;  // kNone: a share, which may also be written in percent
  };
  static constexpr Metric kMetrics[] = {{"step_time", UnitKind::kTime}, {"peak_memory", UnitKind::kBytes},
                                        {"bubble", UnitKind::kNone},    {"exposed", UnitKind::kNone},
                                        {"bytes", UnitKind::kBytes},    {"mfu", UnitKind::kNone}};
  std::vector<std::string> known;
  for (const Metric& metric : kMetrics) known.emplace_back(metric.name);
  Expr* figure = chain.first;
  const CallExpr* call = nullptr;
  if (figure->kind == ExprKind::kCall) {
    call = &As<CallExpr>(*figure);
    figure = call->callee;
  }
  if (figure->kind != ExprKind::kName) {
    Fail(figure->range, DiagKind::kTypeMismatch, "an assert begins with a figure of the plan",
         fmt::format("the figures are {}", fmt::join(known, ", ")));
  }
  body.metric = Text(As<NameExpr>(*figure).name);
  const Metric* metric = nullptr;
  for (const Metric& m : kMetrics) {
    if (m.name == body.metric) metric = &m;
  }
  if (metric == nullptr) {
    FailNearest(figure->range, DiagKind::kUnknownName, fmt::format("a plan has no figure '{}'", body.metric),
                body.metric, known, fmt::format("the figures are {}", fmt::join(known, ", ")));
  }
  bool wants_argument = body.metric == "exposed" || body.metric == "bytes";
  if (wants_argument != (call != nullptr) || (call != nullptr && call->args.size() != 1)) {
    Fail(chain.first->range, DiagKind::kBadArguments,
         wants_argument ? fmt::format("{} takes one argument", body.metric)
                        : fmt::format("{} takes no argument", body.metric),
         body.metric == "exposed" ? "for example exposed([send])"
         : body.metric == "bytes" ? "for example bytes(dp)"
                                  : "");
  }
  if (body.metric == "exposed") body.select = DirectiveSelector(*call->args[0].value);
  if (body.metric == "bytes") {
    Expr& arg = *call->args[0].value;
    CheckAxisName(arg);
    Restore<bool> wanted(&axis_wanted_, true);
    Value axis = Eval(arg);
    if (!axis.is(ValueKind::kAxis)) FailType(arg.range, "the argument of bytes", "an axis", axis);
    for (const AxisObject::Axis& part : axis.as<AxisObject>().axes) {
      body.axis += (body.axis.empty() ? "" : "*") + part.name;
    }
  }
  Expr& bound = *chain.rest[0].operand;
  Value value = Eval(bound);
  if (metric->unit == UnitKind::kNone) {
    // Bubbles are shares of the step, or absolute times.
    if (body.metric == "bubble" && value.is(ValueKind::kQuantity) && value.unit() == UnitKind::kTime) {
      body.bound = value.quantity();
      return body;
    }
    body.bound = {NumberOf(value, bound.range, fmt::format("the bound of {}", body.metric)),
                  UnitKind::kPercent};
    return body;
  }
  if (!value.is(ValueKind::kQuantity) || value.unit() != metric->unit) {
    Fail(bound.range, DiagKind::kUnitMismatch,
         fmt::format("{} is {}, so it cannot be compared with {}", body.metric,
                     ir::UnitKindName(metric->unit), DescribeValue(value)));
  }
  body.bound = value.quantity();
  return body;
}

}  // namespace piper::frontend
