// Statements; those of strategies that are directives are in ast_builder_directives.cpp.
#include <fmt/format.h>

#include "frontend/ast_builder.h"
#include "frontend/steps_literal.h"

namespace piper::frontend {

Block* AstBuilder::BuildBlock(const SyntaxNode& node) {
  Block* block = ast_.arena.New<Block>();
  block->range = RangeOf(node);
  std::vector<Stmt*> statements;
  std::vector<Lane> lanes;
  BuildStatements(node, statements, lanes);
  for (const Lane& lane : lanes) {
    Error(lane.stream.range,
          fmt::format("'{}:' names a stream, and this block has none", ast_.names.Text(lane.stream.name)))
        .Hint("streams are named in 'lanes { .. }' and in 'order on .. { .. }'");
    break;
  }
  block->statements = ast_.arena.Copy(statements);
  return block;
}

void AstBuilder::BuildStatements(const SyntaxNode& node, std::vector<Stmt*>& loose,
                                 std::vector<Lane>& lanes) {
  Deeper deeper(*this, 1);
  if (TooDeep(RangeOf(node))) return;
  std::vector<Stmt*> steps;
  auto flush = [&] {
    if (!lanes.empty()) lanes.back().steps = ast_.arena.Copy(steps);
    steps.clear();
  };
  for (Cursor cursor(*this, node); !cursor.done();) {
    if (cursor.AtToken()) {
      cursor.Drop();
      continue;
    }
    const SyntaxNode& child = cursor.TakeNode();
    Cursor inner(*this, child);
    if (inner.At(Tok::kLabel)) {
      flush();
      lanes.push_back({NameOf(inner.TakeToken()), {}});
      continue;
    }
    Stmt* stmt = BuildStatement(child);
    bool first = loose.empty() && steps.empty();
    if (!first && stmt->kind == StmtKind::kExpr && text_[stmt->range.begin] == '-') {
      Error({file_, stmt->range.begin, stmt->range.begin + 1},
            "a statement after another cannot begin with '-'")
          .Hint(
              "to go on with the line above, end that with '-'; for a negative value, write 'return -x' or "
              "'(-x)'");
    }
    (lanes.empty() ? loose : steps).push_back(stmt);
  }
  flush();
}

// A child of block or of directiveBlock.
Stmt* AstBuilder::BuildStatement(const SyntaxNode& wrapper) {
  Cursor outer(*this, wrapper);
  const SyntaxNode& node = outer.TakeNode();
  switch (node.rule) {
    case Rule::kForStmt:
    case Rule::kDirectiveFor:
      return BuildFor(node);
    case Rule::kIfStmt:
    case Rule::kDirectiveIf:
      return BuildIf(node);
    case Rule::kFnDecl: {
      auto* fn = New<FnStmt>(StmtKind::kFn, RangeOf(node));
      fn->fn = BuildFn(node);
      return fn;
    }
    case Rule::kLanesStmt:
      return BuildLanes(node);
    case Rule::kSimpleStmt:
      return BuildSimple(node);
    case Rule::kLetStmt:
      return BuildLet(node);
    case Rule::kDirective:
      return BuildDirective(node);
    case Rule::kAssignment:
      return BuildAssignment(node);
    default: {  // overrideDirective
      Cursor inner(*this, node);
      inner.Drop();
      Stmt* stmt = BuildDirective(inner.TakeNode());
      stmt->overrides = true;
      stmt->range = RangeOf(node);
      return stmt;
    }
  }
}

Stmt* AstBuilder::BuildSimple(const SyntaxNode& node) {
  SourceRange range = RangeOf(node);
  Cursor cursor(*this, node);
  if (cursor.At(Rule::kLetStmt)) return BuildLet(cursor.TakeNode());
  if (cursor.Skip(Tok::kReturn)) {
    auto* stmt = New<ReturnStmt>(StmtKind::kReturn, range);
    if (!cursor.done()) stmt->value = TakeExpr(cursor);
    return stmt;
  }
  if (cursor.Skip(Tok::kExpect)) {
    auto* stmt = New<ExpectStmt>(StmtKind::kExpect, range);
    stmt->condition = TakeExpr(cursor);
    return stmt;
  }
  if (cursor.Skip(Tok::kSteps)) return BuildSteps(cursor, range);
  Expr* value = TakeExpr(cursor);
  if (!cursor.done()) {
    const Token& op = cursor.TakeToken();
    return FinishAssign(range, op, value, TakeExpr(cursor));
  }
  if (value->kind == ExprKind::kName && As<NameExpr>(*value).name == names::kBarrier) {
    return New<Stmt>(StmtKind::kBarrier, range);
  }
  auto* stmt = New<ExprStmt>(StmtKind::kExpr, range);
  stmt->value = value;
  return stmt;
}

Stmt* AstBuilder::BuildSteps(Cursor& cursor, SourceRange range) {
  auto* stmt = New<StepsStmt>(StmtKind::kSteps, range);
  const Token& literal = cursor.TakeToken();
  stmt->literal_range = RangeOf(literal);
  std::string_view text = TextOf(literal).substr(1, literal.end - literal.begin - 2);
  if (auto error = DecodeSteps(text, ast_.arena, &stmt->runs)) {
    uint32_t begin = literal.begin + 1;
    Error({file_, begin + static_cast<uint32_t>(error->begin), begin + static_cast<uint32_t>(error->end)},
          error->message)
        .Hint(error->hint);
  }
  if (!cursor.done()) stmt->within = AsSelector(BuildBracket(cursor.TakeNode()));
  return stmt;
}

Stmt* AstBuilder::FinishAssign(SourceRange range, const Token& op, Expr* target, Expr* value) {
  auto* stmt = New<AssignStmt>(StmtKind::kAssign, range);
  stmt->op = op.kind == Tok::kAssign      ? AssignOp::kSet
             : op.kind == Tok::kAddAssign ? AssignOp::kAdd
                                          : AssignOp::kSubtract;
  stmt->target = target;
  stmt->value = value;
  bool assignable = target->kind == ExprKind::kName || target->kind == ExprKind::kIndex ||
                    target->kind == ExprKind::kMember;
  if (!assignable) {
    Error(target->range, "this cannot be assigned to", ir::DiagKind::kNotAssignable)
        .Hint("assign to a 'var' name or to an element of one; to compare, write '=='");
  }
  return stmt;
}

Stmt* AstBuilder::BuildAssignment(const SyntaxNode& node) {
  Cursor cursor(*this, node);
  // plainWord suffix* [op expr]: the suffixes end where the operator stands.
  Expr* target = BuildName(TakeName(cursor));
  int suffixes = 0;
  while (cursor.At(Rule::kSuffix)) {
    Expr* next = BuildSuffix(target, cursor.TakeNode());
    if (++suffixes <= kMaxDepth) target = next;
  }
  if (suffixes > kMaxDepth) {
    Error(target->range, fmt::format("more than {} calls, indices and members in a row", kMaxDepth),
          ir::DiagKind::kTooDeep)
        .Hint("name an inner part with 'let'");
  }
  if (cursor.done()) {
    Error(RangeOf(node), "this statement does nothing in a strategy: an expression is no directive")
        .Hint(target->kind == ExprKind::kCall
                  ? "to apply a strategy, write: use name(..)"
                  : "a strategy holds directives, for, if, let, var and assignments");
    auto* stmt = New<ExprStmt>(StmtKind::kExpr, RangeOf(node));
    stmt->value = target;
    return stmt;
  }
  const Token& op = cursor.TakeToken();
  return FinishAssign(RangeOf(node), op, target, TakeExpr(cursor));
}

LetStmt* AstBuilder::BuildLet(const SyntaxNode& node) {
  auto* stmt = New<LetStmt>(StmtKind::kLet, RangeOf(node));
  Cursor cursor(*this, node);
  stmt->is_var = cursor.TakeToken().kind == Tok::kVar;
  stmt->pattern = BuildPattern(cursor.TakeNode());
  if (cursor.Skip(Tok::kColon)) stmt->type = BuildType(cursor.TakeNode());
  cursor.Skip(Tok::kAssign);
  stmt->value = TakeExpr(cursor);
  if (stmt->type != nullptr && stmt->type->name.name == names::kSel) AsSelector(stmt->value);
  return stmt;
}

Stmt* AstBuilder::BuildFor(const SyntaxNode& node) {
  auto* stmt = New<ForStmt>(StmtKind::kFor, RangeOf(node));
  Cursor cursor(*this, node);
  cursor.Drop();
  ForClause clause = BuildClause(cursor.TakeNode());
  stmt->pattern = clause.pattern;
  stmt->iterable = clause.iterable;
  stmt->body = BuildBlock(cursor.TakeNode());
  return stmt;
}

Stmt* AstBuilder::BuildIf(const SyntaxNode& node) {
  auto* stmt = New<IfStmt>(StmtKind::kIf, RangeOf(node));
  stmt->branches = BuildBranches(node);
  return stmt;
}

// ifStmt, ifValue, directiveIf
List<IfBranch> AstBuilder::BuildBranches(const SyntaxNode& node) {
  Cursor cursor(*this, node);
  cursor.Drop();
  std::vector<IfBranch> branches;
  IfBranch first;
  first.condition = TakeExpr(cursor);
  first.body = BuildBlock(cursor.TakeNode());
  branches.push_back(first);
  while (!cursor.done()) {
    const Token& word = cursor.TakeToken();  // else
    Cursor tail(*this, cursor.TakeNode());
    IfBranch branch;
    bool after_else = branches.back().condition == nullptr;
    if (tail.Skip(Tok::kIf)) branch.condition = TakeExpr(tail);
    branch.body = BuildBlock(tail.TakeNode());
    if (after_else) {
      Error(RangeOf(word), "an 'else' already closed this 'if'").Hint("put the plain 'else' last");
      continue;
    }
    branches.push_back(branch);
  }
  return ast_.arena.Copy(branches);
}

Stmt* AstBuilder::BuildLanes(const SyntaxNode& node) {
  auto* stmt = New<LanesStmt>(StmtKind::kLanes, RangeOf(node));
  Cursor cursor(*this, node);
  cursor.Drop();
  std::vector<Stmt*> loose;
  std::vector<Lane> lanes;
  BuildStatements(cursor.TakeNode(), loose, lanes);
  if (!loose.empty()) {
    Error(loose.front()->range, "a step in 'lanes' must follow a stream's name")
        .Hint("write: lanes { compute: steps; a2a: steps }");
  }
  stmt->lanes = ast_.arena.Copy(lanes);
  return stmt;
}

ForClause AstBuilder::BuildClause(const SyntaxNode& node) {
  Cursor cursor(*this, node);
  ForClause clause;
  clause.pattern = BuildPattern(cursor.TakeNode());
  cursor.Skip(Tok::kIn);
  clause.iterable = TakeExpr(cursor);
  return clause;
}

Pattern AstBuilder::BuildPattern(const SyntaxNode& node) {
  Pattern pattern;
  pattern.range = RangeOf(node);
  std::vector<NameRef> bound;
  for (Cursor cursor(*this, node); !cursor.done();) {
    if (cursor.At(Rule::kWord)) {
      bound.push_back(TakeBoundName(cursor));
    } else {
      cursor.Drop();
    }
  }
  pattern.names = ast_.arena.Copy(bound);
  pattern.tuple = bound.size() > 1;
  return pattern;
}

}  // namespace piper::frontend
