// Concrete tree -> ast.h: resolves operator precedence on flat chains, tells selectors from lists, decodes
// literals, and checks what the grammar leaves open (duplicate clauses, argument order, lanes). Reports
// through `diag` and always returns whole nodes: where something is wrong a placeholder stands. Internal to
// frontend/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "frontend/ast.h"
#include "frontend/syntax.h"
#include "ir/support/diagnostics.h"
#include "ir/support/source.h"

namespace piper::frontend {

class AstBuilder {
 public:
  // Everything is borrowed; `tokens` is the list that `tree` refers to.
  AstBuilder(ir::FileId file, std::string_view text, const std::vector<Token>& tokens, const SyntaxTree& tree,
             Ast& ast, ir::DiagnosticEngine& diag)
      : file_(file), text_(text), tokens_(tokens), tree_(tree), ast_(ast), diag_(diag) {}

  void BuildFile(std::vector<Decl*>& decls);
  Expr* BuildLoneExpr();

 private:
  // Walks the children of one node from left to right.
  class Cursor {
   public:
    Cursor(const AstBuilder& builder, const SyntaxNode& node)
        : builder_(builder), at_(node.first_child), end_(node.first_child + node.child_count) {}
    bool done() const { return at_ == end_; }
    bool AtToken() const { return !done() && (child() & kTokenBit) != 0; }
    bool At(Tok kind) const { return AtToken() && builder_.TokenOf(child()).kind == kind; }
    bool At(Rule rule) const { return !done() && !AtToken() && builder_.tree_.nodes[child()].rule == rule; }
    const Token& TakeToken() { return builder_.TokenOf(builder_.tree_.children[at_++]); }
    const SyntaxNode& TakeNode() { return builder_.tree_.nodes[builder_.tree_.children[at_++]]; }
    // Steps over a token of this kind, if it is next.
    bool Skip(Tok kind) {
      if (!At(kind)) return false;
      ++at_;
      return true;
    }
    void Drop() { ++at_; }

   private:
    uint32_t child() const { return builder_.tree_.children[at_]; }
    const AstBuilder& builder_;
    uint32_t at_, end_;
  };

  struct Operand;  // a term with its prefix operators apart

  // ---- ast_builder.cpp: helpers, declarations, types
  const Token& TokenOf(uint32_t child) const { return tokens_[child & ~kTokenBit]; }
  std::string_view TextOf(const Token& token) const {
    return text_.substr(token.begin, token.end - token.begin);
  }
  SourceRange RangeOf(const Token& token) const { return {file_, token.begin, token.end}; }
  SourceRange RangeOf(const SyntaxNode& node) const { return {file_, node.begin, node.end}; }
  template <typename T, typename Kind>
  T* New(Kind kind, SourceRange range) {
    T* node = ast_.arena.New<T>();
    node->kind = kind;
    node->range = range;
    return node;
  }
  ir::DiagnosticEngine::Builder Error(SourceRange range, std::string message,
                                      ir::DiagKind kind = ir::DiagKind::kSyntax) {
    return diag_.Error(range, kind, std::move(message));
  }
  NameRef NameOf(const Token& token);
  NameRef NameOf(const SyntaxNode& node);  // a word, plainWord, memberName
  NameRef TakeName(Cursor& cursor) { return NameOf(cursor.TakeNode()); }
  // As NameOf, for a name that is bound here: a pass's is refused.
  NameRef TakeBoundName(Cursor& cursor);
  void CheckBound(const NameRef& name);
  std::string_view TakeString(Cursor& cursor, SourceRange* range);
  std::string_view DecodeString(const Token& token);

  Decl* BuildDecl(const SyntaxNode& node);
  Decl* BuildImport(const SyntaxNode& node);
  Decl* BuildModule(const SyntaxNode& node);
  ModuleMember BuildMember(const SyntaxNode& node);
  Decl* BuildTopology(const SyntaxNode& node);
  TopologyItem BuildTopologyItem(const SyntaxNode& node);
  List<Property> BuildProperties(const SyntaxNode& node);
  Property BuildProperty(const SyntaxNode& node);
  Decl* BuildStrategy(const SyntaxNode& node);
  Decl* BuildRun(const SyntaxNode& node);
  Decl* BuildTest(const SyntaxNode& node);
  List<Field> BuildFields(const SyntaxNode& node);
  Field BuildField(const SyntaxNode& node);
  FnDecl* BuildFn(const SyntaxNode& node);  // fnDecl, forwardDecl, lambda
  List<Param> BuildParams(const SyntaxNode& node);
  List<Requirement> TakeRequirements(Cursor& cursor);
  TypeRef* BuildType(const SyntaxNode& node);
  TypeRef* BuildBracketType(const SyntaxNode& node);
  TypeRef* TypeOfExpr(const Expr& expr);

  // ---- ast_builder_statements.cpp
  Block* BuildBlock(const SyntaxNode& node);  // block, directiveBlock; refuses labels
  void BuildStatements(const SyntaxNode& node, std::vector<Stmt*>& loose, std::vector<Lane>& lanes);
  Stmt* BuildStatement(const SyntaxNode& node);
  Stmt* BuildSimple(const SyntaxNode& node);
  Stmt* BuildSteps(Cursor& cursor, SourceRange range);
  LetStmt* BuildLet(const SyntaxNode& node);
  Stmt* BuildFor(const SyntaxNode& node);
  Stmt* BuildIf(const SyntaxNode& node);
  List<IfBranch> BuildBranches(const SyntaxNode& node);
  Stmt* BuildLanes(const SyntaxNode& node);
  Stmt* BuildAssignment(const SyntaxNode& node);
  Stmt* FinishAssign(SourceRange range, const Token& op, Expr* target, Expr* value);
  ForClause BuildClause(const SyntaxNode& node);
  Pattern BuildPattern(const SyntaxNode& node);

  // ---- ast_builder_directives.cpp
  Stmt* BuildDirective(const SyntaxNode& node);
  Stmt* BuildMesh(const SyntaxNode& node);
  Stmt* BuildCut(const SyntaxNode& node);
  Stmt* BuildSplit(const SyntaxNode& node);
  Stmt* BuildShard(const SyntaxNode& node);
  Stmt* BuildZero(const SyntaxNode& node);
  Stmt* BuildOrder(const SyntaxNode& node);
  Stmt* BuildRunMode(const SyntaxNode& node);
  Expr* TakeSelector(Cursor& cursor);  // an expression that must be a selector
  Expr* AsSelector(Expr* expr);
  bool SetOnce(bool already, SourceRange range, std::string_view what);

  // ---- ast_builder_expr.cpp
  Expr* BuildExpr(const SyntaxNode& node);
  Expr* TakeExpr(Cursor& cursor) { return BuildExpr(cursor.TakeNode()); }
  Expr* BuildTerm(const SyntaxNode& node);
  Expr* BuildLevel(const std::vector<Operand>& operands, const std::vector<const Token*>& ops, size_t begin,
                   size_t end, int level);
  Operand SplitTerm(const SyntaxNode& node);
  Expr* BuildOperand(const Operand& operand);
  Expr* WrapPrefix(Expr* expr, UnaryOp op, size_t count, uint32_t begin);
  // The atom and suffixes that remain in `cursor`, of a node that begins at byte `begin`.
  Expr* BuildChainOfSuffixes(Cursor cursor, uint32_t begin);
  Expr* BuildSuffix(Expr* base, const SyntaxNode& node);
  Expr* BuildAtom(const SyntaxNode& node);
  Expr* BuildName(const NameRef& name);
  Expr* BuildLiteral(const Token& token);
  Expr* BuildBracket(const SyntaxNode& node);
  List<Arg> BuildArgs(Cursor& cursor);
  List<Item> BuildItems(Cursor& cursor);
  Item BuildItem(const SyntaxNode& node);
  Expr* Placeholder(SourceRange range);
  bool TooDeep(SourceRange range);

  // Counts levels of the tree being built.
  struct Deeper {
    Deeper(AstBuilder& builder, int levels) : builder(builder), levels(levels) { builder.depth_ += levels; }
    ~Deeper() { builder.depth_ -= levels; }
    Deeper(const Deeper&) = delete;
    AstBuilder& builder;
    int levels;
  };

  ir::FileId file_;
  std::string_view text_;
  const std::vector<Token>& tokens_;
  const SyntaxTree& tree_;
  Ast& ast_;
  ir::DiagnosticEngine& diag_;
  int depth_ = 0;
  int item_depth_ = 0;  // inside selector items, where `x.*` is legal
  int type_depth_ = 0;  // inside a type's brackets, where a bare `fn` is legal
  bool depth_reported_ = false;
};

}  // namespace piper::frontend
