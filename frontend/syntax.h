// Between the scanner, the generated parser and the AST builder: token and rule names, the token list, and
// the concrete tree in a form that is free of ANTLR. Internal to frontend/.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace piper::frontend {

// X(enumerator, name in grammar/Piper.g4, spelling), in the grammar's order.
// clang-format off
#define PIPER_TOKENS(X) \
  X(kLet, LET, "let") X(kVar, VAR, "var") X(kFn, FN, "fn") X(kReturn, RETURN, "return") \
  X(kFor, FOR, "for") X(kIn, IN, "in") X(kIf, IF, "if") X(kElse, ELSE, "else") X(kTrue, TRUE, "true") \
  X(kFalse, FALSE, "false") X(kAnd, AND, "and") X(kOr, OR, "or") X(kNot, NOT, "not") \
  X(kExpect, EXPECT, "expect") X(kPer, PER, "per") X(kTag, TAG, "tag") X(kLanes, LANES, "lanes") \
  X(kSteps, STEPS, "steps") X(kTable, TABLE, "table") X(kImport, IMPORT, "import") \
  X(kModule, MODULE, "module") X(kModel, MODEL, "model") X(kTopology, TOPOLOGY, "topology") \
  X(kStrategy, STRATEGY, "strategy") X(kTrain, TRAIN, "train") X(kEval, EVAL, "eval") \
  X(kInfer, INFER, "infer") X(kTest, TEST, "test") X(kParam, PARAM, "param") \
  X(kForward, FORWARD, "forward") X(kDevice, DEVICE, "device") X(kLevel, LEVEL, "level") \
  X(kMesh, MESH, "mesh") X(kCut, CUT, "cut") X(kSplit, SPLIT, "split") X(kPlace, PLACE, "place") \
  X(kShard, SHARD, "shard") X(kZero, ZERO, "zero") X(kOrder, ORDER, "order") X(kEdge, EDGE, "edge") \
  X(kLimit, LIMIT, "limit") X(kStream, STREAM, "stream") X(kRecompute, RECOMPUTE, "recompute") \
  X(kOffload, OFFLOAD, "offload") X(kFreeze, FREEZE, "freeze") \
  X(kOptimizer, OPTIMIZER, "optimizer") X(kRun, RUN, "run") \
  X(kNumerics, NUMERICS, "numerics") X(kCost, COST, "cost") X(kSlowdown, SLOWDOWN, "slowdown") \
  X(kAssert, ASSERT, "assert") X(kUse, USE, "use") X(kOverride, OVERRIDE, "override") X(kAs, AS, "as") \
  X(kInto, INTO, "into") X(kOn, ON, "on") X(kOver, OVER, "over") X(kWhere, WHERE, "where") \
  X(kVia, VIA, "via") X(kWith, WITH, "with") X(kWithin, WITHIN, "within") X(kFolds, FOLDS, "folds") \
  X(kJoined, JOINED, "joined") X(kBy, BY, "by") X(kOf, OF, "of") X(kLive, LIVE, "live") X(kTo, TO, "to") \
  X(kKeep, KEEP, "keep") X(kHint, HINT, "hint") X(kCapacity, CAPACITY, "capacity") \
  X(kUneven, UNEVEN, "uneven") X(kDistance, DISTANCE, "distance") X(kRequires, REQUIRES, "requires") \
  X(kDivides, DIVIDES, "divides") X(kLearns, LEARNS, "learns") X(kFrom, FROM, "from") \
  X(kLparen, LPAREN, "(") X(kRparen, RPAREN, ")") X(kLbracket, LBRACKET, "[") X(kRbracket, RBRACKET, "]") \
  X(kLbrace, LBRACE, "{") X(kRbrace, RBRACE, "}") X(kComma, COMMA, ",") X(kSemicolon, SEMICOLON, ";") \
  X(kColon, COLON, ":") X(kDot, DOT, ".") X(kRange, RANGE, "..") X(kQuestion, QUESTION, "?") \
  X(kArrow, ARROW, "->") X(kBar, BAR, "|") X(kAssign, ASSIGN, "=") X(kAddAssign, ADD_ASSIGN, "+=") \
  X(kSubAssign, SUB_ASSIGN, "-=") X(kEqual, EQUAL, "==") X(kNotEqual, NOT_EQUAL, "!=") \
  X(kLess, LESS, "<") X(kLessEqual, LESS_EQUAL, "<=") X(kGreater, GREATER, ">") \
  X(kGreaterEqual, GREATER_EQUAL, ">=") X(kPlus, PLUS, "+") X(kMinus, MINUS, "-") X(kStar, STAR, "*") \
  X(kSlash, SLASH, "/") X(kPercent, PERCENT, "%") X(kAt, AT, "@") X(kFloat, FLOAT, "") X(kInt, INT, "") \
  X(kString, STRING, "") X(kIdent, IDENT, "") X(kLineComment, LINE_COMMENT, "") \
  X(kBlockComment, BLOCK_COMMENT, "") X(kSpace, SPACE, "") X(kKey, KEY, "") X(kLabel, LABEL, "") \
  X(kNegate, NEGATE, "") X(kQuantity, QUANTITY, "") X(kIfValue, IF_VALUE, "") X(kLambda, LAMBDA, "") \
  X(kFnType, FN_TYPE, "")

// X(enumerator, name in grammar/Piper.g4 with its first letter in upper case), in the grammar's order.
#define PIPER_RULES(X) \
  X(kFile, File) X(kLoneExpr, LoneExpr) X(kDeclaration, Declaration) X(kImportDecl, ImportDecl) \
  X(kModelDecl, ModelDecl) X(kFnDecl, FnDecl) X(kParams, Params) X(kParam, Param) \
  X(kRequirement, Requirement) X(kCondition, Condition) X(kModuleDecl, ModuleDecl) X(kMember, Member) \
  X(kParamDecl, ParamDecl) X(kForwardDecl, ForwardDecl) X(kMemberName, MemberName) \
  X(kTopologyDecl, TopologyDecl) X(kTopologyItem, TopologyItem) X(kTopologyProperty, TopologyProperty) \
  X(kProperties, Properties) X(kProperty, Property) X(kStrategyDecl, StrategyDecl) X(kRunDecl, RunDecl) \
  X(kFields, Fields) X(kField, Field) X(kFieldValue, FieldValue) X(kTestDecl, TestDecl) X(kType, Type) \
  X(kTypeItem, TypeItem) X(kBlock, Block) X(kStatement, Statement) X(kForStmt, ForStmt) \
  X(kClause, Clause) X(kPattern, Pattern) X(kIfStmt, IfStmt) X(kIfValue, IfValue) X(kElseTail, ElseTail) \
  X(kLanesStmt, LanesStmt) X(kSimpleStmt, SimpleStmt) X(kLetStmt, LetStmt) \
  X(kDirectiveBlock, DirectiveBlock) X(kDirectiveStatement, DirectiveStatement) \
  X(kDirectiveFor, DirectiveFor) X(kDirectiveIf, DirectiveIf) X(kDirectiveElse, DirectiveElse) \
  X(kAssignment, Assignment) X(kOverrideDirective, OverrideDirective) X(kDirective, Directive) \
  X(kMeshDirective, MeshDirective) X(kMeshAxis, MeshAxis) X(kCutDirective, CutDirective) \
  X(kSplitDirective, SplitDirective) X(kSplitPart, SplitPart) X(kPlaceDirective, PlaceDirective) \
  X(kShardDirective, ShardDirective) X(kShardClause, ShardClause) X(kZeroDirective, ZeroDirective) \
  X(kZeroLevel, ZeroLevel) X(kZeroClause, ZeroClause) X(kSelector, Selector) \
  X(kOrderDirective, OrderDirective) X(kEdgeDirective, EdgeDirective) X(kLimitDirective, LimitDirective) \
  X(kStreamDirective, StreamDirective) X(kRecomputeDirective, RecomputeDirective) \
  X(kOffloadDirective, OffloadDirective) X(kFreezeDirective, FreezeDirective) \
  X(kOptimizerDirective, OptimizerDirective) \
  X(kRunDirective, RunDirective) X(kNumericsDirective, NumericsDirective) \
  X(kCostDirective, CostDirective) X(kSlowdownDirective, SlowdownDirective) \
  X(kAssertDirective, AssertDirective) X(kUseDirective, UseDirective) X(kExpr, Expr) X(kTerm, Term) \
  X(kSuffix, Suffix) X(kArgument, Argument) X(kAtom, Atom) X(kLambda, Lambda) X(kBracket, Bracket) \
  X(kItem, Item) X(kWord, Word) X(kPlainWord, PlainWord) X(kDirectiveWord, DirectiveWord)

// clang-format on

enum class Tok : uint8_t {
  kEnd = 0,  // the end of the token list
#define PIPER_TOKEN(id, grammar, text) id,
  PIPER_TOKENS(PIPER_TOKEN)
#undef PIPER_TOKEN
};

enum class Rule : uint8_t {
#define PIPER_RULE(id, grammar) id,
  PIPER_RULES(PIPER_RULE)
#undef PIPER_RULE
};

// The spelling of a fixed token, "" for a class of tokens (names, numbers, strings).
std::string_view TokText(Tok kind);

inline bool IsReserved(Tok kind) { return kind >= Tok::kLet && kind <= Tok::kPer; }
// Words that are names unless the grammar asks for them.
inline bool IsContextualWord(Tok kind) { return kind >= Tok::kTag && kind <= Tok::kFrom; }
inline bool IsDirectiveWord(Tok kind) { return kind >= Tok::kMesh && kind <= Tok::kOverride; }
inline bool IsConnectingWord(Tok kind) { return kind >= Tok::kAs && kind <= Tok::kFrom; }
inline bool IsWord(Tok kind) { return kind == Tok::kIdent || IsReserved(kind) || IsContextualWord(kind); }

struct Token {
  Tok kind = Tok::kEnd;
  bool inserted = false;  // a ';' that the scanner put at a line's end or before '}'
  uint16_t depth = 0;     // brackets open around it; an opener and its closer have the depth outside them
  uint32_t begin = 0, end = 0;  // bytes; the ':' of a LABEL lies outside
  bool starts = false;          // the first of a statement, member, field or declaration (for the formatter)
  bool tight = false;   // nothing stands between it and the token before: f(..), x[..] (for the formatter)
  bool prefix = false;  // a '-' without left operand (for the formatter)
};

// Preorder-free concrete tree: children refer to nodes or, with the top bit set, to tokens.
struct SyntaxNode {
  Rule rule;
  uint32_t first_child = 0, child_count = 0;  // into SyntaxTree::children
  uint32_t begin = 0, end = 0;                // bytes
};

// The top bit of a child that is a token.
constexpr uint32_t kTokenBit = uint32_t{1} << 31;

struct SyntaxTree {
  std::vector<SyntaxNode> nodes;
  std::vector<uint32_t> children;
  uint32_t root = 0;
};

}  // namespace piper::frontend
