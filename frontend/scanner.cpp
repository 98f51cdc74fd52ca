#include "frontend/scanner.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include <fmt/format.h>

#include "frontend/ast.h"
#include "ir/support/nearest.h"
#include "ir/support/units.h"

namespace piper::frontend {

using ir::DiagKind;
using ir::SourceRange;

std::string_view TokText(Tok kind) {
  static constexpr std::string_view kTexts[] = {"",
#define PIPER_TOKEN(id, grammar, text) text,
                                                PIPER_TOKENS(PIPER_TOKEN)
#undef PIPER_TOKEN
  };
  return kTexts[static_cast<size_t>(kind)];
}

namespace {

const std::unordered_map<std::string_view, Tok>& Words() {
  static const auto* words = [] {
    auto* map = new std::unordered_map<std::string_view, Tok>();
    for (int i = static_cast<int>(Tok::kLet); i <= static_cast<int>(Tok::kFrom); ++i) {
      map->emplace(TokText(static_cast<Tok>(i)), static_cast<Tok>(i));
    }
    return map;
  }();
  return *words;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNameChar(char c) { return IsLetter(c) || IsDigit(c); }

// Length of the valid UTF-8 sequence at `at`, 0 if there is none.
size_t Utf8Length(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  auto tail = [&](size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  unsigned first = byte(at);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return tail(at + 1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!tail(at + 1) || !tail(at + 2)) return 0;
    if (first == 0xE0 && byte(at + 1) < 0xA0) return 0;
    if (first == 0xED && byte(at + 1) > 0x9F) return 0;
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!tail(at + 1) || !tail(at + 2) || !tail(at + 3)) return 0;
    if (first == 0xF0 && byte(at + 1) < 0x90) return 0;
    if (first == 0xF4 && byte(at + 1) > 0x8F) return 0;
    return 4;
  }
  return 0;
}

// A token as written; `line_start`: the first of its line.
struct RawToken {
  Tok kind;
  bool line_start;
  uint32_t begin, end;
};

class Scanner {
 public:
  Scanner(ir::FileId file, std::string_view text, ir::DiagnosticEngine& diag)
      : file_(file), text_(text), diag_(diag) {}

  ScanResult Run() {
    if (CheckEncoding()) {
      Lex();
      if (MatchBrackets()) Classify();
    } else {
      result_.brackets_match = false;
      result_.reliable_end = 0;
    }
    if (result_.tokens.empty() || result_.tokens.back().kind != Tok::kEnd) {
      auto end = static_cast<uint32_t>(text_.size());
      result_.tokens.push_back({Tok::kEnd, true, 0, end, end});
    }
    std::sort(result_.error_offsets.begin(), result_.error_offsets.end());
    return std::move(result_);
  }

 private:
  ir::DiagnosticEngine::Builder Error(size_t begin, size_t end, DiagKind kind, std::string message) {
    result_.ok = false;
    result_.error_offsets.push_back(static_cast<uint32_t>(begin));
    return diag_.Error({file_, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)}, kind,
                       std::move(message));
  }

  bool CheckEncoding() {
    for (size_t i = 0; i < text_.size();) {
      if (static_cast<unsigned char>(text_[i]) < 0x80) {
        ++i;
        continue;
      }
      size_t length = Utf8Length(text_, i);
      if (length == 0) {
        Error(i, i + 1, DiagKind::kBadEncoding,
              fmt::format("byte 0x{:02x} is not part of valid UTF-8 text",
                          static_cast<unsigned char>(text_[i])))
            .Hint("save the file as UTF-8");
        return false;
      }
      i += length;
    }
    return true;
  }

  void Push(Tok kind, size_t begin, size_t end) {
    raw_.push_back({kind, line_start_, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    line_start_ = false;
  }

  char At(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }

  void Lex() {
    raw_.reserve(text_.size() / 4 + 16);
    size_t i = text_.starts_with("\xEF\xBB\xBF") ? 3 : 0;
    while (i < text_.size()) {
      char c = text_[i];
      if (c == '\n') {
        line_start_ = true;
        ++i;
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++i;
      } else if (IsLetter(c)) {
        size_t begin = i;
        while (IsNameChar(At(i))) ++i;
        Push(WordKind(text_.substr(begin, i - begin)), begin, i);
      } else if (IsDigit(c)) {
        i = LexNumber(i);
      } else if (c == '"') {
        i = LexString(i);
      } else if (c == '/' && At(i + 1) == '/') {
        i = LexLineComment(i);
      } else if (c == '/' && At(i + 1) == '*') {
        i = LexBlockComment(i);
      } else {
        i = LexSymbol(i);
      }
    }
  }

  size_t LexLineComment(size_t i) {
    size_t end = std::min(text_.find('\n', i), text_.size());
    while (end > i && text_[end - 1] == '\r') --end;
    result_.comments.push_back({static_cast<uint32_t>(i), static_cast<uint32_t>(end), false});
    return end;
  }

  size_t LexBlockComment(size_t i) {
    size_t close = text_.find("*/", i + 2);
    if (close == std::string_view::npos) {
      Error(i, i + 2, DiagKind::kUnterminated, "this comment is never closed").Hint("close it with '*/'");
      return text_.size();
    }
    size_t end = close + 2;
    result_.comments.push_back({static_cast<uint32_t>(i), static_cast<uint32_t>(end), true});
    if (text_.substr(i, end - i).find('\n') != std::string_view::npos) line_start_ = true;
    return end;
  }

  size_t LexString(size_t begin) {
    size_t i = begin + 1;
    while (i < text_.size() && text_[i] != '"' && text_[i] != '\n') {
      if (text_[i] == '\\' && i + 1 < text_.size() && text_[i + 1] != '\n') ++i;
      ++i;
    }
    if (At(i) != '"') {
      while (i > begin + 1 && text_[i - 1] == '\r') --i;
      Error(begin, i, DiagKind::kUnterminated, "this string is not closed on its line")
          .Hint("close it with '\"'; a line break inside a string is written \\n");
      Push(Tok::kString, begin, i);
      return i;
    }
    Push(Tok::kString, begin, i + 1);
    return i + 1;
  }

  size_t LexNumber(size_t begin) {
    size_t i = begin;
    Tok kind = Tok::kInt;
    while (IsDigit(At(i)) || At(i) == '_') ++i;
    if (At(i) == '.' && IsDigit(At(i + 1))) {
      kind = Tok::kFloat;
      ++i;
      while (IsDigit(At(i)) || At(i) == '_') ++i;
    }
    if (At(i) == 'e' || At(i) == 'E') {
      size_t sign = At(i + 1) == '+' || At(i + 1) == '-' ? 1 : 0;
      if (IsDigit(At(i + 1 + sign))) {
        kind = Tok::kFloat;
        i += 1 + sign;
        while (IsDigit(At(i))) ++i;
      }
    }
    size_t number_end = i;
    if (IsLetter(At(i))) {  // touching: a unit or nothing
      if (size_t end = UnitEnd(i)) {
        Push(Tok::kQuantity, begin, end);
        return end;
      }
      size_t end = i;
      while (IsNameChar(At(end))) ++end;
      Error(begin, end, DiagKind::kBadNumber,
            fmt::format("'{}' is no number: '{}' is no unit", text_.substr(begin, end - begin),
                        text_.substr(i, end - i)))
          .Hint(
              "a name cannot begin with a digit; units are ps ns us ms s min h, B kB MB GB TB KiB MiB GiB "
              "TiB, "
              "the same with /s, FLOP MFLOP GFLOP TFLOP PFLOP, the same with /s, and %");
      Push(kind, begin, end);
      return end;
    }
    size_t word = At(i) == ' ' ? i + 1 : i;
    if (word > i && IsLetter(At(word))) {
      if (size_t end = UnitEnd(word)) {
        Push(Tok::kQuantity, begin, end);
        return end;
      }
    } else if (At(word) == '%' && !OperandFollows(word + 1)) {
      Push(Tok::kQuantity, begin, word + 1);
      return word + 1;
    }
    Push(kind, begin, number_end);
    return number_end;
  }

  // The end of the unit that begins at `i`, 0 if there is none.
  size_t UnitEnd(size_t i) const {
    size_t end = i;
    while (IsNameChar(At(end))) ++end;
    if (At(end) == '/' && At(end + 1) == 's' && !IsNameChar(At(end + 2)) &&
        ir::FindUnit(text_.substr(i, end + 2 - i))) {
      return end + 2;
    }
    return ir::FindUnit(text_.substr(i, end - i)) ? end : 0;
  }

  // Whether an operand begins at `i` or after it on the same line: then the '%' before it is a remainder.
  bool OperandFollows(size_t i) const {
    while (At(i) == ' ' || At(i) == '\t') ++i;
    char c = At(i);
    if (IsDigit(c) || c == '(' || c == '[' || c == '"') return true;
    if (!IsLetter(c)) return false;
    size_t end = i;
    while (IsNameChar(At(end))) ++end;
    Tok kind = WordKind(text_.substr(i, end - i));
    return kind == Tok::kNot || !(IsReserved(kind) || IsConnectingWord(kind));
  }

  size_t LexSymbol(size_t i) {
    struct Symbol {
      std::string_view text;
      Tok kind;
    };
    static constexpr std::array kSymbols = {
        Symbol{"..", Tok::kRange},     Symbol{"->", Tok::kArrow},        Symbol{"+=", Tok::kAddAssign},
        Symbol{"-=", Tok::kSubAssign}, Symbol{"==", Tok::kEqual},        Symbol{"!=", Tok::kNotEqual},
        Symbol{"<=", Tok::kLessEqual}, Symbol{">=", Tok::kGreaterEqual}, Symbol{"(", Tok::kLparen},
        Symbol{")", Tok::kRparen},     Symbol{"[", Tok::kLbracket},      Symbol{"]", Tok::kRbracket},
        Symbol{"{", Tok::kLbrace},     Symbol{"}", Tok::kRbrace},        Symbol{",", Tok::kComma},
        Symbol{";", Tok::kSemicolon},  Symbol{":", Tok::kColon},         Symbol{".", Tok::kDot},
        Symbol{"?", Tok::kQuestion},   Symbol{"=", Tok::kAssign},        Symbol{"<", Tok::kLess},
        Symbol{">", Tok::kGreater},    Symbol{"+", Tok::kPlus},          Symbol{"-", Tok::kMinus},
        Symbol{"*", Tok::kStar},       Symbol{"/", Tok::kSlash},         Symbol{"%", Tok::kPercent},
        Symbol{"@", Tok::kAt},
    };
    std::string_view rest = text_.substr(i);
    if (rest.starts_with("||")) return Foreign(i, 2, Tok::kOr, "or");
    if (rest.starts_with("&&")) return Foreign(i, 2, Tok::kAnd, "and");
    if (rest.starts_with("|")) {
      Push(Tok::kBar, i, i + 1);
      return i + 1;
    }
    for (const Symbol& symbol : kSymbols) {
      if (rest.starts_with(symbol.text)) {
        Push(symbol.kind, i, i + symbol.text.size());
        return i + symbol.text.size();
      }
    }
    if (rest[0] == '!') return Foreign(i, 1, Tok::kNot, "not");
    if (rest[0] == '&') return Foreign(i, 1, Tok::kAnd, "and");
    if (rest[0] == '#') {
      Error(i, i + 1, DiagKind::kSyntax, "unexpected '#'").Hint("a comment begins with '//'");
      return std::min(text_.find('\n', i), text_.size());
    }
    if (rest[0] == '\'') {
      size_t end = std::min(text_.find_first_of("'\n", i + 1), text_.size());
      if (At(end) == '\'') ++end;
      Error(i, end, DiagKind::kSyntax, "strings are written in double quotes").Hint("write \"..\"");
      Push(Tok::kString, i, end);
      return end;
    }
    size_t length = Utf8Length(text_, i);
    auto code = static_cast<unsigned char>(text_[i]);
    std::string shown = code < 0x20 || code == 0x7F ? fmt::format("control character 0x{:02x}", code)
                                                    : fmt::format("character '{}'", rest.substr(0, length));
    Error(i, i + length, DiagKind::kSyntax, "unexpected " + shown)
        .Hint(
            "names are made of ASCII letters, digits and '_'; other characters belong in strings and "
            "comments");
    return i + length;
  }

  size_t Foreign(size_t i, size_t length, Tok kind, std::string_view ours) {
    Error(i, i + length, DiagKind::kSyntax, fmt::format("unexpected '{}'", text_.substr(i, length)))
        .Hint(fmt::format("write '{}'", ours));
    Push(kind, i, i + length);
    return i + length;
  }

  // Refuses deep nesting and brackets without partners. False if nothing is left to parse.
  bool MatchBrackets() {
    std::vector<uint32_t> open;
    for (uint32_t i = 0; i < raw_.size(); ++i) {
      const RawToken& token = raw_[i];
      if (IsOpener(token.kind)) {
        open.push_back(i);
        if (open.size() > kMaxDepth) {
          Error(token.begin, token.end, DiagKind::kTooDeep,
                fmt::format("brackets and braces are nested more than {} deep", kMaxDepth))
              .Hint("name the inner parts with 'let', or write a function");
          return Unreliable(raw_[open.front()].begin, true);
        }
      } else if (IsCloser(token.kind)) {
        if (open.empty()) {
          Error(token.begin, token.end, DiagKind::kSyntax,
                fmt::format("'{}' closes nothing: no bracket is open here", TokText(token.kind)))
              .Hint("remove it, or add the opening bracket");
          return Unreliable(token.begin, false);
        }
        const RawToken& opener = raw_[open.back()];
        if (Partner(opener.kind) != token.kind) {
          ReportMismatch(opener, token);
          return Unreliable(raw_[open.front()].begin, true);
        }
        open.pop_back();
      }
    }
    if (open.empty()) return true;
    ReportUnclosed(open);
    return Unreliable(raw_[open.front()].begin, true);
  }

  static bool IsOpener(Tok kind) {
    return kind == Tok::kLparen || kind == Tok::kLbracket || kind == Tok::kLbrace;
  }
  static bool IsCloser(Tok kind) {
    return kind == Tok::kRparen || kind == Tok::kRbracket || kind == Tok::kRbrace;
  }
  static Tok Partner(Tok opener) { return static_cast<Tok>(static_cast<int>(opener) + 1); }

  SourceRange RangeOf(const RawToken& token) const { return {file_, token.begin, token.end}; }

  void ReportMismatch(const RawToken& opener, const RawToken& closer) {
    Error(closer.begin, closer.end, DiagKind::kSyntax,
          fmt::format("'{}' does not match the '{}' that is open here", TokText(closer.kind),
                      TokText(opener.kind)))
        .Note(RangeOf(opener), fmt::format("this '{}' is not closed", TokText(opener.kind)))
        .Hint(fmt::format("write '{}' before it", TokText(Partner(opener.kind))));
  }

  // The column, from 0, of a token and of the first token of its line.
  uint32_t ColumnOf(uint32_t offset) const {
    size_t line = text_.rfind('\n', offset == 0 ? 0 : offset - 1);
    return line == std::string_view::npos || offset == 0 ? offset : offset - static_cast<uint32_t>(line) - 1;
  }
  uint32_t IndentOf(uint32_t i) const {
    while (!raw_[i].line_start && i > 0) --i;
    return ColumnOf(raw_[i].begin);
  }

  // Some bracket is open at the end of the file. Which one was forgotten? Indentation tells: the first block
  // whose
  // '}' stands further left than the line that opens it; or, where a declaration begins at a line's very
  // start, the innermost block that is still open there; or else the innermost open one.
  void ReportUnclosed(const std::vector<uint32_t>& open_at_end) {
    uint32_t culprit = open_at_end.back();
    const RawToken* witness = nullptr;
    const char* note = "";
    std::vector<uint32_t> open;
    for (uint32_t i = 0; i + 1 < raw_.size() && witness == nullptr; ++i) {
      const RawToken& token = raw_[i];
      if (IsOpener(token.kind)) {
        open.push_back(i);
      } else if (IsCloser(token.kind)) {
        if (token.line_start && token.kind == Tok::kRbrace && IndentOf(open.back()) > ColumnOf(token.begin)) {
          culprit = open.back();
          witness = &token;
          note = "this '}' seems to close a block further out";
        }
        open.pop_back();
      } else if (!open.empty() && token.line_start && ColumnOf(token.begin) == 0 &&
                 BeginsDeclaration(token.kind, raw_[i + 1].kind)) {
        culprit = open.back();
        witness = &token;
        note = "it is still open where this declaration begins";
      }
    }
    const RawToken& opener = raw_[culprit];
    auto error = Error(opener.begin, opener.end, DiagKind::kSyntax,
                       fmt::format("this '{}' is never closed", TokText(opener.kind)));
    if (witness != nullptr) error.Note(RangeOf(*witness), note);
    error.Hint(fmt::format("write the missing '{}'", TokText(Partner(opener.kind))));
  }

  static bool BeginsDeclaration(Tok kind, Tok next) {
    switch (kind) {
      case Tok::kFn:
      case Tok::kModule:
      case Tok::kTopology:
      case Tok::kStrategy:
        return IsWord(next);
      case Tok::kTest:
        return next == Tok::kString;
      case Tok::kTrain:
      case Tok::kEval:
      case Tok::kInfer:
        return next == Tok::kLbrace;
      default:
        return false;
    }
  }

  // Only what lies before `offset` is worth parsing: drops the rest.
  bool Unreliable(uint32_t offset, bool last_incomplete) {
    result_.brackets_match = false;
    result_.last_incomplete = last_incomplete;
    result_.reliable_end = offset;
    while (!raw_.empty() && raw_.back().begin >= offset) raw_.pop_back();
    return !raw_.empty();
  }

  // ---- second pass: statement ends, shapes of words

  void Classify() {
    tokens_ = &result_.tokens;
    tokens_->reserve(raw_.size() + raw_.size() / 8 + 4);
    for (size_t i = 0; i < raw_.size(); ++i) {
      const RawToken& token = raw_[i];
      bool braces = open_.empty() || open_.back() == Tok::kLbrace;
      if (token.line_start && braces && CanEnd() && !Continues(i)) InsertSemicolon(token.begin);
      if (token.kind == Tok::kComma && (Next(i) == Tok::kRparen || Next(i) == Tok::kRbracket) && CanEnd())
        continue;
      if (token.kind == Tok::kRbrace) {
        if (Last() != Tok::kSemicolon && Last() != Tok::kLbrace) InsertSemicolon(token.begin);
      }
      if (IsCloser(token.kind)) open_.pop_back();
      bool label = false;
      Tok kind = IsWord(token.kind) ? Shape(i, braces, &label) : token.kind;
      tokens_->push_back({kind, false, static_cast<uint16_t>(open_.size()), token.begin, token.end});
      if (IsOpener(token.kind)) open_.push_back(token.kind);
      if (label) ++i;  // the ':' belongs to the LABEL
    }
    auto end = static_cast<uint32_t>(std::min<size_t>(text_.size(), result_.reliable_end));
    if (!tokens_->empty() && Last() != Tok::kSemicolon) InsertSemicolon(tokens_->back().end);
    tokens_->push_back({Tok::kEnd, true, 0, end, end});
  }

  Tok Last() const { return tokens_->empty() ? Tok::kSemicolon : tokens_->back().kind; }
  Tok Next(size_t i, size_t ahead = 1) const {
    return i + ahead < raw_.size() ? raw_[i + ahead].kind : Tok::kEnd;
  }

  void InsertSemicolon(uint32_t before) {
    uint32_t at = tokens_->empty() ? before : tokens_->back().end;
    tokens_->push_back({Tok::kSemicolon, true, static_cast<uint16_t>(open_.size()), at, at});
  }

  // Whether the last token may be the last of a statement.
  bool CanEnd() const {
    Tok kind = Last();
    if (tokens_->empty()) return false;
    if (kind == Tok::kReturn || kind == Tok::kTrue || kind == Tok::kFalse || kind == Tok::kFnType)
      return true;
    if (IsReserved(kind) || kind == Tok::kTag || kind == Tok::kLanes || kind == Tok::kSteps ||
        kind == Tok::kTable) {
      return false;
    }
    if (IsWord(kind)) return true;
    switch (kind) {
      case Tok::kRparen:
      case Tok::kRbracket:
      case Tok::kRbrace:
      case Tok::kQuestion:
      case Tok::kInt:
      case Tok::kFloat:
      case Tok::kQuantity:
      case Tok::kString:
        return true;
      default:
        return false;
    }
  }

  // Whether the token that opens a line goes on with the statement of the line before.
  bool Continues(size_t i) const {
    switch (raw_[i].kind) {
      case Tok::kRparen:
      case Tok::kRbracket:
      case Tok::kLbrace:
      case Tok::kComma:
      case Tok::kColon:
      case Tok::kDot:
      case Tok::kRange:
      case Tok::kQuestion:
      case Tok::kArrow:
      case Tok::kBar:
      case Tok::kAssign:
      case Tok::kAddAssign:
      case Tok::kSubAssign:
      case Tok::kEqual:
      case Tok::kNotEqual:
      case Tok::kLess:
      case Tok::kLessEqual:
      case Tok::kGreater:
      case Tok::kGreaterEqual:
      case Tok::kPlus:
      case Tok::kStar:
      case Tok::kSlash:
      case Tok::kPercent:
      case Tok::kAt:
      case Tok::kElse:
      case Tok::kAnd:
      case Tok::kOr:
        return true;
      case Tok::kBy:
      case Tok::kJoined:
      case Tok::kRequires:
      case Tok::kInto:
      case Tok::kOver:
      case Tok::kWhere:
      case Tok::kFolds:
      case Tok::kVia:
        return Next(i) != Tok::kAssign && Next(i) != Tok::kDot && Next(i) != Tok::kColon;
      default:
        return false;
    }
  }

  bool StatementStart(bool braces) const {
    if (!braces) return false;
    Tok kind = Last();
    return kind == Tok::kSemicolon || kind == Tok::kLbrace || kind == Tok::kRbrace || kind == Tok::kLabel;
  }

  static bool OpensItem(Tok kind) {
    return kind == Tok::kLparen || kind == Tok::kLbracket || kind == Tok::kComma;
  }

  Tok Shape(size_t i, bool braces, bool* label) {
    Tok kind = raw_[i].kind;
    if (Last() == Tok::kDot) return Tok::kIdent;
    if (!braces && Next(i) == Tok::kAssign) {
      if (OpensItem(Last())) return Tok::kKey;
      if (Last() == Tok::kNot && tokens_->size() >= 2 && OpensItem((*tokens_)[tokens_->size() - 2].kind)) {
        tokens_->back().kind = Tok::kNegate;
        return Tok::kKey;
      }
    }
    if (Next(i) == Tok::kColon && StatementStart(braces)) {
      *label = true;
      return Tok::kLabel;
    }
    switch (kind) {
      case Tok::kTag:
        return IsWord(Next(i)) && Next(i, 2) == Tok::kLbrace ? kind : Tok::kIdent;
      case Tok::kLanes:
        return Next(i) == Tok::kLbrace && StatementStart(braces) ? kind : Tok::kIdent;
      case Tok::kSteps:
        return Next(i) == Tok::kString && StatementStart(braces) ? kind : Tok::kIdent;
      case Tok::kTable:
        return Next(i) == Tok::kFrom && Next(i, 2) == Tok::kString ? kind : Tok::kIdent;
      case Tok::kFn:
        return IsWord(Next(i)) ? kind : Next(i) == Tok::kLparen ? Tok::kLambda : Tok::kFnType;
      case Tok::kIf:
        return StatementStart(braces) || Last() == Tok::kElse ? kind : Tok::kIfValue;
      default:
        return kind;
    }
  }

  ir::FileId file_;
  std::string_view text_;
  ir::DiagnosticEngine& diag_;
  ScanResult result_;
  std::vector<RawToken> raw_;
  bool line_start_ = true;
  std::vector<Token>* tokens_ = nullptr;
  std::vector<Tok> open_;
};

}  // namespace

Tok WordKind(std::string_view text) {
  auto it = Words().find(text);
  return it == Words().end() ? Tok::kIdent : it->second;
}

std::string_view NearestWord(std::string_view text, bool (*accept)(Tok)) {
  if (text.size() > 32) return {};
  std::string_view best;
  size_t best_distance = 3;
  for (int i = static_cast<int>(Tok::kLet); i <= static_cast<int>(Tok::kFrom); ++i) {
    Tok kind = static_cast<Tok>(i);
    if (!accept(kind)) continue;
    std::string_view word = TokText(kind);
    size_t distance = ir::EditDistance(text, word);
    if (distance < best_distance && distance * 3 <= word.size()) {
      best = word;
      best_distance = distance;
    }
  }
  return best;
}

ScanResult Scan(ir::FileId file, std::string_view text, ir::DiagnosticEngine& diag) {
  return Scanner(file, text, diag).Run();
}

}  // namespace piper::frontend
