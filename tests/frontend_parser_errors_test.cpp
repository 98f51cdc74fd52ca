// The parser on bad input: messages are located, in our words, several a run; nothing crashes or hangs.
#include <chrono>
#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/frontend_syntax_support.h"

namespace piper::frontend {
namespace {

struct BadInput {
  const char* text;
  const char* error;  // "line:col: error: message [kind]" of the first error
  const char* hint;   // a part of its hint
};

// The first error's text.
std::string FirstError(const Parsed& parsed) {
  if (parsed.diag.diagnostics().empty()) return "none";
  const ir::Diagnostic& first = parsed.diag.diagnostics()[0];
  std::string at = parsed.sources.Describe(first.range).substr(8);
  return at + ": " + first.message + " [" + std::string(ir::DiagKindName(first.kind)) + "]";
}

TEST(ParserErrors, Messages) {
  const BadInput kCases[] = {
      {"strategy s {\n  place [stage = 0] pp[0]\n}",
       "2:21: expected 'on' but found 'pp' in a 'place' directive [syntax]",
       "a 'place' directive reads: place [stage = s] on pp[s]"},
      {"strategy s {\n  plac [stage = 0] on pp[0]\n}",
       "2:20: expected the end of the statement but found 'on' in a strategy [syntax]",
       "did you mean 'place'?"},
      {"modul X { }", "1:1: expected a declaration but found 'modul' [syntax]", "did you mean 'module'?"},
      {"let in = 3", "1:5: 'in' is a reserved word and cannot be a name here [syntax]",
       "choose another name"},
      {"let x = (a = b)", "1:10: expected an expression but found 'a' in a definition [syntax]",
       "to compare, write '=='"},
      {"let x = a b", "1:11: expected the end of the statement but found 'b' [syntax]",
       "an operator may be missing"},
      {"let x = ", "1:8: expected an expression but found the end of the line in a definition [syntax]",
       "a definition reads: let name = value"},
      {"fn f() {\n  for i of 0..3 { F }\n}", "2:9: expected 'in' but found 'of' in a loop [syntax]",
       "for i in 0..n { .. }"},
      {"let x = a < b < c", "1:15: '<' cannot follow '<' in one expression [syntax]",
       "join comparisons with 'and'"},
      {"let x = a == not b", "1:14: 'not' binds weaker than '==' [syntax]", "a == (not b)"},
      {"let x = a..b..c", "1:13: '..' cannot follow '..' in one expression [syntax]", "use parentheses"},
      {"let x = fn", "1:9: 'fn' alone is a type, not a value [syntax]", "fn(a: int) -> int { .. }"},
      {"let F = 1", "1:5: 'F' names a pass and cannot be bound to something else [syntax]", "F B BI BW R U"},
      {"let x = ep.*", "1:9: '.*' stands for all parts of a name and belongs in a selector [syntax]",
       "[ep.*]"},
      {"let x = f(a = 1, 2)", "1:18: a positional argument cannot follow a named one [bad-arguments]",
       "name it too"},
      {"let x = f(a = 1, a = 2)", "1:18: argument 'a' is given twice [bad-arguments]", "remove one"},
      {"let x = 12abc", "1:9: '12abc' is no number: 'abc' is no unit [bad-number]",
       "cannot begin with a digit"},
      {"let x = 9223372036854775808", "1:9: the number '9223372036854775808' is out of range [bad-number]",
       "64 bits"},
      {"let x = 1e999", "1:9: the number '1e999' is out of range [bad-number]", "1.8e308"},
      {"let x = \"abc\nlet y = 1", "1:9: this string is not closed on its line [unterminated]",
       "close it with '\"'"},
      {"let x = 1 /* abc\n", "1:11: this comment is never closed [unterminated]", "close it with '*/'"},
      {"let x = \"\\q\"", "1:10: unknown escape in a string [syntax]", "escapes are"},
      {"let x = \"\xff\"", "1:10: byte 0xff is not part of valid UTF-8 text [bad-encoding]",
       "save the file as UTF-8"},
      {"let x = \"\xed\xa0\x80\"", "1:10: byte 0xed is not part of valid UTF-8 text [bad-encoding]", "UTF-8"},
      {"let \xc3\xa9 = 1", "1:5: unexpected character '\xc3\xa9' [syntax]", "ASCII letters"},
      {"let x = a && b", "1:11: unexpected '&&' [syntax]", "write 'and'"},
      {"let x = 'a'", "1:9: strings are written in double quotes [syntax]", "write \"..\""},
      {"# comment", "1:1: unexpected '#' [syntax]", "a comment begins with '//'"},
      {"let x = (1, 2]", "1:14: ']' does not match the '(' that is open here [syntax]",
       "write ')' before it"},
      {"let x = 1\n}", "2:1: '}' closes nothing: no bracket is open here [syntax]", "remove it"},
      {"strategy s {\n  mesh (pp = 2)\n", "1:12: this '{' is never closed [syntax]", "write the missing '}'"},
      {"fn f() {\n  for i in a {\n    F\n  B\n}\nfn g() { }\n", "2:14: this '{' is never closed [syntax]",
       "write the missing '}'"},
      {"fn f() {\n  F\nfn g() { }\n", "1:8: this '{' is never closed [syntax]", "write the missing '}'"},
      {"strategy s {\n  zero 1 as a as b\n}", "2:15: 'as' is given twice in one directive [syntax]",
       "keep one of them"},
      {"strategy s {\n  other(1)\n}",
       "2:3: this statement does nothing in a strategy: an expression is no directive "
       "[syntax]",
       "use name(..)"},
      {"strategy s {\n  f(1) = 2\n}", "2:3: this cannot be assigned to [not-assignable]", "a 'var' name"},
      {"fn f() {\n let x = a\n  - b\n}", "3:3: a statement after another cannot begin with '-' [syntax]",
       "end that with '-'"},
      {"fn f() { compute: F }", "1:10: 'compute:' names a stream, and this block has none [syntax]", "lanes"},
      {"fn f() { lanes { F; compute: B } }", "1:18: a step in 'lanes' must follow a stream's name [syntax]",
       "lanes { compute: steps; a2a: steps }"},
      {"strategy s {\n order on a { F; x: B }\n}",
       "2:15: steps stand before the first stream of this order [syntax]", "give them a stream"},
      {"fn f() { if a { } else { } else if b { } }", "1:28: an 'else' already closed this 'if' [syntax]",
       "put the plain 'else' last"},
      {"fn f() { steps \"F 2F0garbage\" }", "1:19: '2F0garbage' is no step [syntax]", "a step reads"},
      {"fn f() { steps \"1 F\" }", "1:17: '1' is no step [syntax]", "a step reads"},
      {"fn f() { steps \"3*(F B\" }", "1:19: this '(' is never closed [syntax]", "write ')'"},
      {"fn f() { steps \"0*F\" }", "1:17: a count of 0 lists nothing [syntax]", "remove the entry"},
      {"fn f() { steps \"\" }", "1:17: the order is empty [syntax]", "write steps"},
      {"module M { param w: int = 0 }", "1:21: a parameter has named dimensions [syntax]",
       "param w: [embed, hidden]"},
      {"module M { x }", "1:13: expected '=' but found '}' in a module [syntax]", "param w: [..]"},
      {"import \"2x.piper\"", "1:8: the file's name is not a name that can be used here [syntax]", "as name"},
      {"var x = 1", "1:1: 'var' stands inside functions only: a file's definitions do not change [syntax]",
       "write 'let'"},
      {"let x = [* for i in a]", "1:10: the element of a '[.. for ..]' list must be an expression [syntax]",
       "[f(i) for"},
      {"fn f(x: list[int]) { }", "1:9: the type 'list' takes no element type [syntax]", "queue[sel]"},
      {"test \"t\" {\n  assert a == 1\n}",
       "2:10: expected the end of the statement but found 'a' in a block [syntax]",
       "`assert` is a directive and stands in a strategy; a test says `expect`"},
      {"fn f() -> schedule {\n  place [stage = 0] on pp[0]\n}",
       "2:21: expected the end of the statement but found 'on' in a block [syntax]",
       "`place` is a directive and stands in a strategy"},
      {"train {\n  steps 3 4\n}",
       "2:11: expected the end of the statement but found '4' in a block of settings [syntax]",
       "a block of settings reads: steps 200"},
  };
  for (const BadInput& bad : kCases) {
    Parsed parsed(bad.text);
    EXPECT_FALSE(parsed.file->ok) << bad.text;
    EXPECT_EQ(FirstError(parsed), bad.error) << bad.text;
    std::string notes;
    for (const ir::DiagNote& note : parsed.diag.diagnostics()[0].notes) notes += note.message + "\n";
    EXPECT_NE(notes.find("hint: "), std::string::npos) << bad.text;
    EXPECT_NE(notes.find(bad.hint), std::string::npos) << bad.text << "\n" << notes;
  }
}

TEST(ParserErrors, SeveralARun) {
  Parsed parsed(
      "strategy s {\n  place [a] b\n  mesh (pp = 2)\n  cut a as b\n  for i in 0..2 {\n    split x m as mb\n  "
      "  place [b] on c\n"
      "  }\n}\nlet x = \nlet y = 1\nfn f() { let if = 2; F }\n");
  EXPECT_EQ(parsed.diag.error_count(), 5u) << parsed.Errors();
  // What parsed is there, and nothing else.
  EXPECT_EQ(parsed.Dump(),
            "strategy s()\n  mesh (pp = 2)\n  for i in (0 .. 2)\n    place (sel b) on c\nlet y = 1\nfn f()\n "
            " (sel pass=F)\n");
}

// Errors in one statement do not bring others along.
TEST(ParserErrors, OneMistakeOneMessage) {
  for (const char* text :
       {"let x = a && b\n", "let x = f($, 1)\nlet y = 2\n", "let x = \"abc\nlet y = 1\n", "let x = 1x\n",
        "strategy s {\n  cut a, b into 2 as\n}\n", "let x = 'abc' + 1\n", "module M {\n  x = (1\n}\n"}) {
    Parsed parsed(text);
    EXPECT_EQ(parsed.diag.error_count(), 1u) << text << parsed.Errors();
  }
}

std::string Repeat(const std::string& text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST(ParserErrors, BombsAreRefusedQuickly) {
  constexpr size_t kMany = 100'000;
  const std::string kBombs[] = {
      "let x = " + Repeat("(", kMany) + "1" + Repeat(")", kMany),
      Repeat("{", kMany),
      Repeat("[", kMany) + Repeat("]", kMany),
      "let x = " + Repeat("- ", kMany) + "1",
      "let x = " + Repeat("not ", kMany) + "a",
      "let x = a" + Repeat(".b", kMany),
      "let x = a" + Repeat("?", kMany),
      "let x = " + Repeat("f(a or b and c < d + 2 * -", 250) + "1" + Repeat(")", 250),
      "strategy s {\n x" + Repeat("[1]", 10'000) + " = 3\n}",
      "strategy s {\n zero 1 [*]" + Repeat("?", 10'000) + "\n}",
  };
  for (const std::string& bomb : kBombs) {
    auto start = std::chrono::steady_clock::now();
    Parsed parsed(bomb);
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ASSERT_FALSE(parsed.file->ok);
    EXPECT_EQ(parsed.diag.diagnostics()[0].kind, ir::DiagKind::kTooDeep) << bomb.substr(0, 40);
    EXPECT_LT(seconds, 5.0) << bomb.substr(0, 40);
  }
  Parsed wrong(Repeat("bad bad\n", kMany));
  EXPECT_EQ(wrong.diag.error_count(), ir::DiagnosticEngine::kMaxErrors);
  Parsed within("strategy s {\n" + Repeat("bad bad\n", 20'000) + "}");
  EXPECT_FALSE(within.file->ok);
}

TEST(ParserErrors, LargeFilesAreRefused) {
  Parsed parsed(std::string(kMaxFileBytes + 1, ' '));
  ASSERT_EQ(parsed.diag.error_count(), 1u);
  EXPECT_EQ(parsed.diag.diagnostics()[0].kind, ir::DiagKind::kFileTooLarge);
}

// Bytes deleted, doubled, replaced, moved: no crash; what parses formats to the same tree.
TEST(ParserErrors, MutantsNeverCrash) {
  static constexpr std::string_view kSpice[] = {
      "{",  "}", "(",      ")",    "[",     "]",   ";",    "\n",   "\"",   "/*",  "*/",       "//",
      "..", "=", "->",     "if ",  "else ", "fn ", "for ", "tag ", "not ", "5 %", "\xC3\xA9", "\xFF",
      "\\", ",", "lanes ", "per ", "F",     "*",   "-",    "?",    ".",    ":",   "1e",       "_"};
  Random random(2024);
  const int rounds = std::getenv("PIPER_SOAK") != nullptr ? 20'000 : 400;
  size_t accepted = 0;
  for (const std::string& name : SyntaxInputs()) {
    const std::string original = ReadText("tests/syntax/" + name + ".piper");
    ASSERT_FALSE(original.empty());
    for (int i = 0; i < rounds; ++i) {
      std::string text = original;
      for (size_t edits = 1 + random.Below(4); edits > 0; --edits) {
        size_t at = random.Below(text.size());
        size_t length = std::min(text.size() - at, 1 + random.Below(12));
        switch (random.Below(5)) {
          case 0:
            text.erase(at, length);
            break;
          case 1:
            text.insert(at, text.substr(at, length));
            break;
          case 2:
            text.insert(at, kSpice[random.Below(std::size(kSpice))]);
            break;
          case 3:
            text[at] = static_cast<char>(random.Below(256));
            break;
          default:
            text.insert(random.Below(text.size()), text.substr(at, length * 4));
            break;
        }
        if (text.empty()) text = "x";
      }
      Parsed parsed(text);
      parsed.Errors();
      std::string dump = parsed.Dump();
      EXPECT_EQ(parsed.file->ok, !parsed.diag.HasErrors());
      if (!parsed.file->ok) continue;
      ++accepted;
      std::string formatted = Format(text);
      Parsed again(formatted);
      ASSERT_EQ(again.Dump(), dump) << text << "\n-----\n" << formatted;
      ASSERT_EQ(Format(formatted), formatted) << text;
    }
  }
  EXPECT_GT(accepted, 100u);
}

}  // namespace
}  // namespace piper::frontend
