#include "codegen/job_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/table.h"
#include "codegen/text.h"

namespace piper::codegen {
namespace {

std::string CString(const char* text) { return text == nullptr ? "nullptr" : StringLiteral(text); }

}  // namespace

std::string JobText(const runtime::Job& job, const std::string& prefix) {
  auto name = [&](const char* what) { return fmt::format("k{}{}", prefix, what); };
  auto number = [](auto value) { return IntLiteral(static_cast<int64_t>(value)); };

  Table strings("const char* const", name("Strings"), "names of tasks, and the lines they come from");
  for (size_t i = 0; i < job.strings.size(); ++i)
    strings.Numbers({CString(job.strings[i])}, fmt::format("{}", i));
  Table roles("uint32_t", name("RankRoles"), "the role of each rank");
  Table devices("uint32_t", name("RankDevices"), "the device of each rank");
  auto list = [&](Table& table, std::span<const uint32_t> values) {
    for (size_t begin = 0; begin < values.size(); begin += 16) {
      std::vector<std::string> line;
      for (size_t i = begin; i < std::min(begin + 16, values.size()); ++i) line.push_back(number(values[i]));
      table.Numbers(line, fmt::format("{}", begin));
    }
  };
  list(roles, job.rank_role);
  list(devices, job.rank_device);
  Table members("uint32_t", name("GroupMembers"), "ranks, a line a group");
  Table groups("std::span<const uint32_t>", name("Groups"), "");
  for (size_t i = 0; i < job.groups.size(); ++i) {
    std::vector<std::string> line;
    for (uint32_t rank : job.groups[i]) line.push_back(number(rank));
    const size_t first = members.Numbers(line, fmt::format("{}", i));
    // A view is one cell: spans are built from a pointer and a count.
    groups.Row({fmt::format("{} + {}", name("GroupMembers"), first), number(line.size())},
               fmt::format("{}", i));
  }
  Table inputs("InputField", name("Inputs"), "name, element type, elements a sample, vocabulary");
  constexpr const char* kTypes[] = {"kF32", "kF64", "kBF16", "kI32"};
  for (const runtime::InputField& field : job.inputs) {
    inputs.Row({StringLiteral(field.name),
                fmt::format("ElementType::{}", kTypes[static_cast<size_t>(field.type)]),
                number(field.elements_per_sample), number(field.vocab)});
  }
  Table optimizers("Optimizer", name("Optimizers"),
                   "kind, nesterov, momentum, beta1, beta2, eps, schedule, peak, floor, warm-up, total");
  for (const runtime::Optimizer& o : job.optimizers) {
    optimizers.Row({number(o.kind), number(o.nesterov), DoubleLiteral(o.momentum), DoubleLiteral(o.beta1),
                    DoubleLiteral(o.beta2), DoubleLiteral(o.eps), number(o.schedule), DoubleLiteral(o.peak),
                    DoubleLiteral(o.floor), number(o.warmup), number(o.total)});
  }

  std::string text = "namespace {\n\n";
  for (const Table* table : {&strings, &roles, &devices, &members, &groups, &inputs, &optimizers}) {
    if (table->size() > 0) text += table->Print() + '\n';
  }
  text += "}  // namespace\n\n";
  text += fmt::format(
      "// clang-format off\n"
      "Job Make{}Job(std::span<const RankProgram> train, std::span<const RankProgram> eval) {{\n"
      "  return {{\n",
      prefix);
  auto row = [&](const std::string& value, const char* what) {
    text += fmt::format("      {},  // {}\n", value, what);
  };
  row(StringLiteral(job.name), "name");
  row("train", "a program a role");
  row("eval", "forward only");
  row(number(job.rank_count), "ranks");
  row(roles.View(), "role of each rank");
  row(groups.View(), "groups");
  row(inputs.View(), "inputs");
  row(optimizers.View(), "optimizers");
  row(strings.View(), "strings");
  row(number(job.parameter_count), "parameters of the model");
  row(number(job.global_batch), "global batch");
  row(number(job.replicas), "replicas");
  row(number(job.microbatches), "microbatches");
  row(number(job.samples_per_microbatch), "samples a microbatch");
  row(number(job.targets_per_sample), "targets a sample");
  row(number(job.steps), "steps");
  row(DoubleLiteral(job.clip), "bound of the gradient norm");
  row(fmt::format("{}u", job.seed), "seed");
  row(number(job.eval_every), "steps between evaluations");
  row(number(job.eval_batches), "batches an evaluation");
  row(number(job.checkpoint_every), "steps between checkpoints");
  row(number(job.data_kind), "data: 0 text, 1 token shards, 2 random");
  row(CString(job.data_path), "data path");
  row(CString(job.validation_path), "validation path");
  row(DoubleLiteral(job.validation_fraction), "validation fraction");
  row(number(job.shuffle), "shuffle");
  row(number(job.sequence), "tokens a sample");
  row(CString(job.plan_hash), "plan");
  row(job.targets_input == runtime::kNone ? "kNone" : number(job.targets_input), "field of the targets");
  row(devices.View(), "device of each rank");
  row(DoubleLiteral(job.step_flops), "FLOPs of a step");
  row(DoubleLiteral(job.peak_flops), "declared FLOP/s of all devices");
  row(number(job.overlaps), "steps overlap");
  return text + "  };\n}\n// clang-format on\n";
}

}  // namespace piper::codegen
