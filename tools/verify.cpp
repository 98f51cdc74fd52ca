#include "tools/verify.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "runtime/data.h"
#include "runtime/interpreter.h"
#include "runtime/local_runner.h"
#include "tools/reference_run.h"

namespace piper::tools {
namespace {

// Collects differences; called by one rank at a time.
class Comparison {
 public:
  explicit Comparison(VerifyReport* report) : report_(report) {}

  void Values(const char* what, const std::string& name, int64_t step, uint32_t rank, const float* got,
              const float* expected, int64_t elements) {
    ++report_->tensors;
    if (std::memcmp(got, expected, static_cast<size_t>(elements) * sizeof(float)) == 0) return;
    int64_t worst = -1;
    double largest = -1;
    for (int64_t i = 0; i < elements; ++i) {
      if (std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(expected[i])) continue;
      const double difference = Difference(got[i], expected[i]);
      if (difference > largest) {
        largest = difference;
        worst = i;
      }
    }
    if (worst < 0) return;
    Note(largest, fmt::format("{} of {}[{}], step {}, rank {}: {} is not {}", what, name, worst, step, rank,
                              got[worst], expected[worst]));
  }

  void Loss(int64_t step, double got, double expected) {
    if (std::bit_cast<uint64_t>(got) == std::bit_cast<uint64_t>(expected)) return;
    Note(Difference(got, expected), fmt::format("loss of step {}: {} is not {}", step, got, expected));
  }

  // The folds of the first step's gradients against the canonical ones.
  void Folds(const std::vector<ir::Parameter>& parameters, const ir::ReferenceResult& fast,
             const ir::ReferenceResult& canonical) {
    report_->fast = true;
    for (size_t p = 0; p < canonical.gradients.size(); ++p) {
      const double n = static_cast<double>(canonical.additions[p]) * 0x1p-24;
      for (int64_t i = 0; i < canonical.gradients[p].size(); ++i) {
        const double got = fast.gradients[p].at(i), expected = canonical.gradients[p].at(i);
        ++report_->elements;
        if (got == expected) continue;
        ++report_->changed;
        const double bound = 2 * n / (1 - n) * canonical.magnitudes[p].at(i);
        const double share = bound > 0 ? Difference(got, expected) / bound : INFINITY;
        if (share <= report_->share) continue;
        report_->share = share;
        report_->share_where = fmt::format("{}[{}]: {}, not {}", parameters[p].name, i, got, expected);
      }
    }
    if (!(report_->share <= 1)) {
      Note(INFINITY, "the fast fold leaves the bound of the reproducible one: " + report_->share_where);
    }
  }

  void Missing(const std::string& what) { Note(std::numeric_limits<double>::infinity(), what); }

 private:
  static double Difference(double a, double b) {
    const double difference = std::fabs(a - b);
    return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
  }
  void Note(double difference, std::string where) {
    ++report_->different;
    if (report_->first.empty()) report_->first = where;
    if (report_->where.empty() || difference > report_->largest) {
      report_->largest = difference;
      report_->where = std::move(where);
    }
  }

  VerifyReport* report_;
};

}  // namespace

std::string VerifyReport::ToString() const {
  std::string fold;
  if (fast) {
    fold = fmt::format(
        "numerics fast: gradients fold over replicas in pairs; in the first step {} of {} elements have "
        "other bits "
        "than by the reproducible expression, the farthest at {:.2g} of the derived bound{}\n",
        changed, elements, share, share_where.empty() ? "" : " (" + share_where + ")");
  }
  if (equal()) {
    return fmt::format(
               "verify: {} step{}, {} tensors: every loss, gradient and parameter is bitwise equal to the "
               "single-device reference{}\n",
               steps, steps == 1 ? "" : "s", tensors, fast ? ", which follows the plan's folds" : "") +
           fold;
  }
  return fmt::format(
             "verify: DIFFERENT from the single-device reference in {} of {} comparisons\n"
             "  largest: {} ({})\n  first:   {}\n",
             different, tensors + steps, largest, where, first) +
         fold;
}

runtime::Result<VerifyReport> Verify(const ir::Program& program, const ir::Plan& plan,
                                     const VerifyOptions& options) {
  runtime::Job job = plan.job->job();
  if (options.synthetic_data) job.data_kind = static_cast<uint8_t>(runtime::DataKind::kRandom);
  runtime::Result<std::unique_ptr<runtime::BatchSource>> data =
      runtime::OpenData(job, options.data_path, job.seed, false);
  if (!data.ok()) return data.status();
  runtime::Result<std::unique_ptr<ReferenceRun>> created =
      ReferenceRun::Create(program, plan, std::move(*data));
  if (!created.ok()) return created.status();
  ReferenceRun& reference = **created;

  VerifyReport report;
  report.steps = options.steps;
  Comparison comparison(&report);
  // Ranks may be a step apart: a step of the reference is kept until all have passed it.
  std::map<int64_t, uint32_t> passed;
  std::vector<std::vector<bool>> seen(static_cast<size_t>(options.steps));
  for (auto& flags : seen) flags.resize(static_cast<size_t>(reference.parameter_count()), false);

  auto compare = [&](const char* what, const runtime::RankView& view, int64_t step,
                     const std::vector<ir::HostTensor>& expected, bool gradients) {
    for (const runtime::Parameter& parameter : view.program->parameters) {
      const std::byte* got = gradients ? view.gradient(parameter) : view.value(parameter);
      if (got == nullptr) continue;
      const int64_t p = reference.FindParameter(parameter.name);
      if (p < 0) {
        comparison.Missing(
            fmt::format("parameter {} of rank {} is not in the model", parameter.name, view.rank));
        continue;
      }
      const ir::HostTensor& tensor = expected[static_cast<size_t>(p)];
      if (tensor.size() != parameter.elements) {
        comparison.Missing(fmt::format("{} of {}, step {}, rank {}: it has {} elements, not {}", what,
                                       parameter.name, step, view.rank, parameter.elements, tensor.size()));
        continue;
      }
      if (gradients) seen[static_cast<size_t>(step)][static_cast<size_t>(p)] = true;
      comparison.Values(what, parameter.name, step, view.rank, reinterpret_cast<const float*>(got),
                        tensor.f32.data(), tensor.size());
    }
  };

  runtime::LocalHooks hooks;
  hooks.initialized = [&](const runtime::RankView& view) {
    compare("initial value", view, 0, reference.initial(), false);
  };
  hooks.gradients = [&](const runtime::RankView& view, uint64_t step) {
    compare("gradient", view, static_cast<int64_t>(step),
            reference.At(static_cast<int64_t>(step)).result.gradients, true);
  };
  hooks.step_done = [&](const runtime::RankView& view, uint64_t step, const runtime::StepOutcome&) {
    const auto s = static_cast<int64_t>(step);
    // Where steps overlap, the parameters after this step may not stand any more.
    if (!view.executor->pending()) compare("parameter", view, s, reference.At(s).parameters, false);
    if (++passed[s] == job.rank_count) {
      // Every gradient that the reference has must have been somewhere.
      const std::vector<ir::HostTensor>& gradients = reference.At(s).result.gradients;
      for (size_t p = 0; p < gradients.size(); ++p) {
        if (gradients[p].size() > 0 && !seen[step][p]) {
          comparison.Missing(fmt::format("gradient of {}, step {}: no rank has it",
                                         plan.regions.graph.parameters[p].name, step));
        }
      }
    }
    int64_t done = 0;
    while (passed.contains(done) && passed[done] == job.rank_count) ++done;
    if (done > 1) reference.Forget(done - 1);
  };

  // The losses of steps that are forgotten by the end of the run are compared as they are seen.
  std::vector<double> expected_losses;
  ir::ReferenceResult first_step;
  auto inner_gradients = hooks.gradients;
  hooks.gradients = [&](const runtime::RankView& view, uint64_t step) {
    if (step == expected_losses.size()) {
      expected_losses.push_back(reference.At(static_cast<int64_t>(step)).result.loss);
      if (step == 0 && plan.dag.expression.pairwise) first_step = reference.At(0).result;
    }
    inner_gradients(view, step);
  };

  runtime::LocalOptions local;
  local.steps = options.steps;
  local.data_path = options.data_path;
  local.bodies = runtime::MakeInterpreter;
  runtime::Result<runtime::LocalResult> result = runtime::RunLocal(job, local, hooks);
  if (!result.ok()) return result.status();
  if (!reference.status().ok()) return reference.status();
  for (size_t step = 0; step < result->losses.size() && step < expected_losses.size(); ++step) {
    comparison.Loss(static_cast<int64_t>(step), result->losses[step], expected_losses[step]);
    report.last_loss = result->losses[step];
  }
  if (plan.dag.expression.pairwise && options.steps > 0) {
    comparison.Folds(plan.regions.graph.parameters, first_step, reference.canonical());
  }
  if (static_cast<int64_t>(result->losses.size()) != options.steps) {
    comparison.Missing(
        fmt::format("{} losses were reported for {} steps", result->losses.size(), options.steps));
  }
  return report;
}

}  // namespace piper::tools
