#include "ir/lower/lower.h"

#include <algorithm>
#include <deque>
#include <string>

#include "ir/lower/dag_index.h"
#include "ir/lower/folding.h"
#include "ir/lower/lanes.h"
#include "ir/lower/memory.h"
#include "ir/lower/optimizer_groups.h"
#include "ir/lower/role_builder.h"
#include "ir/lower/static_layout.h"
#include "ir/lower/utilisation.h"
#include "ir/model/operations.h"
#include "ir/support/result.h"
#include "ir/support/units.h"

namespace piper::ir {
namespace {

std::string DataPath(const Program& program, const std::string& path) {
  if (path.empty() || path.front() == '/' || program.base_directory.empty()) return path;
  return program.base_directory + "/" + path;
}

void FillHeader(const Program& program, const RegionGraph& regions, const Dag& dag, bool evaluates,
                JobStorage* job) {
  const TrainSpec& train = program.train;
  const Graph& graph = regions.graph;
  runtime::Job& header = job->header;
  header.name = job->Intern(program.name);
  header.parameter_count = static_cast<uint32_t>(graph.parameters.size());
  header.global_batch = train.global_batch;
  header.replicas = dag.replicas;
  header.microbatches = dag.microbatches;
  header.samples_per_microbatch = dag.samples_per_microbatch;
  header.steps = train.steps;
  header.clip = train.clip;
  header.seed = train.seed;
  header.eval_every = evaluates ? train.eval_every : 0;
  header.eval_batches = evaluates ? train.eval_batches : 0;
  header.checkpoint_every = train.checkpoint_every;
  header.data_kind = static_cast<uint8_t>(train.data.kind);
  header.data_path = job->Intern(DataPath(program, train.data.path));
  header.validation_path = job->Intern(DataPath(program, train.data.validation_path));
  header.validation_fraction = train.data.validation;
  header.shuffle = train.data.shuffle ? 1 : 0;
  const int64_t samples = std::max<int64_t>(dag.samples_per_microbatch, 1);
  const int64_t model_vocab = graph.DimSize("vocab");
  for (const Input& input : graph.inputs) {
    const bool integer = input.type.dtype == DType::kI32;
    job->inputs.push_back({job->Intern(input.name), static_cast<runtime::ElementType>(input.type.dtype),
                           input.type.elements() / samples,
                           !integer          ? 0
                           : model_vocab > 0 ? model_vocab
                                             : train.data.vocab});
  }
  const LossScale scale = FindLossScale(graph);
  header.targets_per_sample = 1;
  header.targets_input = runtime::kNone;
  if (scale.kind == LossScale::Kind::kTargets) {
    header.targets_input = scale.targets;
    header.targets_per_sample = job->inputs[scale.targets].elements_per_sample;
  }
  header.step_flops = ModelFlops(dag);
  header.peak_flops = PeakFlops(program.topology, dag.device_count);
  header.sequence = job->inputs.empty() ? 1 : job->inputs[0].elements_per_sample;
  for (const OptimizerSpec& spec : train.optimizers) job->optimizers.push_back(LowerOptimizer(spec));
}

// The templates of a Dag that a device hosts, ascending.
std::vector<TemplateId> TemplatesOf(const Dag& dag, uint32_t device) {
  std::vector<uint8_t> holds(dag.groups.size());
  for (size_t g = 0; g < dag.groups.size(); ++g) {
    const std::vector<uint32_t>& devices = dag.groups[g].devices;
    holds[g] = std::find(devices.begin(), devices.end(), device) != devices.end();
  }
  std::vector<TemplateId> templates;
  for (TemplateId t = 0; t < dag.templates.size(); ++t) {
    if (holds[dag.templates[t].group]) templates.push_back(t);
  }
  return templates;
}

// Which host counts and saves each parameter: the first that reads it.
std::vector<uint32_t> OwnerHosts(const DagIndex& index, const std::vector<Fold>& folds,
                                 const std::vector<std::vector<TemplateId>>& templates) {
  std::vector<uint32_t> owner(index.regions.graph.parameters.size(), kNone);
  for (size_t f = 0; f < folds.size(); ++f) {
    for (TemplateId t : templates[f]) {
      const NodeTemplate& node = index.dag.templates[t];
      if (node.kind == NodeKind::kUpdate)
        owner[node.parameter] = std::min(owner[node.parameter], folds[f].host);
      if (node.kind != NodeKind::kCompute) continue;
      for (ParameterId p : index.regions.regions[node.region].parameters)
        owner[p] = std::min(owner[p], folds[f].host);
    }
  }
  return owner;
}

void Pack(RoleStorage& role, const SimulationResult& simulation, size_t r) {
  if (simulation.deadlock.empty()) {
    PackMemory(role, simulation.log[r]);
  } else {
    PlaceWithoutReuse(role);
  }
}

// What the clock reads of a role.
runtime::RankProgram ClockView(const RoleStorage& role) {
  runtime::RankProgram view{};
  view.streams = role.streams;
  view.tasks = role.tasks;
  view.waits = role.waits;
  view.peer_roles = role.peer_roles;
  view.collectives = role.collectives;
  return view;
}

}  // namespace

std::optional<Lowered> Lower(const Program& program, const RegionGraph& regions, const Dag& train,
                             const RegionGraph* eval_regions, const Dag* eval, DiagnosticEngine& diag) {
  PIPER_CHECK((eval_regions == nullptr) == (eval == nullptr));
  const size_t errors = diag.error_count();
  Lowered lowered;
  lowered.job = std::make_unique<JobStorage>();
  JobStorage* job = lowered.job.get();
  FillHeader(program, regions, train, eval != nullptr, job);
  const std::vector<OptimizerChoice> optimizers = ChooseOptimizers(program.train, regions, diag);
  if (diag.error_count() > errors) return std::nullopt;

  JobContext context{program, FoldDevices(train, program.topology), {}, {}, job, &diag};
  context.role_of.assign(train.device_count, 0);
  for (uint32_t r = 0; r < context.folds.size(); ++r) {
    for (uint32_t device : context.folds[r].devices) context.role_of[device] = r;
  }
  job->rank_role = context.role_of;
  // Ranks that nothing is placed on take no part in what carried checks may ask of all.
  job->header.overlaps = std::all_of(context.folds.begin(), context.folds.end(), [&](const Fold& fold) {
    return std::any_of(train.templates.begin(), train.templates.end(), [&](const NodeTemplate& node) {
      const std::vector<uint32_t>& devices = train.groups[node.group].devices;
      return node.kind == NodeKind::kValidate && node.carried &&
             std::find(devices.begin(), devices.end(), fold.devices[0]) != devices.end();
    });
  });

  // A role's tables are several times as large as what the processor keeps near: whatever reads all of them
  // does so right after they were written.
  ClockRows clock_rows;
  {
    const DagIndex index(train, regions, program, job, diag.sources());
    std::vector<std::vector<TemplateId>> templates;
    for (const Fold& fold : context.folds) templates.push_back(TemplatesOf(train, fold.devices[0]));
    const std::vector<uint32_t> owners = OwnerHosts(index, context.folds, templates);
    for (size_t o = 1; o < train.origins.size(); ++o)
      lowered.origins.emplace(index.origin[o], train.origins[o]);
    std::optional<DagIndex> eval_index;
    if (eval != nullptr) {
      eval_index.emplace(*eval, *eval_regions, program, job, diag.sources());
      for (size_t o = 1; o < eval->origins.size(); ++o)
        lowered.origins.emplace(eval_index->origin[o], eval->origins[o]);
    }
    for (uint32_t r = 0; r < context.folds.size(); ++r) {
      const Fold& fold = context.folds[r];
      std::vector<uint8_t> owner(owners.size());
      for (size_t p = 0; p < owners.size(); ++p) owner[p] = owners[p] == fold.host;
      const StaticLayout layout =
          BuildStaticLayout(index, templates[r], optimizers, program.train, owner, job);
      if (layout.bytes > kMostBufferBytes) {
        diag.Error(program.train.range, DiagKind::kMemoryExceeded,
                   "rank " + std::to_string(fold.devices[0]) + " holds " + FormatBytes(layout.bytes) +
                       " of parameters, gradients and optimizer state; a plan counts up to 128 TiB")
            .Hint("split them over more ranks");
        return std::nullopt;
      }
      RoleStorage& role = job->AddTrainRole();
      role.name = job->Intern("role" + std::to_string(r));
      RoleBuilder(&context, index, fold, layout, &role).Build();
      if (!CheckLanes(role, program, diag)) return std::nullopt;
      clock_rows.Add(ClockView(role));
      if (eval == nullptr) continue;
      RoleStorage& eval_role = job->AddEvalRole();
      eval_role.name = role.name;
      RoleBuilder(&context, *eval_index, fold, layout, &eval_role).Build();
    }
  }
  if (diag.error_count() > errors) return std::nullopt;

  job->Seal(false);
  SimulationOptions options;
  options.record_log = true;
  lowered.simulation = Simulate(job->job(), program.topology, options, &clock_rows);
  PlanHasher hasher(job->train_roles().size());
  for (size_t r = 0; r < job->train_roles().size(); ++r) {
    Pack(job->train_roles()[r], lowered.simulation, r);
    hasher.Add(job->SealTrainRole(r));
  }
  if (eval != nullptr) {
    options.evaluation = true;
    lowered.eval_simulation = Simulate(job->job(), program.topology, options);
    for (size_t r = 0; r < job->eval_roles().size(); ++r)
      Pack(job->eval_roles()[r], lowered.eval_simulation, r);
    lowered.eval_simulation.log.clear();
  }
  job->SealAs(hasher.Finish(job->job()));
  job->ForgetIndex();
  // A guard against ourselves, where it costs nothing to speak of.
  constexpr size_t kGuarded = 1'000;  // tasks of a role
  for (const std::span<const runtime::RankProgram> programs : {job->job().train, job->job().eval}) {
    for (const runtime::RankProgram& program : programs) {
      if (program.tasks.size() > kGuarded) continue;
      const std::string offence = VerifyMemory(program);
      PIPER_CHECK(offence.empty(), offence);
    }
  }
  lowered.simulation.log.clear();
  for (size_t r = 0; r < lowered.simulation.roles.size(); ++r) {
    lowered.simulation.roles[r].peak_live_bytes = job->train_roles()[r].live_bytes;
  }
  return lowered;
}

}  // namespace piper::ir
