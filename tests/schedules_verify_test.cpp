// Every schedule of the library learns what the single-device reference learns, bit for bit: on 2, 4 and 8
// local ranks, alone and with two replicas, for a model with tied embeddings, dropout, and skips that jump
// two stages; m over the legal values from the smallest to 4p. A fixed sample runs always, everything under
// PIPER_SOAK=1.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/interpreter.h"
#include "tests/pipeline_support.h"

namespace piper::testing {
namespace {

struct Case {
  std::string schedule;
  int64_t p = 1, v = 1, dp = 1, m = 1;
  std::string Name() const {
    return schedule + " p=" + std::to_string(p) + " v=" + std::to_string(v) + " dp=" + std::to_string(dp) +
           " m=" + std::to_string(m);
  }
};

// One unit a stage where there are four stages or more, so that the skip of two layers jumps two stages.
std::string Text(const Case& c, bool clip) {
  const bool looped =
      c.schedule == "interleaved" || c.schedule == "interleaved_zb" || c.schedule == "looped_bfs";
  const bool two = looped || c.schedule == "zbv" || c.schedule == "v_half" || c.schedule == "v_min" ||
                   c.schedule == "dualpipev" || c.schedule == "greedy_v";
  const int64_t stages = looped ? c.p * c.v : two ? 2 * c.p : c.p;
  const std::string p = std::to_string(c.p), m = std::to_string(c.m), dp = std::to_string(c.dp);
  return R"(import std.strategies
import std.topologies
module Half(width: dim, inner: dim) {
  param up: [width, inner] = normal(0.3)
  param down: [inner, width] = normal(0.3)
  param bias: [width] = zeros
  forward(x: [batch, seq, width]) -> [batch, seq, width] { dropout(tanh(x @ up) @ down + bias, 0.1) }
}
module Net(layers: int, width: dim, vocab: dim) {
  param table: [vocab, width] = normal(0.3)
  halves = [Half(width, 6) for i in 0..layers]
  forward(tokens: [batch, seq = 3] i32, targets: [batch, seq = 3] i32) -> loss {
    var x = tag embed { embedding(table, tokens) }
    var before = [x, x]
    for i in 0..layers {
      let h = x
      x = tag layer { h + halves[i](h) + 0.5 * before[0] }
      before = [before[1], h]
    }
    return tag head { cross_entropy((x + before[0]) @ table.T, targets) }
  }
}
model net = Net(layers = )" +
         std::to_string(std::max<int64_t>(stages, 4) - 2) + R"(, width = 5, vocab = 11)
train {
  model net
  data random(vocab = 11)
  steps 3
  optimizer adamw(lr = 1e-2, weight_decay = 0.1)
  seed 11
)" + (clip ? "  clip 0.05\n" : "") +
         "  global_batch " + std::to_string(c.m * c.dp) +
         "\n  on topologies.local(ranks = " + std::to_string(c.p * c.dp) + ")\n  using strategies." +
         c.schedule + "(p = " + p + (looped ? ", v = " + std::to_string(c.v) : std::string()) + ", m = " + m +
         ", dp = " + dp + ")\n}\n";
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* schedule :
       {"gpipe", "one_f_one_b", "eager_1f1b", "zb1p", "zb2p", "looped_bfs", "interleaved", "interleaved_zb",
        "zbv", "v_half", "v_min", "dualpipe", "dualpipev", "greedy_pipeline", "greedy_v"}) {
    const std::string name = schedule;
    const bool looped = name == "interleaved" || name == "interleaved_zb" || name == "looped_bfs";
    for (int64_t ranks : {2, 4, 8}) {
      for (int64_t dp : {1, 2}) {
        const int64_t p = ranks / dp;
        if (name == "dualpipe" && p % 2 != 0) continue;
        const int64_t step = name == "dualpipe" ? 2 : 1;
        const int64_t least = name == "dualpipe" || name == "dualpipev" ? 2 * p
                              : name == "zbv"                           ? 2 * p - 1
                                                                        : 1;
        for (int64_t v : looped ? std::vector<int64_t>{2, 3} : std::vector<int64_t>{1}) {
          for (int64_t m = least; m <= 4 * p; m += step) cases.push_back({name, p, v, dp, m});
        }
      }
    }
  }
  return cases;
}

class Schedules : public ::testing::TestWithParam<const char*> {};

TEST_P(Schedules, LearnsWhatTheReferenceLearns) {
  int ran = 0;
  size_t index = 0;
  for (const Case& c : Cases()) {
    if (c.schedule != GetParam()) continue;
    // The smallest and the largest m of small pipelines, and every eleventh of all.
    const bool edge = c.p * c.dp <= 4 && (c.m == 1 || c.m == 2 * c.p - 1 || c.m == 2 * c.p || c.m == 4 * c.p);
    if (!Soak() && index++ % 11 != 5 && !edge) continue;
    std::unique_ptr<Compiled> compiled = Compile(Text(c, ran % 3 == 1));
    ASSERT_TRUE(compiled->ok()) << c.Name() << "\n" << compiled->Messages();
    ExpectEqualToReference(*compiled, 3, c.Name());
    ++ran;
  }
  EXPECT_GE(ran, 6);
}

INSTANTIATE_TEST_SUITE_P(Library, Schedules,
                         ::testing::Values("gpipe", "one_f_one_b", "eager_1f1b", "zb1p", "zb2p", "looped_bfs",
                                           "interleaved", "interleaved_zb", "zbv", "v_half", "v_min",
                                           "dualpipe", "dualpipev", "greedy_pipeline", "greedy_v"),
                         [](const auto& info) { return std::string(info.param); });

// The copies of a stage hold the same parameters, gradients and optimizer states after every step.
TEST(DualPipe, CopiesStayEqual) {
  for (Case c : {Case{"dualpipe", 2, 1, 1, 6}, Case{"dualpipe", 4, 1, 1, 8}, Case{"dualpipe", 2, 1, 2, 4}}) {
    std::unique_ptr<Compiled> compiled = Compile(Text(c, true));
    ASSERT_TRUE(compiled->ok()) << c.Name() << "\n" << compiled->Messages();
    const runtime::Job& job = compiled->job();
    std::map<std::string, std::vector<std::byte>> seen;
    int64_t compared = 0;
    runtime::LocalOptions options;
    options.bodies = runtime::MakeInterpreter;
    options.steps = 3;
    runtime::LocalHooks hooks;
    hooks.step_done = [&](const runtime::RankView& view, uint64_t step, const runtime::StepOutcome&) {
      for (const runtime::Parameter& parameter : view.program->parameters) {
        const std::byte* parts[4] = {view.value(parameter), view.gradient(parameter),
                                     view.state(parameter, 0), view.state(parameter, 1)};
        for (int part = 0; part < 4; ++part) {
          ASSERT_NE(parts[part], nullptr) << parameter.name;
          std::vector<std::byte> bytes(static_cast<size_t>(parameter.elements) * sizeof(float));
          std::memcpy(bytes.data(), parts[part], bytes.size());
          std::string key = parameter.name;
          key += " " + std::to_string(part) + " " + std::to_string(step);
          auto [it, fresh] = seen.try_emplace(key, bytes);
          if (fresh) continue;
          ++compared;
          EXPECT_EQ(it->second, bytes) << c.Name() << ": " << key << " on rank " << view.rank;
        }
      }
    };
    runtime::Result<runtime::LocalResult> run = runtime::RunLocal(job, options, hooks);
    ASSERT_TRUE(run.ok()) << run.status().message();
    EXPECT_GT(compared, 50);
  }
}

}  // namespace
}  // namespace piper::testing
