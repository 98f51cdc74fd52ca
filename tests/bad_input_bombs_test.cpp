// Programs that would grow without end are refused early, about a second of processor time here, with an
// estimate of what they would come to. The time is recorded, not asserted; what hangs is ended by an alarm.
#include <string>
#include <utility>
#include <vector>

#include "tests/bad_input_support.h"

namespace piper::bad_input {
namespace {

std::string Train(const std::string& top, const std::string& model, const std::string& strategy) {
  return "import std.gpt\nimport std.schedules\nimport std.topologies\n" + top + "\nmodel net = " + model +
         "\nstrategy s {\n" + strategy +
         "\n}\ntrain {\n  model net\n  data random(16)\n  global_batch 8\n  steps 1\n  optimizer sgd(lr = "
         "0.1)\n"
         "  on topologies.local(ranks = 2)\n  using s\n}\n";
}

constexpr char kSmall[] = "gpt.GPT(layers = 2, embed = 8, heads = 2, vocab = 16, seq = 4)";
constexpr char kPipeline[] =
    "  mesh (pp = 2)\n  cut embed, layer, head into 2 as stage\n  split batch into 4 as mb\n";

std::string Chain(const std::string& layers, const std::string& call) {
  return Train(
      "module Layer(width: dim) {\n  param w: [width] = ones\n"
      "  forward(x: [batch, width]) -> [batch, width] { x * w }\n}\n"
      "module Chain(n: int, width: dim) {\n  " +
          layers +
          "\n  forward(x: [batch, width], y: [batch, width]) -> loss {\n    var h = x\n"
          "    for i in 0..n { h = tag layer { " +
          call + " } }\n    return tag layer { mse(h, y) }\n  }\n}",
      "Chain(n = 1000000, width = 4)", "  mesh (dp = 2)");
}

std::string Steps(const std::string& steps) {
  return Train("fn many(s: int) -> schedule {\n" + steps + "\n}", kSmall,
               std::string(kPipeline) + "  for r in 0..2 { order on pp[r] { many(r) } }");
}

TEST(BadInput, BombsAreRefusedEarly) {
  const std::vector<std::pair<std::string, std::string>> bombs = {
      {"a million layers",
       Train("", "gpt.GPT(layers = 1000000, embed = 8, heads = 2, vocab = 16, seq = 4)", "  mesh (dp = 2)")},
      {"a thousand million layers",
       Train("", "gpt.GPT(layers = 1000000000, embed = 8, heads = 2, vocab = 16, seq = 4)",
             "  mesh (dp = 2)")},
      {"a million small layers", Chain("layers = [Layer(width) for i in 0..n]", "layers[i](h)")},
      {"one layer, a million times", Chain("layer = Layer(width)", "layer(h)")},
      {"a thousand million steps", Steps("  for i in 0..1000000000 { F[stage = s, mb = i] }")},
      {"loops in loops", Steps("  for i in 0..100000 { for k in 0..100000 { F[stage = s, mb = k] } }")},
      {"a queue that grows", Steps("  var q = queue[sel]\n  for i in 0..100000000 { q.push(F[stage = s, mb = "
                                   "i]) }\n  for x in q { x }")},
      {"schedules of schedules", Train("fn twice(n: int) -> schedule {\n  if n == 0 { F[stage = 0, mb = 0] } "
                                       "else { twice(n - 1); twice(n - 1) }\n}",
                                       kSmall, std::string(kPipeline) + "  order on pp[0] { twice(60) }")},
      {"endless recursion", Train("fn deep(n: int) -> int {\n  deep(n + 1)\n}", kSmall,
                                  "  mesh (dp = 2)\n  split batch into deep(0) as mb")},
  };
  Watch();
  int number = 0;
  for (const auto& [name, text] : bombs) {
    current_case = name;
    SCOPED_TRACE(name);
    Alarm(static_cast<time_t>(10 * kSlowdown));
    const Outcome outcome = RunProgram("bomb.piper", text, false);
    Alarm(0);
    EXPECT_FALSE(outcome.accepted);
    EXPECT_NE(outcome.rendered.find("[fuel-exhausted]"), std::string::npos) << outcome.rendered;
    RecordProperty(std::to_string(number++), std::to_string(outcome.seconds));
  }
}

}  // namespace
}  // namespace piper::bad_input
