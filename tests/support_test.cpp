// Sources, diagnostics and units: positions, carets, JSON validity, exact unit scales.
#include <gtest/gtest.h>

#include "ir/support/diagnostics.h"
#include "ir/support/nearest.h"
#include "ir/support/source.h"
#include "ir/support/units.h"

namespace piper::ir {
namespace {

TEST(Nearest, DistanceCountsASwapOnce) {
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("layer", "layer"), 0u);
  EXPECT_EQ(EditDistance("stgae", "stage"), 1u);
  EXPECT_EQ(EditDistance("pd", "dp"), 1u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
}

TEST(Nearest, TheFirstOfTheNearestAndNothingFarAway) {
  EXPECT_EQ(NearestName("pd", {"tp", "dp"}), "dp");
  EXPECT_EQ(NearestName("layrs", {"layer", "layers"}), "layers");
  EXPECT_EQ(NearestName("q", {"stage"}), "");
  EXPECT_EQ(NearestName("pd", {"pp", "dp"}), "dp");  // the same letters before another letter
  EXPECT_EQ(NearestName("W", {"i", "p", "BW"}), "BW");
  EXPECT_EQ(NearestName("G", {"i", "p", "m"}), "");
  EXPECT_EQ(NearestName("b", {"i", "B"}), "B");
  EXPECT_EQ(NearestName(std::string(65, 'a'), {std::string(64, 'a')}), "");
}

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

// The caret stands below what it means, and nothing of the source, a message or a path acts on the terminal.
TEST(Diagnostics, UnicodeAndControlCharacters) {
  SourceManager sources;
  std::string text = "let x = \"\xc3\xa4\xe4\xb8\xad\x1b[31m\xc2\x9b\xe2\x80\xae\xff\" + yy\n";
  FileId file = sources.Add("a\x1b\n\xff b.piper", text);
  DiagnosticEngine diag(sources);
  auto at = static_cast<uint32_t>(text.find("yy"));
  diag.Error({file, at, at + 2}, DiagKind::kUnknownName, "'\x1b\xc3\xa4\xff' is not defined");
  EXPECT_EQ(diag.Render(DiagnosticEngine::Format::kHuman, false),
            "a  ? b.piper:1:" + std::to_string(at + 1) +
                ": error: ' \xc3\xa4?' is not defined [unknown-name]\n" +
                "  let x = \"\xc3\xa4\xe4\xb8\xad [31m  ?\" + yy\n" + "  " + std::string(24, ' ') + "^~\n" +
                "hint: names come from the file, its imports and the language itself\n");
  std::string sarif = diag.Render(DiagnosticEngine::Format::kSarif, false);
  EXPECT_NE(sarif.find("\"a%1B%0A%FF%20b.piper\""), std::string::npos) << sarif;
  EXPECT_NE(sarif.find("\"startColumn\": 24"), std::string::npos) << sarif;
  std::string json = diag.Render(DiagnosticEngine::Format::kJson, false);
  EXPECT_EQ(json.find('\x1b'), std::string::npos);
  EXPECT_EQ(json.find('\xff'), std::string::npos);
}

// A range at the end of a line of 100,000 two-byte characters.
TEST(Diagnostics, LongLinesAreWindows) {
  SourceManager sources;
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "\xc3\xa4";
  text += "(((";
  FileId file = sources.Add("a.piper", text);
  DiagnosticEngine diag(sources);
  diag.Error({file, 200'001, 200'003}, DiagKind::kSyntax, "no");
  std::string human = diag.Render(DiagnosticEngine::Format::kHuman, false);
  EXPECT_LT(human.size(), 400u);
  EXPECT_NE(human.find("\xc3\xa4(((\n"), std::string::npos) << human;
  EXPECT_NE(human.find(" ^~\n"), std::string::npos) << human;
}

TEST(Diagnostics, ErrorsAreBounded) {
  SourceManager sources;
  FileId file = sources.Add("a.piper", "x\n");
  DiagnosticEngine diag(sources);
  for (int i = 0; i < 100; ++i)
    diag.Error({file, 0, 1}, DiagKind::kSyntax, "no " + std::to_string(i)).Hint("none");
  EXPECT_EQ(diag.error_count(), 100u);
  EXPECT_EQ(diag.diagnostics().size(), DiagnosticEngine::kMaxErrors);
  for (int i = 0; i < 100; ++i)
    diag.Warning({file, 0, 1}, DiagKind::kSyntax, "hm " + std::to_string(i)).Hint("none");
  EXPECT_EQ(diag.diagnostics().size(), 2 * DiagnosticEngine::kMaxErrors);
  EXPECT_NE(diag.Render(DiagnosticEngine::Format::kHuman, false).find("80 more warnings not shown"),
            std::string::npos);
}

// A loop over ranks says the same again; all of it counts, once is shown. Another note makes another message.
TEST(Diagnostics, WhatWasSaidIsNotRepeated) {
  SourceManager sources;
  FileId file = sources.Add("a.piper", "xy\n");
  DiagnosticEngine diag(sources);
  for (int i = 0; i < 100; ++i) {
    diag.Error({file, 0, 1}, DiagKind::kSyntax, "no").Note({file, 1, 2}, "here").Hint("none");
    diag.Error({file, 0, 1}, DiagKind::kSyntax, "nor").Note({file, 1, 2}, i == 50 ? "there" : "here");
    diag.Error({file, 0, 1}, DiagKind::kSyntax, "no").Note({file, 1, 2}, "here").Hint("none");
  }
  EXPECT_EQ(diag.error_count(), 300u);
  EXPECT_EQ(diag.Render(DiagnosticEngine::Format::kHuman, false), [] {
    auto told = [](std::string message, std::string note, std::string hint) {
      return "a.piper:1:1: error: " + message + " [syntax]\n  xy\n  ^\na.piper:1:2: note: " + note +
             "\n  xy\n   ^\nhint: " + hint + "\n";
    };
    const std::string form = "docs/language.md shows the form of every statement";
    return told("no", "here", "none") + told("nor", "here", form) + told("nor", "there", form);
  }());
  diag.Clear();
  EXPECT_FALSE(diag.HasErrors());
  EXPECT_EQ(diag.Render(DiagnosticEngine::Format::kHuman, false), "");
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
