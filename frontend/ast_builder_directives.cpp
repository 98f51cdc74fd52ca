// One function a directive; the simple ones stand in BuildDirective.
#include <fmt/format.h>

#include "frontend/ast_builder.h"
#include "ir/support/result.h"

namespace piper::frontend {

Expr* AstBuilder::AsSelector(Expr* expr) {
  if (expr->kind == ExprKind::kList) expr->kind = ExprKind::kSelector;
  if (expr->kind == ExprKind::kOptional) AsSelector(As<OptionalExpr>(*expr).operand);
  if (expr->kind == ExprKind::kIndex) AsSelector(As<IndexExpr>(*expr).base);
  if (expr->kind == ExprKind::kUnary) AsSelector(As<UnaryExpr>(*expr).operand);
  if (expr->kind == ExprKind::kChain) {
    AsSelector(As<ChainExpr>(*expr).first);
    for (ChainLink& link : As<ChainExpr>(*expr).rest) AsSelector(link.operand);
  }
  return expr;
}

Expr* AstBuilder::TakeSelector(Cursor& cursor) { return AsSelector(TakeExpr(cursor)); }

bool AstBuilder::SetOnce(bool already, SourceRange range, std::string_view what) {
  if (already) {
    Error(range, fmt::format("'{}' is given twice in one directive", what)).Hint("keep one of them");
  }
  return !already;
}

Stmt* AstBuilder::BuildDirective(const SyntaxNode& wrapper) {
  Cursor outer(*this, wrapper);
  const SyntaxNode& node = outer.TakeNode();
  SourceRange range = RangeOf(node);
  Cursor cursor(*this, node);
  if (node.rule != Rule::kMeshDirective) cursor.Drop();  // the directive's word
  switch (node.rule) {
    case Rule::kMeshDirective:
      return BuildMesh(node);
    case Rule::kCutDirective:
      return BuildCut(node);
    case Rule::kSplitDirective:
      return BuildSplit(node);
    case Rule::kShardDirective:
      return BuildShard(node);
    case Rule::kZeroDirective:
      return BuildZero(node);
    case Rule::kOrderDirective:
      return BuildOrder(node);
    case Rule::kRunDirective:
      return BuildRunMode(node);
    case Rule::kPlaceDirective: {
      auto* place = New<PlaceStmt>(StmtKind::kPlace, range);
      place->selector = TakeSelector(cursor);
      cursor.Skip(Tok::kOn);
      place->group = TakeExpr(cursor);
      return place;
    }
    case Rule::kEdgeDirective: {
      auto* edge = New<EdgeStmt>(StmtKind::kEdge, range);
      edge->from = TakeSelector(cursor);
      cursor.Skip(Tok::kArrow);
      edge->to = TakeSelector(cursor);
      if (cursor.Skip(Tok::kDistance)) edge->distance = TakeExpr(cursor);
      return edge;
    }
    case Rule::kLimitDirective: {
      auto* limit = New<LimitStmt>(StmtKind::kLimit, range);
      limit->count = TakeExpr(cursor);
      cursor.Skip(Tok::kLive);
      limit->selector = TakeSelector(cursor);
      if (cursor.Skip(Tok::kPer)) limit->per = TakeName(cursor);
      return limit;
    }
    case Rule::kStreamDirective: {
      auto* stream = New<StreamStmt>(StmtKind::kStream, range);
      stream->selector = TakeSelector(cursor);
      cursor.Skip(Tok::kOn);
      stream->stream = TakeName(cursor);
      return stream;
    }
    case Rule::kRecomputeDirective: {
      auto* recompute = New<RecomputeStmt>(StmtKind::kRecompute, range);
      recompute->selector = TakeSelector(cursor);
      if (cursor.Skip(Tok::kKeep)) recompute->keep = TakeSelector(cursor);
      return recompute;
    }
    case Rule::kOffloadDirective: {
      auto* offload = New<OffloadStmt>(StmtKind::kOffload, range);
      offload->selector = TakeSelector(cursor);
      cursor.Skip(Tok::kTo);
      offload->to = TakeName(cursor);
      if (cursor.At(Rule::kFields)) offload->settings = BuildFields(cursor.TakeNode());
      return offload;
    }
    case Rule::kFreezeDirective: {
      auto* freeze = New<FreezeStmt>(StmtKind::kFreeze, range);
      freeze->selector = TakeSelector(cursor);
      return freeze;
    }
    case Rule::kOptimizerDirective: {
      auto* optimizer = New<OptimizerStmt>(StmtKind::kOptimizer, range);
      optimizer->mode = TakeName(cursor);
      return optimizer;
    }
    case Rule::kNumericsDirective: {
      auto* numerics = New<NumericsStmt>(StmtKind::kNumerics, range);
      numerics->mode = TakeName(cursor);
      return numerics;
    }
    case Rule::kCostDirective: {
      auto* cost = New<CostStmt>(StmtKind::kCost, range);
      cost->target = TakeSelector(cursor);
      cursor.Skip(Tok::kAssign);
      cost->value = TakeExpr(cursor);
      return cost;
    }
    case Rule::kSlowdownDirective: {
      auto* slowdown = New<SlowdownStmt>(StmtKind::kSlowdown, range);
      slowdown->stream = TakeName(cursor);
      cursor.Skip(Tok::kWith);
      slowdown->with = TakeName(cursor);
      cursor.Skip(Tok::kAssign);
      slowdown->value = TakeExpr(cursor);
      return slowdown;
    }
    case Rule::kAssertDirective: {
      auto* assertion = New<AssertStmt>(StmtKind::kAssert, range);
      assertion->condition = TakeExpr(cursor);
      return assertion;
    }
    case Rule::kUseDirective: {
      auto* use = New<UseStmt>(StmtKind::kUse, range);
      use->strategy = BuildTerm(cursor.TakeNode());
      return use;
    }
    default:
      PIPER_CHECK(false, "not a directive");
      return nullptr;
  }
}

Stmt* AstBuilder::BuildMesh(const SyntaxNode& node) {
  auto* mesh = New<MeshStmt>(StmtKind::kMesh, RangeOf(node));
  Cursor cursor(*this, node);
  cursor.Drop();
  if (cursor.At(Rule::kWord)) mesh->name = TakeBoundName(cursor);
  cursor.Skip(Tok::kLparen);
  std::vector<MeshAxis> axes;
  while (cursor.At(Rule::kMeshAxis)) {
    const SyntaxNode& axis_node = cursor.TakeNode();
    Cursor inner(*this, axis_node);
    MeshAxis axis;
    axis.range = RangeOf(axis_node);
    axis.name = NameOf(inner.TakeToken());
    CheckBound(axis.name);
    inner.Skip(Tok::kAssign);
    axis.size = TakeExpr(inner);
    if (inner.Skip(Tok::kWithin)) axis.within = TakeName(inner);
    axes.push_back(axis);
    cursor.Skip(Tok::kComma);
  }
  cursor.Skip(Tok::kRparen);
  mesh->axes = ast_.arena.Copy(axes);
  if (cursor.Skip(Tok::kOn)) mesh->devices = BuildTerm(cursor.TakeNode());
  if (cursor.Skip(Tok::kFolds)) mesh->folds = TakeName(cursor);
  return mesh;
}

Stmt* AstBuilder::BuildCut(const SyntaxNode& node) {
  auto* cut = New<CutStmt>(StmtKind::kCut, RangeOf(node));
  Cursor cursor(*this, node);
  std::vector<NameRef> tags;
  do {
    cursor.Drop();  // 'cut' or ','
    tags.push_back(TakeName(cursor));
  } while (cursor.At(Tok::kComma));
  cut->tags = ast_.arena.Copy(tags);
  cursor.Skip(Tok::kInto);
  cut->into = TakeExpr(cursor);
  cursor.Skip(Tok::kAs);
  cut->as = TakeName(cursor);
  return cut;
}

Stmt* AstBuilder::BuildSplit(const SyntaxNode& node) {
  auto* split = New<SplitStmt>(StmtKind::kSplit, RangeOf(node));
  Cursor cursor(*this, node);
  cursor.Drop();
  if (cursor.At(Rule::kBracket)) split->within = AsSelector(BuildBracket(cursor.TakeNode()));
  NameRef dim = TakeName(cursor);
  if (cursor.Skip(Tok::kBy)) split->by = TakeName(cursor);
  std::vector<SplitPart> parts;
  do {
    cursor.Drop();  // 'into' or ','
    const SyntaxNode& part_node = cursor.TakeNode();
    Cursor inner(*this, part_node);
    SplitPart part;
    part.range = RangeOf(part_node);
    Expr* first = TakeExpr(inner);
    if (inner.Skip(Tok::kInto)) {
      if (first->kind == ExprKind::kName) {
        dim = {As<NameExpr>(*first).name, first->range};
      } else {
        Error(first->range, "what is split must be a dimension's name")
            .Hint("write: split batch into m as mb, seq into 4 as chunk");
      }
      first = TakeExpr(inner);
    }
    part.dim = dim;
    part.into = first;
    inner.Skip(Tok::kAs);
    part.as = TakeName(inner);
    part.uneven = inner.Skip(Tok::kUneven);
    parts.push_back(part);
  } while (cursor.At(Tok::kComma));
  split->parts = ast_.arena.Copy(parts);
  return split;
}

Stmt* AstBuilder::BuildShard(const SyntaxNode& node) {
  auto* shard = New<ShardStmt>(StmtKind::kShard, RangeOf(node));
  Cursor cursor(*this, node);
  std::vector<NameRef> dims;
  do {
    cursor.Drop();  // 'shard' or '|'
    dims.push_back(TakeName(cursor));
  } while (cursor.At(Tok::kBar));
  shard->dims = ast_.arena.Copy(dims);
  cursor.Skip(Tok::kOver);
  shard->axis = TakeExpr(cursor);
  while (!cursor.done()) {
    const SyntaxNode& clause = cursor.TakeNode();
    Cursor inner(*this, clause);
    SourceRange range = RangeOf(clause);
    switch (inner.TakeToken().kind) {
      case Tok::kWhere: {
        Expr* where = TakeSelector(inner);
        if (SetOnce(shard->where != nullptr, range, "where")) shard->where = where;
        break;
      }
      case Tok::kAs:
        if (SetOnce(shard->as.name != kNoName, range, "as")) shard->as = TakeName(inner);
        break;
      case Tok::kVia:
        if (SetOnce(shard->via.name != kNoName, range, "via")) shard->via = TakeName(inner);
        break;
      case Tok::kCapacity: {
        Expr* capacity = BuildTerm(inner.TakeNode());
        if (SetOnce(shard->capacity != nullptr, range, "capacity")) shard->capacity = capacity;
        break;
      }
      default: {  // with
        NameRef operation = TakeName(inner);
        inner.Skip(Tok::kBy);
        Expr* method = BuildTerm(inner.TakeNode());
        if (SetOnce(shard->method != nullptr, range, "with")) {
          shard->operation = operation;
          shard->method = method;
        }
        break;
      }
    }
  }
  return shard;
}

Stmt* AstBuilder::BuildZero(const SyntaxNode& node) {
  auto* zero = New<ZeroStmt>(StmtKind::kZero, RangeOf(node));
  Cursor cursor(*this, node);
  cursor.Drop();
  Cursor level(*this, cursor.TakeNode());
  if (level.At(Tok::kInt)) {
    zero->level = BuildLiteral(level.TakeToken());
  } else if (level.Skip(Tok::kLparen)) {
    zero->level = TakeExpr(level);
  } else {
    zero->level = BuildName(TakeName(level));
  }
  if (cursor.At(Rule::kSelector)) {
    const SyntaxNode& selector = cursor.TakeNode();
    zero->selector = AsSelector(BuildChainOfSuffixes(Cursor(*this, selector), selector.begin));
  }
  while (cursor.At(Rule::kZeroClause)) {
    const SyntaxNode& clause = cursor.TakeNode();
    Cursor inner(*this, clause);
    SourceRange range = RangeOf(clause);
    switch (inner.TakeToken().kind) {
      case Tok::kPer:
        if (SetOnce(zero->per.name != kNoName, range, "per")) zero->per = TakeName(inner);
        break;
      case Tok::kAs:
        if (SetOnce(zero->as.name != kNoName, range, "as")) zero->as = TakeName(inner);
        break;
      default: {
        Expr* where = TakeSelector(inner);
        if (SetOnce(zero->selector != nullptr, range, "a selector")) zero->selector = where;
        break;
      }
    }
  }
  if (cursor.At(Rule::kFields)) zero->settings = BuildFields(cursor.TakeNode());
  return zero;
}

Stmt* AstBuilder::BuildOrder(const SyntaxNode& node) {
  auto* order = New<OrderStmt>(StmtKind::kOrder, RangeOf(node));
  Cursor cursor(*this, node);
  cursor.Drop();
  cursor.Skip(Tok::kOn);
  order->group = TakeExpr(cursor);
  const SyntaxNode& block = cursor.TakeNode();
  std::vector<Stmt*> loose;
  std::vector<Lane> lanes;
  BuildStatements(block, loose, lanes);
  if (!lanes.empty() && !loose.empty()) {
    Error(loose.front()->range, "steps stand before the first stream of this order")
        .Note(lanes.front().stream.range, "the first stream's name is here")
        .Hint("give them a stream, such as 'compute:'");
    loose.clear();
  }
  order->body = ast_.arena.New<Block>();
  order->body->range = RangeOf(block);
  order->body->statements = ast_.arena.Copy(loose);
  order->lanes = ast_.arena.Copy(lanes);
  return order;
}

Stmt* AstBuilder::BuildRunMode(const SyntaxNode& node) {
  auto* run = New<RunStmt>(StmtKind::kRun, RangeOf(node));
  Cursor cursor(*this, node);
  cursor.Drop();
  run->mode = TakeName(cursor);
  if (cursor.Skip(Tok::kHint)) run->hint = TakeExpr(cursor);
  if (cursor.Skip(Tok::kWhere)) run->where = TakeSelector(cursor);
  return run;
}

}  // namespace piper::frontend
