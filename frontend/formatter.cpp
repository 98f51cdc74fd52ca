#include "frontend/formatter.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/scanner.h"
#include "frontend/syntax.h"
#include "ir/support/result.h"

namespace piper::frontend {

namespace {

constexpr size_t kWidth = 110;
constexpr size_t kIndent = 2;
constexpr size_t kContinuation = 4;
constexpr size_t kMaxInlineStatements = 3;

class Formatter {
 public:
  Formatter(std::string_view text, const ScanResult& scan)
      : text_(text), tokens_(scan.tokens), comments_(scan.comments) {}

  std::string Run() {
    MatchBraces();
    size_t end = tokens_.size() - 1;
    Body(0, end, 0);
    CommentsBefore(end, 0);
    return std::move(out_);
  }

 private:
  struct Piece {
    std::string text;
    bool space = false;      // one before it, unless it opens a line
    bool may_break = false;  // a line may end before it
    int cost = 0;  // of ending a line there: brackets open around it, then how tight its operator binds
  };

  void MatchBraces() {
    match_.assign(tokens_.size(), 0);
    std::vector<size_t> open;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (IsOpener(tokens_[i].kind)) {
        open.push_back(i);
      } else if (IsCloser(tokens_[i].kind) && !open.empty()) {
        match_[open.back()] = i;
        open.pop_back();
      }
    }
  }

  static bool IsOpener(Tok kind) {
    return kind == Tok::kLparen || kind == Tok::kLbracket || kind == Tok::kLbrace;
  }
  static bool IsCloser(Tok kind) {
    return kind == Tok::kRparen || kind == Tok::kRbracket || kind == Tok::kRbrace;
  }
  bool Is(size_t i, Tok kind) const { return tokens_[i].kind == kind; }

  // ---- what the source says between tokens

  size_t Newlines(uint32_t begin, uint32_t end) const {
    return static_cast<size_t>(std::count(text_.begin() + begin, text_.begin() + std::max(begin, end), '\n'));
  }

  // The end of the last real token before tokens[i]; 0 if there is none.
  uint32_t EndBefore(size_t i) const {
    while (i > 0) {
      --i;
      if (!tokens_[i].inserted) return Is(i, Tok::kLabel) ? LabelEnd(i) : tokens_[i].end;
    }
    return 0;
  }
  uint32_t LabelEnd(size_t i) const {
    size_t colon = text_.find(':', tokens_[i].end);
    return static_cast<uint32_t>(colon + 1);
  }

  // Whether a comment lies between two offsets.
  bool HasComment(uint32_t begin, uint32_t end) const {
    auto it =
        std::lower_bound(comments_.begin(), comments_.end(), begin,
                         [](const Comment& comment, uint32_t offset) { return comment.begin < offset; });
    return it != comments_.end() && it->begin < end;
  }

  // ---- statements

  // The first position after the statement that begins at `i`: its ';', the next one's start, or `end`.
  size_t StatementEnd(size_t i, size_t end) const {
    size_t at = i;
    do {
      at = IsOpener(tokens_[at].kind) ? match_[at] + 1 : at + 1;
    } while (at < end && !Is(at, Tok::kSemicolon) && !tokens_[at].starts);
    return at;
  }

  size_t SkipSemicolons(size_t i, size_t end) const {
    while (i < end && Is(i, Tok::kSemicolon)) ++i;
    return i;
  }

  // The statements in tokens [begin, end), each on lines of its own.
  void Body(size_t begin, size_t end, size_t indent, bool settings = false) {
    first_in_block_ = true;
    size_t label_indent = 0;
    // Settings and lanes stand in two columns: names, values.
    size_t column = 0;
    for (size_t i = begin; i < end; i = IsOpener(tokens_[i].kind) ? match_[i] + 1 : i + 1) {
      bool name = Is(i, Tok::kLabel) || (settings && tokens_[i].starts);
      if (name) column = std::max(column, TokenText(tokens_[i]).size());
    }
    for (size_t i = SkipSemicolons(begin, end); i < end; i = SkipSemicolons(i, end)) {
      if (Is(i, Tok::kLabel)) label_indent = 0;
      CommentsBefore(i, indent + label_indent);
      BlankLineBefore(tokens_[i].begin);
      first_in_block_ = false;
      if (Is(i, Tok::kLabel)) {
        size_t next = i;
        if (FillLane(i, end, indent, column, &next)) {
          i = next;
        } else {
          AddToken(i);
          Flush(indent);
          label_indent = kIndent;
          ++i;
        }
        continue;
      }
      size_t stop = StatementEnd(i, end);
      align_ = settings ? column : 0;
      Statement(i, stop, indent + label_indent);
      i = stop;
    }
    // Comments before the closing brace belong to the block.
    CommentsBefore(end, indent);
  }

  // `compute: a; b; c` in as few lines as it takes, if the lane is made of plain steps only.
  bool FillLane(size_t label, size_t end, size_t indent, size_t column, size_t* next) {
    size_t stop = label + 1;
    size_t last = label;
    while (stop < end && !Is(stop, Tok::kLabel)) {
      if (Is(stop, Tok::kLbrace)) return false;
      if (!Is(stop, Tok::kSemicolon)) last = stop;
      ++stop;
    }
    if (HasComment(LabelEnd(label), tokens_[last].begin)) return false;
    AddToken(label);
    if (last > label) line_.back().text.resize(std::max(column, line_.back().text.size()), ' ');
    for (size_t i = label + 1; i <= last; ++i) {
      if (Is(i, Tok::kSemicolon)) continue;
      if (tokens_[i].starts && i > label + 1 && !Is(i - 1, Tok::kLabel)) {
        line_.back().text += ';';
        AddToken(i);
        line_.back().may_break = true;
        line_.back().cost = 0;
      } else {
        AddToken(i);
      }
    }
    Flush(indent);
    *next = stop;
    return true;
  }

  void Statement(size_t begin, size_t end, size_t indent) {
    bool settings = tokens_[begin].depth == 0 &&
                    (Is(begin, Tok::kTrain) || Is(begin, Tok::kEval) || Is(begin, Tok::kInfer));
    if (FitsFlat(begin, end, indent)) {
      AddFlat(begin, end);
      Flush(indent);
      return;
    }
    bool continued = false;  // after a comment inside the statement, lines are continuation lines
    for (size_t i = begin; i < end; ++i) {
      if (i > begin) CommentsInside(i, indent, &continued);
      if (!Is(i, Tok::kLbrace)) {
        AddToken(i);
        continue;
      }
      size_t close = match_[i];
      AddToken(i);
      if (close == i + 1 && !HasComment(tokens_[i].end, tokens_[close].begin)) {
        line_.back().text = "{}";
        i = close;
        continue;
      }
      Flush(indent, continued);
      continued = false;
      Body(i + 1, close, indent + kIndent, settings);
      first_in_block_ = false;
      AddToken(close);
      i = close;
    }
    Flush(indent, continued);
  }

  // Whether [begin, end) may stand on one line: short, no comment inside, and only small plain blocks.
  bool FitsFlat(size_t begin, size_t end, size_t indent) {
    size_t width = indent;
    if (HasComment(tokens_[begin].end, tokens_[end - 1].begin)) return false;
    for (size_t i = begin; i < end; ++i) {
      const Token& token = tokens_[i];
      width += token.end - token.begin;  // a lower bound
      if (width > 2 * kWidth) break;
      if (Is(i, Tok::kLbrace) && !InlineBlock(begin, i)) return false;
    }
    bool braces = false;
    for (size_t i = begin; i < end && !braces; ++i) braces = Is(i, Tok::kLbrace);
    if (!braces) return true;  // broken lines, if need be, but no block to open
    if (width > kWidth) return false;
    std::vector<Piece> saved = std::move(line_);
    line_.clear();
    AddFlat(begin, end);
    size_t flat = LineWidth();
    line_ = std::move(saved);
    return indent + flat <= kWidth;
  }

  // Whether the block that opens at `open`, in the statement from `begin`, may be written `{ a; b }`.
  bool InlineBlock(size_t begin, size_t open) const {
    size_t close = match_[open];
    if (close == open + 1) return true;
    switch (tokens_[begin].kind) {
      case Tok::kFn:
      case Tok::kForward:
      case Tok::kLanes:
        return false;
      case Tok::kModule:
      case Tok::kTopology:
      case Tok::kStrategy:
      case Tok::kTrain:
      case Tok::kEval:
      case Tok::kInfer:
      case Tok::kTest:
        if (tokens_[begin].depth == 0) return false;
        break;
      default:
        break;
    }
    size_t statements = 0;
    for (size_t i = open + 1; i < close; ++i) {
      if (IsOpener(tokens_[i].kind) && !Is(i, Tok::kLbrace)) continue;
      if (!tokens_[i].starts || tokens_[i].depth != tokens_[open].depth + 1) continue;
      ++statements;
      switch (tokens_[i].kind) {
        case Tok::kFor:
        case Tok::kIf:
        case Tok::kFn:
        case Tok::kLanes:
        case Tok::kLabel:
          return false;
        case Tok::kOrder:
          if (tokens_[begin].kind == Tok::kFor || tokens_[begin].kind == Tok::kIf) return false;
          break;
        default:
          break;
      }
    }
    if (statements > kMaxInlineStatements) return false;
    // The user's blank lines group statements: keep the groups.
    for (size_t i = open + 1; i < close; ++i) {
      if (tokens_[i].starts && i > open + 1 && Newlines(EndBefore(i), tokens_[i].begin) > 1) return false;
    }
    return true;
  }

  void AddFlat(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (Is(i, Tok::kSemicolon)) continue;
      if (tokens_[i].starts && i > begin && !line_.empty() && line_.back().text != "{")
        line_.back().text += ';';
      if (Is(i, Tok::kLbrace) && match_[i] == i + 1) {
        AddToken(i);
        line_.back().text = "{}";
        ++i;
        continue;
      }
      AddToken(i);
    }
  }

  // ---- lines

  void AddToken(size_t i) {
    const Token& token = tokens_[i];
    Piece piece;
    piece.text = TokenText(token);
    if (!line_.empty()) {
      piece.space = SpaceBefore(i);
      int binding = BreakCost(previous_);
      piece.may_break = binding >= 0;
      piece.cost = depth_ * 16 + binding;
      // A line goes on before `requires` (parser.h): the best place of all to break a long heading.
      if (token.kind == Tok::kRequires && depth_ == 0) {
        piece.may_break = true;
        piece.cost = -1;
      }
      if (align_ > 0) line_[0].text.resize(std::max(align_, line_[0].text.size()), ' ');
      align_ = 0;
    }
    if (IsCloser(token.kind) && depth_ > 0) --depth_;
    if (IsOpener(token.kind) && token.kind != Tok::kLbrace) ++depth_;
    previous_ = i;
    line_.push_back(std::move(piece));
  }

  std::string TokenText(const Token& token) const {
    std::string_view written = text_.substr(token.begin, token.end - token.begin);
    if (token.kind == Tok::kLabel) return std::string(written) + ":";
    if (token.kind != Tok::kQuantity) return std::string(written);
    // One space between number and unit: the unit begins at the first '%', or letter that opens no exponent.
    size_t unit = 0;
    while (unit < written.size()) {
      char c = written[unit];
      bool digit = (c >= '0' && c <= '9') || c == '.' || c == '_';
      bool exponent = (c == 'e' || c == 'E') && unit + 1 < written.size() &&
                      ((written[unit + 1] >= '0' && written[unit + 1] <= '9') || written[unit + 1] == '-' ||
                       written[unit + 1] == '+');
      bool sign = (c == '-' || c == '+');
      if (!digit && !exponent && !sign) break;
      ++unit;
    }
    std::string_view number = written.substr(0, unit);
    if (unit < written.size() && written[unit] == ' ') ++unit;
    return std::string(number) + " " + std::string(written.substr(unit));
  }

  bool SpaceBefore(size_t i) const {
    const Token& token = tokens_[i];
    const Token& before = tokens_[previous_];
    if (token.tight) return false;
    switch (token.kind) {
      case Tok::kRparen:
      case Tok::kRbracket:
      case Tok::kComma:
      case Tok::kColon:
      case Tok::kQuestion:
      case Tok::kDot:
      case Tok::kRange:
        return false;
      default:
        break;
    }
    switch (before.kind) {
      case Tok::kLparen:
      case Tok::kLbracket:
      case Tok::kDot:
      case Tok::kRange:
        return false;
      default:
        return !before.prefix;
    }
  }

  // What it costs to end a line after this token, below 16 where that is fine; -1 where the scanner might
  // insert a ';'.
  int BreakCost(size_t i) const {
    if (tokens_[i].prefix) return -1;
    switch (tokens_[i].kind) {
      case Tok::kComma:
        return 0;
      case Tok::kOr:
        return 1;
      case Tok::kAnd:
        return 2;
      case Tok::kEqual:
      case Tok::kNotEqual:
      case Tok::kLess:
      case Tok::kLessEqual:
      case Tok::kGreater:
      case Tok::kGreaterEqual:
        return 3;
      case Tok::kBar:
      case Tok::kPlus:
      case Tok::kMinus:
        return 4;
      case Tok::kSlash:
      case Tok::kAt:
        return 5;
      case Tok::kPercent:
        return -1;  // `7 %` at a line's end is a percentage
      case Tok::kStar:
        return i > 0 && !Is(i - 1, Tok::kDot) && !Is(i - 1, Tok::kLbracket) && !Is(i - 1, Tok::kComma) ? 5
                                                                                                       : -1;
      case Tok::kLparen:
      case Tok::kLbracket:
        return match_[i] == i + 1 ? -1 : 1000;  // only where nothing else is left
      default:
        return -1;
    }
  }

  size_t LineWidth() const {
    size_t width = 0;
    for (size_t i = 0; i < line_.size(); ++i)
      width += line_[i].text.size() + (line_[i].space && i > 0 ? 1 : 0);
    return width;
  }

  // Writes the line, broken where it is too long: at the shallowest possible place, the last of these that
  // fits.
  void Flush(size_t indent, bool continued = false) {
    size_t start = 0;
    size_t margin = indent + (continued ? kContinuation : 0);
    while (start < line_.size()) {
      size_t width = margin + line_[start].text.size();
      size_t fit = start + 1;
      while (fit < line_.size()) {
        width += line_[fit].text.size() + (line_[fit].space ? 1 : 0);
        if (width > kWidth) break;
        ++fit;
      }
      size_t stop = line_.size();
      if (fit < line_.size()) {
        size_t best = 0;
        for (size_t i = start + 1; i <= fit; ++i) {
          if (line_[i].may_break && (best == 0 || line_[i].cost <= line_[best].cost)) best = i;
        }
        for (size_t i = fit + 1; i < line_.size() && best == 0; ++i) {
          if (line_[i].may_break) best = i;
        }
        if (best != 0) stop = best;
      }
      out_.append(margin, ' ');
      for (size_t i = start; i < stop; ++i) {
        if (i > start && line_[i].space) out_ += ' ';
        out_ += line_[i].text;
      }
      out_ += '\n';
      start = stop;
      margin = indent + kContinuation;
    }
    line_.clear();
    depth_ = 0;
    align_ = 0;
  }

  // ---- comments and blank lines

  std::string_view TextOf(const Comment& comment) const {
    return text_.substr(comment.begin, comment.end - comment.begin);
  }

  bool OnLineOf(uint32_t end_of_previous, const Comment& comment) const {
    return end_of_previous > 0 && Newlines(end_of_previous, comment.begin) == 0;
  }

  void BlankLineBefore(uint32_t begin) {
    if (!first_in_block_ && !out_.empty() && Newlines(previous_end_, begin) > 1) out_ += '\n';
  }

  std::string Trimmed(std::string_view text) const {
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
      text.remove_suffix(1);
    return std::string(text);
  }

  // The comments between the statement before and tokens[i]: at the end of the line above, or on their own.
  void CommentsBefore(size_t i, size_t indent) {
    previous_end_ = std::max(EndBefore(i), previous_comment_end_);
    while (next_comment_ < comments_.size() && comments_[next_comment_].begin < tokens_[i].begin)
      WriteComment(indent);
    while (i + 1 == tokens_.size() && next_comment_ < comments_.size()) WriteComment(indent);
  }

  void WriteComment(size_t indent) {
    const Comment& comment = comments_[next_comment_++];
    if (!out_.empty() && OnLineOf(previous_end_, comment)) {
      out_.pop_back();
      out_ += "  " + Trimmed(TextOf(comment)) + "\n";
    } else {
      BlankLineBefore(comment.begin);
      out_.append(indent, ' ');
      out_ += Trimmed(TextOf(comment)) + "\n";
      first_in_block_ = false;
    }
    previous_end_ = previous_comment_end_ = comment.end;
  }

  // The comments before tokens[i] inside a statement: line comments end the line, which then goes on below.
  void CommentsInside(size_t i, size_t indent, bool* continued) {
    uint32_t previous_end = EndBefore(i);
    while (next_comment_ < comments_.size() && comments_[next_comment_].begin < tokens_[i].begin) {
      const Comment& comment = comments_[next_comment_++];
      bool trailing = OnLineOf(previous_end, comment);
      bool ends_line = !comment.block || Newlines(comment.begin, comment.end) > 0 ||
                       Newlines(comment.end, tokens_[i].begin) > 0;
      if (trailing && !ends_line && !line_.empty()) {
        line_.push_back({std::string(TextOf(comment)), true, false, 0});
      } else {
        if (!line_.empty()) {
          int depth = depth_;
          Flush(indent, *continued);
          depth_ = depth;
        }
        // Between the blocks of an 'if' a comment stands as between statements.
        bool between = Is(i, Tok::kElse);
        if (trailing && !out_.empty()) {
          out_.pop_back();
          out_ += "  ";
        } else {
          out_.append(between ? indent : indent + kContinuation, ' ');
        }
        out_ += Trimmed(TextOf(comment)) + "\n";
        *continued = !between;
      }
      previous_end = previous_comment_end_ = comment.end;
    }
  }

  std::string_view text_;
  const std::vector<Token>& tokens_;
  const std::vector<Comment>& comments_;
  std::vector<size_t> match_;
  std::string out_;
  std::vector<Piece> line_;
  size_t previous_ = 0;  // the token last added
  int depth_ = 0;
  size_t align_ = 0;  // columns that the first token of the next line takes, if others follow it
  size_t next_comment_ = 0;
  uint32_t previous_end_ = 0;
  uint32_t previous_comment_end_ = 0;
  bool first_in_block_ = true;
};

}  // namespace

std::optional<std::string> FormatSource(const ir::SourceManager& sources, ir::FileId file,
                                        ir::DiagnosticEngine& diag) {
  ScanResult scan;
  if (!ParseMarked(sources, file, diag, &scan)) return std::nullopt;
  return Formatter(sources.Text(file), scan).Run();
}

}  // namespace piper::frontend
