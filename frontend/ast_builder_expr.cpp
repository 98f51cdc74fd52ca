// Expressions: precedence, selectors, literals.
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "frontend/ast_builder.h"
#include "ir/support/result.h"
#include "ir/support/units.h"

namespace piper::frontend {

namespace {

// By rising precedence; kNotLevel is where a prefix `not` binds.
enum Level : int {
  kOrLevel,
  kAndLevel,
  kNotLevel,
  kCompareLevel,
  kByLevel,
  kRangeLevel,
  kAddLevel,
  kMultiplyLevel
};
constexpr int kHighestLevel = kMultiplyLevel;

struct OpInfo {
  BinaryOp op;
  int level;
};

OpInfo InfoOf(Tok kind) {
  switch (kind) {
    case Tok::kOr:
      return {BinaryOp::kOr, kOrLevel};
    case Tok::kAnd:
      return {BinaryOp::kAnd, kAndLevel};
    case Tok::kEqual:
      return {BinaryOp::kEqual, kCompareLevel};
    case Tok::kNotEqual:
      return {BinaryOp::kNotEqual, kCompareLevel};
    case Tok::kLess:
      return {BinaryOp::kLess, kCompareLevel};
    case Tok::kLessEqual:
      return {BinaryOp::kLessEqual, kCompareLevel};
    case Tok::kGreater:
      return {BinaryOp::kGreater, kCompareLevel};
    case Tok::kGreaterEqual:
      return {BinaryOp::kGreaterEqual, kCompareLevel};
    case Tok::kDivides:
      return {BinaryOp::kDivides, kCompareLevel};
    case Tok::kLearns:
      return {BinaryOp::kLearns, kCompareLevel};
    case Tok::kBy:
      return {BinaryOp::kBy, kByLevel};
    case Tok::kRange:
      return {BinaryOp::kRange, kRangeLevel};
    case Tok::kPlus:
      return {BinaryOp::kAdd, kAddLevel};
    case Tok::kMinus:
      return {BinaryOp::kSubtract, kAddLevel};
    case Tok::kStar:
      return {BinaryOp::kMultiply, kMultiplyLevel};
    case Tok::kSlash:
      return {BinaryOp::kDivide, kMultiplyLevel};
    case Tok::kPercent:
      return {BinaryOp::kModulo, kMultiplyLevel};
    case Tok::kAt:
      return {BinaryOp::kContract, kMultiplyLevel};
    default:
      PIPER_CHECK(false, "not an operator");
      return {BinaryOp::kOr, 0};
  }
}

}  // namespace

struct AstBuilder::Operand {
  const SyntaxNode* node = nullptr;
  uint32_t nots = 0;
  uint32_t minuses = 0;
  uint32_t minus_begin = 0;
};

Expr* AstBuilder::Placeholder(SourceRange range) {
  auto* number = New<NumberExpr>(ExprKind::kNumber, range);
  number->is_int = true;
  return number;
}

bool AstBuilder::TooDeep(SourceRange range) {
  if (depth_ <= kMaxTreeDepth) return false;
  if (!depth_reported_) {
    depth_reported_ = true;
    Error(range, fmt::format("this expression is nested more than {} deep", kMaxTreeDepth),
          ir::DiagKind::kTooDeep)
        .Hint("name the inner parts with 'let', or write a function");
  }
  return true;
}

Expr* AstBuilder::BuildLoneExpr() {
  Cursor cursor(*this, tree_.nodes[tree_.root]);
  while (cursor.Skip(Tok::kSemicolon)) {
  }
  return TakeExpr(cursor);
}

Expr* AstBuilder::BuildExpr(const SyntaxNode& node) {
  Deeper deeper(*this, 1);
  if (TooDeep(RangeOf(node))) return Placeholder(RangeOf(node));
  Cursor cursor(*this, node);
  if (node.child_count == 1) return BuildTerm(cursor.TakeNode());
  std::vector<Operand> operands = {SplitTerm(cursor.TakeNode())};
  std::vector<const Token*> ops;
  while (!cursor.done()) {
    ops.push_back(&cursor.TakeToken());
    operands.push_back(SplitTerm(cursor.TakeNode()));
  }
  return BuildLevel(operands, ops, 0, operands.size(), kOrLevel);
}

Expr* AstBuilder::BuildTerm(const SyntaxNode& node) {
  Operand operand = SplitTerm(node);
  Deeper deeper(*this, static_cast<int>(operand.nots));
  Expr* inner = BuildOperand(operand);
  if (operand.nots > 0) AsSelector(inner);
  return WrapPrefix(inner, UnaryOp::kNot, operand.nots, node.begin);
}

AstBuilder::Operand AstBuilder::SplitTerm(const SyntaxNode& node) {
  Operand operand;
  operand.node = &node;
  for (Cursor cursor(*this, node); cursor.AtToken();) {
    const Token& token = cursor.TakeToken();
    if (token.kind == Tok::kMinus) {
      if (operand.minuses == 0) operand.minus_begin = token.begin;
      ++operand.minuses;
    } else {
      if (operand.minuses > 0 && operand.nots == 0) {
        Error(RangeOf(token), "'not' cannot stand after '-': it yields no number").Hint("remove one of them");
      }
      ++operand.nots;
    }
  }
  if (operand.nots + operand.minuses > static_cast<uint32_t>(kMaxDepth)) {
    if (!depth_reported_) {
      Error(RangeOf(node), fmt::format("more than {} prefix operators in a row", kMaxDepth),
            ir::DiagKind::kTooDeep)
          .Hint("two of the same kind cancel: remove them in pairs");
    }
    depth_reported_ = true;
    operand.nots = operand.minuses = 0;
  }
  return operand;
}

Expr* AstBuilder::BuildOperand(const Operand& operand) {
  Cursor cursor(*this, *operand.node);
  while (cursor.AtToken()) cursor.Drop();
  Deeper deeper(*this, static_cast<int>(operand.minuses));
  uint32_t begin = operand.node->begin;
  if (operand.nots + operand.minuses > 0) {
    Cursor peek = cursor;
    begin = peek.TakeNode().begin;
  }
  Expr* inner = BuildChainOfSuffixes(cursor, begin);
  return WrapPrefix(inner, UnaryOp::kNegate, operand.minuses, operand.minus_begin);
}

Expr* AstBuilder::WrapPrefix(Expr* expr, UnaryOp op, size_t count, uint32_t begin) {
  for (size_t i = 0; i < count; ++i) {
    auto* unary = New<UnaryExpr>(ExprKind::kUnary, SourceRange{file_, begin, expr->range.end});
    unary->op = op;
    unary->operand = expr;
    expr = unary;
  }
  return expr;
}

Expr* AstBuilder::BuildLevel(const std::vector<Operand>& operands, const std::vector<const Token*>& ops,
                             size_t begin, size_t end, int level) {
  if (end - begin == 1 && (operands[begin].nots == 0 || level > kNotLevel))
    return BuildOperand(operands[begin]);
  if (level > kHighestLevel) return BuildOperand(operands[begin]);
  if (level == kNotLevel) {
    for (size_t i = begin + 1; i < end; ++i) {
      if (operands[i].nots > 0) {
        Error(RangeOf(*operands[i].node),
              fmt::format("'not' binds weaker than '{}'", TokText(ops[i - 1]->kind)))
            .Hint("put it in parentheses: a == (not b)");
      }
    }
    Deeper deeper(*this, static_cast<int>(operands[begin].nots));
    Expr* inner = BuildLevel(operands, ops, begin, end, level + 1);
    if (operands[begin].nots > 0) AsSelector(inner);
    return WrapPrefix(inner, UnaryOp::kNot, operands[begin].nots, operands[begin].node->begin);
  }
  size_t first_op = begin;
  while (first_op + 1 < end && InfoOf(ops[first_op]->kind).level != level) ++first_op;
  if (first_op + 1 >= end) return BuildLevel(operands, ops, begin, end, level + 1);

  Deeper deeper(*this, 1);
  auto* chain = New<ChainExpr>(ExprKind::kChain, {});
  if (TooDeep(RangeOf(*operands[begin].node))) return Placeholder(RangeOf(*operands[begin].node));
  chain->first = BuildLevel(operands, ops, begin, first_op + 1, level + 1);
  std::vector<ChainLink> links;
  for (size_t i = first_op; i + 1 < end;) {
    size_t next = i + 1;
    while (next + 1 < end && InfoOf(ops[next]->kind).level != level) ++next;
    ChainLink link;
    link.op = InfoOf(ops[i]->kind).op;
    link.op_range = RangeOf(*ops[i]);
    link.operand = BuildLevel(operands, ops, i + 1, next + 1, level + 1);
    links.push_back(link);
    i = next;
  }
  if (links.size() > 1 && level >= kCompareLevel && level <= kRangeLevel) {
    auto error = Error(links[1].op_range, fmt::format("'{}' cannot follow '{}' in one expression",
                                                      BinaryOpText(links[1].op), BinaryOpText(links[0].op)));
    error.Note(links[0].op_range, "the operator before it is here");
    error.Hint(level == kCompareLevel ? "join comparisons with 'and': a < b and b < c" : "use parentheses");
    links.resize(1);
  }
  // What `or`, `and` and `by` join is never a list: `[embed] or [head]` is two selectors.
  if (level == kOrLevel || level == kAndLevel || level == kByLevel) {
    AsSelector(chain->first);
    for (ChainLink& link : links) {
      if (link.op != BinaryOp::kBy) AsSelector(link.operand);
    }
  }
  chain->rest = ast_.arena.Copy(links);
  chain->range = chain->first->range.Cover(links.back().operand->range);
  return chain;
}

Expr* AstBuilder::BuildChainOfSuffixes(Cursor cursor, uint32_t begin) {
  const SyntaxNode& atom = cursor.TakeNode();
  size_t suffixes = 0;
  for (Cursor count = cursor; !count.done(); count.Drop()) ++suffixes;
  Deeper deeper(*this, static_cast<int>(std::min<size_t>(suffixes, kMaxTreeDepth)));
  if (TooDeep(RangeOf(atom))) return Placeholder(RangeOf(atom));
  Expr* expr = nullptr;
  if (atom.rule == Rule::kPlainWord) {
    expr = BuildName(NameOf(atom));
  } else if (atom.rule == Rule::kBracket) {
    expr = BuildBracket(atom);
  } else {
    expr = BuildAtom(atom);
  }
  while (!cursor.done()) {
    expr = BuildSuffix(expr, cursor.TakeNode());
    expr->range.begin = begin;
  }
  return expr;
}

Expr* AstBuilder::BuildSuffix(Expr* base, const SyntaxNode& node) {
  SourceRange range = base->range.Cover(RangeOf(node));
  Cursor cursor(*this, node);
  const Token& opener = cursor.TakeToken();
  switch (opener.kind) {
    case Tok::kLparen: {
      auto* call = New<CallExpr>(ExprKind::kCall, range);
      call->callee = base;
      call->args = BuildArgs(cursor);
      return call;
    }
    case Tok::kLbracket: {
      if (base->kind == ExprKind::kSelector && !As<BracketExpr>(*base).has_bracket && !base->parenthesized) {
        auto& selector = As<BracketExpr>(*base);
        selector.has_bracket = true;
        selector.items = BuildItems(cursor);
        selector.range = range;
        return base;
      }
      auto* index = New<IndexExpr>(ExprKind::kIndex, range);
      index->base = base;
      index->items = BuildItems(cursor);
      return index;
    }
    case Tok::kDot: {
      auto* member = New<MemberExpr>(ExprKind::kMember, range);
      member->base = base;
      member->member = NameOf(cursor.TakeToken());
      if (member->member.name == names::kStar && item_depth_ == 0) {
        Error(range, "'.*' stands for all parts of a name and belongs in a selector")
            .Hint("write it in brackets: [ep.*]");
      }
      return member;
    }
    default: {
      auto* optional = New<OptionalExpr>(ExprKind::kOptional, range);
      optional->operand = base;
      return optional;
    }
  }
}

Expr* AstBuilder::BuildAtom(const SyntaxNode& node) {
  Cursor cursor(*this, node);
  SourceRange range = RangeOf(node);
  if (cursor.At(Rule::kWord)) return BuildName(TakeName(cursor));
  if (cursor.At(Rule::kBracket)) return BuildBracket(cursor.TakeNode());
  if (cursor.At(Rule::kIfValue)) {
    auto* choice = New<IfExpr>(ExprKind::kIf, range);
    choice->branches = BuildBranches(cursor.TakeNode());
    return choice;
  }
  if (cursor.At(Rule::kLambda)) {
    auto* lambda = New<LambdaExpr>(ExprKind::kLambda, range);
    lambda->fn = BuildFn(cursor.TakeNode());
    return lambda;
  }
  const Token& token = cursor.TakeToken();
  switch (token.kind) {
    case Tok::kLparen: {
      int saved = std::exchange(item_depth_, 0);
      std::vector<Expr*> items = {TakeExpr(cursor)};
      while (cursor.Skip(Tok::kComma)) items.push_back(TakeExpr(cursor));
      item_depth_ = saved;
      if (items.size() == 1) {
        items[0]->parenthesized = true;
        items[0]->range = range;
        return items[0];
      }
      auto* tuple = New<TupleExpr>(ExprKind::kTuple, range);
      tuple->items = ast_.arena.Copy(items);
      return tuple;
    }
    case Tok::kFnType: {
      if (type_depth_ == 0) {
        Error(range, "'fn' alone is a type, not a value")
            .Hint("a function value reads: fn(a: int) -> int { .. }");
      }
      auto* name = New<NameExpr>(ExprKind::kName, range);
      name->name = names::kFn;
      return name;
    }
    case Tok::kTag: {
      auto* tag = New<TagExpr>(ExprKind::kTag, range);
      tag->tag = TakeName(cursor);
      tag->body = BuildBlock(cursor.TakeNode());
      return tag;
    }
    case Tok::kTable: {
      auto* table = New<TableExpr>(ExprKind::kTable, range);
      cursor.Skip(Tok::kFrom);
      table->path = TakeString(cursor, nullptr);
      return table;
    }
    default:
      return BuildLiteral(token);
  }
}

Expr* AstBuilder::BuildName(const NameRef& name) {
  Pass pass = PassOfName(name.name);
  if (pass != Pass::kNone) {
    auto* selector = New<BracketExpr>(ExprKind::kSelector, name.range);
    selector->pass = pass;
    selector->has_bracket = false;
    return selector;
  }
  auto* expr = New<NameExpr>(ExprKind::kName, name.range);
  expr->name = name.name;
  return expr;
}

Expr* AstBuilder::BuildLiteral(const Token& token) {
  SourceRange range = RangeOf(token);
  if (token.kind == Tok::kTrue || token.kind == Tok::kFalse) {
    auto* boolean = New<BoolExpr>(ExprKind::kBool, range);
    boolean->value = token.kind == Tok::kTrue;
    return boolean;
  }
  if (token.kind == Tok::kString) {
    auto* string = New<StringExpr>(ExprKind::kString, range);
    string->value = DecodeString(token);
    return string;
  }
  auto* number = New<NumberExpr>(ExprKind::kNumber, range);
  std::string digits;
  std::string_view text = TextOf(token);
  size_t i = 0;
  bool fraction = false;
  for (; i < text.size(); ++i) {
    char c = text[i];
    bool exponent = (c == 'e' || c == 'E') && i + 1 < text.size() &&
                    ((text[i + 1] >= '0' && text[i + 1] <= '9') || text[i + 1] == '-' || text[i + 1] == '+');
    bool sign = (c == '-' || c == '+') && i > 0 && (text[i - 1] == 'e' || text[i - 1] == 'E');
    if (c == '_') continue;
    if (!(c >= '0' && c <= '9') && c != '.' && !exponent && !sign) break;
    fraction |= c == '.' || exponent;
    if (c != '+') digits += c;
  }
  auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number->value);
  bool fits = parsed.ec == std::errc() && std::isfinite(number->value);
  if (token.kind == Tok::kQuantity) {
    std::string_view unit_text = text.substr(i);
    if (unit_text.starts_with(' ')) unit_text.remove_prefix(1);
    if (auto unit = ir::FindUnit(unit_text)) {
      number->value *= unit->scale;
      number->unit = unit->kind;
      fits = fits && std::isfinite(number->value);
    }
  } else if (!fraction) {
    number->is_int = true;
    fits = std::from_chars(digits.data(), digits.data() + digits.size(), number->int_value).ec == std::errc();
  }
  if (!fits) {
    Error(range, fmt::format("the number '{}' is out of range", text.substr(0, 40)), ir::DiagKind::kBadNumber)
        .Hint(number->is_int ? "integers have 64 bits: at most 9223372036854775807"
                             : "the largest is about 1.8e308");
    number->value = 0;
    number->int_value = 0;
  }
  return number;
}

Expr* AstBuilder::BuildBracket(const SyntaxNode& node) {
  Cursor cursor(*this, node);
  cursor.Skip(Tok::kLbracket);
  SourceRange range = RangeOf(node);
  Cursor ahead = cursor;
  bool comprehension = false;
  if (!ahead.At(Tok::kRbracket)) {
    ahead.Drop();
    comprehension = ahead.At(Tok::kFor);
  }
  if (!comprehension) {
    auto* bracket = New<BracketExpr>(ExprKind::kList, range);
    bracket->items = BuildItems(cursor);
    for (const Item& item : bracket->items) {
      bool marked = item.star || item.key.name != kNoName;
      if (item.value != nullptr && !item.value->parenthesized) {
        const Expr& value = *item.value;
        marked |= value.kind == ExprKind::kUnary && As<UnaryExpr>(value).op == UnaryOp::kNot;
        marked |= value.kind == ExprKind::kMember && As<MemberExpr>(value).member.name == names::kStar;
        marked |= value.kind == ExprKind::kChain && (As<ChainExpr>(value).rest[0].op == BinaryOp::kOr ||
                                                     As<ChainExpr>(value).rest[0].op == BinaryOp::kAnd);
      }
      if (marked) bracket->kind = ExprKind::kSelector;
    }
    return bracket;
  }
  auto* list = New<ComprehensionExpr>(ExprKind::kComprehension, range);
  Item element = BuildItem(cursor.TakeNode());
  if (element.star || element.key.name != kNoName) {
    Error(element.range, "the element of a '[.. for ..]' list must be an expression")
        .Hint("write [f(i) for i in 0..n]");
    element.value = Placeholder(element.range);
  }
  list->element = element.value;
  std::vector<ForClause> clauses;
  cursor.Skip(Tok::kFor);
  do {
    clauses.push_back(BuildClause(cursor.TakeNode()));
  } while (cursor.Skip(Tok::kComma));
  list->clauses = ast_.arena.Copy(clauses);
  if (cursor.Skip(Tok::kIfValue)) list->condition = TakeExpr(cursor);
  return list;
}

List<Arg> AstBuilder::BuildArgs(Cursor& cursor) {
  int saved = std::exchange(item_depth_, 0);
  std::vector<Arg> args;
  bool named = false;
  while (cursor.At(Rule::kArgument)) {
    const SyntaxNode& node = cursor.TakeNode();
    Cursor inner(*this, node);
    Arg arg;
    arg.range = RangeOf(node);
    if (inner.At(Tok::kKey)) {
      arg.key = NameOf(inner.TakeToken());
      inner.Skip(Tok::kAssign);
      named = true;
      for (const Arg& other : args) {
        if (other.key.name == arg.key.name) {
          Error(arg.key.range, fmt::format("argument '{}' is given twice", ast_.names.Text(arg.key.name)),
                ir::DiagKind::kBadArguments)
              .Note(other.key.range, "first here")
              .Hint("remove one");
          break;
        }
        if (args.size() > 64)
          break;  // a long call is no place for a quadratic check; the callee's check follows
      }
    } else if (named) {
      Error(arg.range, "a positional argument cannot follow a named one", ir::DiagKind::kBadArguments)
          .Hint("name it too, or move it to the front");
    }
    arg.value = TakeExpr(inner);
    args.push_back(arg);
    cursor.Skip(Tok::kComma);
  }
  item_depth_ = saved;
  return ast_.arena.Copy(args);
}

List<Item> AstBuilder::BuildItems(Cursor& cursor) {
  std::vector<Item> items;
  while (cursor.At(Rule::kItem)) {
    items.push_back(BuildItem(cursor.TakeNode()));
    cursor.Skip(Tok::kComma);
  }
  return ast_.arena.Copy(items);
}

Item AstBuilder::BuildItem(const SyntaxNode& node) {
  Cursor cursor(*this, node);
  Item item;
  item.range = RangeOf(node);
  if (cursor.Skip(Tok::kStar)) {
    item.star = true;
    return item;
  }
  item.negated = cursor.Skip(Tok::kNegate);
  if (cursor.At(Tok::kKey)) {
    item.key = NameOf(cursor.TakeToken());
    cursor.Skip(Tok::kAssign);
  }
  ++item_depth_;
  item.value = TakeExpr(cursor);
  --item_depth_;
  return item;
}

}  // namespace piper::frontend
