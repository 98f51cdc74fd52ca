// The words and literals of emitted C++. Text that a user wrote reaches the output in three forms only: as an
// identifier that was rebuilt from letters and digits and carries a prefix or suffix of ours (so that it is
// neither a keyword nor a macro), as an escaped string literal, and as a comment reduced to a harmless
// alphabet.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace piper::codegen {

// Letters, digits and single underscores of `text`; everything else becomes an underscore. Never empty, never
// begins or ends with an underscore, begins with a letter, at most kMaxWord characters. By itself it may be a
// keyword: use it with a prefix or suffix.
constexpr size_t kMaxWord = 48;
std::string Word(std::string_view text);

// Hands out distinct identifiers; a repeated one gets a suffix: in_x, in_x_2.
class NameScope {
 public:
  std::string Unique(const std::string& name);

 private:
  std::set<std::string> used_;
};

// "..." with everything but plain printable ASCII as three-digit octal escapes; no trigraphs.
std::string StringLiteral(std::string_view text);
// A literal of type double with the same bits (infinities and NaN included).
std::string DoubleLiteral(double value);
// A literal of type int64_t; uint64_t as hexadecimal.
std::string IntLiteral(int64_t value);
std::string HashLiteral(uint64_t value);

// For a // comment: printable ASCII without backslashes, question marks or comment marks; at most `limit`
// characters.
std::string CommentText(std::string_view text, size_t limit = 60);

// `head(` + arguments + `);`, indented, filled and wrapped at 110 columns under the open parenthesis, as
// clang-format does with this project's style.
std::string WrapCall(std::string_view head, const std::vector<std::string>& arguments, std::string_view tail,
                     size_t indent);

// Lines with a trailing comment each, the comments aligned. A pair whose line would pass 110 columns gets its
// comment on the line before.
std::string AlignComments(const std::vector<std::pair<std::string, std::string>>& lines);

constexpr size_t kColumns = 110;

}  // namespace piper::codegen
