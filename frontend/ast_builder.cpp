// Names, strings, declarations and types.
#include "frontend/ast_builder.h"

#include <fmt/format.h>

#include "ir/support/result.h"

namespace piper::frontend {

// ----------------------------------------------------------------------------------------------------
// helpers

NameRef AstBuilder::NameOf(const Token& token) {
  return {ast_.names.Intern(TextOf(token)), RangeOf(token), kNoSlot};
}

NameRef AstBuilder::NameOf(const SyntaxNode& node) {
  return {ast_.names.Intern(text_.substr(node.begin, node.end - node.begin)), RangeOf(node), kNoSlot};
}

NameRef AstBuilder::TakeBoundName(Cursor& cursor) {
  NameRef name = TakeName(cursor);
  CheckBound(name);
  return name;
}

void AstBuilder::CheckBound(const NameRef& name) {
  if (PassOfName(name.name) == Pass::kNone) return;
  Error(name.range,
        fmt::format("'{}' names a pass and cannot be bound to something else", ast_.names.Text(name.name)))
      .Hint("choose another name; F B BI BW R U are taken");
}

std::string_view AstBuilder::TakeString(Cursor& cursor, SourceRange* range) {
  const Token& token = cursor.TakeToken();
  if (range != nullptr) *range = RangeOf(token);
  return DecodeString(token);
}

std::string_view AstBuilder::DecodeString(const Token& token) {
  std::string_view raw = TextOf(token);
  raw.remove_prefix(1);
  if (!raw.empty()) raw.remove_suffix(1);
  if (raw.find('\\') == std::string_view::npos) return ast_.arena.CopyText(raw);
  std::string out;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\' || i + 1 >= raw.size()) {
      out += raw[i];
      continue;
    }
    switch (raw[++i]) {
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case 'r':
        out += '\r';
        break;
      case '"':
        out += '"';
        break;
      case '\\':
        out += '\\';
        break;
      default: {
        uint32_t at = token.begin + static_cast<uint32_t>(i);
        Error({file_, at, at + 2}, "unknown escape in a string")
            .Hint("escapes are \\n \\t \\r \\\" and \\\\");
        break;
      }
    }
  }
  return ast_.arena.CopyText(out);
}

// ----------------------------------------------------------------------------------------------------
// declarations

void AstBuilder::BuildFile(std::vector<Decl*>& decls) {
  for (Cursor cursor(*this, tree_.nodes[tree_.root]); !cursor.done();) {
    if (cursor.At(Rule::kDeclaration)) {
      decls.push_back(BuildDecl(cursor.TakeNode()));
    } else {
      cursor.Drop();
    }
  }
}

Decl* AstBuilder::BuildDecl(const SyntaxNode& wrapper) {
  Cursor outer(*this, wrapper);
  const SyntaxNode& node = outer.TakeNode();
  switch (node.rule) {
    case Rule::kImportDecl:
      return BuildImport(node);
    case Rule::kModuleDecl:
      return BuildModule(node);
    case Rule::kTopologyDecl:
      return BuildTopology(node);
    case Rule::kStrategyDecl:
      return BuildStrategy(node);
    case Rule::kRunDecl:
      return BuildRun(node);
    case Rule::kTestDecl:
      return BuildTest(node);
    case Rule::kLetStmt: {
      auto* decl = New<LetDecl>(DeclKind::kLet, RangeOf(node));
      decl->let = BuildLet(node);
      if (decl->let->is_var) {
        Error(decl->range, "'var' stands inside functions only: a file's definitions do not change")
            .Hint("write 'let'");
      }
      return decl;
    }
    case Rule::kFnDecl: {
      auto* decl = New<FnTopDecl>(DeclKind::kFn, RangeOf(node));
      decl->fn = BuildFn(node);
      return decl;
    }
    case Rule::kModelDecl: {
      auto* decl = New<ModelDecl>(DeclKind::kModel, RangeOf(node));
      Cursor cursor(*this, node);
      cursor.Drop();
      decl->name = TakeBoundName(cursor);
      cursor.Skip(Tok::kAssign);
      decl->value = TakeExpr(cursor);
      return decl;
    }
    default:
      PIPER_CHECK(false, "not a declaration");
      return nullptr;
  }
}

Decl* AstBuilder::BuildImport(const SyntaxNode& node) {
  auto* decl = New<ImportDecl>(DeclKind::kImport, RangeOf(node));
  Cursor cursor(*this, node);
  cursor.Drop();
  if (cursor.At(Tok::kString)) {
    decl->path = TakeString(cursor, &decl->target_range);
  } else {
    std::vector<NameRef> parts = {TakeName(cursor)};
    while (cursor.Skip(Tok::kDot)) parts.push_back(NameOf(cursor.TakeToken()));
    decl->parts = ast_.arena.Copy(parts);
    decl->target_range = parts.front().range.Cover(parts.back().range);
    decl->name = parts.back();
  }
  if (cursor.Skip(Tok::kAs)) {
    decl->name = TakeBoundName(cursor);
  } else if (decl->parts.empty()) {
    std::string_view stem = decl->path;
    stem = stem.substr(stem.find_last_of('/') == std::string_view::npos ? 0 : stem.find_last_of('/') + 1);
    if (stem.ends_with(".piper")) stem.remove_suffix(6);
    bool legal = !stem.empty() && !(stem[0] >= '0' && stem[0] <= '9');
    for (char c : stem) {
      legal =
          legal && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_');
    }
    if (!legal) {
      Error(decl->target_range, "the file's name is not a name that can be used here")
          .Hint("give it one: import \"..\" as name");
      stem = "imported";
    }
    decl->name = {ast_.names.Intern(stem), decl->target_range, kNoSlot};
  }
  return decl;
}

Decl* AstBuilder::BuildModule(const SyntaxNode& node) {
  auto* decl = New<ModuleDecl>(DeclKind::kModule, RangeOf(node));
  Cursor cursor(*this, node);
  cursor.Drop();
  decl->name = TakeBoundName(cursor);
  if (cursor.At(Rule::kParams)) decl->params = BuildParams(cursor.TakeNode());
  decl->requirements = TakeRequirements(cursor);
  std::vector<ModuleMember> members;
  while (!cursor.done()) {
    if (cursor.At(Rule::kMember)) {
      members.push_back(BuildMember(cursor.TakeNode()));
    } else {
      cursor.Drop();
    }
  }
  decl->members = ast_.arena.Copy(members);
  return decl;
}

ModuleMember AstBuilder::BuildMember(const SyntaxNode& node) {
  Cursor cursor(*this, node);
  ModuleMember member{};
  if (cursor.At(Rule::kMemberName)) {
    member.kind = MemberKind::kAssign;
    member.name = TakeBoundName(cursor);
    cursor.Skip(Tok::kAssign);
    member.value = TakeExpr(cursor);
    member.range = member.name.range.Cover(member.value->range);
    return member;
  }
  const SyntaxNode& inner = cursor.TakeNode();
  member.range = RangeOf(inner);
  switch (inner.rule) {
    case Rule::kLetStmt:
      member.kind = MemberKind::kLet;
      member.let = BuildLet(inner);
      if (member.let->is_var) {
        Error(member.range, "'var' stands inside functions only: a module's definitions do not change")
            .Hint("write 'let'");
      }
      break;
    case Rule::kFnDecl:
      member.kind = MemberKind::kFn;
      member.fn = BuildFn(inner);
      member.name = member.fn->name;
      break;
    case Rule::kForwardDecl:
      member.kind = MemberKind::kForward;
      member.fn = BuildFn(inner);
      member.name = member.fn->name;
      break;
    default: {  // paramDecl
      Cursor param(*this, inner);
      param.Drop();
      member.kind = MemberKind::kParam;
      member.name = TakeBoundName(param);
      param.Skip(Tok::kColon);
      const SyntaxNode& type = param.TakeNode();
      member.type = Cursor(*this, type).At(Tok::kLbracket) ? BuildBracketType(type) : BuildType(type);
      if (member.type->kind != TypeKind::kTensor) {
        Error(member.type->range, "a parameter has named dimensions")
            .Hint("write: param w: [embed, hidden] = normal(0.02)");
      }
      if (param.Skip(Tok::kAssign)) member.value = TakeExpr(param);
      break;
    }
  }
  return member;
}

Decl* AstBuilder::BuildTopology(const SyntaxNode& node) {
  auto* decl = New<TopologyDecl>(DeclKind::kTopology, RangeOf(node));
  Cursor cursor(*this, node);
  cursor.Drop();
  decl->name = TakeBoundName(cursor);
  if (cursor.At(Rule::kParams)) decl->params = BuildParams(cursor.TakeNode());
  decl->requirements = TakeRequirements(cursor);
  std::vector<TopologyItem> items;
  while (!cursor.done()) {
    if (cursor.At(Rule::kTopologyItem)) {
      items.push_back(BuildTopologyItem(cursor.TakeNode()));
    } else {
      cursor.Drop();
    }
  }
  decl->items = ast_.arena.Copy(items);
  return decl;
}

TopologyItem AstBuilder::BuildTopologyItem(const SyntaxNode& node) {
  TopologyItem item{};
  item.range = RangeOf(node);
  Cursor cursor(*this, node);
  if (cursor.At(Rule::kLetStmt)) {
    item.kind = TopologyItemKind::kLet;
    item.let = BuildLet(cursor.TakeNode());
  } else if (cursor.At(Rule::kTopologyProperty)) {
    item.kind = TopologyItemKind::kProperty;
    item.properties = ast_.arena.Copy(std::vector<Property>{BuildProperty(cursor.TakeNode())});
    item.name = item.properties[0].name;
  } else if (cursor.Skip(Tok::kDevice)) {
    item.kind = TopologyItemKind::kDevice;
    item.name = TakeBoundName(cursor);
    item.properties = BuildProperties(cursor.TakeNode());
  } else {
    cursor.Skip(Tok::kLevel);
    item.kind = TopologyItemKind::kLevel;
    item.name = TakeBoundName(cursor);
    cursor.Skip(Tok::kAssign);
    item.members = TakeExpr(cursor);
    if (cursor.Skip(Tok::kOf)) item.of = TakeName(cursor);
    if (cursor.Skip(Tok::kJoined)) {
      cursor.Skip(Tok::kBy);
      item.properties = BuildProperties(cursor.TakeNode());
    }
  }
  return item;
}

List<Property> AstBuilder::BuildProperties(const SyntaxNode& node) {
  std::vector<Property> properties;
  for (Cursor cursor(*this, node); !cursor.done();) {
    if (cursor.At(Rule::kProperty)) {
      properties.push_back(BuildProperty(cursor.TakeNode()));
    } else {
      cursor.Drop();
    }
  }
  return ast_.arena.Copy(properties);
}

Property AstBuilder::BuildProperty(const SyntaxNode& node) {
  Property property;
  property.range = RangeOf(node);
  Cursor cursor(*this, node);
  property.name = TakeName(cursor);
  if (cursor.At(Rule::kWord)) property.qualifier = TakeName(cursor);
  cursor.Skip(Tok::kAssign);
  property.value = TakeExpr(cursor);
  return property;
}

Decl* AstBuilder::BuildStrategy(const SyntaxNode& node) {
  auto* decl = New<StrategyDecl>(DeclKind::kStrategy, RangeOf(node));
  Cursor cursor(*this, node);
  cursor.Drop();
  decl->name = TakeBoundName(cursor);
  if (cursor.At(Rule::kParams)) decl->params = BuildParams(cursor.TakeNode());
  decl->requirements = TakeRequirements(cursor);
  decl->body = BuildBlock(cursor.TakeNode());
  return decl;
}

Decl* AstBuilder::BuildRun(const SyntaxNode& node) {
  auto* decl = New<RunDecl>(DeclKind::kRun, RangeOf(node));
  Cursor cursor(*this, node);
  Tok word = cursor.TakeToken().kind;
  decl->run = word == Tok::kTrain ? RunKind::kTrain : word == Tok::kEval ? RunKind::kEval : RunKind::kInfer;
  if (cursor.At(Rule::kWord)) decl->name = TakeBoundName(cursor);
  decl->fields = BuildFields(cursor.TakeNode());
  return decl;
}

Decl* AstBuilder::BuildTest(const SyntaxNode& node) {
  auto* decl = New<TestDecl>(DeclKind::kTest, RangeOf(node));
  Cursor cursor(*this, node);
  cursor.Drop();
  decl->name = TakeString(cursor, &decl->name_range);
  std::vector<ForClause> clauses;
  if (cursor.Skip(Tok::kFor)) {
    do {
      clauses.push_back(BuildClause(cursor.TakeNode()));
    } while (cursor.Skip(Tok::kComma));
  }
  decl->clauses = ast_.arena.Copy(clauses);
  decl->body = BuildBlock(cursor.TakeNode());
  return decl;
}

List<Field> AstBuilder::BuildFields(const SyntaxNode& node) {
  std::vector<Field> fields;
  for (Cursor cursor(*this, node); !cursor.done();) {
    if (cursor.At(Rule::kField)) {
      fields.push_back(BuildField(cursor.TakeNode()));
    } else {
      cursor.Drop();
    }
  }
  return ast_.arena.Copy(fields);
}

Field AstBuilder::BuildField(const SyntaxNode& node) {
  Field field;
  field.range = RangeOf(node);
  Cursor cursor(*this, node);
  field.name = TakeName(cursor);
  if (cursor.Skip(Tok::kPer)) {
    field.per = TakeName(cursor);
    return field;
  }
  cursor.Skip(Tok::kAssign);
  if (cursor.At(Rule::kFieldValue)) {
    Cursor value(*this, cursor.TakeNode());
    field.value = TakeExpr(value);
    if (value.Skip(Tok::kWhere)) field.where = TakeSelector(value);
    if (value.At(Rule::kFields)) field.block = BuildFields(value.TakeNode());
  } else if (cursor.At(Rule::kFields)) {
    field.block = BuildFields(cursor.TakeNode());
  }
  return field;
}

FnDecl* AstBuilder::BuildFn(const SyntaxNode& node) {
  FnDecl* fn = ast_.arena.New<FnDecl>();
  fn->range = RangeOf(node);
  Cursor cursor(*this, node);
  const Token& word = cursor.TakeToken();
  if (word.kind == Tok::kForward) fn->name = NameOf(word);
  if (cursor.At(Rule::kWord)) fn->name = TakeBoundName(cursor);
  fn->params = BuildParams(cursor.TakeNode());
  if (cursor.Skip(Tok::kArrow)) fn->result = BuildType(cursor.TakeNode());
  fn->requirements = TakeRequirements(cursor);
  fn->body = BuildBlock(cursor.TakeNode());
  return fn;
}

List<Param> AstBuilder::BuildParams(const SyntaxNode& node) {
  std::vector<Param> params;
  for (Cursor cursor(*this, node); !cursor.done();) {
    if (!cursor.At(Rule::kParam)) {
      cursor.Drop();
      continue;
    }
    const SyntaxNode& inner = cursor.TakeNode();
    Cursor param_cursor(*this, inner);
    Param param;
    param.range = RangeOf(inner);
    if (param_cursor.At(Tok::kKey)) {
      param.name = NameOf(param_cursor.TakeToken());
      CheckBound(param.name);
    } else {
      param.name = TakeBoundName(param_cursor);
    }
    if (param_cursor.Skip(Tok::kColon)) param.type = BuildType(param_cursor.TakeNode());
    if (param_cursor.Skip(Tok::kAssign)) param.default_value = TakeExpr(param_cursor);
    if (param.default_value != nullptr && param.type != nullptr && param.type->name.name == names::kSel) {
      AsSelector(param.default_value);
    }
    params.push_back(param);
  }
  return ast_.arena.Copy(params);
}

List<Requirement> AstBuilder::TakeRequirements(Cursor& cursor) {
  std::vector<Requirement> requirements;
  while (cursor.At(Rule::kRequirement)) {
    for (Cursor clause(*this, cursor.TakeNode()); !clause.done();) {
      if (!clause.At(Rule::kCondition)) {
        clause.Drop();
        continue;
      }
      const SyntaxNode& condition = clause.TakeNode();
      Cursor inner(*this, condition);
      Requirement requirement;
      requirement.range = RangeOf(condition);
      requirement.condition = TakeExpr(inner);
      if (inner.Skip(Tok::kHint)) requirement.hint = TakeExpr(inner);
      requirements.push_back(requirement);
    }
  }
  return ast_.arena.Copy(requirements);
}

// ---------------------------------------------------------------------------------------------------- types

namespace {

bool IsTypeWord(NameId name) {
  switch (name) {
    case names::kInt:
    case names::kFloat:
    case names::kBool:
    case names::kString:
    case names::kSel:
    case names::kSchedule:
    case names::kAxis:
    case names::kDim:
    case names::kFn:
    case names::kQueue:
    case names::kLoss:
    case names::kStrategy:
    case names::kModel:
    case names::kTopology:
    case names::kOptimizer:
    case names::kQuantity:
    case names::kAny:
    case names::kTime:
    case names::kBytes:
    case names::kRate:
      return true;
    default:
      return false;
  }
}

}  // namespace

TypeRef* AstBuilder::BuildType(const SyntaxNode& node) {
  Deeper deeper(*this, 1);
  TypeRef* type = ast_.arena.New<TypeRef>();
  type->range = RangeOf(node);
  type->kind = TypeKind::kName;
  Cursor cursor(*this, node);
  if (cursor.At(Tok::kLbracket)) {
    Cursor items = cursor;
    items.Drop();
    const SyntaxNode& first = items.TakeNode();
    bool single = items.At(Tok::kRbracket);
    bool dtype = single && (items.Drop(), !items.done());
    Cursor item(*this, first);
    if (single && !dtype && !item.At(Tok::kKey)) {
      ++type_depth_;
      size_t errors = diag_.error_count();
      TypeRef* element = TypeOfExpr(*TakeExpr(item));
      --type_depth_;
      if (element != nullptr) {
        type->kind = TypeKind::kList;
        type->arguments = ast_.arena.Copy(std::vector<TypeRef*>{element});
        return type;
      }
      if (diag_.error_count() != errors) return type;
    }
    return BuildBracketType(node);
  }
  if (cursor.Skip(Tok::kFnType)) {
    type->kind = TypeKind::kFn;
    type->name = {names::kFn, type->range, kNoSlot};
    return type;
  }
  if (cursor.At(Tok::kLambda) || cursor.At(Tok::kLparen)) {
    type->kind = cursor.Skip(Tok::kLambda) ? TypeKind::kFn : TypeKind::kTuple;
    cursor.Skip(Tok::kLparen);
    std::vector<TypeRef*> parts;
    while (cursor.At(Rule::kType)) {
      parts.push_back(BuildType(cursor.TakeNode()));
      cursor.Skip(Tok::kComma);
    }
    cursor.Skip(Tok::kRparen);
    if (cursor.Skip(Tok::kArrow)) type->result = BuildType(cursor.TakeNode());
    if (type->kind == TypeKind::kTuple && parts.size() == 1) return parts[0];
    type->arguments = ast_.arena.Copy(parts);
    return type;
  }
  type->name = TakeName(cursor);
  if (cursor.Skip(Tok::kLbracket)) {
    TypeRef* element = BuildType(cursor.TakeNode());
    if (type->name.name != names::kQueue) {
      Error(type->name.range,
            fmt::format("the type '{}' takes no element type", ast_.names.Text(type->name.name)))
          .Hint("a list reads [int], a queue queue[sel]");
    }
    type->kind = TypeKind::kQueue;
    type->arguments = ast_.arena.Copy(std::vector<TypeRef*>{element});
  }
  return type;
}

// [dims] dtype
TypeRef* AstBuilder::BuildBracketType(const SyntaxNode& node) {
  TypeRef* type = ast_.arena.New<TypeRef>();
  type->range = RangeOf(node);
  type->kind = TypeKind::kTensor;
  Cursor cursor(*this, node);
  cursor.Skip(Tok::kLbracket);
  std::vector<TypeDim> dims;
  while (cursor.At(Rule::kTypeItem)) {
    const SyntaxNode& item = cursor.TakeNode();
    Cursor inner(*this, item);
    TypeDim dim;
    dim.range = RangeOf(item);
    if (inner.At(Tok::kKey)) {
      dim.name = NameOf(inner.TakeToken());
      inner.Skip(Tok::kAssign);
      dim.size = TakeExpr(inner);
    } else {
      Expr* size = TakeExpr(inner);
      if (size->kind == ExprKind::kName && !size->parenthesized) {
        dim.name = {As<NameExpr>(*size).name, size->range, kNoSlot};
      } else if (size->kind == ExprKind::kSelector && !As<BracketExpr>(*size).has_bracket) {
        dim.name = {ast_.names.Find(PassName(As<BracketExpr>(*size).pass)), size->range, kNoSlot};
      } else {
        dim.size = size;
      }
    }
    if (dim.name.name != kNoName) CheckBound(dim.name);
    dims.push_back(dim);
    cursor.Skip(Tok::kComma);
  }
  cursor.Skip(Tok::kRbracket);
  if (cursor.At(Tok::kIdent)) type->name = NameOf(cursor.TakeToken());
  type->dims = ast_.arena.Copy(dims);
  return type;
}

// The element type that an item of `[..]` spells, null if it is a dimension.
TypeRef* AstBuilder::TypeOfExpr(const Expr& expr) {
  TypeRef* type = ast_.arena.New<TypeRef>();
  type->range = expr.range;
  if (expr.kind == ExprKind::kName) {
    NameId name = As<NameExpr>(expr).name;
    if (!IsTypeWord(name)) return nullptr;
    type->kind = name == names::kFn ? TypeKind::kFn : TypeKind::kName;
    type->name = {name, expr.range, kNoSlot};
    return type;
  }
  const Expr* element = nullptr;
  if (expr.kind == ExprKind::kList && As<BracketExpr>(expr).items.size() == 1) {
    type->kind = TypeKind::kList;
    element = As<BracketExpr>(expr).items[0].value;
  } else if (expr.kind == ExprKind::kIndex && As<IndexExpr>(expr).base->kind == ExprKind::kName &&
             As<NameExpr>(*As<IndexExpr>(expr).base).name == names::kQueue) {
    type->kind = TypeKind::kQueue;
    type->name = {names::kQueue, expr.range, kNoSlot};
    element = As<IndexExpr>(expr).items[0].value;
  } else if (expr.kind == ExprKind::kTuple) {
    type->kind = TypeKind::kTuple;
    std::vector<TypeRef*> parts;
    for (const Expr* item : As<TupleExpr>(expr).items) {
      TypeRef* part = TypeOfExpr(*item);
      if (part == nullptr) return nullptr;
      parts.push_back(part);
    }
    type->arguments = ast_.arena.Copy(parts);
    return type;
  }
  TypeRef* inner = element == nullptr ? nullptr : TypeOfExpr(*element);
  if (inner == nullptr) return nullptr;
  type->arguments = ast_.arena.Copy(std::vector<TypeRef*>{inner});
  return type;
}

}  // namespace piper::frontend
