// The one place that knows ANTLR: feeds the generated parser with the scanner's tokens, a declaration at a
// time, and copies what it recognises into a plain concrete tree for the AST builder. The grammar is LL(1),
// so the parser never predicts; after an error the offending statement is taken out and its declaration
// parsed again, which finds further errors without the guesses of error recovery.
#include "frontend/parser.h"

#include <algorithm>
#include <exception>

#include <PiperParser.h>
#include <fmt/format.h>

#include "frontend/ast_builder.h"
#include "frontend/scanner.h"
#include "frontend/syntax.h"
#include "frontend/syntax_messages.h"
#include "ir/support/result.h"

namespace piper::frontend {

namespace {

#define PIPER_TOKEN(id, grammar, text)                                               \
  static_assert(static_cast<int>(Tok::id) == static_cast<int>(PiperParser::grammar), \
                "syntax.h differs from Piper.g4");
PIPER_TOKENS(PIPER_TOKEN)
#undef PIPER_TOKEN
#define PIPER_RULE(id, grammar)                                                             \
  static_assert(static_cast<int>(Rule::id) == static_cast<int>(PiperParser::Rule##grammar), \
                "syntax.h differs from Piper.g4");
PIPER_RULES(PIPER_RULE)
#undef PIPER_RULE

class StreamToken final : public antlr4::Token {
 public:
  StreamToken(size_t type, size_t index) : type_(type), index_(index) {}
  std::string getText() const override { return {}; }
  size_t getType() const override { return type_; }
  size_t getLine() const override { return 0; }
  size_t getCharPositionInLine() const override { return 0; }
  size_t getChannel() const override { return DEFAULT_CHANNEL; }
  size_t getTokenIndex() const override { return index_; }
  size_t getStartIndex() const override { return index_; }
  size_t getStopIndex() const override { return index_; }
  antlr4::TokenSource* getTokenSource() const override { return nullptr; }
  antlr4::CharStream* getInputStream() const override { return nullptr; }
  std::string toString() const override { return {}; }

 private:
  size_t type_;
  size_t index_;  // position in the stream
};

// The scanner's tokens as ANTLR wants them; the last one is the end.
class Stream final : public antlr4::TokenStream {
 public:
  explicit Stream(const std::vector<Token>& tokens) {
    tokens_.reserve(tokens.size());
    for (const Token& token : tokens) {
      size_t type = token.kind == Tok::kEnd ? antlr4::Token::EOF : static_cast<size_t>(token.kind);
      tokens_.emplace_back(type, tokens_.size());
    }
    PIPER_CHECK(!tokens_.empty() && tokens_.back().getType() == antlr4::Token::EOF);
  }
  antlr4::Token* LT(ssize_t k) override {
    if (k == 0 || (k < 0 && static_cast<size_t>(-k) > index_)) return nullptr;
    size_t at = k > 0 ? index_ + static_cast<size_t>(k) - 1 : index_ - static_cast<size_t>(-k);
    return &tokens_[std::min(at, tokens_.size() - 1)];
  }
  size_t LA(ssize_t k) override {
    antlr4::Token* token = LT(k);
    return token == nullptr ? antlr4::Token::INVALID_TYPE : token->getType();
  }
  void consume() override {
    if (index_ + 1 < tokens_.size()) ++index_;
  }
  antlr4::Token* get(size_t index) const override { return const_cast<StreamToken*>(&tokens_[index]); }
  antlr4::TokenSource* getTokenSource() const override { return nullptr; }
  std::string getText(const antlr4::misc::Interval&) override { return {}; }
  std::string getText() override { return {}; }
  std::string getText(antlr4::RuleContext*) override { return {}; }
  std::string getText(antlr4::Token*, antlr4::Token*) override { return {}; }
  ssize_t mark() override { return 0; }
  void release(ssize_t) override {}
  size_t index() override { return index_; }
  void seek(size_t index) override { index_ = std::min(index, tokens_.size() - 1); }
  size_t size() override { return tokens_.size(); }
  std::string getSourceName() const override { return "piper"; }

 private:
  std::vector<StreamToken> tokens_;
  size_t index_ = 0;
};

// Stops at the first unexpected token by throwing a SyntaxFailure through the parser.
class StopAtFirstError final : public antlr4::ANTLRErrorStrategy {
 public:
  void reset(antlr4::Parser*) override {}
  antlr4::Token* recoverInline(antlr4::Parser* parser) override { Fail(parser); }
  void recover(antlr4::Parser* parser, std::exception_ptr) override { Fail(parser); }
  void sync(antlr4::Parser*) override {}
  bool inErrorRecoveryMode(antlr4::Parser*) override { return false; }
  void reportMatch(antlr4::Parser*) override {}
  void reportError(antlr4::Parser*, const antlr4::RecognitionException&) override {}

 private:
  [[noreturn]] static void Fail(antlr4::Parser* parser) {
    SyntaxFailure failure;
    failure.position = parser->getCurrentToken()->getTokenIndex();
    antlr4::misc::IntervalSet expected = parser->getExpectedTokens();
    for (const antlr4::misc::Interval& interval : expected.getIntervals()) {
      for (ssize_t i = interval.a; i <= interval.b; ++i) {
        if (i > 0 && i <= static_cast<ssize_t>(Tok::kFnType)) failure.expected.push_back(static_cast<Tok>(i));
      }
    }
    for (antlr4::RuleContext* context = parser->getContext(); context != nullptr;
         context = static_cast<antlr4::RuleContext*>(context->parent)) {
      failure.rules.push_back(static_cast<Rule>(context->getRuleIndex()));
    }
    throw failure;
  }
};

// Copies ANTLR's tree. Recursion is bounded by the nesting that the scanner admits.
class TreeCopier {
 public:
  explicit TreeCopier(const std::vector<Token>& tokens) : tokens_(tokens) {}

  SyntaxTree Copy(antlr4::ParserRuleContext* root) {
    tree_.root = Visit(root);
    return std::move(tree_);
  }

 private:
  uint32_t Visit(antlr4::ParserRuleContext* context) {
    size_t pending = pending_.size();
    for (antlr4::tree::ParseTree* child : context->children) {
      if (auto* terminal = dynamic_cast<antlr4::tree::TerminalNode*>(child)) {
        pending_.push_back(static_cast<uint32_t>(terminal->getSymbol()->getTokenIndex()) | kTokenBit);
      } else {
        uint32_t index = Visit(static_cast<antlr4::ParserRuleContext*>(child));
        pending_.push_back(index);
      }
    }
    SyntaxNode node;
    node.rule = static_cast<Rule>(context->getRuleIndex());
    node.first_child = static_cast<uint32_t>(tree_.children.size());
    node.child_count = static_cast<uint32_t>(pending_.size() - pending);
    tree_.children.insert(tree_.children.end(), pending_.begin() + static_cast<ptrdiff_t>(pending),
                          pending_.end());
    pending_.resize(pending);
    if (node.child_count > 0) {
      node.begin = BeginOf(tree_.children[node.first_child]);
      node.end = EndOf(tree_.children[node.first_child + node.child_count - 1]);
    }
    tree_.nodes.push_back(node);
    return static_cast<uint32_t>(tree_.nodes.size() - 1);
  }

  uint32_t BeginOf(uint32_t child) const {
    return child & kTokenBit ? tokens_[child & ~kTokenBit].begin : tree_.nodes[child].begin;
  }
  uint32_t EndOf(uint32_t child) const {
    return child & kTokenBit ? tokens_[child & ~kTokenBit].end : tree_.nodes[child].end;
  }

  const std::vector<Token>& tokens_;
  SyntaxTree tree_;
  std::vector<uint32_t> pending_;
};

enum class Start { kFile, kLoneExpr };

// Parses one token list. Throws SyntaxFailure.
SyntaxTree ParseTokens(const std::vector<Token>& tokens, Start start) {
  Stream stream(tokens);
  PiperParser parser(&stream);
  parser.removeErrorListeners();
  parser.setErrorHandler(std::make_shared<StopAtFirstError>());
  parser.getInterpreter<antlr4::atn::ParserATNSimulator>()->setPredictionMode(
      antlr4::atn::PredictionMode::SLL);
  antlr4::ParserRuleContext* root = nullptr;
  if (start == Start::kFile) {
    root = parser.file();
  } else {
    root = parser.loneExpr();
  }
  return TreeCopier(tokens).Copy(root);
}

bool IsOpener(Tok kind) { return kind == Tok::kLparen || kind == Tok::kLbracket || kind == Tok::kLbrace; }
bool IsCloser(Tok kind) { return kind == Tok::kRparen || kind == Tok::kRbracket || kind == Tok::kRbrace; }

// Tells the formatter what only the tree knows about the tokens from `base` on.
void MarkTokens(const SyntaxTree& tree, size_t base, std::vector<Token>& tokens) {
  for (const SyntaxNode& node : tree.nodes) {
    const uint32_t* children = tree.children.data() + node.first_child;
    auto token = [&](uint32_t child) -> Token& { return tokens[base + (child & ~kTokenBit)]; };
    switch (node.rule) {
      case Rule::kDeclaration:
      case Rule::kStatement:
      case Rule::kDirectiveStatement:
      case Rule::kMember:
      case Rule::kTopologyItem:
      case Rule::kProperty:
      case Rule::kField: {
        uint32_t first = children[0];
        while ((first & kTokenBit) == 0) first = tree.children[tree.nodes[first].first_child];
        token(first).starts = true;
        break;
      }
      case Rule::kSuffix:
      case Rule::kParams:
        token(children[0]).tight = true;
        break;
      case Rule::kType:
        for (uint32_t i = 1; i < node.child_count; ++i) {
          if ((children[i] & kTokenBit) != 0 && IsOpener(token(children[i]).kind))
            token(children[i]).tight = true;
        }
        break;
      case Rule::kTerm:
        for (uint32_t i = 0; i < node.child_count && (children[i] & kTokenBit) != 0; ++i) {
          token(children[i]).prefix = token(children[i]).kind == Tok::kMinus;
        }
        break;
      default:
        break;
    }
  }
}

// Words that open statements and stand nowhere inside them outside brackets.
bool OpensStatement(Tok kind) {
  return kind == Tok::kLet || kind == Tok::kVar || kind == Tok::kReturn || kind == Tok::kExpect ||
         kind == Tok::kFn;
}

// The statement around tokens[at], as [first, second): from after the ';', '{' or label before it to its ';',
// or to tokens[at] if that opens the next one (`let x =`, and nothing more on the line).
std::pair<size_t, size_t> StatementAround(const std::vector<Token>& tokens, size_t at) {
  size_t begin = at;
  for (int level = 0; begin > 0; --begin) {
    Tok kind = tokens[begin - 1].kind;
    if (IsCloser(kind)) {
      ++level;
    } else if (IsOpener(kind)) {
      if (level == 0 && kind == Tok::kLbrace) break;
      if (level > 0) --level;
    } else if (level == 0 && (kind == Tok::kSemicolon || kind == Tok::kLabel)) {
      break;
    }
  }
  if (begin < at && OpensStatement(tokens[at].kind) && tokens[at].depth == tokens[begin].depth)
    return {begin, at};
  size_t end = begin;
  for (int level = 0; end + 1 < tokens.size(); ++end) {
    Tok kind = tokens[end].kind;
    if (IsOpener(kind)) {
      ++level;
    } else if (IsCloser(kind)) {
      if (level == 0) break;
      --level;
    } else if (level == 0 && kind == Tok::kSemicolon && end >= at) {
      ++end;
      break;
    }
  }
  return {begin, end};
}

class FileParser {
 public:
  FileParser(const ir::SourceManager& sources, ir::FileId file, Ast& ast, ir::DiagnosticEngine& diag)
      : file_(file), text_(sources.Text(file)), ast_(ast), diag_(diag), errors_before_(diag.error_count()) {}

  File* ParseAll() {
    File* file = ast_.arena.New<File>();
    file->file = file_;
    std::vector<Decl*> decls;
    if (SizeOk()) {
      scan_ = Scan(file_, text_, diag_);
      size_t begin = 0;
      for (size_t i = 0; i < scan_.tokens.size(); ++i) {
        const Token& token = scan_.tokens[i];
        if (token.kind != Tok::kSemicolon || token.depth != 0) continue;
        bool cut_off = scan_.last_incomplete && i + 2 == scan_.tokens.size();
        if (!GiveUp() && !cut_off) ParseChunk(begin, i + 1, decls);
        begin = i + 1;
      }
    }
    file->decls = ast_.arena.Copy(decls);
    file->ok = diag_.error_count() == errors_before_;
    return file;
  }

  bool ParseMarked(ScanResult* result) {
    mark_ = true;
    bool ok = ParseAll()->ok;
    *result = std::move(scan_);
    return ok;
  }

  Expr* ParseOne() {
    if (!SizeOk()) return nullptr;
    scan_ = Scan(file_, text_, diag_);
    if (!scan_.ok) return nullptr;
    try {
      SyntaxTree tree = ParseTokens(scan_.tokens, Start::kLoneExpr);
      AstBuilder builder(file_, text_, scan_.tokens, tree, ast_, diag_);
      Expr* expr = builder.BuildLoneExpr();
      return diag_.error_count() == errors_before_ ? expr : nullptr;
    } catch (const SyntaxFailure& failure) {
      ReportSyntaxFailure(failure, scan_.tokens, 0, file_, text_, diag_);
      return nullptr;
    }
  }

 private:
  // Parsing again after errors is bounded: in messages, and in tokens looked at.
  static constexpr size_t kReparseTokens = 1'000'000;

  bool SizeOk() {
    if (text_.size() <= kMaxFileBytes) return true;
    diag_.Error({file_, 0, 1}, ir::DiagKind::kFileTooLarge,
                fmt::format("the file has {} bytes; at most {} are read", text_.size(), kMaxFileBytes));
    return false;
  }

  bool GiveUp() const {
    return diag_.error_count() - errors_before_ >= ir::DiagnosticEngine::kMaxErrors ||
           reparsed_ > kReparseTokens;
  }

  // One declaration or several on one line: tokens [begin, end) of the scan.
  void ParseChunk(size_t begin, size_t end, std::vector<Decl*>& decls) {
    std::vector<Token> tokens(scan_.tokens.begin() + static_cast<ptrdiff_t>(begin),
                              scan_.tokens.begin() + static_cast<ptrdiff_t>(end));
    uint32_t stop = tokens.back().end;
    tokens.push_back({Tok::kEnd, true, 0, stop, stop});
    while (tokens.size() > 1 && !GiveUp()) {
      try {
        SyntaxTree tree = ParseTokens(tokens, Start::kFile);
        AstBuilder(file_, text_, tokens, tree, ast_, diag_).BuildFile(decls);
        if (mark_) MarkTokens(tree, begin, scan_.tokens);
        return;
      } catch (const SyntaxFailure& failure) {
        reparsed_ += tokens.size();
        auto [first, last] = StatementAround(tokens, failure.position);
        if (!ScanErrorWithin(tokens[first].begin, tokens[std::max(first, last - 1)].end)) {
          ReportSyntaxFailure(failure, tokens, first, file_, text_, diag_);
        }
        if (first >= last) return;
        tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(first),
                     tokens.begin() + static_cast<ptrdiff_t>(last));
      }
    }
  }

  bool ScanErrorWithin(uint32_t begin, uint32_t end) const {
    auto it = std::lower_bound(scan_.error_offsets.begin(), scan_.error_offsets.end(), begin);
    return it != scan_.error_offsets.end() && *it <= end;
  }

  ir::FileId file_;
  std::string_view text_;
  Ast& ast_;
  ir::DiagnosticEngine& diag_;
  size_t errors_before_;
  size_t reparsed_ = 0;
  bool mark_ = false;
  ScanResult scan_;
};

}  // namespace

File* ParseFile(const ir::SourceManager& sources, ir::FileId file, Ast& ast, ir::DiagnosticEngine& diag) {
  return FileParser(sources, file, ast, diag).ParseAll();
}

bool ParseMarked(const ir::SourceManager& sources, ir::FileId file, ir::DiagnosticEngine& diag,
                 ScanResult* result) {
  Ast ast;
  return FileParser(sources, file, ast, diag).ParseMarked(result);
}

Expr* ParseExpression(const ir::SourceManager& sources, ir::FileId file, Ast& ast,
                      ir::DiagnosticEngine& diag) {
  return FileParser(sources, file, ast, diag).ParseOne();
}

}  // namespace piper::frontend
