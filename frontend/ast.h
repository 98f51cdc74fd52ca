// The syntax tree of `.piper` text: what the parser builds, the formatter's and the elaborator's input.
//
// Plain structs in an arena: an Ast owns the memory of all files of one compilation and the table that turns
// every identifier into a small integer, so that equal names have equal ids across files. Nodes are never
// freed one by one; pointers and spans stay valid as long as the Ast. Nodes hold spans into the arena and are
// mutable: `slot` fields start at kNoSlot and belong to the elaborator, which may cache what it resolves.
//
// Shape rules that readers may rely on:
//  * Operator chains are flat. `a + b - c` is one ChainExpr of three operands, however long; the depth of
//    any tree is at most kMaxTreeDepth, so recursive walks are safe.
//  * After a syntax error the tree holds only the statements that parsed; no pointer is null unless its
//    comment says so.
//  * Every node has a non-empty range, in bytes.
//
// Words. Reserved everywhere, except after `.`, as the key of `key = value` in brackets, and as a label:
//   let var fn return for in if else true false and or not expect per
//
// Everything else is an ordinary name that is special only where the grammar asks for it: the words that
// start a declaration (import module model topology strategy train eval infer test) at top level, `param` and
// `forward` in a module, `device` and `level` in a topology, the directive words at the start of a statement
// of a strategy (mesh cut split place shard zero order edge limit stream recompute offload freeze
// optimizer run numerics cost slowdown assert use override), connecting words (as into on over where via with
// within folds joined by of live to hint keep capacity uneven distance requires divides learns from) after
// what they connect; `tag NAME {`, `lanes {`, `steps "..."` and `table from "..."` by their shape. The pass
// names F B BI BW R U cannot be bound.
//
// Selector or list? `[..]` is a kSelector if one of its items is `key = value`, `*`, `x.*` or has `not`,
// `or`, `and` at its top, or where a directive wants a selector; any other `[..]` is a kList. Where the
// elaborator wants a `sel` (a parameter of that type, say) it reads a kList's items exactly as a selector's:
// both are BracketExpr. A pass name immediately before `[` makes a selector (`F[stage = s, mb = i]`), a pass
// name alone is the selector of the whole pass; any other expression before `[` is an IndexExpr, whose items
// are read as selector items if the base turns out to be a `sel`. An expression statement whose value is a
// `sel` or a `schedule` is a step: it yields; a kList there (`[send]` in an order) is to be read as a
// selector.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "frontend/ast_storage.h"
#include "ir/support/source.h"
#include "ir/support/units.h"

namespace piper::frontend {

using ir::SourceRange;

// The deepest nesting of brackets and braces, and the deepest tree (which also counts operator levels, prefix
// operators and `.a(b)[c]` chains). Deeper input is refused.
constexpr int kMaxDepth = 256;
constexpr int kMaxTreeDepth = 1024;

// ---------------------------------------------------------------------------------------------------- parts

// A resolved place of a variable, filled by the elaborator.
constexpr int32_t kNoSlot = -1;

// A name where it is bound or mentioned, with its own range for diagnostics.
struct NameRef {
  NameId name = kNoName;
  SourceRange range;
  int32_t slot = kNoSlot;
};

struct Expr;
struct Stmt;
struct FnDecl;
struct TypeRef;

// Statements in braces. Its value, where one is wanted, is that of the last statement (an expression, or an
// `if` whose chosen block has one).
struct Block {
  SourceRange range;  // with the braces
  List<Stmt*> statements;
};

// `x` or `(x, y)`; `_` (names::kUnderscore) binds nothing. At least one name; a tuple has at least two.
struct Pattern {
  SourceRange range;
  List<NameRef> names;
  bool tuple = false;
};

// ----------------------------------------------------------------------------------------------------
// expressions

enum class ExprKind : uint8_t {
  kNumber,         // NumberExpr: 3, 1e-3, 25 MiB, 5 %
  kString,         // StringExpr
  kBool,           // BoolExpr
  kName,           // NameExpr
  kList,           // BracketExpr, items without keys, stars or negations
  kSelector,       // BracketExpr
  kTuple,          // TupleExpr, two items or more
  kComprehension,  // ComprehensionExpr
  kUnary,          // UnaryExpr
  kChain,          // ChainExpr
  kCall,           // CallExpr
  kIndex,          // IndexExpr
  kMember,         // MemberExpr
  kOptional,       // OptionalExpr: x?
  kLambda,         // LambdaExpr
  kIf,             // IfExpr
  kTag,            // TagExpr
  kTable,          // TableExpr
};
std::string_view ExprKindName(ExprKind kind);

struct Expr {
  ExprKind kind;
  bool parenthesized = false;
  SourceRange range;
};

// A number, with or without a unit.
struct NumberExpr : Expr {
  bool is_int = false;  // written without point or exponent, and without a unit
  ir::UnitKind unit = ir::UnitKind::kNone;
  int64_t int_value = 0;  // if is_int
  double value = 0;       // always; in base units (units.h) where there is a unit
};

struct StringExpr : Expr {
  std::string_view value;  // escapes decoded
};

struct BoolExpr : Expr {
  bool value = false;
};

struct NameExpr : Expr {
  NameId name = kNoName;
  int32_t slot = kNoSlot;
  int32_t frame = kNoSlot;  // spare, for the elaborator (how many scopes out, say)
};

// One entry of `[..]`: `value`, `key = value`, `not key = value`, or `*`. `ep.*` is a MemberExpr of
// names::kStar.
struct Item {
  SourceRange range;
  NameRef key;           // key.name == kNoName if none
  bool negated = false;  // only with a key; `not tag` is a UnaryExpr value
  bool star = false;     // then value is null
  Expr* value = nullptr;
};

// The pass before a bracket: kNone if none. B is BI then BW.
enum class Pass : uint8_t { kNone, kF, kB, kBI, kBW, kR, kU };
std::string_view PassName(Pass pass);
// The pass that a name spells, kNone if it spells none.
Pass PassOfName(NameId name);

// kList: `[a, b]`; kSelector: `[layer = 3, not norm, *]`, `F[stage = s]`, and `F` alone (then no items and
// has_bracket is false).
struct BracketExpr : Expr {
  // Whether all items are `name = whole number`, as far as that can be told without their values.
  enum class Indexed : uint8_t { kUnknown, kYes, kNo };

  Pass pass = Pass::kNone;
  bool has_bracket = true;
  Indexed indexed = Indexed::kUnknown;  // found by who evaluates it first
  List<Item> items;
};

struct TupleExpr : Expr {
  List<Expr*> items;
};

struct ForClause {
  Pattern pattern;
  Expr* iterable = nullptr;
};

// `[element for p in xs, q in ys if condition]`: later clauses vary fastest.
struct ComprehensionExpr : Expr {
  Expr* element = nullptr;
  List<ForClause> clauses;
  Expr* condition = nullptr;  // may be null
};

enum class UnaryOp : uint8_t { kNegate, kNot };

struct UnaryExpr : Expr {
  UnaryOp op;
  Expr* operand = nullptr;
};

// clang-format off
// By rising precedence; the operators of one level (one comment line) associate to the left in one ChainExpr.
enum class BinaryOp : uint8_t {
  kOr,                                                        // or
  kAnd,                                                       // and; `not` binds between `and` and the comparisons
  kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual,
  kDivides, kLearns,                                          // comparisons: never more than one in a chain
  kBy,                                                        // x by layer, x by -layer: one in a chain
  kRange,                                                     // a..b, half-open: one in a chain
  kAdd, kSubtract,                                            // + -
  kMultiply, kDivide, kModulo, kContract,                     // * / % @
};
// clang-format on
std::string_view BinaryOpText(BinaryOp op);

struct ChainLink {
  BinaryOp op;
  SourceRange op_range;
  Expr* operand = nullptr;
};

// first op operand op operand ...: folded from the left. All ops are of one precedence level; `rest` is not
// empty.
struct ChainExpr : Expr {
  Expr* first = nullptr;
  List<ChainLink> rest;
  bool IsBinary(BinaryOp op) const { return rest.size() == 1 && rest[0].op == op; }
};

struct Arg {
  SourceRange range;
  NameRef key;  // key.name == kNoName if positional
  Expr* value = nullptr;
};

struct CallExpr : Expr {
  Expr* callee = nullptr;
  List<Arg> args;  // positional ones first (the parser checks)
};

// base[items]: an element, a slice (`pp[s]`, `xs[1..3]`) or, on a `sel`, an intersection. At least one item.
struct IndexExpr : Expr {
  Expr* base = nullptr;
  List<Item> items;
};

// base.member; `.T` (names::kT) transposes; `.*` (names::kStar) only among selector items.
struct MemberExpr : Expr {
  Expr* base = nullptr;
  NameRef member;
};

struct OptionalExpr : Expr {
  Expr* operand = nullptr;
};

// `fn(a: int) -> int { .. }` as a value. fn->name is kNoName.
struct LambdaExpr : Expr {
  FnDecl* fn = nullptr;
};

struct IfBranch {
  Expr* condition = nullptr;  // null for a plain `else`, which is last
  Block* body = nullptr;
};

struct IfExpr : Expr {
  List<IfBranch> branches;
};

// `tag layer { .. }`: its value is its block's.
struct TagExpr : Expr {
  NameRef tag;
  Block* body = nullptr;
};

// `table from "x.csv"`, beside the file that says so.
struct TableExpr : Expr {
  std::string_view path;
};

// ---------------------------------------------------------------------------------------------------- types

enum class TypeKind : uint8_t {
  kName,    // int, sel, axis, dim, schedule, loss, ...
  kList,    // [int]: one element type
  kTensor,  // [batch, seq, embed] f32: dims, dtype may be absent
  kQueue,   // queue[sel]
  kFn,      // fn, or fn(int, sel) -> schedule
  kTuple,   // (int, sel)
};

// A dimension of a tensor type: a name (`batch`), a name with its size (`qkv = 3`), or a bare size (`4 *
// embed`).
struct TypeDim {
  SourceRange range;
  NameRef name;          // kNoName for a bare size
  Expr* size = nullptr;  // null if only a name
};

// `[int]` is a kList where the one item is a known type word (int float bool string sel schedule axis dim fn
// queue loss strategy model topology optimizer quantity any time bytes rate) or a bracket; any other bracket
// is a kTensor.
struct TypeRef {
  TypeKind kind;
  SourceRange range;
  NameRef name;               // kName; the dtype of a kTensor (kNoName if absent)
  List<TypeRef*> arguments;   // kList, kQueue: the element; kFn, kTuple: the parts
  TypeRef* result = nullptr;  // kFn; may be null
  List<TypeDim> dims;         // kTensor
};

struct Param {
  SourceRange range;
  NameRef name;
  TypeRef* type = nullptr;        // may be null
  Expr* default_value = nullptr;  // may be null
};

// `requires condition` or `requires condition hint "what to do instead"` (any expression).
struct Requirement {
  SourceRange range;
  Expr* condition = nullptr;
  Expr* hint = nullptr;  // may be null
};

// A function, a lambda, or a module's forward.
struct FnDecl {
  SourceRange range;
  NameRef name;  // kNoName for a lambda; names::kForward for a forward
  List<Param> params;
  TypeRef* result = nullptr;  // may be null
  List<Requirement> requirements;
  Block* body = nullptr;
  int32_t slot_count = kNoSlot;  // for the elaborator
};

// ---------------------------------------------------------------------------------------------------- fields

// One line of a train/eval/infer block or of a directive's `{ .. }`:
//   steps 200 | optimizer adamw(..) where [norm] | reduce per mb | checkpoint "d" { keep 3 } | verbose
struct Field {
  SourceRange range;
  NameRef name;
  Expr* value = nullptr;  // may be null
  NameRef per;            // `reduce per mb`; kNoName if absent
  Expr* where = nullptr;  // may be null
  List<Field> block;      // may be empty
};

// `memory = 64 GiB`, `compute bf16 = 191.5 TFLOP/s`
struct Property {
  SourceRange range;
  NameRef name;
  NameRef qualifier;  // kNoName if absent
  Expr* value = nullptr;
};

// ----------------------------------------------------------------------------------------------------
// statements

// clang-format off
enum class StmtKind : uint8_t {
  kLet,     // LetStmt: let and var
  kAssign,  // AssignStmt
  kExpr,    // ExprStmt: a step, a call, or a block's value
  kReturn,  // ReturnStmt
  kFor,     // ForStmt
  kIf,      // IfStmt
  kFn,      // FnStmt
  kExpect,  // ExpectStmt, meaningful in tests
  // steps
  kLanes,    // LanesStmt
  kBarrier,  // Stmt
  kSteps,    // StepsStmt
  // directives, in the order of docs/language.md
  kMesh, kCut, kSplit, kPlace, kShard, kZero, kOrder, kEdge, kLimit, kStream, kRecompute, kOffload, kFreeze, kOptimizer,
  kRun, kNumerics, kCost, kSlowdown, kAssert, kUse,
};
// clang-format on
std::string_view StmtKindName(StmtKind kind);
inline bool IsDirective(StmtKind kind) { return kind >= StmtKind::kMesh; }

struct Stmt {
  StmtKind kind;
  bool overrides = false;  // `override place ..`: directives only
  SourceRange range;
};

struct LetStmt : Stmt {
  bool is_var = false;
  Pattern pattern;
  TypeRef* type = nullptr;  // may be null
  Expr* value = nullptr;
};

enum class AssignOp : uint8_t { kSet, kAdd, kSubtract };

// target = value, target += value, target -= value; the target is a name, an index or a member.
struct AssignStmt : Stmt {
  AssignOp op = AssignOp::kSet;
  Expr* target = nullptr;
  Expr* value = nullptr;
};

struct ExprStmt : Stmt {
  Expr* value = nullptr;
};

struct ReturnStmt : Stmt {
  Expr* value = nullptr;  // may be null
};

struct ForStmt : Stmt {
  Pattern pattern;
  Expr* iterable = nullptr;
  Block* body = nullptr;
};

struct IfStmt : Stmt {
  List<IfBranch> branches;
};

struct FnStmt : Stmt {
  FnDecl* fn = nullptr;
};

struct ExpectStmt : Stmt {
  Expr* condition = nullptr;
};

// `name: steps` inside `lanes { }` or an `order`: everything up to the next label.
struct Lane {
  NameRef stream;
  List<Stmt*> steps;
};

struct LanesStmt : Stmt {
  List<Lane> lanes;
};

// One entry of a run-length order literal. A step without a microbatch takes the next one of its (stage,
// pass), a step without a stage means the group's only stage.
//   literal := { [count "*"] unit };   unit := step { "&" step } | "(" literal ")"
//   step    := [stage] ("F" | "B" | "BI" | "I" | "BW" | "W" | "R" | "U") [microbatch]        (I is BI, W is
//   BW)
struct StepRun {
  uint32_t repeat = 1;
  bool fused = false;       // children are one atomic node: `F&B`
  Pass pass = Pass::kNone;  // kNone: a group, see children
  int32_t stage = -1;
  int32_t microbatch = -1;
  List<StepRun> children;
};

// `steps "8*F 3*(F B)"`, optionally followed by `[stage = s]` that every step of it takes.
struct StepsStmt : Stmt {
  SourceRange literal_range;
  List<StepRun> runs;
  Expr* within = nullptr;  // a kSelector; may be null
};

// mesh [name] (pp = 4, tp = 8 within node) [on group] [folds other]
struct MeshAxis {
  SourceRange range;
  NameRef name;
  Expr* size = nullptr;  // an int, or the name `all`
  NameRef within;        // kNoName if absent
};
struct MeshStmt : Stmt {
  NameRef name;  // kNoName if absent
  List<MeshAxis> axes;
  Expr* devices = nullptr;  // may be null
  NameRef folds;            // kNoName if absent
};

// cut a, b, c into N as stage; `into` an int (balanced) or a list such as [embed + 2 * layer, 3 * layer] over
// tags.
struct CutStmt : Stmt {
  List<NameRef> tags;
  Expr* into = nullptr;
  NameRef as;
};

// split [within] batch [by tokens] into 2 as dir, m / 2 as mb [uneven], seq into 4 as chunk
struct SplitPart {
  SourceRange range;
  NameRef dim;  // the dimension; repeated from the part before where it is not written
  Expr* into = nullptr;
  NameRef as;
  bool uneven = false;
};
struct SplitStmt : Stmt {
  Expr* within = nullptr;  // a selector; may be null
  NameRef by;              // `by tokens`; kNoName if absent
  List<SplitPart> parts;
};

// place sel on group
struct PlaceStmt : Stmt {
  Expr* selector = nullptr;
  Expr* group = nullptr;
};

// shard d1 | d2 over axis [where sel] [as name] [via flat] [capacity 1.25] [with attention by ring(prefetch =
// 1)]
struct ShardStmt : Stmt {
  List<NameRef> dims;
  Expr* axis = nullptr;
  Expr* where = nullptr;     // may be null
  NameRef as;                // kNoName if absent
  NameRef via;               // kNoName if absent
  Expr* capacity = nullptr;  // may be null
  NameRef operation;         // `with attention by ..`; kNoName if absent
  Expr* method = nullptr;    // a name or a call; null if absent
};

// zero 3 [sel] [where sel] [per tag] [as name] { bucket 25 MiB; keep [..]; reduce per mb }
struct ZeroStmt : Stmt {
  Expr* level = nullptr;
  Expr* selector = nullptr;  // may be null: everything
  NameRef per;               // kNoName if absent
  NameRef as;                // kNoName if absent
  List<Field> settings;
};

// order on group { steps } or { compute: ..; a2a: .. }: exactly one of body, lanes is used (lanes empty:
// body).
struct OrderStmt : Stmt {
  Expr* group = nullptr;
  Block* body = nullptr;  // non-null, empty if lanes are given
  List<Lane> lanes;
};

// edge a -> b [distance 1]; distance counts steps (iterations)
struct EdgeStmt : Stmt {
  Expr* from = nullptr;
  Expr* to = nullptr;
  Expr* distance = nullptr;  // may be null: 0
};

// limit 2 live sel [per mb]
struct LimitStmt : Stmt {
  Expr* count = nullptr;
  Expr* selector = nullptr;
  NameRef per;  // kNoName if absent
};

// stream sel on name
struct StreamStmt : Stmt {
  Expr* selector = nullptr;
  NameRef stream;
};

// recompute sel [keep sel]
struct RecomputeStmt : Stmt {
  Expr* selector = nullptr;
  Expr* keep = nullptr;  // may be null
};

// offload sel to host { prefetch 1 }
struct OffloadStmt : Stmt {
  Expr* selector = nullptr;
  NameRef to;
  List<Field> settings;
};

// freeze sel
struct FreezeStmt : Stmt {
  Expr* selector = nullptr;
};

// optimizer post_validation|synchronised
struct OptimizerStmt : Stmt {
  NameRef mode;
};

// run strict|ready [hint [B, F, W]] [where sel]
struct RunStmt : Stmt {
  NameRef mode;
  Expr* hint = nullptr;   // a list of passes; may be null
  Expr* where = nullptr;  // may be null
};

// numerics reproducible|fast
struct NumericsStmt : Stmt {
  NameRef mode;
};

// cost sel = 1 us; cost fused(f, b) = 2 us; cost [send] = 1 MiB
struct CostStmt : Stmt {
  Expr* target = nullptr;
  Expr* value = nullptr;
};

// slowdown compute with a2a = 1.2
struct SlowdownStmt : Stmt {
  NameRef stream;
  NameRef with;
  Expr* value = nullptr;
};

// assert e < q
struct AssertStmt : Stmt {
  Expr* condition = nullptr;
};

// use s(..)
struct UseStmt : Stmt {
  Expr* strategy = nullptr;
};

// ----------------------------------------------------------------------------------------------------
// declarations

enum class DeclKind : uint8_t { kImport, kLet, kFn, kModule, kModel, kTopology, kStrategy, kRun, kTest };
std::string_view DeclKindName(DeclKind kind);

struct Decl {
  DeclKind kind;
  SourceRange range;
};

// import std.gpt [as g] | import "file.piper" [as x]. Bound name: `as`, else the last part, else the file's
// stem (which must then be an identifier).
struct ImportDecl : Decl {
  List<NameRef> parts;    // std, gpt; empty for a path
  std::string_view path;  // "file.piper"
  SourceRange target_range;
  NameRef name;  // what it is bound to; never kNoName
};

struct LetDecl : Decl {
  LetStmt* let = nullptr;
};

struct FnTopDecl : Decl {
  FnDecl* fn = nullptr;
};

enum class MemberKind : uint8_t { kParam, kAssign, kLet, kFn, kForward };

// A member of a module, in order.
struct ModuleMember {
  MemberKind kind;
  SourceRange range;
  NameRef name;             // kParam, kAssign
  TypeRef* type = nullptr;  // kParam: a kTensor
  Expr* value = nullptr;    // kParam: the initialiser, may be null; kAssign: the submodule(s)
  LetStmt* let = nullptr;   // kLet
  FnDecl* fn = nullptr;     // kFn, kForward
};

struct ModuleDecl : Decl {
  NameRef name;
  List<Param> params;
  List<Requirement> requirements;
  List<ModuleMember> members;
};

struct ModelDecl : Decl {
  NameRef name;
  Expr* value = nullptr;
};

enum class TopologyItemKind : uint8_t { kDevice, kLevel, kLet, kProperty };

struct TopologyItem {
  TopologyItemKind kind;
  SourceRange range;
  NameRef name;               // kDevice, kLevel
  List<Property> properties;  // kDevice: its figures; kLevel: its links; kProperty: the one
  Expr* members = nullptr;  // kLevel: `8` of `8 of gcd`, or a list such as [fast_node, slow_node], or a name
  NameRef of;               // kLevel: gcd; kNoName if members says it all
  LetStmt* let = nullptr;   // kLet
};

struct TopologyDecl : Decl {
  NameRef name;
  List<Param> params;
  List<Requirement> requirements;
  List<TopologyItem> items;
};

struct StrategyDecl : Decl {
  NameRef name;
  List<Param> params;
  List<Requirement> requirements;
  Block* body = nullptr;  // let, var, assignments, for, if, fn and directives
};

enum class RunKind : uint8_t { kTrain, kEval, kInfer };

struct RunDecl : Decl {
  RunKind run;
  NameRef name;  // `train small { .. }`; kNoName if absent
  List<Field> fields;
};

// test "name" for p in [2, 4], m in [p, 2 * p] { .. }
struct TestDecl : Decl {
  std::string_view name;
  SourceRange name_range;
  List<ForClause> clauses;
  Block* body = nullptr;
};

struct File {
  ir::FileId file = ir::kNoFile;
  List<Decl*> decls;
  bool ok = false;  // false if any syntax error was reported in this file
};

// All files of one compilation. Not thread-safe.
struct Ast {
  Arena arena;
  NameTable names;
};

// Casts by kind: As<ChainExpr>(*expr). The caller has looked at the kind.
template <typename T, typename Base>
T& As(Base& node) {
  return static_cast<T&>(node);
}
template <typename T, typename Base>
const T& As(const Base& node) {
  return static_cast<const T&>(node);
}

// Indented, deterministic text of a file's tree: `piper ... --emit=ast`.
std::string DumpAst(const File& file, const NameTable& names);

}  // namespace piper::frontend
