// The deadlock proof, from `.piper` text: who waits for whom, with lines.
#include <gtest/gtest.h>

#include <string>

#include "frontend/frontend.h"
#include "ir/pipeline.h"

namespace piper::ir {
namespace {

std::string Text(const std::string& schedule, const std::string& streams, int ranks, int m) {
  return "import std.mlp\nimport std.schedules\nimport std.topologies\n"
         "model net = mlp.MLP(layers = " +
         std::to_string(ranks) +
         ", inputs = 4, width = 4, outputs = 4)\n"
         "strategy s(p: int, m: int) {\n  mesh (pp = p)\n  cut layer into p as stage\n  split batch into m "
         "as mb\n" +
         streams + "  for s in 0..p {\n    place [stage = s] on pp[s]\n    order on pp[s] { " + schedule +
         " }\n  }\n}\n"
         "train {\n  model net\n  data random()\n  global_batch 24\n  steps 1\n  optimizer sgd(lr = 0.1)\n"
         "  on topologies.local(ranks = " +
         std::to_string(ranks) + ")\n  using s(p = " + std::to_string(ranks) + ", m = " + std::to_string(m) +
         ")\n}\n";
}

std::string Errors(const std::string& text) {
  SourceManager sources;
  DiagnosticEngine diag(sources);
  frontend::LoadOptions options;
  options.text = text;
  std::optional<Program> program = frontend::LoadProgram("study.piper", options, sources, diag);
  if (program) BuildPlan(*program, diag);
  return diag.Render(DiagnosticEngine::Format::kHuman, false);
}

const char kOneFOneB[] = "schedules.one_f_one_b(s, p, m)";
const char kGPipe[] = "schedules.gpipe(s, p, m)";

TEST(Deadlock, PairStreamsNeverBlockTheTextbookSchedules) {
  for (int p : {2, 3, 4}) {
    for (int m : {1, 2, 6, 12}) {
      EXPECT_EQ(Errors(Text(kOneFOneB, "", p, m)), "");
      EXPECT_EQ(Errors(Text(kGPipe, "", p, m)), "");
    }
  }
}

TEST(Deadlock, MessagesOnTheComputeStream) {
  const std::string streams = "  stream [send] on compute\n  stream [recv] on compute\n";
  const std::string errors = Errors(Text(kOneFOneB, streams, 4, 6));
  EXPECT_NE(errors.find("[deadlock]"), std::string::npos) << errors;
  EXPECT_NE(errors.find("2 streams wait for each other, whatever the timing"), std::string::npos) << errors;
  EXPECT_NE(errors.find("stream 'compute': 'send "), std::string::npos) << errors;
  EXPECT_NE(errors.find("study.piper:9:3: note: rank "), std::string::npos) << errors;
  EXPECT_NE(errors.find("hint: a send blocks its stream"), std::string::npos) << errors;
  // With one direction only at a time the same streams are fine; and so are sends whose receives are posted
  // early.
  EXPECT_EQ(Errors(Text(kGPipe, streams, 4, 6)), "");
  EXPECT_EQ(Errors(Text(kOneFOneB, "  stream [send] on compute\n", 4, 6)), "");
}

TEST(Deadlock, OneCommunicationStreamARank) {
  const std::string streams = "  stream [send] on wire\n  stream [recv] on wire\n";
  EXPECT_NE(Errors(Text(kOneFOneB, streams, 4, 6)).find("[deadlock]"), std::string::npos);
  EXPECT_EQ(Errors(Text(kGPipe, streams, 4, 6)), "");
}

}  // namespace
}  // namespace piper::ir
