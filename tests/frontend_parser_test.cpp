// The parser on good input: every example of the language, golden trees, precedence, selectors, units,
// statement ends, and sizes that a careless parser would not survive.
#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/frontend_syntax_support.h"

namespace piper::frontend {
namespace {

TEST(Parser, ExamplesMatchTheirGoldenTrees) {
  bool update = std::getenv("PIPER_UPDATE_GOLDENS") != nullptr;
  for (const std::string& name : SyntaxInputs()) {
    Parsed parsed(ReadText("tests/syntax/" + name + ".piper"));
    EXPECT_TRUE(parsed.file->ok) << name << "\n" << parsed.Errors();
    std::string golden = "tests/syntax/" + name + ".ast";
    if (update) std::ofstream(golden, std::ios::binary) << parsed.Dump();
    EXPECT_EQ(parsed.Dump(), ReadText(golden)) << "after a wanted change: PIPER_UPDATE_GOLDENS=1";
  }
}

std::string DumpOf(const std::string& text) {
  Parsed parsed(text);
  EXPECT_TRUE(parsed.file->ok) << text << "\n" << parsed.Errors();
  return parsed.Dump();
}

TEST(Parser, Precedence) {
  auto expr = [](const std::string& text) { return DumpOf("let x = " + text + "\n"); };
  EXPECT_EQ(expr("a or b and not c == d"), "let x = (a or (b and (not (c == d))))\n");
  EXPECT_EQ(expr("a - b + c - d"), "let x = (a - b + c - d)\n");
  EXPECT_EQ(expr("a + b * c @ d % e"), "let x = (a + (b * c @ d % e))\n");
  EXPECT_EQ(expr("0..m - warm"), "let x = (0 .. (m - warm))\n");
  EXPECT_EQ(expr("b by -layer"), "let x = (b by (- layer))\n");
  EXPECT_EQ(expr("-a.b(c)[d]?"), "let x = (- (? (at (call (. a b) c) d)))\n");
  EXPECT_EQ(expr("not not a"), "let x = (not (not a))\n");
  EXPECT_EQ(expr("(a + b) * c"), "let x = ((a + b) * c)\n");
  EXPECT_EQ(expr("tp.size divides size(heads)"), "let x = ((. tp size) divides (call size heads))\n");
  EXPECT_EQ(expr("w.T @ v"), "let x = ((. w T) @ v)\n");
}

TEST(Parser, ListsAndSelectors) {
  auto expr = [](const std::string& text) { return DumpOf("let x = " + text + "\n"); };
  EXPECT_EQ(expr("[]"), "let x = (list)\n");
  EXPECT_EQ(expr("[a, b + 1,]"), "let x = (list a (b + 1))\n");
  EXPECT_EQ(expr("[*]"), "let x = (sel *)\n");
  EXPECT_EQ(expr("[layer = 3, mb = i..j, not tag, a or b, name.sub]"),
            "let x = (sel layer=3 mb=(i .. j) (not tag) (a or b) (. name sub))\n");
  EXPECT_EQ(expr("[ep.*]"), "let x = (sel (. ep *))\n");
  EXPECT_EQ(expr("[F[mb = 0], B]"), "let x = (list (sel pass=F mb=0) (sel pass=B))\n");
  EXPECT_EQ(expr("f[attn, F]"), "let x = (at f attn (sel pass=F))\n");
  EXPECT_EQ(expr("F[a][b]"), "let x = (at (sel pass=F a) b)\n");
  EXPECT_EQ(DumpOf("let x: sel = [norm]\n"), "let x: sel = (sel norm)\n");
  EXPECT_EQ(DumpOf("strategy s {\n freeze [norm]\n}\n"), "strategy s()\n  freeze (sel norm)\n");
}

TEST(Parser, UnitsAndRemainders) {
  auto expr = [](const std::string& text) { return DumpOf("let x = " + text + "\n"); };
  EXPECT_EQ(expr("25 MiB"), "let x = 26214400B\n");
  EXPECT_EQ(expr("25MiB"), "let x = 26214400B\n");
  EXPECT_EQ(expr("1.5 us"), "let x = 1500000ps\n");
  EXPECT_EQ(expr("2 GB/s"), "let x = 2000000000B/s\n");
  EXPECT_EQ(expr("2 GB / s"), "let x = (2000000000B / s)\n");
  EXPECT_EQ(expr("5 %"), "let x = 0.05(fraction)\n");
  EXPECT_EQ(expr("5 % y"), "let x = (5 % y)\n");
  EXPECT_EQ(expr("5 % (y)"), "let x = (5 % y)\n");
  EXPECT_EQ(expr("5 % - y"), "let x = (0.05(fraction) - y)\n");
  EXPECT_EQ(expr("a < 5 % and b < 3 %"), "let x = ((a < 0.05(fraction)) and (b < 0.03(fraction)))\n");
  EXPECT_EQ(expr("y % 5"), "let x = (y % 5)\n");
  EXPECT_EQ(expr("y % 5 % z"), "let x = (y % 5 % z)\n");
  EXPECT_EQ(expr("[5 %, 1_000, 1e3]"), "let x = (list 0.05(fraction) 1000 1000)\n");
  EXPECT_EQ(expr("0..8"), "let x = (0 .. 8)\n");
  EXPECT_EQ(expr("9223372036854775807"), "let x = 9223372036854775807\n");
}

TEST(Parser, StatementEnds) {
  EXPECT_EQ(DumpOf("let x = a\n  + b\n  * c\nlet y = 1; let z = 2"),
            "let x = (a + (b * c))\nlet y = 1\nlet z = 2\n");
  EXPECT_EQ(DumpOf("let x = a +\n b\nlet y = f(\n1,\n2,\n)\n"), "let x = (a + b)\nlet y = (call f 1 2)\n");
  EXPECT_EQ(DumpOf("fn f()\n  -> int\n  requires a\n{\n  if a { F }\n  else { B }\n}"),
            "fn f() -> int requires a\n  if a\n    (sel pass=F)\n  else\n    (sel pass=B)\n");
  EXPECT_EQ(DumpOf("fn f() {\n  -a\n  (-b)\n  [c]\n}"), "fn f()\n  (- a)\n  (- b)\n  (list c)\n");
  EXPECT_EQ(DumpOf("\xEF\xBB\xBFlet x = 1\r\nlet y = 2\r\n"), "let x = 1\nlet y = 2\n");
  EXPECT_EQ(DumpOf(""), "");
  EXPECT_EQ(DumpOf("// only a comment"), "");
}

TEST(Parser, WordsAreContextual) {
  EXPECT_EQ(
      DumpOf(
          "fn split(batch: int, order: int) -> int {\n  let place = batch\n  tag + lanes + steps + table\n  "
          "place(order = 1, for = 2).if\n}"),
      "fn split(batch: int, order: int) -> int\n  let place = batch\n  (tag + lanes + steps + table)\n  (. "
      "(call "
      "place order=1 for=2) if)\n");
  EXPECT_EQ(DumpOf("strategy s(zero: int) {\n  shard batch over order\n  on = 3\n}"),
            "strategy s(zero: int)\n  shard batch over order\n  assign on = 3\n");
  EXPECT_EQ(DumpOf("let train = 3\nmodel test = model\n"), "let train = 3\nmodel test = model\n");
}

TEST(Parser, RunLengthOrders) {
  EXPECT_EQ(DumpOf("fn f() { steps \"2*(F 3*B1) 4W2&F\" }"),
            "fn f()\n  steps\n    2 x group\n      1 x F\n      3 x B mb 1\n    1 x fused\n      1 x stage 4 "
            "BW mb 2\n      1 x "
            "F\n");
}

TEST(Parser, NamesAreSharedAcrossFiles) {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  Ast ast;
  File* one = ParseFile(sources, sources.Add("1.piper", "let alpha = 1"), ast, diag);
  File* two = ParseFile(sources, sources.Add("2.piper", "let alpha = 2"), ast, diag);
  auto name = [](const File* file) { return As<LetDecl>(*file->decls[0]).let->pattern.names[0].name; };
  EXPECT_EQ(name(one), name(two));
  EXPECT_EQ(ast.names.Text(name(one)), "alpha");
  EXPECT_EQ(ast.names.Find("F"), static_cast<NameId>(names::kF));
}

TEST(Parser, RangesAreBytes) {
  std::string text = "let s = \"\xC3\xA9\xC3\xA9\"; let y = abc // \xE2\x82\xAC\nlet z = y.abc";
  Parsed parsed(text);
  ASSERT_TRUE(parsed.file->ok) << parsed.Errors();
  auto value = [&](size_t i) {
    return parsed.sources.Text(As<LetDecl>(*parsed.file->decls[i]).let->value->range);
  };
  EXPECT_EQ(value(0), "\"\xC3\xA9\xC3\xA9\"");
  EXPECT_EQ(value(1), "abc");
  EXPECT_EQ(value(2), "y.abc");
}

TEST(Parser, LoneExpressions) {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  Ast ast;
  Expr* expr = ParseExpression(sources, sources.Add("--set", "2 * 8 GiB"), ast, diag);
  ASSERT_NE(expr, nullptr);
  EXPECT_EQ(expr->kind, ExprKind::kChain);
  EXPECT_EQ(ParseExpression(sources, sources.Add("--set", "2 *"), ast, diag), nullptr);
  EXPECT_EQ(ParseExpression(sources, sources.Add("--set", ""), ast, diag), nullptr);
  EXPECT_EQ(ParseExpression(sources, sources.Add("--set", "1 2"), ast, diag), nullptr);
  EXPECT_EQ(diag.error_count(), 3u);
}

std::string Repeat(const std::string& text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

// 10^5 of anything that is a list in the source is a list in the tree.
TEST(Parser, LongInputIsFlat) {
  constexpr size_t kMany = 100'000;
  Parsed sum("let x = a" + Repeat(" + a", kMany - 1));
  ASSERT_TRUE(sum.file->ok) << sum.Errors();
  const auto& chain = As<ChainExpr>(*As<LetDecl>(*sum.file->decls[0]).let->value);
  EXPECT_EQ(chain.rest.size(), kMany - 1);
  EXPECT_GT(sum.Dump().size(), kMany);

  Parsed list("let x = [" + Repeat("1,", kMany) + "]");
  ASSERT_TRUE(list.file->ok);
  EXPECT_EQ(As<BracketExpr>(*As<LetDecl>(*list.file->decls[0]).let->value).items.size(), kMany);

  Parsed branches("fn f() { if a { F }" + Repeat(" else if a { F }", 20'000) + " }");
  ASSERT_TRUE(branches.file->ok);
  const Block& body = *As<FnTopDecl>(*branches.file->decls[0]).fn->body;
  EXPECT_EQ(As<IfStmt>(*body.statements[0]).branches.size(), 20'001u);

  Parsed steps("fn f() {\n" + Repeat("F[mb = 1]\n", 20'000) + "}");
  ASSERT_TRUE(steps.file->ok);
  EXPECT_EQ(As<FnTopDecl>(*steps.file->decls[0]).fn->body->statements.size(), 20'000u);

  Parsed literal("fn f() { steps \"" + Repeat("F B ", kMany) + "\" }");
  ASSERT_TRUE(literal.file->ok);
}

TEST(Parser, DeepInputWithinTheBoundIsFine) {
  for (const char* open_close : {"()", "[]"}) {
    std::string open(1, open_close[0]), close(1, open_close[1]);
    EXPECT_TRUE(Parsed("let x = " + Repeat(open, 256) + "1" + Repeat(close, 256)).file->ok);
  }
  EXPECT_TRUE(Parsed("fn f() { " + Repeat("if a { ", 255) + "F" + Repeat(" }", 255) + " }").file->ok);
  EXPECT_TRUE(Parsed("let x = " + Repeat("fn(a) { ", 250) + "1" + Repeat(" }", 250)).file->ok);
}

}  // namespace
}  // namespace piper::frontend
