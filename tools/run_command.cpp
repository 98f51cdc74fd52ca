// `piper run FILE`: a dry run in virtual time; with --execute the same programs with real numbers; with
// --verify also beside the reference.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <boost/program_options/value_semantic.hpp>
#include <chrono>
#include <cstdio>

#include "runtime/data.h"
#include "runtime/interpreter.h"
#include "runtime/local_runner.h"
#include "tools/commands.h"
#include "tools/exit_codes.h"
#include "tools/files.h"
#include "tools/inject.h"
#include "tools/report.h"
#include "tools/schedule_svg.h"
#include "tools/session.h"
#include "tools/terminal.h"
#include "tools/timeline.h"
#include "tools/trace.h"
#include "tools/verify.h"

namespace piper::tools {
namespace {

void Declare(options::options_description& shown, options::options_description& hidden) {
  DeclareCommonOptions(shown);
  // clang-format off
  shown.add_options()
      ("execute", "run the programs with real numbers, all ranks in this process")
      ("verify", "compare losses, gradients and parameters with the single-device reference; exit 1 on a difference")
      ("steps", options::value<int64_t>()->value_name("N"),
       "steps to execute or verify (default: 3 with --verify); of a dry run: steps back to back, and their period")
      ("data", options::value<std::string>()->value_name("FILE"), "instead of the data that the file names")
      ("synthetic", "random tokens instead of data")
      ("metrics", options::value<std::string>()->value_name("FILE"), "with --execute: write metrics as JSON lines")
      ("trace", options::value<std::string>()->value_name("FILE"),
       "write a Chrome trace of the dry run (with --execute: of the run)")
      ("json", options::value<std::string>()->value_name("FILE"), "write the figures of the dry run as JSON")
      ("svg", options::value<std::string>()->value_name("FILE"), "draw the dry run as an SVG picture")
      ("comms", "with --svg: sends, receives and collectives as well")
      ("timeline", "draw the timeline in the terminal (the default)")
      ("no-timeline", "do not")
      ("expand", "time every rank instead of one rank a role");
  // clang-format on
  hidden.add_options()("inject", options::value<std::string>());
}

struct RunOptions {
  bool execute = false, verify = false, synthetic = false, timeline = true, expand = false, comms = false;
  int64_t steps = -1;
  std::string data, trace, metrics, json, inject, svg;
};

std::string Text(const options::variables_map& values, const char* name) {
  return values.count(name) != 0 ? values[name].as<std::string>() : std::string{};
}

int TerminalColumns() {
  winsize size{};
  if (isatty(1) != 0 && ioctl(1, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
    return std::min<int>(size.ws_col, 200);
  return 80;
}

int DryRun(const ir::Program& program, const ir::Plan& plan, const RunOptions& options) {
  const runtime::Job& job = plan.job->job();
  ir::SimulationResult expanded;
  if (options.expand) expanded = ir::Simulate(job, program.topology, {.expand = true});
  const ir::SimulationResult& result = options.expand ? expanded : plan.simulation;
  const std::vector<TimelineRow> rows = TimelineRows(job, result, options.expand);
  std::vector<CellRow> cells;
  if (options.timeline || !options.svg.empty()) {
    cells = MakeCellRows(rows, ir::ListStageCopies(plan.dag, program), job.strings);
  }
  std::string text = RenderReport(job, result, options.expand);
  std::optional<ir::StepsResult> steps;
  if (options.steps > 0 && !options.execute && !options.verify) {
    steps = ir::SimulateSteps(job, program.topology, plan.simulation, options.steps);
    text += '\n' + RenderSteps(*steps);
  }
  if (options.timeline) {
    const TimelineOptions look{.columns = TerminalColumns(), .max_rows = 64, .colour = WantsColour(stdout)};
    text += '\n' + RenderTimeline(cells, result.makespan, look);
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (!options.json.empty()) {
    if (Status status =
            WriteFile(options.json, ReportJson(job, result, options.expand, steps ? &*steps : nullptr));
        !status.ok()) {
      return Fail(kExitIo, status.error());
    }
  }
  if (!options.svg.empty()) {
    const SvgOptions look{.title = program.name, .bubble = result.bubble(), .communication = options.comms};
    if (Status status = WriteFile(options.svg, RenderScheduleSvg(cells, result.makespan, look));
        !status.ok()) {
      return Fail(kExitIo, status.error());
    }
  }
  if (!options.trace.empty() && !options.execute) {
    if (Status status = WriteFile(options.trace, ChromeTrace(job, rows)); !status.ok()) {
      return Fail(kExitIo, status.error());
    }
  }
  return kExitOk;
}

int Execute(const ir::Plan& plan, const RunOptions& options) {
  runtime::Job job = plan.job->job();
  if (options.synthetic) job.data_kind = static_cast<uint8_t>(runtime::DataKind::kRandom);
  runtime::LocalOptions local;
  local.steps = options.steps;
  local.evaluate = !job.eval.empty();
  local.data_path = options.data;
  local.trace_path = options.trace;
  local.metrics_path = options.metrics;
  local.bodies = runtime::MakeInterpreter;
  runtime::LocalHooks hooks;
  int64_t printed = -1;
  hooks.step_done = [&](const runtime::RankView&, uint64_t step, const runtime::StepOutcome& outcome) {
    if (!outcome.loss_known || static_cast<int64_t>(step) <= printed) return;
    printed = static_cast<int64_t>(step);
    fmt::print("step {:>5}  loss {:.6f}{}\n", step + 1, outcome.loss,
               outcome.norm_known ? fmt::format("  gradient norm {:.6f}", outcome.gradient_norm) : "");
    std::fflush(stdout);
  };
  const auto start = std::chrono::steady_clock::now();
  runtime::Result<runtime::LocalResult> result = runtime::RunLocal(job, local, hooks);
  if (!result.ok()) return Fail(result.status().code(), result.status().message());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  int64_t messages = 0, arena = 0;
  const int64_t steps = static_cast<int64_t>(result->losses.size());
  for (const runtime::RankStatistics& rank : result->ranks) {
    messages += rank.messages;
    arena = std::max(arena, rank.arena_bytes);
  }
  fmt::print("executed {} steps in {:.2f} s, {} messages a step, largest arena {}\n", steps, seconds,
             steps > 0 ? messages / steps : 0, ir::FormatBytes(arena));
  for (double loss : result->eval_losses) fmt::print("validation loss {:.6f}\n", loss);
  return kExitOk;
}

int VerifyPlan(const ir::Program& program, const ir::Plan& plan, const RunOptions& options) {
  VerifyOptions verify{.steps = options.steps < 0 ? 3 : options.steps,
                       .data_path = options.data,
                       .synthetic_data = options.synthetic};
  runtime::Result<VerifyReport> report = Verify(program, plan, verify);
  if (!report.ok()) return Fail(report.status().code(), report.status().message());
  const std::string text = report->ToString();
  std::fwrite(text.data(), 1, text.size(), stdout);
  return report->equal() ? kExitOk : kExitInput;
}

int Run(const options::variables_map& values) {
  Session session(values);
  if (!session.usage_error().empty()) return Fail(kExitUsage, session.usage_error());
  RunOptions options;
  options.execute = values.count("execute") != 0;
  options.verify = values.count("verify") != 0;
  options.synthetic = values.count("synthetic") != 0;
  options.timeline = values.count("no-timeline") == 0;
  options.expand = values.count("expand") != 0;
  if (values.count("steps") != 0) options.steps = values["steps"].as<int64_t>();
  if (options.steps == 0 || options.steps < -1)
    return Fail(kExitUsage, "--steps: expected a number of at least 1");
  options.data = Text(values, "data");
  options.trace = Text(values, "trace");
  options.metrics = Text(values, "metrics");
  options.json = Text(values, "json");
  options.inject = Text(values, "inject");
  options.svg = Text(values, "svg");
  options.comms = values.count("comms") != 0;
  if (options.comms && options.svg.empty()) return Fail(kExitUsage, "--comms goes with --svg");
  if (!options.execute && !options.verify) {
    for (const char* name : {"data", "synthetic"}) {
      if (values.count(name) != 0)
        return Fail(kExitUsage, fmt::format("--{} goes with --execute or --verify", name));
    }
  }
  if (options.synthetic && !options.data.empty()) {
    return Fail(kExitUsage, "--synthetic and --data contradict each other");
  }
  if (values.count("timeline") != 0 && !options.timeline) {
    return Fail(kExitUsage, "--timeline and --no-timeline contradict each other");
  }

  std::optional<ir::Program> program = session.Load();
  std::optional<ir::Plan> plan;
  if (program) plan = session.Plan(*program);
  if (const int code = session.Finish(plan ? kExitOk : kExitInput); code != kExitOk) return code;
  if (!options.inject.empty()) {
    if (Status status = InjectFault(options.inject, *plan->job); !status.ok())
      return Fail(kExitUsage, status.error());
  }
  int code = DryRun(*program, *plan, options);
  if (code == kExitOk && options.execute) code = Execute(*plan, options);
  if (code == kExitOk && options.verify) code = VerifyPlan(*program, *plan, options);
  return code;
}

}  // namespace

Command RunCommandDescription() {
  return {"run", "FILE", "run the plan in virtual time, and with --execute or --verify for real", Declare,
          Run};
}

}  // namespace piper::tools
