// `--emit=ast`: a node a line, children indented by two, expressions as one-line s-expressions where they
// fit.
#include <string>

#include <fmt/format.h>

#include "frontend/ast.h"

namespace piper::frontend {

namespace {

class Dumper {
 public:
  explicit Dumper(const NameTable& names) : names_(names) {}

  std::string Run(const File& file) {
    for (const Decl* decl : file.decls) DumpDecl(*decl);
    return std::move(out_);
  }

 private:
  struct Indent {
    explicit Indent(Dumper& dumper) : dumper(dumper) { ++dumper.indent_; }
    ~Indent() { --dumper.indent_; }
    Indent(const Indent&) = delete;
    Dumper& dumper;
  };

  void Line(std::string_view text) {
    out_.append(static_cast<size_t>(indent_) * 2, ' ');
    out_ += text;
    out_ += '\n';
  }
  std::string Name(const NameRef& name) const { return std::string(names_.Text(name.name)); }
  static std::string Quote(std::string_view text) {
    std::string out = "\"";
    for (char c : text) {
      switch (c) {
        case '\n':
          out += "\\n";
          break;
        case '\t':
          out += "\\t";
          break;
        case '\r':
          out += "\\r";
          break;
        case '"':
          out += "\\\"";
          break;
        case '\\':
          out += "\\\\";
          break;
        default:
          out += c;
      }
    }
    return out + "\"";
  }

  // Exact, unlike the rounded forms for people.
  static std::string_view BaseUnit(ir::UnitKind unit) {
    switch (unit) {
      case ir::UnitKind::kNone:
        return "";
      case ir::UnitKind::kTime:
        return "ps";
      case ir::UnitKind::kBytes:
        return "B";
      case ir::UnitKind::kByteRate:
        return "B/s";
      case ir::UnitKind::kFlops:
        return "FLOP";
      case ir::UnitKind::kFlopRate:
        return "FLOP/s";
      case ir::UnitKind::kPercent:
        return "(fraction)";
    }
    return "";
  }

  // ---- expressions

  // Blocks inside expressions are shown as `{..}` in the line and dumped below it.
  std::string Show(const Expr* expr) {
    if (expr == nullptr) return "-";
    switch (expr->kind) {
      case ExprKind::kNumber: {
        const auto& number = As<NumberExpr>(*expr);
        if (number.unit != ir::UnitKind::kNone)
          return fmt::format("{}{}", number.value, BaseUnit(number.unit));
        return number.is_int ? fmt::format("{}", number.int_value) : fmt::format("{}", number.value);
      }
      case ExprKind::kString:
        return Quote(As<StringExpr>(*expr).value);
      case ExprKind::kBool:
        return As<BoolExpr>(*expr).value ? "true" : "false";
      case ExprKind::kName:
        return std::string(names_.Text(As<NameExpr>(*expr).name));
      case ExprKind::kList:
        return "(list" + ShowItems(As<BracketExpr>(*expr).items) + ")";
      case ExprKind::kSelector: {
        const auto& selector = As<BracketExpr>(*expr);
        std::string out = "(sel";
        if (selector.pass != Pass::kNone) out += fmt::format(" pass={}", PassName(selector.pass));
        return out + ShowItems(selector.items) + ")";
      }
      case ExprKind::kTuple: {
        std::string out = "(tuple";
        for (const Expr* item : As<TupleExpr>(*expr).items) out += " " + Show(item);
        return out + ")";
      }
      case ExprKind::kComprehension: {
        const auto& list = As<ComprehensionExpr>(*expr);
        std::string out = "(each " + Show(list.element);
        for (const ForClause& clause : list.clauses) out += " " + ShowClause(clause);
        if (list.condition != nullptr) out += " (if " + Show(list.condition) + ")";
        return out + ")";
      }
      case ExprKind::kUnary: {
        const auto& unary = As<UnaryExpr>(*expr);
        return fmt::format("({} {})", unary.op == UnaryOp::kNot ? "not" : "-", Show(unary.operand));
      }
      case ExprKind::kChain: {
        const auto& chain = As<ChainExpr>(*expr);
        std::string out = "(" + Show(chain.first);
        for (const ChainLink& link : chain.rest) {
          out += fmt::format(" {} ", BinaryOpText(link.op));
          out += Show(link.operand);
        }
        return out + ")";
      }
      case ExprKind::kCall: {
        const auto& call = As<CallExpr>(*expr);
        std::string out = "(call " + Show(call.callee);
        for (const Arg& arg : call.args) {
          out += ' ';
          if (arg.key.name != kNoName) out += Name(arg.key) + "=";
          out += Show(arg.value);
        }
        return out + ")";
      }
      case ExprKind::kIndex:
        return "(at " + Show(As<IndexExpr>(*expr).base) + ShowItems(As<IndexExpr>(*expr).items) + ")";
      case ExprKind::kMember:
        return "(. " + Show(As<MemberExpr>(*expr).base) + " " + Name(As<MemberExpr>(*expr).member) + ")";
      case ExprKind::kOptional:
        return "(? " + Show(As<OptionalExpr>(*expr).operand) + ")";
      case ExprKind::kLambda:
        return "(fn" + ShowSignature(*As<LambdaExpr>(*expr).fn) + " " +
               Defer(As<LambdaExpr>(*expr).fn->body) + ")";
      case ExprKind::kIf: {
        std::string out = "(if";
        for (const IfBranch& branch : As<IfExpr>(*expr).branches) {
          out += branch.condition == nullptr ? " else" : " " + Show(branch.condition);
          out += " " + Defer(branch.body);
        }
        return out + ")";
      }
      case ExprKind::kTag:
        return "(tag " + Name(As<TagExpr>(*expr).tag) + " " + Defer(As<TagExpr>(*expr).body) + ")";
      case ExprKind::kTable:
        return "(table " + Quote(As<TableExpr>(*expr).path) + ")";
    }
    return "?";
  }

  std::string Defer(const Block* block) {
    deferred_.push_back(block);
    return fmt::format("{{{}}}", deferred_.size());
  }

  // A line that holds expressions, then the blocks that they contain.
  void ExprLine(const std::string& text) {
    std::vector<const Block*> blocks = std::move(deferred_);
    deferred_.clear();
    Line(text);
    Indent indent(*this);
    for (size_t i = 0; i < blocks.size(); ++i) {
      Line(fmt::format("block {}", i + 1));
      DumpBlock(*blocks[i]);
    }
  }

  std::string ShowItems(List<Item> items) {
    std::string out;
    for (const Item& item : items) {
      out += ' ';
      if (item.star) {
        out += '*';
        continue;
      }
      if (item.negated) out += "not:";
      if (item.key.name != kNoName) out += Name(item.key) + "=";
      out += Show(item.value);
    }
    return out;
  }

  std::string ShowPattern(const Pattern& pattern) const {
    std::string out;
    for (const NameRef& name : pattern.names) out += (out.empty() ? "" : ", ") + Name(name);
    return pattern.tuple ? "(" + out + ")" : out;
  }
  std::string ShowClause(const ForClause& clause) {
    return "(for " + ShowPattern(clause.pattern) + " in " + Show(clause.iterable) + ")";
  }

  std::string ShowType(const TypeRef* type) {
    if (type == nullptr) return "-";
    std::string out;
    switch (type->kind) {
      case TypeKind::kName:
        return Name(type->name);
      case TypeKind::kList:
        return "[" + ShowType(type->arguments[0]) + "]";
      case TypeKind::kQueue:
        return "queue[" + ShowType(type->arguments[0]) + "]";
      case TypeKind::kTensor:
        for (const TypeDim& dim : type->dims) {
          if (!out.empty()) out += ", ";
          if (dim.name.name != kNoName) out += Name(dim.name);
          if (dim.name.name != kNoName && dim.size != nullptr) out += " = ";
          if (dim.size != nullptr) out += Show(dim.size);
        }
        return "tensor[" + out + "]" + (type->name.name == kNoName ? "" : " " + Name(type->name));
      case TypeKind::kFn:
      case TypeKind::kTuple:
        for (const TypeRef* part : type->arguments) out += (out.empty() ? "" : ", ") + ShowType(part);
        out = (type->kind == TypeKind::kFn ? "fn(" : "(") + out + ")";
        if (type->result != nullptr) out += " -> " + ShowType(type->result);
        return out;
    }
    return "?";
  }

  std::string ShowParams(List<Param> params) {
    std::string out;
    for (const Param& param : params) {
      if (!out.empty()) out += ", ";
      out += Name(param.name);
      if (param.type != nullptr) out += ": " + ShowType(param.type);
      if (param.default_value != nullptr) out += " = " + Show(param.default_value);
    }
    return "(" + out + ")";
  }
  std::string ShowRequirements(List<Requirement> requirements) {
    std::string out;
    for (const Requirement& requirement : requirements) {
      out += " requires " + Show(requirement.condition);
      if (requirement.hint != nullptr) out += " hint " + Show(requirement.hint);
    }
    return out;
  }
  std::string ShowSignature(const FnDecl& fn) {
    std::string out = ShowParams(fn.params);
    if (fn.result != nullptr) out += " -> " + ShowType(fn.result);
    return out + ShowRequirements(fn.requirements);
  }

  // " word x", nothing if there is no x.
  std::string Clause(std::string_view word, const NameRef& name) const {
    return name.name == kNoName ? "" : fmt::format("{}{} {}", word.empty() ? "" : " ", word, Name(name));
  }
  std::string Clause(std::string_view word, const Expr* expr) {
    return expr == nullptr ? "" : fmt::format("{}{} {}", word.empty() ? "" : " ", word, Show(expr));
  }

  // ---- statements

  void DumpBlock(const Block& block) {
    Indent indent(*this);
    for (const Stmt* stmt : block.statements) DumpStmt(*stmt);
  }
  void DumpLanes(List<Lane> lanes) {
    Indent indent(*this);
    for (const Lane& lane : lanes) {
      Line("lane " + Name(lane.stream));
      Indent inner(*this);
      for (const Stmt* stmt : lane.steps) DumpStmt(*stmt);
    }
  }
  void DumpRuns(List<StepRun> runs) {
    Indent indent(*this);
    for (const StepRun& run : runs) {
      std::string out = fmt::format("{} x", run.repeat);
      if (run.pass != Pass::kNone) {
        out += ' ';
        if (run.stage >= 0) out += fmt::format("stage {} ", run.stage);
        out += PassName(run.pass);
        if (run.microbatch >= 0) out += fmt::format(" mb {}", run.microbatch);
      } else {
        out += run.fused ? " fused" : " group";
      }
      Line(out);
      DumpRuns(run.children);
    }
  }
  void DumpBranches(List<IfBranch> branches) {
    for (const IfBranch& branch : branches) {
      ExprLine(branch.condition == nullptr ? std::string("else") : "if " + Show(branch.condition));
      DumpBlock(*branch.body);
    }
  }
  void DumpFn(std::string_view word, const FnDecl& fn) {
    ExprLine(fmt::format("{} {}{}", word, Name(fn.name), ShowSignature(fn)));
    DumpBlock(*fn.body);
  }
  void DumpLet(const LetStmt& let) {
    std::string out = fmt::format("{} {}", let.is_var ? "var" : "let", ShowPattern(let.pattern));
    if (let.type != nullptr) out += ": " + ShowType(let.type);
    ExprLine(out + " = " + Show(let.value));
  }
  void DumpFields(List<Field> fields) {
    Indent indent(*this);
    for (const Field& field : fields) {
      std::string out = "field " + Name(field.name);
      if (field.value != nullptr) out += " " + Show(field.value);
      ExprLine(out + Clause("per", field.per) + Clause("where", field.where));
      DumpFields(field.block);
    }
  }

  void DumpStmt(const Stmt& stmt) {
    std::string word = (stmt.overrides ? "override " : "") + std::string(StmtKindName(stmt.kind));
    switch (stmt.kind) {
      case StmtKind::kLet:
        return DumpLet(As<LetStmt>(stmt));
      case StmtKind::kAssign: {
        const auto& assign = As<AssignStmt>(stmt);
        const char* op = assign.op == AssignOp::kSet ? "=" : assign.op == AssignOp::kAdd ? "+=" : "-=";
        std::string target = Show(assign.target);
        return ExprLine(fmt::format("assign {} {} {}", target, op, Show(assign.value)));
      }
      case StmtKind::kExpr:
        return ExprLine(Show(As<ExprStmt>(stmt).value));
      case StmtKind::kReturn:
        return ExprLine("return" + Clause("", As<ReturnStmt>(stmt).value));
      case StmtKind::kFor: {
        const auto& loop = As<ForStmt>(stmt);
        ExprLine("for " + ShowPattern(loop.pattern) + " in " + Show(loop.iterable));
        return DumpBlock(*loop.body);
      }
      case StmtKind::kIf:
        return DumpBranches(As<IfStmt>(stmt).branches);
      case StmtKind::kFn:
        return DumpFn("fn", *As<FnStmt>(stmt).fn);
      case StmtKind::kExpect:
        return ExprLine("expect " + Show(As<ExpectStmt>(stmt).condition));
      case StmtKind::kLanes:
        Line("lanes");
        return DumpLanes(As<LanesStmt>(stmt).lanes);
      case StmtKind::kBarrier:
        return Line("barrier");
      case StmtKind::kSteps:
        ExprLine("steps" + Clause("within", As<StepsStmt>(stmt).within));
        return DumpRuns(As<StepsStmt>(stmt).runs);
      case StmtKind::kMesh: {
        const auto& mesh = As<MeshStmt>(stmt);
        std::string out = word + Clause("", mesh.name);
        for (const MeshAxis& axis : mesh.axes) {
          out += " (" + Name(axis.name) + " = " + Show(axis.size) + Clause("within", axis.within) + ")";
        }
        return ExprLine(out + Clause("on", mesh.devices) + Clause("folds", mesh.folds));
      }
      case StmtKind::kCut: {
        const auto& cut = As<CutStmt>(stmt);
        for (const NameRef& tag : cut.tags) word += " " + Name(tag);
        return ExprLine(word + " into " + Show(cut.into) + " as " + Name(cut.as));
      }
      case StmtKind::kSplit: {
        const auto& split = As<SplitStmt>(stmt);
        word += Clause("within", split.within) + Clause("by", split.by);
        for (const SplitPart& part : split.parts) {
          word += " (" + Name(part.dim) + " into " + Show(part.into) + " as " + Name(part.as) +
                  (part.uneven ? " uneven)" : ")");
        }
        return ExprLine(word);
      }
      case StmtKind::kPlace:
        word += " " + Show(As<PlaceStmt>(stmt).selector);
        return ExprLine(word + " on " + Show(As<PlaceStmt>(stmt).group));
      case StmtKind::kShard: {
        const auto& shard = As<ShardStmt>(stmt);
        for (const NameRef& dim : shard.dims) word += " " + Name(dim);
        word += " over " + Show(shard.axis) + Clause("where", shard.where) + Clause("as", shard.as);
        word +=
            Clause("via", shard.via) + Clause("capacity", shard.capacity) + Clause("with", shard.operation);
        return ExprLine(word + Clause("by", shard.method));
      }
      case StmtKind::kZero: {
        const auto& zero = As<ZeroStmt>(stmt);
        word += " " + Show(zero.level) + Clause("where", zero.selector) + Clause("per", zero.per) +
                Clause("as", zero.as);
        ExprLine(word);
        return DumpFields(zero.settings);
      }
      case StmtKind::kOrder: {
        const auto& order = As<OrderStmt>(stmt);
        ExprLine(word + " on " + Show(order.group));
        DumpBlock(*order.body);
        return DumpLanes(order.lanes);
      }
      case StmtKind::kEdge: {
        const auto& edge = As<EdgeStmt>(stmt);
        word += " " + Show(edge.from) + " -> " + Show(edge.to);
        return ExprLine(word + Clause("distance", edge.distance));
      }
      case StmtKind::kLimit: {
        const auto& limit = As<LimitStmt>(stmt);
        word += " " + Show(limit.count) + " live " + Show(limit.selector);
        return ExprLine(word + Clause("per", limit.per));
      }
      case StmtKind::kStream:
        return ExprLine(word + " " + Show(As<StreamStmt>(stmt).selector) + " on " +
                        Name(As<StreamStmt>(stmt).stream));
      case StmtKind::kRecompute:
        word += " " + Show(As<RecomputeStmt>(stmt).selector);
        return ExprLine(word + Clause("keep", As<RecomputeStmt>(stmt).keep));
      case StmtKind::kOffload: {
        const auto& offload = As<OffloadStmt>(stmt);
        ExprLine(word + " " + Show(offload.selector) + " to " + Name(offload.to));
        return DumpFields(offload.settings);
      }
      case StmtKind::kFreeze:
        return ExprLine(word + " " + Show(As<FreezeStmt>(stmt).selector));
      case StmtKind::kRun: {
        const auto& run = As<RunStmt>(stmt);
        word += " " + Name(run.mode) + Clause("hint", run.hint);
        return ExprLine(word + Clause("where", run.where));
      }
      case StmtKind::kOptimizer:
        return Line(word + " " + Name(As<OptimizerStmt>(stmt).mode));
      case StmtKind::kNumerics:
        return Line(word + " " + Name(As<NumericsStmt>(stmt).mode));
      case StmtKind::kCost:
        word += " " + Show(As<CostStmt>(stmt).target);
        return ExprLine(word + " = " + Show(As<CostStmt>(stmt).value));
      case StmtKind::kSlowdown: {
        const auto& slowdown = As<SlowdownStmt>(stmt);
        return ExprLine(word + " " + Name(slowdown.stream) + " with " + Name(slowdown.with) + " = " +
                        Show(slowdown.value));
      }
      case StmtKind::kAssert:
        return ExprLine(word + " " + Show(As<AssertStmt>(stmt).condition));
      case StmtKind::kUse:
        return ExprLine(word + " " + Show(As<UseStmt>(stmt).strategy));
    }
  }

  // ---- declarations

  void DumpProperties(List<Property> properties) {
    Indent indent(*this);
    for (const Property& property : properties) {
      ExprLine("property " + Name(property.name) + Clause("", property.qualifier) + " = " +
               Show(property.value));
    }
  }

  void DumpMember(const ModuleMember& member) {
    switch (member.kind) {
      case MemberKind::kParam:
        return ExprLine("param " + Name(member.name) + ": " + ShowType(member.type) +
                        Clause("=", member.value));
      case MemberKind::kAssign:
        return ExprLine("part " + Name(member.name) + " = " + Show(member.value));
      case MemberKind::kLet:
        return DumpLet(*member.let);
      case MemberKind::kFn:
      case MemberKind::kForward:
        return DumpFn("fn", *member.fn);
    }
  }

  void DumpTopologyItem(const TopologyItem& item) {
    switch (item.kind) {
      case TopologyItemKind::kDevice:
        Line("device " + Name(item.name));
        return DumpProperties(item.properties);
      case TopologyItemKind::kLevel:
        ExprLine("level " + Name(item.name) + " = " + Show(item.members) + Clause("of", item.of));
        return DumpProperties(item.properties);
      case TopologyItemKind::kLet:
        return DumpLet(*item.let);
      case TopologyItemKind::kProperty:
        return DumpProperties(item.properties);
    }
  }

  void DumpDecl(const Decl& decl) {
    switch (decl.kind) {
      case DeclKind::kImport: {
        const auto& import = As<ImportDecl>(decl);
        std::string target = import.parts.empty() ? Quote(import.path) : "";
        for (const NameRef& part : import.parts) target += (target.empty() ? "" : ".") + Name(part);
        return Line("import " + target + " as " + Name(import.name));
      }
      case DeclKind::kLet:
        return DumpLet(*As<LetDecl>(decl).let);
      case DeclKind::kFn:
        return DumpFn("fn", *As<FnTopDecl>(decl).fn);
      case DeclKind::kModel:
        return ExprLine("model " + Name(As<ModelDecl>(decl).name) + " = " + Show(As<ModelDecl>(decl).value));
      case DeclKind::kModule: {
        const auto& module = As<ModuleDecl>(decl);
        std::string params = ShowParams(module.params);
        ExprLine("module " + Name(module.name) + params + ShowRequirements(module.requirements));
        Indent indent(*this);
        for (const ModuleMember& member : module.members) DumpMember(member);
        return;
      }
      case DeclKind::kTopology: {
        const auto& topology = As<TopologyDecl>(decl);
        std::string params = ShowParams(topology.params);
        ExprLine("topology " + Name(topology.name) + params + ShowRequirements(topology.requirements));
        Indent indent(*this);
        for (const TopologyItem& item : topology.items) DumpTopologyItem(item);
        return;
      }
      case DeclKind::kStrategy: {
        const auto& strategy = As<StrategyDecl>(decl);
        std::string params = ShowParams(strategy.params);
        ExprLine("strategy " + Name(strategy.name) + params + ShowRequirements(strategy.requirements));
        return DumpBlock(*strategy.body);
      }
      case DeclKind::kRun: {
        const auto& run = As<RunDecl>(decl);
        Line((run.run == RunKind::kTrain  ? "train"
              : run.run == RunKind::kEval ? "eval"
                                          : "infer") +
             Clause("", run.name));
        return DumpFields(run.fields);
      }
      case DeclKind::kTest: {
        const auto& test = As<TestDecl>(decl);
        std::string out = "test " + Quote(test.name);
        for (const ForClause& clause : test.clauses) out += " " + ShowClause(clause);
        ExprLine(out);
        return DumpBlock(*test.body);
      }
    }
  }

  const NameTable& names_;
  std::string out_;
  int indent_ = 0;
  std::vector<const Block*> deferred_;
};

}  // namespace

std::string DumpAst(const File& file, const NameTable& names) { return Dumper(names).Run(file); }

}  // namespace piper::frontend
