// Sources, diagnostics and units: positions, carets, JSON validity, exact unit scales.
#include <gtest/gtest.h>

#include "ir/support/diagnostics.h"
#include "ir/support/source.h"
#include "ir/support/units.h"

namespace piper::ir {
namespace {

TEST(SourceManager, PositionsAndLines) {
  SourceManager sources;
  FileId file = sources.Add("a.piper", "one\ntwo\r\n\nlast");
  EXPECT_EQ(sources.Position(file, 0).line, 1u);
  EXPECT_EQ(sources.Position(file, 5).line, 2u);
  EXPECT_EQ(sources.Position(file, 5).column, 2u);
  EXPECT_EQ(sources.Line(file, 2), "two");
  EXPECT_EQ(sources.Line(file, 3), "");
  EXPECT_EQ(sources.Line(file, 4), "last");
  EXPECT_EQ(sources.Describe({file, 4, 7}), "a.piper:2:1");
}

TEST(Diagnostics, HumanFormHasCaretNotesAndHint) {
  SourceManager sources;
  FileId file = sources.Add("a.piper", "let x = yy\n");
  DiagnosticEngine diag(sources);
  diag.Error({file, 8, 10}, DiagKind::kUnknownName, "'yy' is not defined").Hint("did you mean 'y'?");
  EXPECT_EQ(diag.Render(DiagnosticEngine::Format::kHuman, false),
            "a.piper:1:9: error: 'yy' is not defined [unknown-name]\n"
            "  let x = yy\n"
            "          ^~\n"
            "hint: did you mean 'y'?\n");
}

TEST(Diagnostics, ErrorsAreBounded) {
  SourceManager sources;
  FileId file = sources.Add("a.piper", "x\n");
  DiagnosticEngine diag(sources);
  for (int i = 0; i < 100; ++i) diag.Error({file, 0, 1}, DiagKind::kSyntax, "no").Hint("none");
  EXPECT_EQ(diag.error_count(), 100u);
  EXPECT_EQ(diag.diagnostics().size(), DiagnosticEngine::kMaxErrors);
}

TEST(Units, ScalesAreExact) {
  EXPECT_EQ(FindUnit("GiB")->scale, 1073741824.0);
  EXPECT_EQ(FindUnit("us")->scale, 1e6);
  EXPECT_EQ(FindUnit("TB/s")->kind, UnitKind::kByteRate);
  EXPECT_FALSE(FindUnit("furlong"));
  EXPECT_EQ(FormatTime(1'500'000'000), "1.5 ms");
  EXPECT_EQ(FormatBytes(64LL << 30), "64 GiB");
}

}  // namespace
}  // namespace piper::ir
