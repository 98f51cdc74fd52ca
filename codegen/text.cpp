#include "codegen/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace piper::codegen {
namespace {

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string Word(std::string_view text) {
  std::string word;
  for (char c : text) {
    if (IsLetter(c) || IsDigit(c)) {
      if (word.empty() && IsDigit(c)) word += 'n';
      word += c;
    } else if (!word.empty() && word.back() != '_') {
      word += '_';
    }
    if (word.size() == kMaxWord) break;
  }
  while (!word.empty() && word.back() == '_') word.pop_back();
  return word.empty() ? "unnamed" : word;
}

std::string NameScope::Unique(const std::string& name) {
  if (used_.insert(name).second) return name;
  for (int i = 2;; ++i) {
    std::string candidate = fmt::format("{}_{}", name, i);
    if (used_.insert(candidate).second) return candidate;
  }
}

std::string StringLiteral(std::string_view text) {
  std::string literal = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      literal += '\\';
      literal += c;
    } else if (byte < 0x20 || byte >= 0x7f || c == '?') {
      literal += fmt::format("\\{:03o}", byte);
    } else {
      literal += c;
    }
  }
  return literal + '"';
}

std::string DoubleLiteral(double value) {
  if (std::isnan(value)) return "__builtin_nan(\"\")";
  if (std::isinf(value)) return value > 0 ? "__builtin_huge_val()" : "-__builtin_huge_val()";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string IntLiteral(int64_t value) {
  if (value == INT64_MIN) return "INT64_MIN";
  return fmt::format("{}", value);
}

std::string HashLiteral(uint64_t value) { return fmt::format("{:#018x}", value); }

std::string CommentText(std::string_view text, size_t limit) {
  std::string comment;
  for (char c : text) {
    if (comment.size() == limit) break;
    const bool harmless =
        IsLetter(c) || IsDigit(c) || std::string_view(" _.,:=#[]<>@+-").find(c) != std::string_view::npos;
    comment += harmless ? c : '_';
  }
  while (!comment.empty() && comment.back() == ' ') comment.pop_back();
  return comment;
}

std::string WrapCall(std::string_view head, const std::vector<std::string>& arguments, std::string_view tail,
                     size_t indent) {
  std::string text(indent, ' ');
  text += head;
  text += '(';
  const size_t column = text.size();
  size_t used = column;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string piece = arguments[i];
    piece += i + 1 == arguments.size() ? std::string(tail) : ",";
    if (i > 0) {
      if (used + 1 + piece.size() > kColumns) {
        text += '\n';
        text += std::string(column, ' ');
        used = column;
      } else {
        text += ' ';
        ++used;
      }
    }
    text += piece;
    used += piece.size();
  }
  if (arguments.empty()) text += tail;
  return text + '\n';
}

std::string AlignComments(const std::vector<std::pair<std::string, std::string>>& lines) {
  std::string text;
  for (size_t begin = 0; begin < lines.size();) {
    // A run whose comments share a column. A comment that does not fit stands above its line and ends the
    // run.
    size_t width = 0, comment_width = 0, end = begin;
    for (; end < lines.size() && !lines[end].second.empty(); ++end) {
      const size_t next_width = std::max(width, lines[end].first.size());
      const size_t next_comment = std::max(comment_width, lines[end].second.size());
      if (next_width + 5 + next_comment > kColumns) break;
      width = next_width;
      comment_width = next_comment;
    }
    if (lines[begin].second.empty()) {  // nothing to align
      text += lines[begin].first + '\n';
      ++begin;
      continue;
    }
    if (end == begin) {
      const std::string& line = lines[begin].first;
      text += fmt::format("{}// {}\n{}\n", std::string(line.find_first_not_of(' '), ' '), lines[begin].second,
                          line);
      ++begin;
      continue;
    }
    for (; begin < end; ++begin) {
      text += fmt::format("{:<{}}  // {}\n", lines[begin].first, width, lines[begin].second);
    }
  }
  return text;
}

}  // namespace piper::codegen
