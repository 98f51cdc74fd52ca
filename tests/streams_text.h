// Programs whose devices compute on several streams, as text: for the tests of the whole road and of the
// executables.
#pragma once

#include <string>

namespace piper::testing {

inline std::string StreamsTrain(int ranks) {
  return "train {\n  model net\n  data random()\n  steps 3\n  global_batch 16\n  seed 5\n"
         "  optimizer adamw(lr = 1e-2, weight_decay = 0.1)\n  clip 0.5\n  on topologies.local(ranks = " +
         std::to_string(ranks) + ")\n  using study\n}\n";
}

inline std::string StreamsHead(int p, int dp) {
  const std::string stages = std::to_string(p);
  return "import std.gpt\nimport std.topologies\n"
         "model net = gpt.GPT(layers = 4, embed = 16, heads = 2, vocab = 32, seq = 8, dropout_rate = 0.1)\n"
         "strategy study {\n  mesh (pp = " +
         stages + ", dp = " + std::to_string(dp) +
         ")\n  shard batch over dp\n  cut embed, layer, head into " + stages +
         " as stage\n  split batch into 4 as mb\n  for s in 0.." + stages +
         " { place [stage = s] on pp[s] }\n";
}

// A GPT on `p` stages and `dp` replicas, with more lines.
inline std::string StreamsText(int p, int dp, const std::string& directives) {
  return StreamsHead(p, dp) + directives + "\n}\n" + StreamsTrain(p * dp);
}

// 1F1B whose steps are lanes: attention on a stream of its own, everything else on `compute`, all that leaves
// a rank on `comm`.
inline std::string LanesText(int p, int dp) {
  const std::string stages = std::to_string(p);
  return StreamsHead(p, dp) + R"(  stream [attn] on side
  stream [send] on comm
  slowdown compute with side = 1.25
  for s in 0..)" +
         stages + " { order on pp[s] { two_lanes(s, " + stages + R"(, 4) } }
}
fn forward(s: int, i: int) -> schedule {
  lanes {
    compute: F[stage = s, mb = i, not attn]
    side:    F[stage = s, mb = i, attn]
    comm:    F[send, stage = s, mb = i]?
  }
}
fn backward(s: int, i: int) -> schedule {
  lanes {
    compute: B[stage = s, mb = i, not attn]
    side:    B[stage = s, mb = i, attn]
    comm:    BI[send, stage = s, mb = i]?
  }
}
fn two_lanes(s: int, p: int, m: int) -> schedule {
  let warm = min(m, p - s - 1)
  for i in 0..warm     { forward(s, i) }
  for i in 0..m - warm { forward(s, warm + i); backward(s, i) }
  for i in m - warm..m { backward(s, i) }
}
)" + StreamsTrain(p * dp);
}

// A stage on a machine where nothing costs anything but its F, BI and BW, of two microbatches.
inline std::string ChainText(const std::string& directives, int weights_us = 10) {
  return R"(import std.topologies
module Layer(width: dim) {
  param w: [width, out = width] = normal(0.3)
  forward(x: [batch, width]) -> [batch, width] { x + tanh(rename(x @ w, out, width)) }
}
module Net(width: dim) {
  into = Layer(width)
  last = Layer(width)
  forward(x: [batch, width], y: [batch, width]) -> loss {
    let h = tag layer { into(x) }
    return tag layer { mse(last(h), y) }
  }
}
model net = Net(width = 4)
topology ideal {
  device unit { compute bf16 = 1 TFLOP/s }
  level all = 1 of unit
}
strategy study {
  mesh (pp = 1)
  cut layer into 1 as stage
  split batch into 2 as mb
  cost F[stage] = 10 us
  cost BI[stage] = 10 us
  cost BW[stage] = )" +
         std::to_string(weights_us) + " us\n" + directives +
         R"(}
train {
  model net
  data random()
  steps 1
  global_batch 4
  optimizer sgd(0.1)
  on ideal
  using study
}
)";
}

}  // namespace piper::testing
