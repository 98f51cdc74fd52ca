// The formatter: goldens, idempotence, the same bytes from any spacing, every comment kept.
#include <cstdlib>

#include <gtest/gtest.h>

#include "frontend/scanner.h"
#include "tests/frontend_syntax_support.h"

namespace piper::frontend {
namespace {

TEST(Formatter, Goldens) {
  bool update = std::getenv("PIPER_UPDATE_GOLDENS") != nullptr;
  for (const std::string& name : SyntaxInputs()) {
    std::string text = ReadText("tests/syntax/" + name + ".piper");
    std::string formatted = Format(text);
    std::string golden = "tests/syntax/" + name + ".fmt";
    if (update) std::ofstream(golden, std::ios::binary) << formatted;
    EXPECT_EQ(formatted, ReadText(golden)) << "after a wanted change: PIPER_UPDATE_GOLDENS=1";
    EXPECT_EQ(Format(formatted), formatted) << name;
    EXPECT_EQ(Parsed(formatted).Dump(), Parsed(text).Dump()) << name;
  }
}

std::vector<std::string> CommentsOf(const std::string& text) {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  std::vector<std::string> comments;
  for (const Comment& comment : Scan(sources.Add("t.piper", text), text, diag).comments) {
    std::string kept = text.substr(comment.begin, comment.end - comment.begin);
    while (kept.ends_with(' ') || kept.ends_with('\r')) kept.pop_back();
    comments.push_back(kept);
  }
  return comments;
}

TEST(Formatter, KeepsEveryComment) {
  for (const std::string& name : SyntaxInputs()) {
    std::string text = ReadText("tests/syntax/" + name + ".piper");
    EXPECT_EQ(CommentsOf(Format(text)), CommentsOf(text)) << name;
  }
}

TEST(Formatter, LinesStayWithinTheWidth) {
  for (const std::string& name : SyntaxInputs()) {
    std::stringstream lines(Format(ReadText("tests/syntax/" + name + ".piper")));
    for (std::string line; std::getline(lines, line);) {
      size_t code = std::min(line.find("//"), line.size());
      EXPECT_LE(code, 112u) << line;
    }
  }
}

// Other spacing between the same tokens: random blanks, tabs, line ends where they do not count, `;` for line
// ends.
std::string Mangle(const std::string& text, Random& random) {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  ScanResult scan = Scan(sources.Add("t.piper", text), text, diag);
  auto blanks = [&](size_t least) {
    std::string out;
    for (size_t i = least + random.Below(3); i > 0; --i) out += random.Below(4) == 0 ? '\t' : ' ';
    return out;
  };
  std::string out;
  uint32_t last = 0;
  std::vector<Tok> open;
  for (size_t i = 0; i < scan.tokens.size(); ++i) {
    const Token& token = scan.tokens[i];
    if (token.inserted && token.kind == Tok::kSemicolon) {
      // A line end, or before '}' nothing; now and then in writing.
      if (random.Below(2) == 0 && text.substr(token.end, 1) != "}") out += blanks(0) + ";";
      continue;
    }
    uint32_t begin = token.kind == Tok::kEnd ? static_cast<uint32_t>(text.size()) : token.begin;
    std::string gap = text.substr(last, begin - last);
    bool brackets = !open.empty() && open.back() != Tok::kLbrace;
    if (gap.find("/") != std::string::npos || gap.find('\n') != std::string::npos) {
      // Keep line structure and comments; change the blanks around them.
      for (size_t at = 0; at < gap.size();) {
        if (gap[at] == '\n') {
          out += blanks(0) + (random.Below(3) == 0 ? "\r\n" : "\n") + blanks(0);
          ++at;
        } else if (gap[at] == ' ' || gap[at] == '\t') {
          while (at < gap.size() && (gap[at] == ' ' || gap[at] == '\t')) ++at;
          out += blanks(1);
        } else if (gap[at] == '/') {
          size_t end = gap.compare(at, 2, "//") == 0 ? std::min(gap.find('\n', at), gap.size())
                                                     : gap.find("*/", at) + 2;
          out += gap.substr(at, end - at);
          at = end;
        } else {
          out += gap[at++];  // a dropped comma, a label's colon
        }
      }
    } else {
      bool words =
          !out.empty() && (std::isalnum(static_cast<unsigned char>(out.back())) || out.back() == '_');
      bool dots = gap.empty() &&
                  token.begin > 0;  // nothing stood here: nothing, or blanks, or in brackets a line end
      std::string kept;
      for (char c : gap) {
        if (c != ' ' && c != '\t') kept += c;
      }
      bool unit_like =
          words && token.kind != Tok::kEnd && std::isdigit(static_cast<unsigned char>(out.back()));
      out += kept;
      bool remainder = out.ends_with('%');  // its right operand must stay on its line
      if (brackets && !remainder && random.Below(6) == 0) {
        out += "\n" + blanks(0);
      } else if (dots || unit_like) {
        out += gap.empty() ? "" : kept.empty() ? gap : blanks(1);
      } else {
        out += blanks(1);
      }
    }
    if (token.kind == Tok::kEnd) break;
    out += text.substr(token.begin, token.end - token.begin);
    last = token.end;
    if (token.kind == Tok::kLparen || token.kind == Tok::kLbracket || token.kind == Tok::kLbrace)
      open.push_back(token.kind);
    if (token.kind == Tok::kRparen || token.kind == Tok::kRbracket || token.kind == Tok::kRbrace)
      open.pop_back();
  }
  return out;
}

TEST(Formatter, AnySpacingGivesTheSameBytes) {
  Random random(7);
  for (const std::string& name : SyntaxInputs()) {
    std::string text = ReadText("tests/syntax/" + name + ".piper");
    std::string formatted = Format(text);
    for (int i = 0; i < 40; ++i) {
      std::string mangled = Mangle(text, random);
      ASSERT_EQ(Parsed(mangled).Errors(), "") << mangled;
      ASSERT_EQ(Format(mangled), formatted) << name << "\n-----\n" << mangled;
    }
  }
}

TEST(Formatter, Layout) {
  EXPECT_EQ(Format(""), "");
  EXPECT_EQ(Format("\n\n// a\n\n\n\nlet x=1;let y=2\n\n\n"), "// a\n\nlet x = 1\nlet y = 2\n");
  EXPECT_EQ(Format("fn f(){return 1}"), "fn f() {\n  return 1\n}\n");
  EXPECT_EQ(Format("fn f(){for i in 0 .. 3{F;B}}"), "fn f() {\n  for i in 0..3 { F; B }\n}\n");
  EXPECT_EQ(Format("let x=[ - 1,- y,a - 1,5%,2.5us ,not b]"),
            "let x = [-1, -y, a - 1, 5 %, 2.5 us, not b]\n");
  EXPECT_EQ(Format("train{model net;global_batch 32}"),
            "train {\n  model        net\n  global_batch 32\n}\n");
  EXPECT_EQ(Format("strategy s{mesh m(pp=2)}"), "strategy s {\n  mesh m (pp = 2)\n}\n");
  EXPECT_EQ(Format("let x = "), "");
}

}  // namespace
}  // namespace piper::frontend
