// What the tests of broken programs share: a generator of fixed definition, a watch that names the case that
// crashes or hangs, and the run of one program, which must end soon with a plan or with located errors, never
// with both or neither.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "frontend/frontend.h"
#include "ir/lower/memory.h"
#include "ir/pipeline.h"
#include "ir/support/diagnostics.h"
#include "ir/support/source.h"
#include "tools/verify.h"

namespace piper::bad_input {

#if defined(__SANITIZE_ADDRESS__)
constexpr double kSlowdown = 6;
#else
constexpr double kSlowdown = 1;
#endif
// Elaboration is bounded by fuel to about a second, plans by their node counts. Processor time, so that a
// busy machine changes nothing.
constexpr double kSecondsAllowed = 4 * kSlowdown;

inline double ProcessorSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// A small generator with a fixed definition, so that a seed means the same mutant everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) { Next(); }
  uint64_t Next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545F4914F6CDD1Du;
  }
  size_t Below(size_t n) { return n == 0 ? 0 : static_cast<size_t>((Next() >> 11) % n); }
  template <typename T>
  const T& Of(const std::vector<T>& items) {
    return items[Below(items.size())];
  }

 private:
  uint64_t state_;
};

// ---- running one

inline std::string current_case;  // "N of NAME", for the handlers below

inline void Report(const char* what) {
  auto write_out = [](const char* text, size_t size) {
    ssize_t ignored = write(2, text, size);
    (void)ignored;
  };
  write_out(what, std::strlen(what));
  write_out(": case ", 7);
  write_out(current_case.data(), current_case.size());
  write_out("\n", 1);
}

inline void OnSignal(int signal) {
  Report(signal == SIGPROF ? "it hangs" : "it crashes");
  std::signal(signal, SIG_DFL);
  if (signal == SIGPROF) std::abort();
  raise(signal);
}

inline void Alarm(time_t processor_seconds) {
  itimerval timer = {};
  timer.it_value.tv_sec = processor_seconds;
  setitimer(ITIMER_PROF, &timer, nullptr);
}

inline void Watch() {
  static char stack[1 << 16];
  stack_t alternative = {};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof stack;
  sigaltstack(&alternative, nullptr);
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGPROF, &action, nullptr);
#if !defined(__SANITIZE_ADDRESS__)
  for (int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS}) sigaction(signal, &action, nullptr);
  // What would allocate without bound fails here instead of on the machine.
  rlimit limit = {size_t{6} << 30, size_t{6} << 30};
  setrlimit(RLIMIT_AS, &limit);
#endif
}

// A plan that was accepted learns what the reference learns.
inline bool CheckNumbers(const ir::Program& program, const ir::Plan& plan) {
  constexpr double kMostWork = 3e8;  // FLOPs; more take seconds
  double work = 0;
  for (const ir::NodeTemplate& node : plan.dag.templates) {
    work += node.flops * std::max(1, node.mb_end - node.mb_begin) * static_cast<double>(plan.dag.replicas);
  }
  if (program.train.global_batch > 64 || work > kMostWork) return false;
  if (program.topology.devices() > 16 || plan.dag.microbatches > 64) return false;
  runtime::Result<tools::VerifyReport> report =
      tools::Verify(program, plan, {.steps = 1, .data_path = {}, .synthetic_data = true});
  if (!report.ok()) {
    // A learning rate of 1e308 is legal.
    EXPECT_NE(report.status().message().find("not finite"), std::string::npos) << report.status().message();
    return false;
  }
  EXPECT_TRUE(report->equal()) << report->ToString();
  return true;
}

struct Outcome {
  bool accepted = false;
  bool verified = false;
  size_t errors = 0;
  double seconds = 0;
  std::string rendered;
};

inline Outcome RunProgram(const std::string& path, const std::string& text, bool numbers) {
  Outcome outcome;
  double start = ProcessorSeconds();
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  frontend::LoadOptions options;
  options.text = text;
  try {
    std::optional<ir::Program> program = frontend::LoadProgram(path, options, sources, diag);
    EXPECT_EQ(program.has_value(), !diag.HasErrors());
    if (program && !diag.HasErrors()) {
      std::optional<ir::Plan> plan = ir::BuildPlan(*program, diag);
      EXPECT_EQ(plan.has_value(), !diag.HasErrors());
      if (plan) {
        outcome.accepted = true;
        EXPECT_FALSE(plan->simulation.deadlock.size() > 0);
        for (const runtime::RankProgram& role : plan->job->job().train) EXPECT_EQ(ir::VerifyMemory(role), "");
        if (numbers) outcome.verified = CheckNumbers(*program, *plan);
      }
    }
  } catch (const std::exception& error) {
    ADD_FAILURE() << "an exception escapes: " << error.what();
  }
  for (const ir::Diagnostic& diagnostic : diag.diagnostics()) {
    EXPECT_TRUE(diagnostic.range.valid()) << "nowhere: " << diagnostic.message;
    EXPECT_FALSE(diagnostic.message.empty());
    if (diagnostic.range.valid()) {
      EXPECT_LE(diagnostic.range.begin, diagnostic.range.end);
      EXPECT_LE(diagnostic.range.end, sources.Text(diagnostic.range.file).size()) << diagnostic.message;
    }
  }
  outcome.rendered = diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
  diag.Render(ir::DiagnosticEngine::Format::kSarif, false);
  outcome.errors = diag.error_count();
  outcome.seconds = ProcessorSeconds() - start;
  EXPECT_LT(outcome.seconds, kSecondsAllowed);
  return outcome;
}

// Which cases to run: PIPER_CASE=N that one alone, PIPER_CASE_FROM and PIPER_CASES a range, else a few
// hundred, or many under PIPER_SOAK. Numbers are compared where PIPER_SOAK or PIPER_CASES_VERIFY is set.
struct Cases {
  uint64_t begin = 0, end = 0;
  bool alone = false, numbers = false;
};

inline Cases ChosenCases(uint64_t fast, uint64_t soak) {
  auto number = [](const char* name, uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text != nullptr ? static_cast<uint64_t>(std::strtoull(text, nullptr, 10)) : otherwise;
  };
  bool soaking = std::getenv("PIPER_SOAK") != nullptr;
  Cases cases;
  cases.alone = std::getenv("PIPER_CASE") != nullptr;
  cases.begin = number(cases.alone ? "PIPER_CASE" : "PIPER_CASE_FROM", 0);
  cases.end = cases.begin + (cases.alone ? 1 : number("PIPER_CASES", soaking ? soak : fast));
  cases.numbers = soaking || std::getenv("PIPER_CASES_VERIFY") != nullptr;
  return cases;
}

// Makes and runs the cases one by one; `make` gives a name and a text for a number.
template <typename Make>
void RunCases(const Cases& cases, Make make) {
  Watch();
  size_t accepted = 0, verified = 0;
  double slowest = 0;
  std::string slowest_case;
  for (uint64_t number = cases.begin; number < cases.end; ++number) {
    auto [name, text] = make(number);
    current_case = std::to_string(number) + name;
    SCOPED_TRACE(current_case);
    if (cases.alone) std::printf("%s\n", text.c_str()), std::fflush(stdout);
    Alarm(static_cast<time_t>(10 * kSlowdown));
    Outcome outcome = RunProgram("case.piper", text, cases.numbers);
    Alarm(0);
    if (cases.alone) std::printf("%s", outcome.rendered.c_str());
    accepted += outcome.accepted ? 1 : 0;
    verified += outcome.verified ? 1 : 0;
    if (outcome.seconds > slowest) slowest = outcome.seconds, slowest_case = current_case;
  }
  std::printf("%llu cases, %zu accepted, %zu verified, the slowest took %.2f s: %s\n",
              static_cast<unsigned long long>(cases.end - cases.begin), accepted, verified, slowest,
              slowest_case.c_str());
}

}  // namespace piper::bad_input
