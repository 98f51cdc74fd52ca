// What the schedules of the standard library promise in closed form: makespans, bubbles, and what they hold,
// by simulation of plans from `.piper` text.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ir/cost/steps.h"
#include "tests/schedules_support.h"

namespace piper {
namespace {

// Idle time of a rank between the start of its first and the end of its last F, BI or BW.
std::vector<int64_t> Gaps(const ir::Plan& plan) {
  std::vector<int64_t> gaps;
  const runtime::Job& job = plan.job->job();
  for (size_t r = 0; r < job.train.size(); ++r) {
    int64_t first = INT64_MAX, last = 0;
    for (size_t t = 0; t < job.train[r].tasks.size(); ++t) {
      if (job.train[r].tasks[t].kind != runtime::TaskKind::kCompute) continue;
      first = std::min(first, plan.simulation.timings[r][t].start);
      last = std::max(last, plan.simulation.timings[r][t].end);
    }
    gaps.push_back((last - first - plan.simulation.roles[r].busy) / ir::kPsPerUs);
  }
  return gaps;
}

std::vector<int64_t> Idle(const ir::Plan& plan) {
  std::vector<int64_t> idle;
  for (const ir::RoleStatistics& role : plan.simulation.roles) idle.push_back(role.idle / ir::kPsPerUs);
  return idle;
}

std::vector<int64_t> Peaks(const ir::Plan& plan) {
  std::vector<int64_t> peaks;
  for (const ir::RoleStatistics& role : plan.simulation.roles) peaks.push_back(role.peak_activations);
  return peaks;
}

int64_t Makespan(const ir::Plan& plan) { return plan.simulation.makespan / ir::kPsPerUs; }
int64_t Largest(const std::vector<int64_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

Row Study(const std::string& schedule, int p, int m, int64_t f, int64_t bi, int64_t bw, int64_t fused = -1) {
  return {schedule, p, m, f, bi, bw, fused, 0, 0, {}, {}};
}

// Everything under PIPER_SOAK=1, a sample otherwise.
bool Soak() { return std::getenv("PIPER_SOAK") != nullptr; }

std::vector<int64_t> All(int p, int64_t value) { return std::vector<int64_t>(static_cast<size_t>(p), value); }

// ZB-H2's claim: at F = BI = BW no rank ever idles, so a step takes m (F + BI + BW) and not more: with
// updates that are validated in the next step's warm-up. Without, every step has its ramps.
TEST(ScheduleFigures, OverlappedZbh2HasNoBubble) {
  for (int p : {2, 3, 4, 8, 16}) {
    for (int m : {2 * p - 1, 2 * p, 3 * p, 4 * p + 1}) {
      if (!Soak() && p >= 8 && m != 2 * p - 1 && m != 3 * p) continue;
      for (const char* lines : {"", "  optimizer post_validation\n",
                                "  optimizer post_validation\n  edge [update.validate] -> BW distance 1\n"}) {
        const bool overlapped = std::string(lines).find("edge") != std::string::npos;
        const std::string text =
            ChainProgram(Find("zb2p"), p, m, Costs(Study("zb2p", p, m, 10, 10, 10)) + lines, kIdealMachine);
        ir::SourceManager sources;
        ir::DiagnosticEngine diag(sources);
        frontend::LoadOptions options;
        options.text = text;
        std::optional<ir::Program> program = frontend::LoadProgram("study.piper", options, sources, diag);
        ASSERT_TRUE(program);
        std::optional<ir::Plan> plan = ir::BuildPlan(*program, diag);
        ASSERT_TRUE(plan) << diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
        const ir::Picoseconds unit = 10 * ir::kPsPerUs, busy = 3 * m * unit, ramps = (p - 1) * unit;
        SCOPED_TRACE(std::to_string(p) + " x " + std::to_string(m) + lines);
        EXPECT_EQ(plan->simulation.makespan, busy + ramps);
        for (int64_t count : {1, 2, 8, 100}) {
          const ir::StepsResult steps =
              ir::SimulateSteps(plan->job->job(), program->topology, plan->simulation, count);
          EXPECT_TRUE(steps.steady || count == 2);
          if (overlapped && count > 1) {
            EXPECT_EQ(steps.period, busy);
            EXPECT_EQ(steps.bubble, 0);
            EXPECT_EQ(steps.total, count * busy + ramps);
          } else {
            EXPECT_EQ(steps.period, busy + ramps);
            EXPECT_EQ(steps.total, count * (busy + ramps));
          }
        }
      }
    }
  }
}

// A whole backward costs BI + BW (a known tool drops one of them: 220).
TEST(ScheduleFigures, WholeBackward) {
  std::optional<ir::Plan> plan = PlanRow(Study("one_f_one_b", 4, 8, 10, 10, 10));
  ASSERT_TRUE(plan);
  EXPECT_EQ(Makespan(*plan), 330);
}

TEST(ScheduleFigures, Zb1p) {
  struct Case {
    int p, m, makespan;
  };
  for (Case c : {Case{4, 8, 270}, Case{8, 32, 1030}, Case{16, 128, 3990}}) {
    std::optional<ir::Plan> plan = PlanRow(Study("zb1p", c.p, c.m, 10, 10, 10));
    ASSERT_TRUE(plan);
    EXPECT_EQ(Makespan(*plan), c.makespan) << c.p << " x " << c.m;
    EXPECT_EQ(Peaks(*plan), All(c.p, c.p));
  }
  // (p - 1)(F + BI - BW), BW counting as at most F and BI: whichever of the three is the shortest.
  struct Costs {
    int f, bi, bw;
  };
  for (int p : {1, 2, 3, 4, 6}) {
    for (int m : {2 * p, 4 * p}) {
      for (Costs c : {Costs{10, 12, 8}, Costs{8, 16, 9}, Costs{10, 10, 14}, Costs{20, 4, 6}, Costs{6, 4, 20},
                      Costs{5, 20, 10}}) {
        std::optional<ir::Plan> plan = PlanRow(Study("zb1p", p, m, c.f, c.bi, c.bw));
        ASSERT_TRUE(plan);
        EXPECT_EQ(Largest(Idle(*plan)), (p - 1) * (c.f + c.bi - std::min({c.f, c.bi, c.bw})))
            << p << " x " << m << ", " << c.f << " " << c.bi << " " << c.bw;
      }
    }
  }
}

// No rank idles between its first and its last pass at equal costs; (p - 1)(F + BI - 2 BW) where that is the
// bound.
TEST(ScheduleFigures, Zb2p) {
  struct Costs {
    int f, bi, bw;
  };
  for (int p : {1, 2, 3, 4, 6, 8}) {
    for (int m : {2 * p - 1, 2 * p, 4 * p}) {
      for (Costs c : {Costs{10, 10, 10}, Costs{10, 12, 8}, Costs{10, 10, 6}, Costs{10, 10, 14},
                      Costs{8, 16, 9}, Costs{20, 4, 6}, Costs{6, 4, 20}}) {
        std::optional<ir::Plan> plan = PlanRow(Study("zb2p", p, m, c.f, c.bi, c.bw));
        ASSERT_TRUE(plan);
        const int bound = (p - 1) * std::max({0, c.f + c.bi - 2 * c.bw, c.bi - c.f});
        EXPECT_EQ(Largest(Gaps(*plan)), bound)
            << p << " x " << m << ", " << c.f << " " << c.bi << " " << c.bw;
        EXPECT_EQ(Peaks(*plan), All(p, 2 * p - 1)) << p << " x " << m;
      }
      std::optional<ir::Plan> plan = PlanRow(Study("zb2p", p, m, 1, 1, 1));
      ASSERT_TRUE(plan);
      EXPECT_EQ(Makespan(*plan), 3 * m + p - 1);
    }
  }
}

// At equal costs a rank is busy from its first to its last pass.
TEST(ScheduleFigures, Zbv) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 2 * p - 1; m <= 4 * p; m += Soak() ? 1 : p) {
      std::optional<ir::Plan> plan = PlanRow(Study("zbv", p, m, 1, 1, 1));
      ASSERT_TRUE(plan);
      EXPECT_EQ(Gaps(*plan), All(p, 0)) << p << " x " << m;
      EXPECT_EQ(Makespan(*plan), 6 * m + p - 1);
      EXPECT_EQ(Peaks(*plan), All(p, 2 * p)) << p << " x " << m;
    }
  }
}

// What a building block of six slots a microbatch holds once it repeats: chunks from the slot of their F to
// the end of that of their BW, the weight gradients in the slots that are left, oldest first.
int64_t BlockPeak(std::vector<int64_t> slots, int64_t shift) {
  for (int64_t& slot : slots) slot += shift;
  int64_t live = 0, peak = 0;
  std::vector<int64_t> owed;  // slots of the BIs that still have to be paid for
  for (int64_t t = 0; t < 600; ++t) {
    bool taken = false;
    for (int pass = 0; pass < 4; ++pass) {
      const int64_t rest = t - slots[static_cast<size_t>(pass)];
      if (rest < 0 || rest % 6 != 0) continue;
      taken = true;
      if (pass < 2) {
        peak = std::max(peak, ++live);
      } else {
        owed.push_back(t);
      }
    }
    if (taken || owed.empty()) continue;
    owed.erase(owed.begin());
    --live;
  }
  return peak;
}

TEST(ScheduleFigures, VHalfAndVMinHoldTheirBlocks) {
  for (int p : {1, 2, 3, 4, 5, 6, 8, 9, 12}) {
    std::optional<ir::Plan> half = PlanRow(Study("v_half", p, 8 * p, 1, 1, 1));
    std::optional<ir::Plan> min = PlanRow(Study("v_min", p, 8 * p, 1, 1, 1));
    ASSERT_TRUE(half && min);
    for (int64_t i = 0; i < p; ++i) {
      const int64_t c = p % 2 == 0 ? 3 : 0, d = p % 3 == 0 ? 2 : 0;
      const auto rank = static_cast<size_t>(i);
      EXPECT_EQ(Peaks(*half)[rank],
                BlockPeak({2 * i, 3 * p - i - 2, 3 * p + c + 2 * i - 1, 6 * p + c - i - 2}, 0))
          << "v_half p=" << p << " rank " << i;
      EXPECT_EQ(Peaks(*min)[rank], BlockPeak({i, 2 * p - i - 1, 2 * p + d + i, 4 * p + d - i - 1}, 0))
          << "v_min p=" << p << " rank " << i;
    }
    if (p > 1) {
      EXPECT_EQ(Largest(Idle(*half)), p % 2 == 0 ? 3 * (p - 1) : 3 * p - 4) << "p=" << p;
      EXPECT_EQ(Largest(Idle(*min)), p % 3 == 0 ? 4 * p - 3 : 4 * p - 5) << "p=" << p;
    }
    // Against life times in the abstract, W right after its BI: (6p + 2c + 3) / 6 and (4p + 2c + 4) / 6
    // chunks.
    EXPECT_EQ(Largest(Peaks(*half)), p % 2 == 0 ? p + 2 : p + 1);
    EXPECT_LE(Largest(Peaks(*min)), (4 * p + 4 + 4) / 6 + 2);
  }
}

// Published: 1/2 and 2/3 of the share of time in which 1F1B idles.
TEST(ScheduleFigures, VHalfAndVMinRates) {
  for (int p : {4, 6, 8}) {
    const int m = 8 * p;
    const auto rate = [&](const char* name, int unit) {
      std::optional<ir::Plan> plan = PlanRow(Study(name, p, m, unit, unit, unit));
      return plan ? static_cast<double>(Largest(Idle(*plan))) / static_cast<double>(Makespan(*plan)) : 0.0;
    };
    const double whole = rate("one_f_one_b", 2);
    EXPECT_NEAR(rate("v_half", 1) / whole, 1.0 / 2, 0.1 / 2) << "p=" << p;
    EXPECT_NEAR(rate("v_min", 1) / whole, 2.0 / 3, 0.1 * 2 / 3) << "p=" << p;
  }
}

TEST(ScheduleFigures, DualPipeFormulas) {
  struct Costs {
    int f, bi, bw, fused;
  };
  for (int p = 2; p <= 16; p += 2) {
    for (int m = 2 * p; m <= 4 * p; m += Soak() || p <= 4 ? 2 : p) {
      for (Costs c : {Costs{1, 1, 1, 3}, Costs{1, 1, 1, 2}, Costs{10, 10, 10, 22}}) {
        std::optional<ir::Plan> two = PlanRow(Study("dualpipe", p, m, c.f, c.bi, c.bw, c.fused));
        std::optional<ir::Plan> v = PlanRow(Study("dualpipev", p, m, c.f, c.bi, c.bw, c.fused));
        ASSERT_TRUE(two && v);
        const int unit = c.fused + c.bi + c.bw - 3 * c.bw;
        EXPECT_EQ(Largest(Idle(*two)), (p / 2 - 1) * unit)
            << "dualpipe " << p << " x " << m << " & " << c.fused;
        EXPECT_EQ(Largest(Idle(*v)), (p - 1) * unit) << "dualpipev " << p << " x " << m << " & " << c.fused;
        EXPECT_EQ(Peaks(*two), All(p, p + 1));
        EXPECT_EQ(Peaks(*v), All(p, 2 * p + 1));
      }
    }
  }
}

// Any number of microbatches is legal; from p on, the bubble does not depend on it.
TEST(ScheduleFigures, InterleavedOfAnyM) {
  for (int p = 1; p <= 8; ++p) {
    for (int v = 1; v <= 3; ++v) {
      for (int m = 1; m <= 4 * p; m += Soak() || p <= 3 ? 1 : 3) {
        std::optional<ir::Plan> plan = PlanRow(Study("interleaved_v" + std::to_string(v), p, m, 1, 1, 1));
        ASSERT_TRUE(plan);
        if (m < p) continue;
        EXPECT_EQ(Idle(*plan), All(p, 3 * (p - 1))) << p << " x " << v << " x " << m;
      }
    }
  }
}

// Any number of microbatches is legal. From p on a rank idles (p - 1)(F + BI - BW) of a chunk, BW counting at
// most as much as F and BI; a rank holds what the largest group needs in front of its last chunk.
TEST(ScheduleFigures, InterleavedZeroBubble) {
  struct Costs {
    int f, bi, bw;
  };
  for (int p = 1; p <= 6; ++p) {
    for (int v = 1; v <= 3; ++v) {
      for (int m = 1; m <= 4 * p; m += Soak() || p <= 2 ? 1 : 3) {
        for (Costs c : {Costs{1, 1, 1}, Costs{2, 3, 1}, Costs{1, 3, 2}, Costs{3, 1, 2}}) {
          if (!Soak() && c.f + c.bi + c.bw > 3 && p != 4) continue;
          std::optional<ir::Plan> plan =
              PlanRow(Study("interleaved_zb_v" + std::to_string(v), p, m, c.f, c.bi, c.bw));
          ASSERT_TRUE(plan);
          const int groups = std::max(1, m / p), largest = (m + groups - 1) / groups;
          EXPECT_EQ(Peaks(*plan), All(p, std::min(v * m, (v - 1) * largest + p)))
              << p << " x " << v << " x " << m;
          if (m < p) continue;
          EXPECT_EQ(Idle(*plan), All(p, (p - 1) * (c.f + c.bi - std::min({c.f, c.bi, c.bw}))))
              << p << " x " << v << " x " << m << " at " << c.f << ", " << c.bi << ", " << c.bw;
        }
      }
    }
  }
}

TEST(ScheduleFigures, LoopedBreadthFirst) {
  for (int p : {1, 2, 4, 6}) {
    for (int v : {1, 2, 3}) {
      for (int m : {p, p + 1, 2 * p, 4 * p}) {
        std::optional<ir::Plan> plan = PlanRow(Study("looped_bfs_v" + std::to_string(v), p, m, 1, 1, 1));
        ASSERT_TRUE(plan);
        EXPECT_EQ(Idle(*plan), All(p, 3 * (p - 1))) << p << " x " << v << " x " << m;
        EXPECT_EQ(Peaks(*plan), All(p, v * m));
      }
    }
  }
}

}  // namespace
}  // namespace piper
