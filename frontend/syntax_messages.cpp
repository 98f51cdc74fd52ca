#include "frontend/syntax_messages.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "frontend/scanner.h"

namespace piper::frontend {

namespace {

struct RuleForm {
  Rule rule;
  std::string_view noun;
  std::string_view form;  // how it is written; "" if the message needs none
};

constexpr RuleForm kForms[] = {
    {Rule::kImportDecl, "an import", "import std.gpt, or: import \"file.piper\" as name"},
    {Rule::kModelDecl, "a model", "model name = module(arguments)"},
    {Rule::kFnDecl, "a function", "fn name(a: int, b: sel = [*]) -> schedule { .. }"},
    {Rule::kLambda, "a function value", "fn(a: int) -> int { .. }"},
    {Rule::kParams, "a parameter list", "(a: int, b: sel = [*])"},
    {Rule::kRequirement, "a 'requires' clause", "requires m % p == 0 hint \"..\""},
    {Rule::kModuleDecl, "a module",
     "module Name(embed: dim) { param w: [..]; part = Other(..); forward(..) -> .. { .. } }"},
    {Rule::kMember, "a module", "param w: [..], part = Other(..), fn .., or: forward(..) -> .. { .. }"},
    {Rule::kParamDecl, "a parameter", "param name: [dim, dim = 3] = normal(0.02)"},
    {Rule::kForwardDecl, "a forward", "forward(x: [batch, embed]) -> [batch, embed] { .. }"},
    {Rule::kTopologyDecl, "a topology", "topology name(nodes: int) { device ..; level .. }"},
    {Rule::kTopologyItem, "a topology", "device name { .. }, or: level name = 8 of part joined by { .. }"},
    {Rule::kTopologyProperty, "a topology",
     "device name { .. }, or: level name = 8 of part joined by { .. }"},
    {Rule::kProperties, "a block of figures", "memory = 64 GiB; compute bf16 = 191.5 TFLOP/s"},
    {Rule::kProperty, "a figure", "memory = 64 GiB, or: compute bf16 = 191.5 TFLOP/s"},
    {Rule::kStrategyDecl, "a strategy", "strategy name(p: int) { directives }"},
    {Rule::kRunDecl, "a train, eval or infer block", "train { model net; steps 200 }"},
    {Rule::kFields, "a block of settings", "steps 200"},
    {Rule::kField, "a setting", "steps 200, or: optimizer adamw(lr = 1e-3) where [norm]"},
    {Rule::kTestDecl, "a test", "test \"name\" for p in [2, 4] { .. }"},
    {Rule::kForStmt, "a loop", "for i in 0..n { .. }"},
    {Rule::kDirectiveFor, "a loop", "for i in 0..n { .. }"},
    {Rule::kIfStmt, "an 'if'", "if condition { .. } else { .. }"},
    {Rule::kIfValue, "an 'if'", "if condition { .. } else { .. }"},
    {Rule::kDirectiveIf, "an 'if'", "if condition { .. } else { .. }"},
    {Rule::kLetStmt, "a definition", "let name = value"},
    {Rule::kLanesStmt, "'lanes'", "lanes { compute: steps; a2a: steps }"},
    {Rule::kMeshDirective, "a 'mesh' directive",
     "mesh [name] (pp = 4, tp = 8 within node) [on group] [folds other]"},
    {Rule::kCutDirective, "a 'cut' directive", "cut tag, tag into N as stage"},
    {Rule::kSplitDirective, "a 'split' directive", "split batch into m as mb"},
    {Rule::kPlaceDirective, "a 'place' directive", "place [stage = s] on pp[s]"},
    {Rule::kShardDirective, "a 'shard' directive", "shard batch over dp"},
    {Rule::kZeroDirective, "a 'zero' directive", "zero 0 [*] as dp { bucket 25 MiB }"},
    {Rule::kOrderDirective, "an 'order' directive", "order on pp[s] { steps }"},
    {Rule::kEdgeDirective, "an 'edge' directive", "edge a -> b, or: edge a -> b distance 1"},
    {Rule::kLimitDirective, "a 'limit' directive", "limit 2 live F per mb"},
    {Rule::kStreamDirective, "a 'stream' directive", "stream [send] on comm"},
    {Rule::kRecomputeDirective, "a 'recompute' directive", "recompute [layer] keep [mlp]"},
    {Rule::kOffloadDirective, "an 'offload' directive", "offload [attn] to host { prefetch 1 }"},
    {Rule::kFreezeDirective, "a 'freeze' directive", "freeze [embed]"},
    {Rule::kOptimizerDirective, "an 'optimizer' directive",
     "optimizer post_validation, or: optimizer synchronised"},
    {Rule::kRunDirective, "a 'run' directive", "run strict"},
    {Rule::kNumericsDirective, "a 'numerics' directive", "numerics reproducible, or: numerics fast"},
    {Rule::kCostDirective, "a 'cost' directive", "cost F[layer = 0] = 1 us"},
    {Rule::kSlowdownDirective, "a 'slowdown' directive", "slowdown compute with reduce = 1.2"},
    {Rule::kAssertDirective, "an 'assert' directive", "assert peak_memory < 70 GiB"},
    {Rule::kUseDirective, "a 'use' directive", "use strategy(arguments)"},
    {Rule::kOverrideDirective, "an 'override'", "override place [stage = 0] on pp[1]"},
    {Rule::kAssignment, "a strategy", "a directive, a loop, 'if', 'let', or: name = value"},
    {Rule::kDirectiveStatement, "a strategy", ""},
    {Rule::kDirectiveBlock, "a strategy", ""},
    {Rule::kBlock, "a block", ""},
    {Rule::kType, "a type", "int, [int], sel, fn, queue[sel], or: [batch, embed] f32"},
    {Rule::kBracket, "a list or selector", "[a, b], [layer = 3, not norm], or: [f(i) for i in 0..n]"},
    {Rule::kSuffix, "an argument list", ""},
};

const RuleForm* FormOf(const std::vector<Rule>& rules) {
  for (Rule rule : rules) {
    for (const RuleForm& form : kForms) {
      if (form.rule == rule) return &form;
    }
  }
  return nullptr;
}

bool Has(const std::vector<Tok>& set, Tok kind) {
  return std::find(set.begin(), set.end(), kind) != set.end();
}

bool HasRule(const SyntaxFailure& failure, Rule rule, size_t within) {
  for (size_t i = 0; i < failure.rules.size() && i < within; ++i) {
    if (failure.rules[i] == rule) return true;
  }
  return false;
}

std::string DescribeFound(const Token& token, std::string_view text) {
  if (token.kind == Tok::kEnd) return "the end of the file";
  if (token.inserted) {
    size_t next = std::min(text.find_first_not_of(" \t", token.end), text.size());
    return next < text.size() && text[next] == '}' ? "'}'" : "the end of the line";
  }
  std::string_view written = text.substr(token.begin, token.end - token.begin);
  if (written.size() > 40) return fmt::format("'{}..'", written.substr(0, written.find('\n') < 36 ? 20 : 36));
  return fmt::format("'{}'", written);
}

std::string Join(const std::vector<std::string>& parts) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += i + 1 == parts.size() ? " or " : ", ";
    out += parts[i];
  }
  return out;
}

// Whether a declaration was wanted. The loop over them ends before the parser looks for the end of the file.
bool WantsDeclaration(const SyntaxFailure& failure) {
  return failure.rules.size() == 1 && failure.rules[0] == Rule::kFile;
}

std::string DescribeExpected(const SyntaxFailure& failure) {
  const std::vector<Tok>& set = failure.expected;
  if (WantsDeclaration(failure)) return "a declaration";
  if (set.size() == 1 && set[0] == Tok::kRbrace &&
      !failure.rules.empty()) {  // likewise at the end of a block's loop
    switch (failure.rules[0]) {
      case Rule::kBlock:
        return "a statement or '}'";
      case Rule::kDirectiveBlock:
        return "a directive, another statement or '}'";
      case Rule::kModuleDecl:
        return "a member or '}'";
      case Rule::kTopologyDecl:
        return "a device, a level or '}'";
      case Rule::kProperties:
        return "a figure or '}'";
      case Rule::kFields:
        return "a setting or '}'";
      default:
        break;
    }
  }
  if (Has(set, Tok::kMesh) && !Has(set, Tok::kIdent)) return "a directive";
  std::vector<std::string> parts;
  bool expression = Has(set, Tok::kInt) && Has(set, Tok::kLparen) && Has(set, Tok::kString);
  bool name = Has(set, Tok::kIdent);
  bool statement = expression && Has(set, Tok::kLet);
  if (statement) {
    parts.push_back("a statement");
  } else if (expression) {
    parts.push_back("an expression");
  } else if (name) {
    parts.push_back("a name");
  }
  if (Has(set, Tok::kKey) && !expression) parts.push_back("'key = value'");
  if (Has(set, Tok::kString) && !expression) parts.push_back("a string");
  if (Has(set, Tok::kInt) && !expression) parts.push_back("a number");
  for (Tok kind : set) {
    std::string_view spelling = TokText(kind);
    if (spelling.empty()) continue;
    if (kind == Tok::kSemicolon) {
      if (!statement) parts.push_back("the end of the statement");
      continue;
    }
    if (name && IsContextualWord(kind)) continue;
    if ((expression || statement) && (IsReserved(kind) || IsContextualWord(kind) || kind == Tok::kLparen ||
                                      kind == Tok::kLbracket || kind == Tok::kMinus || kind == Tok::kStar)) {
      continue;
    }
    parts.push_back(fmt::format("'{}'", spelling));
  }
  if (parts.empty()) return "something else";
  if (parts.size() > 4) parts.resize(4);
  return Join(parts);
}

}  // namespace

void ReportSyntaxFailure(const SyntaxFailure& failure, const std::vector<Token>& tokens, size_t statement,
                         ir::FileId file, std::string_view text, ir::DiagnosticEngine& diag) {
  const Token& found = tokens[failure.position];
  ir::SourceRange range{file, found.begin, found.end};
  auto written = [&](const Token& token) { return text.substr(token.begin, token.end - token.begin); };

  // A reserved word where a name belongs.
  bool wants_name = Has(failure.expected, Tok::kIdent) && !Has(failure.expected, Tok::kInt);
  bool word_found = IsReserved(found.kind) || found.kind == Tok::kLambda || found.kind == Tok::kFnType ||
                    found.kind == Tok::kIfValue;
  if (wants_name && word_found) {
    diag.Error(range, ir::DiagKind::kSyntax,
               fmt::format("'{}' is a reserved word and cannot be a name here", written(found)))
        .Hint("choose another name");
    return;
  }

  const RuleForm* form = FormOf(failure.rules);
  std::string expected = DescribeExpected(failure);
  std::string message = fmt::format("expected {} but found {}", expected, DescribeFound(found, text));
  if (form != nullptr) message += fmt::format(" in {}", form->noun);
  auto error = diag.Error(range, ir::DiagKind::kSyntax, std::move(message));

  // A misspelt word at the statement's start explains most of what follows it.
  const Token& first = tokens[std::min(statement, failure.position)];
  bool in_strategy = HasRule(failure, Rule::kAssignment, 6) ||
                     HasRule(failure, Rule::kDirectiveStatement, 3) ||
                     (!failure.rules.empty() && failure.rules[0] == Rule::kDirectiveBlock);
  bool at_top = WantsDeclaration(failure);
  if (first.kind == Tok::kIdent && (in_strategy || at_top)) {
    std::string_view near = in_strategy ? NearestWord(written(first), IsDirectiveWord)
                                        : NearestWord(written(first), [](Tok kind) {
                                            return kind == Tok::kLet || kind == Tok::kFn ||
                                                   (kind >= Tok::kImport && kind <= Tok::kTest);
                                          });
    if (!near.empty()) {
      error.Hint(fmt::format("did you mean '{}'?", near));
      return;
    }
  }
  if (IsDirectiveWord(first.kind) && form != nullptr && form->rule == Rule::kBlock) {
    error.Hint(fmt::format("`{}` is a directive and stands in a strategy{}", written(first),
                           first.kind == Tok::kAssert ? "; a test says `expect`" : ""));
  } else if (found.kind == Tok::kAssign && Has(failure.expected, Tok::kRparen)) {
    error.Hint("'=' gives an argument its value; to compare, write '=='");
  } else if (found.kind == Tok::kAssign && Has(failure.expected, Tok::kRbracket)) {
    error.Hint("'=' follows the name that begins an entry; join selectors instead: [a] or [b = 0..2]");
  } else if (found.kind == Tok::kKey && Has(failure.expected, Tok::kInt)) {
    error.Hint("'=' binds a name in argument lists and selectors only; to compare, write '=='");
  } else if (at_top) {
    error.Hint(
        "a file holds import, let, fn, module, model, topology, strategy, train, eval, infer and test");
  } else if (in_strategy && form != nullptr &&
             (form->rule == Rule::kDirectiveStatement || form->rule == Rule::kDirectiveBlock)) {
    error.Hint(
        "a strategy holds directives (mesh cut split place shard zero order edge limit stream recompute "
        "offload freeze "
        "optimizer run numerics cost slowdown assert use override), for, if, let, var and fn");
  } else if (form != nullptr && !form->form.empty()) {
    error.Hint(fmt::format("{} reads: {}", form->noun, form->form));
  } else if (Has(failure.expected, Tok::kSemicolon)) {
    error.Hint("a statement ends at the end of its line or with ';'; an operator may be missing");
  } else if (Has(failure.expected, Tok::kInt)) {
    error.Hint("an expression is a name, a number, a string, a list, a call, or such joined by operators");
  } else {
    error.Hint("check the spelling and punctuation just before it");
  }
}

}  // namespace piper::frontend
