// Random strategies: directives of every kind with arguments that mostly make sense, over a small model.
// Whatever they say together, they end in a plan or in located errors; what is accepted learns what the
// reference learns.
#include <string>
#include <utility>
#include <vector>

#include "tests/bad_input_support.h"

namespace piper::bad_input {
namespace {

class StrategyMaker {
 public:
  explicit StrategyMaker(uint64_t seed) : random_(seed) {}

  std::string Program() {
    p_ = Pick({1, 2, 2, 3, 4});
    dp_ = Pick({1, 1, 2, 2, 3});
    stages_ = p_ * Pick({1, 1, 1, 2});
    m_ = Pick({1, 2, 3, 4, 4, 6});
    std::string text =
        "import std.gpt\nimport std.mlp\nimport std.schedules\nimport std.topologies\n"
        "model net = gpt.GPT(layers = " +
        Number({2, 3, 4, 6}) +
        ", embed = 4, heads = 2, vocab = 8, seq = 4)\n"
        "strategy s {\n" +
        Directives() + "}\ntrain {\n  model net\n  data random(8)\n  global_batch " +
        std::to_string(m_ * dp_ * Pick({1, 2})) + "\n  optimizer " +
        (Chance(2) ? "sgd(0.1)" : "adamw(1e-3, weight_decay = 0.1)") + "\n" +
        (Chance(3) ? "  clip 0.5\n" : "") +
        "  on topologies.local(ranks = " + std::to_string(p_ * dp_ + (Chance(10) ? Pick({-1, 1}) : 0)) +
        ")\n  using s\n}\n";
    return text;
  }

 private:
  // One time in n.
  bool Chance(size_t n) { return random_.Below(n) == 0; }
  int64_t Pick(const std::vector<int64_t>& of) { return random_.Of(of); }
  std::string Number(const std::vector<int64_t>& of) { return std::to_string(random_.Of(of)); }
  // An index below n, now and then one that is none.
  std::string Index(int64_t n) {
    if (Chance(40)) return Number({-1, n, n + 1, INT64_MAX});
    return std::to_string(random_.Below(static_cast<size_t>(std::max<int64_t>(n, 1))));
  }
  std::string Range(int64_t n) {
    auto a = static_cast<int64_t>(random_.Below(static_cast<size_t>(n)));
    return std::to_string(a) + ".." +
           std::to_string(a + 1 + static_cast<int64_t>(random_.Below(static_cast<size_t>(n - a))));
  }
  std::string Term() {
    switch (random_.Below(12)) {
      case 0:
        return "*";
      case 1:
        return "embed";
      case 2:
        return "head";
      case 3:
        return "attn";
      case 4:
        return "mlp";
      case 5:
        return "layer";
      case 6:
        return "layer = " + Index(4);
      case 7:
        return "layer = " + Range(4);
      case 8:
        return "stage = " + Index(stages_);
      case 9:
        return "mb = " + Index(m_);
      case 10:
        return "not layer = " + Index(3);
      default:
        return random_.Of(std::vector<std::string>{"send", "recv", "dp.reduce", "tie.reduce", "update",
                                                   "accumulate", "loss.fold", "loss.reduce", "clip.norm",
                                                   "nothing"});
    }
  }
  std::string Bracket() {
    return "[" + Term() + (Chance(3) ? ", " + Term() : "") + "]" + (Chance(8) ? "?" : "");
  }
  std::string Selector() {
    static const std::vector<std::string> kPasses = {"", "", "F", "B", "BI", "BW", "U"};
    return random_.Of(kPasses) + Bracket();
  }
  std::string Group() {
    if (Chance(6))
      return random_.Of(std::vector<std::string>{"pp", "all", "pp[0..2]", "dp[0]", "pp[0] * dp[0]"});
    return "pp[" + Index(p_) + "]";
  }
  std::string Step(const std::string& pass, int64_t stage, int64_t mb) {
    return pass + "[" + (stage < 0 ? "" : "stage = " + std::to_string(stage) + ", ") +
           "mb = " + std::to_string(mb) + "]";
  }

  // The steps of a rank: every F before its B, in an order that other ranks may or may not agree with.
  std::string Steps(int64_t rank) {
    std::vector<int64_t> stages;
    for (int64_t s = rank; s < stages_; s += p_) stages.push_back(s);
    std::vector<std::pair<int64_t, int64_t>> ready, running;
    std::vector<std::string> steps;
    bool wild = Chance(4);  // any stage and microbatch at any time
    for (int64_t mb = 0; mb < m_; ++mb) {
      for (int64_t s : stages) ready.emplace_back(s, mb);
    }
    if (wild) {
      for (size_t i = ready.size(); i > 1; --i) std::swap(ready[i - 1], ready[random_.Below(i)]);
    }
    size_t at = 0;
    while (at < ready.size() || !running.empty()) {
      bool forward = at < ready.size() && (running.empty() || Chance(2));
      if (forward) {
        running.push_back(ready[at++]);
        steps.push_back(Step("F", running.back().first, running.back().second));
        continue;
      }
      size_t which = wild ? random_.Below(running.size()) : 0;
      auto [s, mb] = running[which];
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(which));
      if (Chance(4)) {
        steps.push_back(Step("BI", s, mb));
        steps.push_back(Step("BW", s, mb));
      } else {
        steps.push_back(Step("B", s, mb));
      }
    }
    if (Chance(10) && !steps.empty())
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(random_.Below(steps.size())));
    if (Chance(10) && !steps.empty()) steps.push_back(steps[random_.Below(steps.size())]);
    if (Chance(6) && steps.size() > 1) {
      size_t i = random_.Below(steps.size() - 1);
      steps[i] = "fused(" + steps[i] + ", " + steps[i + 1] + ")";
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
    if (Chance(8))
      steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(random_.Below(steps.size() + 1)), "barrier");
    if (Chance(8)) steps.push_back(Selector());
    std::string text;
    for (const std::string& step : steps) text += (text.empty() ? "" : "; ") + step;
    return Chance(6) ? "lanes { compute: " + text + " }" : text;
  }

  std::string Order(int64_t rank) {
    std::string group = Chance(20) ? Group() : "pp[" + std::to_string(rank) + "]";
    if (stages_ == p_ && Chance(3)) {
      return "order on " + group + " { schedules." + (Chance(2) ? "one_f_one_b" : "gpipe") + "(" +
             std::to_string(rank) + ", " + std::to_string(p_) + ", " + std::to_string(m_) + ") }";
    }
    return "order on " + group + " { " + Steps(rank) + " }";
  }

  std::string Other() {
    switch (random_.Below(12)) {
      case 0:
        return "edge " + Selector() + " -> " + Selector();
      case 1:
        return "limit " + Number({1, 2, 3, 8, 40}) + " live " + Selector();
      case 2:
        return "limit " + Number({1, 2, 4}) + " live F per mb";
      case 3:
        return "stream " + Bracket() + " on " +
               random_.Of(std::vector<std::string>{"wire", "reduce", "compute", "x", "send"});
      case 4:
        return "freeze " + Bracket();
      case 5:
        return "cost " + Selector() + " = " + Number({0, 1, 7, 1000000}) +
               random_.Of(std::vector<std::string>{" us", " us", " ns", " MiB", " s"});
      case 6:
        return "zero 0 " + Bracket() + " as " + (Chance(2) ? "dp" : "z") +
               (Chance(2) ? " { bucket " + Number({1, 64, 4096}) + " KiB }" : "");
      case 10:
        return "optimizer " + std::string(Chance(2) ? "post_validation" : "synchronised");
      case 7:
        return "numerics " + std::string(Chance(2) ? "fast" : "reproducible");
      case 8:
        return "place " + Bracket() + " on " + Group();
      case 9:
        return "override place " + Bracket() + " on " + Group();
      default:
        return "assert " + random_.Of(std::vector<std::string>{"step_time < 1 s", "peak_memory < 1 GiB",
                                                               "bubble < 90 %", "exposed([dp.reduce]) < 99 %",
                                                               "exposed([send]) < 1 s", "bytes(dp) < 1 GiB"});
    }
  }

  std::string Directives() {
    std::vector<std::string> lines;
    lines.push_back("mesh (pp = " + std::to_string(p_) +
                    ", dp = " + (Chance(4) ? "all" : std::to_string(dp_)) + ")");
    if (stages_ > 1 || Chance(3))
      lines.push_back("cut embed, layer, head into " + std::to_string(stages_) + " as stage");
    if (m_ > 1 || Chance(3)) lines.push_back("split batch into " + std::to_string(m_) + " as mb");
    if (dp_ > 1 || Chance(4)) lines.push_back("shard batch over dp");
    bool placed = stages_ != p_ || Chance(2);
    for (int64_t s = 0; placed && s < stages_; ++s) {
      lines.push_back("place [stage = " + std::to_string(s) + "] on pp[" + std::to_string(s % p_) + "]");
    }
    for (int64_t r = 0; r < p_; ++r) {
      if (!Chance(4)) lines.push_back(Order(r));
    }
    for (size_t n = random_.Below(4); n > 0; --n) {
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(Chance(5) ? random_.Below(lines.size() + 1)
                                                                         : lines.size()),
                   Other());
    }
    std::string text;
    for (const std::string& line : lines) text += "  " + line + "\n";
    return text;
  }

  Random random_;
  int64_t p_ = 1, dp_ = 1, stages_ = 1, m_ = 1;
};

TEST(BadInput, RandomStrategiesEndWithAPlanOrAnError) {
  RunCases(ChosenCases(200, 30'000),
           [](uint64_t number) { return std::pair(std::string(), StrategyMaker(number).Program()); });
}

}  // namespace
}  // namespace piper::bad_input
