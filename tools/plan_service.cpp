#include "tools/plan_service.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <map>
#include <vector>

#include "ir/pipeline.h"
#include "runtime/data.h"
#include "runtime/interpreter.h"
#include "runtime/local_runner.h"
#include "tools/report.h"

namespace piper::tools {
namespace {

constexpr int64_t kSteps = 2;

// What a plan learns in the first steps: losses, and the sum of squares of each parameter's gradient.
struct Learned {
  std::vector<double> losses;
  std::vector<std::map<std::string, std::vector<float>>> gradients;  // a step
};

runtime::Result<Learned> Learn(const ir::Plan& plan) {
  runtime::Job job = plan.job->job();
  job.data_kind = static_cast<uint8_t>(runtime::DataKind::kRandom);
  Learned learned;
  learned.gradients.resize(kSteps);
  runtime::LocalHooks hooks;
  hooks.gradients = [&](const runtime::RankView& view, uint64_t step) {
    for (const runtime::Parameter& parameter : view.program->parameters) {
      const std::byte* bytes = view.gradient(parameter);
      if (bytes == nullptr || parameter.owner == 0) continue;
      const auto* values = reinterpret_cast<const float*>(bytes);
      learned.gradients[step].try_emplace(parameter.name, values, values + parameter.elements);
    }
  };
  runtime::LocalOptions options;
  options.steps = kSteps;
  options.bodies = runtime::MakeInterpreter;
  runtime::Result<runtime::LocalResult> result = runtime::RunLocal(job, options, hooks);
  if (!result.ok()) return result.status();
  learned.losses = std::move(result->losses);
  return learned;
}

double Norm(const std::map<std::string, std::vector<float>>& gradients) {
  double sum = 0;
  for (const auto& [name, values] : gradients) {
    for (float value : values) sum += double{value} * double{value};
  }
  return std::sqrt(sum);
}

bool Close(double a, double b) { return std::fabs(a - b) <= 1e-6 * std::max(std::fabs(a), std::fabs(b)); }

bool SameExpression(const ir::Plan& a, const ir::Plan& b) { return a.dag.expression == b.dag.expression; }

// Empty if they agree.
std::string Compare(const Learned& a, const Learned& b, bool exact) {
  if (a.losses.size() != b.losses.size()) return "one of them reports no loss";
  for (size_t step = 0; step < a.losses.size(); ++step) {
    const double x = a.losses[step], y = b.losses[step];
    const bool same = exact ? std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y) : Close(x, y);
    if (!same) return fmt::format("the loss of step {} is {} in one and {} in the other", step, x, y);
  }
  for (size_t step = 0; step < a.gradients.size(); ++step) {
    if (!exact) {
      const double x = Norm(a.gradients[step]), y = Norm(b.gradients[step]);
      if (!Close(x, y))
        return fmt::format("the gradient norm of step {} is {} in one and {} in the other", step, x, y);
      continue;
    }
    for (const auto& [name, values] : a.gradients[step]) {
      const auto other = b.gradients[step].find(name);
      if (other == b.gradients[step].end()) return fmt::format("only one of them has a gradient of {}", name);
      for (size_t i = 0; i < values.size() && i < other->second.size(); ++i) {
        if (std::bit_cast<uint32_t>(values[i]) != std::bit_cast<uint32_t>(other->second[i])) {
          return fmt::format("the gradient of {}[{}] in step {} is {} in one and {} in the other", name, i,
                             step, values[i], other->second[i]);
        }
      }
    }
    if (a.gradients[step].size() != b.gradients[step].size())
      return "they have gradients of different parameters";
  }
  return {};
}

}  // namespace

std::optional<frontend::PlanService::Figures> PipelinePlanService::Plan(const ir::Program& program,
                                                                        ir::DiagnosticEngine& diag) {
  std::optional<ir::Plan> plan = ir::BuildPlan(program, diag);
  if (!plan) return std::nullopt;
  const runtime::Job& job = plan->job->job();
  const Totals totals = SumUp(job, plan->simulation, false);
  using ir::UnitKind;
  auto number = [](auto value, UnitKind kind) { return ir::Quantity{static_cast<double>(value), kind}; };
  return Figures{
      {"step_time", number(plan->simulation.makespan, UnitKind::kTime)},
      {"bubble", number(plan->simulation.bubble(), UnitKind::kNone)},
      {"busy", number(totals.busy, UnitKind::kNone)},
      {"peak_memory", number(totals.peak_memory, UnitKind::kBytes)},
      {"bytes", number(ir::SaturatingAdd(totals.message_bytes, totals.collective_bytes), UnitKind::kBytes)},
      {"messages", number(totals.messages, UnitKind::kNone)},
      {"ranks", number(job.rank_count, UnitKind::kNone)}};
}

std::optional<bool> PipelinePlanService::Learns(const ir::Program& a, const ir::Program& b, std::string* why,
                                                ir::DiagnosticEngine& diag) {
  std::optional<ir::Plan> first = ir::BuildPlan(a, diag);
  if (!first) return std::nullopt;
  std::optional<ir::Plan> second = ir::BuildPlan(b, diag);
  if (!second) return std::nullopt;
  runtime::Result<Learned> x = Learn(*first), y = Learn(*second);
  if (!x.ok() || !y.ok()) {
    *why = (x.ok() ? y.status() : x.status()).message();
    return false;
  }
  *why = Compare(*x, *y, SameExpression(*first, *second));
  return why->empty();
}

}  // namespace piper::tools
