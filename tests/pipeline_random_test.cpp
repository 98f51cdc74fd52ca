// Random strategies: any legal order of any cut, with replicas, stage copies in two directions, buckets,
// frozen parts, clipping, split backward passes and delays, gives the reference's bits. Legal orders are
// drawn as histories of the whole job: a step is taken at random among those whose inputs exist, and each
// rank's order is what it did.
#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "tests/pipeline_support.h"

namespace piper::testing {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  int64_t Below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  template <typename T>
  T Of(std::initializer_list<T> values) {
    return *(values.begin() + Below(static_cast<int64_t>(values.size())));
  }
  bool Maybe(int64_t percent) { return Below(100) < percent; }

 private:
  std::mt19937_64 engine_;
};

// An explicit list of `parts` sums that cover the units of a model in order, each non-empty.
std::string RandomCut(Draw& draw, const std::string& model, int64_t parts) {
  std::vector<std::string> units = {"embed"};
  for (int i = 0; i < 6; ++i) units.push_back("layer");
  if (model == "skip") units.push_back("aux");
  units.push_back("head");
  std::vector<bool> starts(units.size());
  starts[0] = true;
  for (int64_t left = parts - 1; left > 0;) {
    auto at = static_cast<size_t>(1 + draw.Below(static_cast<int64_t>(units.size()) - 1));
    if (starts[at]) continue;
    starts[at] = true;
    --left;
  }
  std::string text = "[";
  for (size_t i = 0; i < units.size(); ++i) {
    if (i > 0) text += starts[i] ? ", " : " + ";
    text += units[i];
  }
  return text + "]";
}

// Where things lie: stage s on rank s % p; or, in two directions, the second half of the microbatches the
// other way round.
struct Places {
  int64_t p, stages, m;
  bool two_directions;
  int64_t Rank(int64_t stage, int64_t microbatch) const {
    return two_directions && microbatch >= m / 2 ? p - 1 - stage : stage % p;
  }
  std::string Indices(int64_t stage, int64_t microbatch) const {
    std::string text = "[stage = " + std::to_string(stage);
    if (two_directions) text += ", dir = " + std::to_string(microbatch / (m / 2));
    return text + ", mb = " + std::to_string(two_directions ? microbatch % (m / 2) : microbatch) + "]";
  }
};

// A second stream of each device that computes: some passes, or a layer.
struct Aside {
  std::string passes;  // "F", "B", "BW", "" of all; with `layer` < 0 and "": there is none
  int64_t layer = -1;
  bool listed = true;  // the orders list it
  bool fuses = false;  // and make one node of neighbours on both streams
  bool any() const { return !passes.empty() || layer >= 0; }
  std::string Directive() const {
    return "  stream " + passes + (layer >= 0 ? "[layer = " + std::to_string(layer) + "]" : "") +
           " on side\n";
  }
  // Whether nodes of a step's pass can run there.
  bool Takes(const std::string& pass) const { return passes.empty() || pass.starts_with(passes); }
};

std::string RandomOrders(Draw& draw, const Places& places, bool split_backward, const Aside& aside) {
  struct Item {
    int64_t stage, microbatch;
    int pass;  // 0 F, 1 BI (or B), 2 BW
  };
  const int64_t stages = places.stages, m = places.m;
  std::vector<std::ostringstream> orders(static_cast<size_t>(places.p)), sides(static_cast<size_t>(places.p));
  auto index = [&](int64_t stage, int64_t microbatch) { return static_cast<size_t>(stage * m + microbatch); };
  std::vector<int> done(static_cast<size_t>(stages * m), 0);  // passes done
  int64_t left = stages * m * (split_backward ? 3 : 2);
  // What each rank did, in order: (selector, on the side stream, step of the history, could run a step
  // before).
  struct Did {
    std::string step;
    bool aside;
    int64_t when;
    bool early;
  };
  std::vector<std::vector<Did>> history(static_cast<size_t>(places.p));
  std::vector<Item> before;
  while (left > 0) {
    std::vector<Item> ready;
    for (int64_t s = 0; s < stages; ++s) {
      for (int64_t i = 0; i < m; ++i) {
        int passes = done[index(s, i)];
        if (passes == 0 && (s == 0 || done[index(s - 1, i)] > 0)) ready.push_back({s, i, 0});
        if (passes == 1 && (s + 1 == stages || done[index(s + 1, i)] > 1)) ready.push_back({s, i, 1});
        if (passes == 2 && split_backward) ready.push_back({s, i, 2});
      }
    }
    Item item = ready[static_cast<size_t>(draw.Below(static_cast<int64_t>(ready.size())))];
    ++done[index(item.stage, item.microbatch)];
    --left;
    static const char* const kWhole[] = {"F", "B", ""};
    static const char* const kSplit[] = {"F", "BI", "BW"};
    // The lowest stage may have no input gradients at all: its BI then is legally empty.
    const auto rank = static_cast<size_t>(places.Rank(item.stage, item.microbatch));
    const std::string pass = (split_backward ? kSplit : kWhole)[item.pass];
    const std::string indices = places.Indices(item.stage, item.microbatch);
    const std::string optional = split_backward && item.pass > 0 ? "?" : "";
    const bool early = std::any_of(before.begin(), before.end(), [&](const Item& other) {
      return other.stage == item.stage && other.microbatch == item.microbatch && other.pass == item.pass;
    });
    history[rank].push_back({pass + indices + optional, aside.Takes(pass), left, early});
    before = ready;
    if (!aside.Takes(pass)) {
      orders[rank] << "    " << pass << indices << optional << "\n";
    } else if (aside.layer < 0) {
      (aside.any() ? sides : orders)[rank] << "    " << pass << indices << optional << "\n";
    } else {
      const std::string term = "layer = " + std::to_string(aside.layer) + "]?\n";
      const std::string shared = indices.substr(0, indices.size() - 1) + ", ";
      orders[rank] << "    " << pass << shared << "not " << term;
      sides[rank] << "    " << pass << shared << term;
    }
  }
  std::string text;
  for (int64_t r = 0; r < places.p; ++r) {
    const std::string order = orders[static_cast<size_t>(r)].str(),
                      side = sides[static_cast<size_t>(r)].str();
    text += "  order on pp[" + std::to_string(r) + "] {\n";
    if (aside.fuses) {
      const std::vector<Did>& did = history[static_cast<size_t>(r)];
      for (size_t i = 0; i < did.size(); ++i) {
        if (i + 1 < did.size() && did[i + 1].early && did[i].when == did[i + 1].when + 1 &&
            did[i].aside != did[i + 1].aside) {
          text += "    fused(" + did[i].step + ", " + did[i + 1].step + ")\n";
          ++i;
        } else {
          text += did[i].aside ? "    lanes { side: " + did[i].step + " }\n" : "    " + did[i].step + "\n";
        }
      }
      text += "  }\n";
      continue;
    }
    if (!aside.any()) text += order;
    if (aside.any() && !order.empty()) text += "    compute:\n" + order;
    if (aside.any() && aside.listed && !side.empty()) text += "    side:\n" + side;
    text += "  }\n";
  }
  return text;
}

TrainText RandomProgram(uint64_t seed, std::string* description) {
  Draw draw(seed);
  TrainText text;
  text.model = draw.Of({"gpt", "gpt_dropout", "llama", "skip", "skip"});
  text.p = draw.Of({1, 2, 2, 3, 4});
  text.v = draw.Of({1, 1, 2});
  text.dp = draw.Of({1, 2});
  text.m = draw.Of({1, 2, 4, 8});
  bool two_directions = text.v == 1 && text.p % 2 == 0 && text.m % 2 == 0 && draw.Maybe(40);
  text.batch = text.dp * text.m * draw.Of({1, 2, 3});
  text.cut = draw.Maybe(70) ? RandomCut(draw, text.model, text.p * text.v) : "";
  if (two_directions) {
    text.split = "  split batch into 2 as dir, " + std::to_string(text.m / 2) + " as mb\n";
    for (int64_t s = 0; s < text.p; ++s) {
      for (int64_t dir = 0; dir < 2; ++dir) {
        text.place += "  place [stage = " + std::to_string(s) + ", dir = " + std::to_string(dir) +
                      "] on pp[" + std::to_string(dir == 0 ? s : text.p - 1 - s) + "]\n";
      }
    }
  }
  if (text.dp > 1 && draw.Maybe(70))
    text.zero = "zero 0 [*] as dp { bucket " + std::to_string(1 << draw.Below(16)) + " B }";
  if (draw.Maybe(30)) text.train += "  clip 0.5\n";
  if (draw.Maybe(25)) text.directives += "  freeze [layer = " + std::to_string(draw.Below(6)) + "]\n";
  if (draw.Maybe(25) && text.dp > 1)
    text.directives += "  stream [dp.reduce] on " + draw.Of<std::string>({"compute", "sync"}) + "\n";
  if (draw.Maybe(20)) text.directives += "  stream [loss.reduce]? on late\n";
  text.optimizer =
      draw.Of({"optimizer adamw(lr = 1e-2, weight_decay = 0.1)", "optimizer sgd(lr = 0.05, momentum = 0.9)"});
  text.seed = seed;
  if (text.p * text.v > 1) {
    Places places{text.p, text.p * text.v, text.m, two_directions};
    const bool split_backward = draw.Maybe(40);
    // Of a sequence of its own, so that the rest of a seed's strategy stays what it was.
    Draw more(seed * 1000003);
    Aside aside;
    if (more.Maybe(50)) {
      if (more.Maybe(50)) aside.layer = more.Below(6);
      aside.passes = more.Of<std::string>({"F", "B", split_backward ? "BW" : "", ""});
      if (aside.layer < 0 && aside.passes.empty()) aside.passes = "F";
      aside.listed = more.Maybe(60);
      aside.fuses = aside.layer < 0 && more.Maybe(60);
      text.directives += aside.Directive();
      if (more.Maybe(30)) text.directives += "  stream U on late\n";
      if (more.Maybe(20)) text.directives += "  stream [send] or [recv] on side\n";
    }
    if (more.Maybe(30)) text.directives += "  recompute [layer]\n";
    if (more.Maybe(20)) text.directives += "  offload [layer] to host { prefetch 1 }\n";
    text.directives += RandomOrders(draw, places, split_backward, aside);
  }
  *description =
      "seed " + std::to_string(seed) + ": " + text.Name() + (two_directions ? ", two directions" : "");
  return text;
}

TEST(PipelineRandom, AnyLegalStrategyGivesTheReferencesBits) {
  uint64_t count = Soak() ? 2000 : 40;
  for (uint64_t seed = 1; seed <= count && !HasFailure(); ++seed) {
    std::string description;
    TrainText text = RandomProgram(seed, &description);
    SCOPED_TRACE(description);
    std::unique_ptr<Compiled> compiled = Compile(text.Text());
    // Messages among steps of a stream may block each other, which the proof finds; nothing else may.
    const bool merged = text.directives.find("[send] or [recv] on side") != std::string::npos;
    if (!compiled->ok() && merged &&
        (compiled->Has(ir::DiagKind::kDeadlock) || compiled->Has(ir::DiagKind::kCycle)))
      continue;
    ASSERT_TRUE(compiled->ok()) << compiled->Messages() << text.Text();
    ExpectEqualToReference(*compiled, 2, description);
    if (seed % 5 != 0) continue;
    runtime::LocalOptions late;
    late.steps = 1;
    late.execution.delay_microseconds = 50;
    late.execution.delay_seed = seed;
    late.execution.poison = true;
    late.execution.stall_seconds = 60;
    RunResult a = RunJob(compiled->job(), 1), b = RunJob(compiled->job(), late);
    EXPECT_EQ(a.losses, b.losses);
    EXPECT_EQ(a.gradients, b.gradients);
    EXPECT_EQ(a.parameters, b.parameters);
  }
}

}  // namespace
}  // namespace piper::testing
