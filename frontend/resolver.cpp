#include "frontend/resolver.h"

#include <algorithm>

#include <fmt/format.h>

#include "frontend/scopes.h"
#include "frontend/value.h"
#include "ir/model/operations.h"

namespace piper::frontend {

namespace {

using ir::DiagKind;

class Resolver : private Scopes {
 public:
  Resolver(LoadedProgram& program, ir::DiagnosticEngine& diag, ResolvedProgram* out)
      : Scopes(program, diag, out) {}

  void Run() {
    for (size_t i = 0; i < program_.files.size(); ++i) {
      file_ = static_cast<int>(i);
      for (Decl* decl : program_.files[i].syntax->decls) ResolveDecl(decl);
    }
  }

 private:
  // ---- expressions

  // `lenient`: an unresolved name is left for evaluation to interpret (a tag, a dimension).
  void Name(NameExpr& expr, bool lenient) {
    Place place = Lookup(expr.name);
    expr.frame = place.frame;
    expr.slot = place.slot;
    if (place.frame != kFrameUnresolved || lenient || unit_->lenient) return;
    if (expr.name == names::kQueue || expr.name == names::kLast || expr.name == names::kAll) return;
    if (IsFreeDim(expr.name)) return;
    ReportUnknown(expr.name, expr.range);
  }

  void Callee(Expr& callee) {
    if (callee.kind == ExprKind::kName) {
      auto& name = As<NameExpr>(callee);
      Place place = Lookup(name.name);
      std::string_view text = program_.ast.names.Text(name.name);
      const ir::OperationRule* rule = ir::FindOperation(text);
      if (place.frame == kFrameUnresolved && rule != nullptr && rule->user_visible())
        place.frame = kFrameOperation;
      name.frame = place.frame;
      name.slot = place.slot;
      if (place.frame == kFrameUnresolved && name.name != names::kFused && name.name != names::kGreedy) {
        ReportUnknown(name.name, name.range, "function");
      }
      return;
    }
    Expression(callee);
  }

  void Items(List<Item> items) {
    for (Item& item : items) {
      if (item.value != nullptr) Expression(*item.value, /*lenient=*/true);
    }
  }

  void Expression(Expr& expr, bool lenient = false) {
    switch (expr.kind) {
      case ExprKind::kNumber:
      case ExprKind::kString:
      case ExprKind::kBool:
      case ExprKind::kTable:
        return;
      case ExprKind::kName:
        Name(As<NameExpr>(expr), lenient);
        return;
      case ExprKind::kList:
      case ExprKind::kSelector:
        Items(As<BracketExpr>(expr).items);
        return;
      case ExprKind::kTuple:
        for (Expr* item : As<TupleExpr>(expr).items) Expression(*item, lenient);
        return;
      case ExprKind::kComprehension: {
        auto& comprehension = As<ComprehensionExpr>(expr);
        unit_->blocks.emplace_back();
        Clauses(comprehension.clauses);
        if (comprehension.condition != nullptr) Expression(*comprehension.condition);
        Expression(*comprehension.element, lenient);
        unit_->blocks.pop_back();
        return;
      }
      case ExprKind::kUnary:
        Expression(*As<UnaryExpr>(expr).operand, lenient);
        return;
      case ExprKind::kChain: {
        auto& chain = As<ChainExpr>(expr);
        Expression(*chain.first, lenient);
        for (ChainLink& link : chain.rest) {
          if (link.op != BinaryOp::kBy) Expression(*link.operand, lenient);
        }
        return;
      }
      case ExprKind::kCall: {
        auto& call = As<CallExpr>(expr);
        Callee(*call.callee);
        for (Arg& arg : call.args) Expression(*arg.value, arg.value->kind == ExprKind::kName);
        return;
      }
      case ExprKind::kIndex:
        Expression(*As<IndexExpr>(expr).base, lenient);
        Items(As<IndexExpr>(expr).items);
        return;
      case ExprKind::kMember:
        Expression(*As<MemberExpr>(expr).base, lenient);
        return;
      case ExprKind::kOptional:
        Expression(*As<OptionalExpr>(expr).operand, lenient);
        return;
      case ExprKind::kLambda:
        Function(As<LambdaExpr>(expr).fn);
        return;
      case ExprKind::kIf:
        Branches(As<IfExpr>(expr).branches);
        return;
      case ExprKind::kTag:
        NestedBlock(*As<TagExpr>(expr).body);
        return;
    }
  }

  void Clauses(List<ForClause> clauses) {
    for (ForClause& clause : clauses) {
      Expression(*clause.iterable);
      BindPattern(clause.pattern, false);
    }
  }

  void Branches(List<IfBranch> branches) {
    for (IfBranch& branch : branches) {
      if (branch.condition != nullptr) Expression(*branch.condition);
      NestedBlock(*branch.body);
    }
  }

  // ---- types

  void Type(TypeRef* type) {
    if (type == nullptr) return;
    for (TypeRef* argument : type->arguments) Type(argument);
    for (TypeDim& dim : type->dims) {
      if (dim.size != nullptr) Expression(*dim.size);
      if (dim.name.name == kNoName || dim.size != nullptr) continue;
      Place place = Lookup(dim.name.name);
      if (place.frame == kFrameLocal || place.frame == kFrameSelf || place.frame == kFrameGlobal) {
        dim.name.slot = EncodePlace(place.frame, place.slot);
      }
    }
  }

  // ---- statements

  void NestedBlock(Block& block) {
    unit_->blocks.emplace_back();
    Statements(block.statements);
    unit_->blocks.pop_back();
  }

  void Statements(List<Stmt*> statements) {
    for (Stmt* statement : statements) Statement(*statement);
  }

  void Fields(List<Field> fields) {
    for (Field& field : fields) {
      if (field.value != nullptr) Expression(*field.value, true);
      if (field.where != nullptr) Expression(*field.where, true);
      Fields(field.block);
    }
  }

  void AssignTarget(Expr& target) {
    Expression(target);
    const Expr* root = &target;
    while (root->kind == ExprKind::kIndex || root->kind == ExprKind::kMember) {
      root = root->kind == ExprKind::kIndex ? As<IndexExpr>(*root).base : As<MemberExpr>(*root).base;
    }
    if (root->kind != ExprKind::kName) {
      diag_.Error(target.range, DiagKind::kNotAssignable, "only a variable can be assigned");
      return;
    }
    const auto& name = As<NameExpr>(*root);
    if (name.frame == kFrameUnresolved) {
      if (unit_->lenient) ReportUnknown(name.name, name.range);
      return;
    }
    const Binding* binding = name.frame == kFrameLocal ? FindIn(*unit_, name.name) : nullptr;
    if (binding == nullptr) {
      diag_
          .Error(name.range, DiagKind::kNotAssignable,
                 fmt::format(
                     "'{}' belongs to an outer scope and cannot be assigned here: functions are pure outside",
                     Text(name.name)))
          .Hint("return the new value instead");
    } else if (!binding->is_var) {
      diag_
          .Error(name.range, DiagKind::kNotAssignable, fmt::format("'{}' is not a variable", Text(name.name)))
          .Note(binding->range, "defined here; `var` instead of `let` would make it one");
    }
  }

  void Optional(Expr* expr) {
    if (expr != nullptr) Expression(*expr, true);
  }

  void Lanes(List<Lane> lanes) {
    for (Lane& lane : lanes) {
      unit_->blocks.emplace_back();
      Statements(lane.steps);
      unit_->blocks.pop_back();
    }
  }

  void Statement(Stmt& statement) {
    switch (statement.kind) {
      case StmtKind::kLet: {
        auto& let = As<LetStmt>(statement);
        Type(let.type);
        Expression(*let.value);
        BindPattern(let.pattern, let.is_var);
        return;
      }
      case StmtKind::kAssign:
        Expression(*As<AssignStmt>(statement).value);
        AssignTarget(*As<AssignStmt>(statement).target);
        return;
      case StmtKind::kExpr:
        Expression(*As<ExprStmt>(statement).value);
        return;
      case StmtKind::kReturn:
        if (As<ReturnStmt>(statement).value != nullptr) Expression(*As<ReturnStmt>(statement).value);
        return;
      case StmtKind::kFor: {
        auto& loop = As<ForStmt>(statement);
        Expression(*loop.iterable);
        unit_->blocks.emplace_back();
        BindPattern(loop.pattern, false);
        Statements(loop.body->statements);
        unit_->blocks.pop_back();
        return;
      }
      case StmtKind::kIf:
        Branches(As<IfStmt>(statement).branches);
        return;
      case StmtKind::kFn: {
        FnDecl* fn = As<FnStmt>(statement).fn;
        Bind(fn->name, false);
        Function(fn);
        return;
      }
      case StmtKind::kExpect:
        Expression(*As<ExpectStmt>(statement).condition);
        return;
      case StmtKind::kLanes:
        Lanes(As<LanesStmt>(statement).lanes);
        return;
      case StmtKind::kBarrier:
        return;
      case StmtKind::kSteps:
        Optional(As<StepsStmt>(statement).within);
        return;
      case StmtKind::kMesh: {
        auto& mesh = As<MeshStmt>(statement);
        for (MeshAxis& axis : mesh.axes) Optional(axis.size);
        Optional(mesh.devices);
        return;
      }
      case StmtKind::kCut:
        Optional(As<CutStmt>(statement).into);
        return;
      case StmtKind::kSplit:
        Optional(As<SplitStmt>(statement).within);
        for (SplitPart& part : As<SplitStmt>(statement).parts) Optional(part.into);
        return;
      case StmtKind::kPlace:
        Optional(As<PlaceStmt>(statement).selector);
        Optional(As<PlaceStmt>(statement).group);
        return;
      case StmtKind::kShard: {
        auto& shard = As<ShardStmt>(statement);
        Optional(shard.axis);
        Optional(shard.where);
        Optional(shard.capacity);
        return;
      }
      case StmtKind::kZero: {
        auto& zero = As<ZeroStmt>(statement);
        Optional(zero.level);
        Optional(zero.selector);
        Fields(zero.settings);
        return;
      }
      case StmtKind::kOrder: {
        auto& order = As<OrderStmt>(statement);
        Optional(order.group);
        if (order.body != nullptr) NestedBlock(*order.body);
        Lanes(order.lanes);
        return;
      }
      case StmtKind::kEdge:
        Optional(As<EdgeStmt>(statement).from);
        Optional(As<EdgeStmt>(statement).to);
        Optional(As<EdgeStmt>(statement).distance);
        return;
      case StmtKind::kLimit:
        Optional(As<LimitStmt>(statement).count);
        Optional(As<LimitStmt>(statement).selector);
        return;
      case StmtKind::kStream:
        Optional(As<StreamStmt>(statement).selector);
        return;
      case StmtKind::kRecompute:
        Optional(As<RecomputeStmt>(statement).selector);
        Optional(As<RecomputeStmt>(statement).keep);
        return;
      case StmtKind::kOffload:
        Optional(As<OffloadStmt>(statement).selector);
        Fields(As<OffloadStmt>(statement).settings);
        return;
      case StmtKind::kFreeze:
        Optional(As<FreezeStmt>(statement).selector);
        return;
      case StmtKind::kRun:
        Optional(As<RunStmt>(statement).hint);
        Optional(As<RunStmt>(statement).where);
        return;
      case StmtKind::kOptimizer:
      case StmtKind::kNumerics:
        return;
      case StmtKind::kCost:
        Optional(As<CostStmt>(statement).target);
        Optional(As<CostStmt>(statement).value);
        return;
      case StmtKind::kSlowdown:
        Optional(As<SlowdownStmt>(statement).value);
        return;
      case StmtKind::kAssert:
        AssertCondition(*As<AssertStmt>(statement).condition);
        return;
      case StmtKind::kUse:
        Optional(As<UseStmt>(statement).strategy);
        return;
    }
  }

  // `assert exposed([ep.*]) < 5 %`: the metric is no function.
  void AssertCondition(Expr& condition) {
    if (condition.kind != ExprKind::kChain) return;
    auto& chain = As<ChainExpr>(condition);
    auto side = [&](Expr& expr) {
      if (expr.kind == ExprKind::kCall && As<CallExpr>(expr).callee->kind == ExprKind::kName) {
        auto& call = As<CallExpr>(expr);
        auto& name = As<NameExpr>(*call.callee);
        Place place = Lookup(name.name);
        name.frame = place.frame;
        name.slot = place.slot;
        for (Arg& arg : call.args) Expression(*arg.value, true);
      } else {
        Expression(expr, true);
      }
    };
    side(*chain.first);
    for (ChainLink& link : chain.rest) side(*link.operand);
  }

  // ---- functions and declarations

  // Resolves parameters, requirements and body into `info`, as a scope inside the current one.
  void FunctionInto(FnDecl* fn, FunctionInfo* info) {
    info->decl = fn;
    info->params = fn->params;
    info->requirements = fn->requirements;
    if (info->name.empty()) info->name = fn->name.name == kNoName ? "a function" : Text(fn->name.name);
    UnitGuard guard(this, info);
    for (Param& param : fn->params) {
      if (param.default_value != nullptr) Expression(*param.default_value, true);
      FreeDims(param.type, info);
      Bind(param.name, false);
    }
    info->frame_size = std::max(info->frame_size, static_cast<int>(fn->params.size()));
    FreeDims(fn->result, info);
    for (Param& param : fn->params) Type(param.type);
    Type(fn->result);
    Requirements(fn->requirements);
    unit_->blocks.emplace_back();
    Statements(fn->body->statements);
    unit_->blocks.pop_back();
    // A function that captures itself finds itself at call time.
    if (fn->name.slot != kNoSlot && guard.scope.outer != nullptr) {
      for (size_t i = 0; i < info->captures.size(); ++i) {
        if (info->captures[i].outer != fn->name.slot || FindIn(*guard.scope.outer, fn->name.name) == nullptr)
          continue;
        info->self_slot = info->captures[i].inner;
        info->captures.erase(info->captures.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      }
    }
  }

  void FreeDims(TypeRef* type, FunctionInfo* info) {
    if (type == nullptr) return;
    for (TypeRef* argument : type->arguments) FreeDims(argument, info);
    for (TypeDim& dim : type->dims) {
      if (dim.name.name != kNoName && dim.size == nullptr &&
          Lookup(dim.name.name).frame == kFrameUnresolved) {
        info->free_dims.push_back(dim.name.name);
      }
    }
  }

  FunctionInfo* Function(FnDecl* fn) {
    FunctionInfo* info = NewUnit(fn, "");
    FunctionInto(fn, info);
    return info;
  }

  void Requirements(List<Requirement> requirements) {
    for (Requirement& requirement : requirements) {
      Expression(*requirement.condition, true);
      if (requirement.hint != nullptr) Expression(*requirement.hint, true);
    }
  }

  void Params(List<Param> params, List<Requirement> requirements, FunctionInfo* info) {
    info->params = params;
    info->requirements = requirements;
    for (Param& param : params) {
      if (param.default_value != nullptr) Expression(*param.default_value, true);
      Bind(param.name, false);
    }
    info->frame_size = std::max(info->frame_size, static_cast<int>(params.size()));
    Requirements(requirements);
  }

  void ResolveDecl(Decl* decl) {
    module_ = nullptr;
    unit_ = nullptr;
    switch (decl->kind) {
      case DeclKind::kImport:
        return;
      case DeclKind::kLet: {
        auto& let = *As<LetDecl>(*decl).let;
        if (let.is_var) {
          diag_.Error(let.range, DiagKind::kNotAssignable, "a top-level name is constant")
              .Hint("write `let`; variables live in functions");
        }
        UnitGuard guard(this, NewUnit(decl, "a top-level let"));
        Type(let.type);
        Expression(*let.value);
        return;
      }
      case DeclKind::kFn: {
        Function(As<FnTopDecl>(*decl).fn);
        return;
      }
      case DeclKind::kModule:
        Module(As<ModuleDecl>(*decl));
        return;
      case DeclKind::kModel: {
        UnitGuard guard(this, NewUnit(decl, Text(As<ModelDecl>(*decl).name.name)));
        Expression(*As<ModelDecl>(*decl).value);
        return;
      }
      case DeclKind::kTopology: {
        auto& topology = As<TopologyDecl>(*decl);
        UnitGuard guard(this, NewUnit(decl, Text(topology.name.name)));
        Params(topology.params, topology.requirements, guard.scope.info);
        for (TopologyItem& item : topology.items) {
          for (Property& property : item.properties) {
            if (property.value != nullptr) Expression(*property.value);
          }
          if (item.members != nullptr) Expression(*item.members);
          if (item.of.name != kNoName) {
            Place place = Lookup(item.of.name);
            if (place.frame == kFrameLocal) {
              item.of.slot = place.slot;
            } else {
              ReportUnknown(item.of.name, item.of.range, "device or level");
            }
          }
          if (item.let != nullptr) Statement(*item.let);
          if (item.kind == TopologyItemKind::kDevice || item.kind == TopologyItemKind::kLevel)
            Bind(item.name, false);
        }
        return;
      }
      case DeclKind::kStrategy: {
        auto& strategy = As<StrategyDecl>(*decl);
        out_.strategies.emplace_back();
        StrategyInfo* info = &out_.strategies.back();
        out_.strategy_of[decl] = info;
        info->decl = &strategy;
        info->function.name = Text(strategy.name.name);
        UnitGuard guard(this, &info->function);
        guard.scope.lenient = true;
        Params(strategy.params, strategy.requirements, &info->function);
        NestedBlock(*strategy.body);
        return;
      }
      case DeclKind::kRun: {
        UnitGuard guard(this, NewUnit(decl, "a run"));
        Fields(As<RunDecl>(*decl).fields);
        return;
      }
      case DeclKind::kTest: {
        auto& test = As<TestDecl>(*decl);
        UnitGuard guard(this, NewUnit(decl, std::string(test.name)));
        Clauses(test.clauses);
        NestedBlock(*test.body);
        return;
      }
    }
  }

  void Module(ModuleDecl& decl) {
    out_.modules.emplace_back();
    ModuleInfo* info = &out_.modules.back();
    out_.module_of[&decl] = info;
    info->decl = &decl;
    info->name = Text(decl.name.name);
    info->file = file_;
    info->init.name = info->name;
    module_ = info;
    std::vector<SourceRange> ranges;
    auto add = [&](NameRef& name, const ModuleMember* member) {
      if (name.name == names::kUnderscore || name.name == kNoName) return;
      if (int slot = info->FindSlot(name.name); slot != kNoSlot) {
        diag_
            .Error(name.range, DiagKind::kDuplicateName,
                   fmt::format("'{}' is already defined in module '{}'", Text(name.name), info->name))
            .Note(ranges[slot], "the first definition");
        name.slot = slot;
        return;
      }
      name.slot = static_cast<int>(info->slots.size());
      info->slots.push_back({name.name, member, nullptr});
      ranges.push_back(name.range);
    };
    UnitGuard guard(this, &info->init);
    info->init.params = decl.params;
    info->init.requirements = decl.requirements;
    for (Param& param : decl.params) {
      if (param.default_value != nullptr) Expression(*param.default_value, true);
      add(param.name, nullptr);
    }
    Requirements(decl.requirements);
    // Functions see every member, whatever the order; expressions see what stands before them.
    for (ModuleMember& member : decl.members) {
      switch (member.kind) {
        case MemberKind::kParam:
          for (TypeDim& dim : member.type->dims) {
            if (dim.size == nullptr) continue;
            Expression(*dim.size);
            if (dim.name.name == kNoName) continue;
            if (int slot = info->FindSlot(dim.name.name); slot != kNoSlot) {
              dim.name.slot = EncodePlace(kFrameSelf, slot);
            } else {
              add(dim.name, nullptr);
              dim.name.slot = EncodePlace(kFrameSelf, dim.name.slot);
            }
          }
          ParamDims(member.type);
          if (member.value != nullptr) Expression(*member.value);
          add(member.name, &member);
          break;
        case MemberKind::kAssign:
          Expression(*member.value);
          add(member.name, &member);
          break;
        case MemberKind::kLet:
          Type(member.let->type);
          Expression(*member.let->value);
          for (NameRef& name : member.let->pattern.names) add(name, &member);
          break;
        case MemberKind::kFn:
          add(member.fn->name, &member);
          break;
        case MemberKind::kForward: {
          if (info->forward != kNoSlot) {
            diag_.Error(member.fn->name.range, DiagKind::kDuplicateName, "a module has one forward")
                .Note(ranges[info->forward], "the first one");
            break;
          }
          add(member.fn->name, &member);
          info->forward = member.fn->name.slot;
          break;
        }
      }
    }
    for (ModuleMember& member : decl.members) {
      if (member.kind != MemberKind::kFn && member.kind != MemberKind::kForward) continue;
      FunctionInfo* function = NewUnit(member.fn, member.kind == MemberKind::kForward ? info->name : "");
      int32_t slot = member.fn->name.slot;
      // Members are slots of the instance, not of a frame: no local to capture.
      UnitScope* outer = unit_;
      unit_ = nullptr;
      FunctionInto(member.fn, function);
      unit_ = outer;
      if (slot != kNoSlot) info->slots[slot].function = function;
    }
    module_ = nullptr;
  }

  // The dimensions of a parameter are known names: module parameters, members, or defined with a size.
  void ParamDims(TypeRef* type) {
    for (TypeDim& dim : type->dims) {
      if (dim.size != nullptr || dim.name.name == kNoName) continue;
      Place place = Lookup(dim.name.name);
      if (place.frame == kFrameUnresolved || place.frame == kFrameNative || place.frame == kFrameOperation) {
        std::vector<std::string> known;
        for (const ModuleInfo::Slot& slot : module_->slots) known.push_back(Text(slot.name));
        auto error = diag_.Error(dim.range, DiagKind::kUnknownDim,
                                 fmt::format("unknown dimension '{}' of a parameter", Text(dim.name.name)));
        std::string near = NearestName(Text(dim.name.name), known);
        if (!near.empty()) {
          error.Hint(fmt::format("did you mean '{}'?", near));
        } else {
          error.Hint("a dimension is a parameter of the module, or is given its size here: `[rows = 3]`");
        }
        continue;
      }
      dim.name.slot = EncodePlace(place.frame, place.slot);
    }
  }
};

}  // namespace

void ResolveNames(LoadedProgram& program, ir::DiagnosticEngine& diag, ResolvedProgram* resolved) {
  Resolver(program, diag, resolved).Run();
}

}  // namespace piper::frontend
