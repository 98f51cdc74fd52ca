// From `.piper` text to proved plans in a warm process, on one core: time by phase, bytes and nanoseconds a
// node, for schedules of the library at growing sizes, each aim with its verdict, and how time grows as the
// size doubles. The start of a process and the parsing of the standard library are measured apart and not in
// the totals. Memory is what the heap gained while the plan is alive. Times are of the processor (of this
// thread), which a busy machine disturbs less than wall-clock times; the best and the median of the repeats
// are printed.
//
// usage: pipeline_bench [--repeat N] [PART-OF-A-ROW'S-NAME ..]      "zbv", "one_f_one_b 64x1024"
#include <malloc.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "frontend/frontend.h"
#include "ir/pipeline.h"

extern char** environ;

namespace {

struct Case {
  const char* schedule;  // in std.schedules; stages lie in a V for 'v_half', 'v_min', 'zbv' and 'dualpipev'
  int v;                 // stages a rank
  int p, m;
  double aim_ms;  // 0: none
};

constexpr double kAimBytes = 128;  // a node

constexpr Case kCases[] = {
    {"one_f_one_b", 1, 64, 128, 0},   {"one_f_one_b", 1, 64, 256, 0},  {"one_f_one_b", 1, 64, 512, 0},
    {"one_f_one_b", 1, 64, 1024, 60}, {"one_f_one_b", 1, 32, 1024, 0}, {"interleaved", 2, 64, 128, 0},
    {"interleaved", 2, 64, 256, 0},   {"interleaved", 2, 64, 512, 0},  {"interleaved", 2, 64, 1024, 120},
    {"zb1p", 1, 32, 32, 0},           {"zb1p", 1, 32, 64, 0},          {"zb1p", 1, 32, 128, 0},
    {"zb1p", 1, 32, 256, 100},        {"zbv", 2, 32, 64, 0},           {"zbv", 2, 32, 128, 0},
    {"zbv", 2, 32, 256, 100},         {"zbv", 2, 32, 512, 0},          {"v_half", 2, 32, 256, 0},
    {"dualpipev", 2, 32, 256, 0},
};
// Too large to be repeated by default; asked for by name.
constexpr Case kLarge[] = {{"one_f_one_b", 1, 256, 1024, 0}, {"one_f_one_b", 1, 64, 8192, 0}};

bool InV(const Case& c) {
  const std::string name = c.schedule;
  return name[0] == 'v' || name == "zbv" || name == "dualpipev";
}

std::string Name(const Case& c) {
  return std::string(c.schedule) + " " + std::to_string(c.p) + "x" + std::to_string(c.m);
}

constexpr char kImports[] = "import std.schedules\n";

std::string Text(const Case& c) {
  const std::string p = std::to_string(c.p), m = std::to_string(c.m), stages = std::to_string(c.p * c.v);
  const bool looped = c.v > 1 && !InV(c);
  return kImports +
         ("topology machine(ranks: int) {\n  device unit { compute f32 = 1 TFLOP/s }\n  level all = ranks of "
          "unit\n}\n"
          "module Layer(width: dim) {\n  param w: [width] = ones\n"
          "  forward(x: [batch, width]) -> [batch, width] { x * w }\n}\n"
          "module Chain(n: int, width: dim) {\n  layers = [Layer(width) for i in 0..n]\n"
          "  forward(x: [batch, width], y: [batch, width]) -> loss {\n    var h = x\n"
          "    for i in 0..n - 1 { h = tag layer { layers[i](h) } }\n"
          "    return tag layer { mse(layers[n - 1](h), y) }\n  }\n}\n"
          "model net = Chain(n = " +
          stages +
          ", width = 1)\n"
          "strategy study(p: int, m: int) {\n  mesh (pp = p)\n  cut layer into " +
          stages +
          " as stage\n"
          "  split batch into m as mb\n"
          "  for s in 0.." +
          stages + " { place [stage = s] on pp[" + (InV(c) ? "min(s, 2 * p - 1 - s)" : "s % p") +
          "] }\n"
          "  for r in 0..p { order on pp[r] { schedules." +
          c.schedule + "(r, p, " + (looped ? std::to_string(c.v) + ", " : std::string()) +
          "m) } }\n}\n"
          "train {\n  model net\n  data random()\n  global_batch " +
          m + "\n  steps 1\n  optimizer sgd(lr = 0.1)\n  on machine(" + p + ")\n  using study(p = " + p +
          ", m = " + m + ")\n}\n");
}

double ThreadMs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

double WallMs() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Parses and resolves what every case imports, nothing else.
double LibraryMs() {
  double best = 1e30;
  for (int repeat = 0; repeat < 10; ++repeat) {
    piper::ir::SourceManager sources;
    piper::ir::DiagnosticEngine diag(sources);
    piper::frontend::LoadOptions options;
    options.text = kImports;
    const double start = ThreadMs();
    if (!piper::frontend::CheckFile("study.piper", options, sources, diag)) std::abort();
    best = std::min(best, ThreadMs() - start);
  }
  return best;
}

// A process that does nothing: fork to exit, wall-clock.
double StartMs(const char* self) {
  double best = 1e30;
  for (int repeat = 0; repeat < 10; ++repeat) {
    const double start = WallMs();
    char option[] = "--nothing";
    char* arguments[] = {const_cast<char*>(self), option, nullptr};
    pid_t child = 0;
    if (posix_spawn(&child, self, nullptr, nullptr, arguments, environ) != 0) return -1;
    int status = 0;
    waitpid(child, &status, 0);
    best = std::min(best, WallMs() - start);
  }
  return best;
}

struct Row {
  double text = 0, plan = 0, total = 0, median = 0, bytes = 0;
  size_t nodes = 0;
};

// False after an error, which is printed.
bool Measure(const Case& c, int repeats, double library, Row* row) {
  std::vector<double> totals;
  row->total = 1e30;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    piper::ir::SourceManager sources;
    piper::ir::DiagnosticEngine diag(sources);
    piper::frontend::LoadOptions options;
    options.text = Text(c);
    const double start = ThreadMs();
    auto program = piper::frontend::LoadProgram("study.piper", options, sources, diag);
    const double loaded = ThreadMs();
    const struct mallinfo2 before = mallinfo2();
    const double planning = ThreadMs();
    std::optional<piper::ir::Plan> plan;
    if (program) plan = piper::ir::BuildPlan(*program, diag);
    const double planned = ThreadMs();
    if (!plan) {
      std::fputs(diag.Render(piper::ir::DiagnosticEngine::Format::kHuman, false).c_str(), stderr);
      return false;
    }
    const struct mallinfo2 after = mallinfo2();
    row->bytes = static_cast<double>(after.uordblks + after.hblkhd) -
                 static_cast<double>(before.uordblks + before.hblkhd);
    row->nodes = plan->dag.node_count();
    const double text = loaded - start - library, lower = planned - planning;
    totals.push_back(text + lower);
    if (totals.back() < row->total) {
      row->text = text;
      row->plan = lower;
      row->total = totals.back();
    }
  }
  row->median = Median(totals);
  return true;
}

const char* Verdict(double value, double aim) { return value <= aim ? "ok" : "miss"; }

}  // namespace

int main(int argc, char** argv) {
  int repeats = 5;
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--nothing") == 0) return 0;
    if (std::strcmp(argv[i], "--repeat") == 0 && i + 1 < argc) {
      repeats = std::max(std::atoi(argv[++i]), 1);
    } else {
      wanted.emplace_back(argv[i]);
    }
  }
  // Warm: the heap keeps what it has once got from the system.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest that is allowed
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
  const double library = LibraryMs();
  std::printf(
      "start of a process %.1f ms (wall clock), parsing std.schedules %.1f ms; neither is in the rows\n\n",
      StartMs(argv[0]), library);
  std::printf("%22s %2s %8s | %8s %8s %8s %8s | %7s %10s | %s\n", "schedule, p x m", "v", "nodes", "text ms",
              "plan ms", "best ms", "median", "ns/node", "bytes/node", "aims");
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  if (!wanted.empty()) cases.insert(cases.end(), std::begin(kLarge), std::end(kLarge));
  bool missed = false;
  const Case* base = nullptr;  // of the growth rows: the smallest size of a schedule at one p
  Row base_row;
  for (const Case& c : cases) {
    const std::string name = Name(c);
    const auto matches = [&](const std::string& part) { return name.find(part) != std::string::npos; };
    if (!wanted.empty() && std::none_of(wanted.begin(), wanted.end(), matches)) continue;
    Row row;
    if (!Measure(c, repeats, library, &row)) return 1;
    const auto nodes = static_cast<double>(row.nodes);
    std::printf("%22s %2d %8zu | %8.1f %8.1f %8.1f %8.1f | %7.0f %10.1f |", name.c_str(), c.v, row.nodes,
                row.text, row.plan, row.total, row.median, row.total * 1e6 / nodes, row.bytes / nodes);
    if (c.aim_ms > 0) {
      std::printf(" %.0f ms %s,", c.aim_ms, Verdict(row.total, c.aim_ms));
      missed |= row.total > c.aim_ms;
    }
    std::printf(" %.0f B %s", kAimBytes, Verdict(row.bytes / nodes, kAimBytes));
    missed |= row.bytes / nodes > kAimBytes;
    const bool grows =
        base != nullptr && std::strcmp(base->schedule, c.schedule) == 0 && base->p == c.p && c.m > base->m;
    if (grows) {
      std::printf(", %.2gx nodes: %.1fx time", nodes / static_cast<double>(base_row.nodes),
                  row.total / base_row.total);
    } else {
      base = &c;
      base_row = row;
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  std::printf("\n%s\n", missed ? "some aims are missed" : "all aims are met");
  return 0;
}
