// Strategies: their arguments, overrides and frames, the uses that lead to a directive, and what a strategy
// may ask of the model.
#include <fmt/format.h>

#include <algorithm>

#include "frontend/interpreter.h"

namespace piper::frontend {

using ir::DiagKind;

Value Interpreter::EvaluateUsing(const FunctionInfo& unit, Expr& expr,
                                 std::vector<ArgumentOverride>* overrides) {
  // Overrides reach the outermost call only, not strategies passed as arguments.
  Value value;
  WithFrame(unit, {}, [&] {
    Restore<std::vector<ArgumentOverride>*> restore(&argument_overrides_, overrides);
    value = Eval(expr);
  });
  return value;
}

void Interpreter::EvaluateStrategy(const Value& strategy, SourceRange range, const ir::Graph& model,
                                   const ir::Topology& topology, std::vector<ArgumentOverride>* overrides,
                                   std::vector<ir::Directive>* out) {
  StrategySession session;
  session.model = &model;
  session.topology = &topology;
  session.out = out;
  Restore<StrategySession*> restore(&strategy_, &session);
  Value applied = strategy;
  if (applied.is(ValueKind::kStrategyDecl)) {
    auto* object = new StrategyObject;
    object->info = applied.as<StrategyDeclObject>().info;
    object->range = range;
    applied = Value::Of(ValueKind::kStrategy, object);
    Restore<std::vector<ArgumentOverride>*> in_force(&argument_overrides_, overrides);
    Given given(object->info->function.params.size());
    object->arguments.resize(given.size());
    ApplyOverrides(object->info->function.params, object->arguments.data(), &given);
    FinishStrategy(object, range, given);
  }
  if (!applied.is(ValueKind::kStrategy)) FailType(range, "what `using` applies", "a strategy", strategy);
  size_t errors = diag_->error_count();
  RunStrategy(applied.as<StrategyObject>(), range, true);
  if (diag_->error_count() > errors) throw Abort{};
}

// Types and defaults of a strategy's arguments, in a frame of its own.
void Interpreter::FinishStrategy(StrategyObject* strategy, SourceRange range, const Given& given) {
  const FunctionInfo& info = strategy->info->function;
  WithFrame(info, {}, [&] {
    for (size_t i = 0; i < given.size(); ++i) current_->slots[i] = strategy->arguments[i];
    FinishArguments(info.params, info.name, range, current_->slots, given);
    for (size_t i = 0; i < given.size(); ++i) strategy->arguments[i] = current_->slots[i];
  });
}

void Interpreter::RunStrategy(const StrategyObject& strategy, SourceRange range, bool entry) {
  const FunctionInfo& info = strategy.info->function;
  Burn(2, range);
  CheckStack(range);
  constexpr size_t kDeepest = 64;
  if (strategy_->used_from.size() > kDeepest) {
    Fail(range, DiagKind::kFuelExhausted,
         fmt::format("strategies use each other more than {} deep", kDeepest));
  }
  WithFrame(info, range, [&] {
    current_->entry = entry;
    for (size_t i = 0; i < strategy.arguments.size(); ++i) current_->slots[i] = strategy.arguments[i];
    CheckRequirements(info, current_->slots, range);
    strategy_->used_from.insert(strategy_->used_from.begin(), range);
    Value ignored;
    ExecBlock(strategy.info->decl->body->statements, false, &ignored);
    strategy_->used_from.erase(strategy_->used_from.begin());
  });
}

void Interpreter::Emit(const Stmt& statement, ir::DirectiveBody body) {
  ir::Directive directive;
  directive.body = std::move(body);
  directive.range = statement.range;
  directive.overrides = statement.overrides;
  directive.used_from = strategy_->used_from;
  strategy_->out->push_back(std::move(directive));
}

// A tag of the model, or one that cut or split made.
void Interpreter::Lose(Stmt& directive) {
  switch (directive.kind) {
    case StmtKind::kMesh:
      for (const MeshAxis& axis : As<MeshStmt>(directive).axes)
        strategy_->lost.push_back(Text(axis.name.name));
      break;
    case StmtKind::kCut:
      strategy_->lost.push_back(Text(As<CutStmt>(directive).as.name));
      break;
    case StmtKind::kSplit:
      for (const SplitPart& part : As<SplitStmt>(directive).parts)
        strategy_->lost.push_back(Text(part.as.name));
      break;
    default:
      break;
  }
}

void Interpreter::SilentIfLost(std::string_view name) const {
  if (strategy_ == nullptr) return;
  if (std::find(strategy_->lost.begin(), strategy_->lost.end(), name) != strategy_->lost.end()) throw Abort{};
}

int64_t Interpreter::CountOfTag(std::string_view tag, SourceRange range) {
  if (strategy_ == nullptr) {
    Fail(range, DiagKind::kNoSuchTag, fmt::format("the tag '{}' has no count here: no model is given", tag),
         "tags are counted in a strategy");
  }
  for (const auto& [name, count] : strategy_->counts) {
    if (name == tag) return count;
  }
  int64_t count = 0;
  std::vector<std::string> known;
  for (const ir::TagPath& path : strategy_->model->tag_paths) {
    for (const ir::TagInstance& instance : path) {
      if (instance.name == tag) count = std::max(count, instance.index + 1);
      if (std::find(known.begin(), known.end(), instance.name) == known.end()) known.push_back(instance.name);
    }
  }
  if (count > 0) return count;
  SilentIfLost(tag);
  for (const auto& [name, _] : strategy_->counts) known.push_back(name);
  FailNearest(range, DiagKind::kNoSuchTag, fmt::format("the model has no tag '{}'", tag), tag, known,
              known.empty() ? "the model marks no regions: write `tag name { .. }` in its forward"
                            : fmt::format("its tags are {}", fmt::join(known, ", ")));
}

int64_t Interpreter::SizeOfDim(std::string_view dim, SourceRange range) {
  if (strategy_ == nullptr) {
    Fail(range, DiagKind::kUnknownDim,
         fmt::format("the dimension '{}' has no size here: no model is given", dim));
  }
  int64_t size = strategy_->model->DimSize(dim);
  if (size > 0) return size;
  std::vector<std::string> known;
  for (const ir::Value& value : strategy_->model->values) {
    for (const ir::Dim& d : value.type.dims) {
      if (std::find(known.begin(), known.end(), d.name) == known.end()) known.push_back(d.name);
    }
  }
  FailNearest(range, DiagKind::kUnknownDim, fmt::format("the model has no dimension '{}'", dim), dim, known,
              fmt::format("its dimensions are {}", fmt::join(known, ", ")));
}

void Interpreter::CheckTag(std::string_view tag, SourceRange range) { (void)CountOfTag(tag, range); }

ir::Selector Interpreter::DirectiveSelector(Expr& expr) { return EvalSelector(expr); }

}  // namespace piper::frontend
