// Words and literals of emitted code: whatever comes in, what goes out is harmless.
#include "codegen/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "codegen/table.h"

namespace piper::codegen {
namespace {

TEST(CodegenText, WordsAreIdentifiers) {
  EXPECT_EQ(Word("layer3.attn"), "layer3_attn");
  EXPECT_EQ(Word("blocks.3.attn#2"), "blocks_3_attn_2");
  EXPECT_EQ(Word("__reserved__"), "reserved");
  EXPECT_EQ(Word("3d"), "n3d");
  EXPECT_EQ(Word(""), "unnamed");
  EXPECT_EQ(Word("\xc3\xa9\xc3\xa8"), "unnamed");
  EXPECT_EQ(Word("a\nb\"c\\d"), "a_b_c_d");
  EXPECT_EQ(Word("x); system(\"rm\")//"), "x_system_rm");
  EXPECT_EQ(Word(std::string(1000, 'x')).size(), kMaxWord);
}

TEST(CodegenText, NamesAreDistinct) {
  NameScope names;
  EXPECT_EQ(names.Unique("in_x"), "in_x");
  EXPECT_EQ(names.Unique("in_x"), "in_x_2");
  EXPECT_EQ(names.Unique("in_x_2"), "in_x_2_2");
  EXPECT_EQ(names.Unique("in_x"), "in_x_3");
}

TEST(CodegenText, StringsAreEscaped) {
  EXPECT_EQ(StringLiteral("plain"), "\"plain\"");
  EXPECT_EQ(StringLiteral("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(StringLiteral("line\nnext\t9"), "\"line\\012next\\0119\"");
  EXPECT_EQ(StringLiteral("\?\?/"), "\"\\077\\077/\"");
  EXPECT_EQ(StringLiteral("\xc3\xa9"), "\"\\303\\251\"");
}

TEST(CodegenText, CommentsCannotEndOrContinue) {
  EXPECT_EQ(CommentText("F layer3.attn mb 3"), "F layer3.attn mb 3");
  EXPECT_EQ(CommentText("a\\"), "a_");
  EXPECT_EQ(CommentText("a\nint x;"), "a_int x_");
  EXPECT_EQ(CommentText("\?\?/"), "___");
  EXPECT_EQ(CommentText("*/ evil /*"), "__ evil __");
  EXPECT_EQ(CommentText("\xe2\x80\xae"), "___");  // right-to-left override
}

TEST(CodegenText, DoublesKeepTheirBits) {
  for (double value : {0.0, -0.0, 1.0, -3.0, 0.1, 1e-5, 1e300, 5e-324, 123456789.0, 0x1.fffffffffffffp1023}) {
    const std::string text = DoubleLiteral(value);
    const double back = std::strtod(text.c_str(), nullptr);
    EXPECT_EQ(back, value) << text;
    EXPECT_EQ(std::signbit(back), std::signbit(value)) << text;
    EXPECT_NE(text.find_first_of(".e"), std::string::npos) << text;
  }
  EXPECT_EQ(DoubleLiteral(std::numeric_limits<double>::infinity()), "__builtin_huge_val()");
}

TEST(CodegenText, Integers) {
  EXPECT_EQ(IntLiteral(-5), "-5");
  EXPECT_EQ(IntLiteral(INT64_MIN), "INT64_MIN");
  EXPECT_EQ(HashLiteral(0xabcd), "0x000000000000abcd");
}

TEST(CodegenText, CallsWrapUnderTheParenthesis) {
  EXPECT_EQ(WrapCall("f", {"a", "b"}, ");", 2), "  f(a, b);\n");
  const std::string wide(50, 'a');
  EXPECT_EQ(WrapCall("f", {wide, wide, "b"}, ");", 2), "  f(" + wide + ", " + wide + ",\n    b);\n");
}

TEST(CodegenText, TablesHaveColumnsAndComments) {
  Table table("Row", "kRows", "name, size");
  table.Row({"\"a\"", "1"}, "first");
  table.Row({"\"long\"", "100"});
  EXPECT_EQ(table.Print(),
            "// clang-format off\n"
            "constexpr Row kRows[] = {\n"
            "    // name, size\n"
            "    {\"a\",    1},  // first\n"
            "    {\"long\", 100},\n"
            "};\n"
            "// clang-format on\n");
  EXPECT_EQ(table.View(), "{kRows, 2}");
  EXPECT_EQ(Table("Row", "kNothing", "").View(), "{}");
  EXPECT_EQ(Table("Row", "kNothing", "").Print(), "");
}

}  // namespace
}  // namespace piper::codegen
