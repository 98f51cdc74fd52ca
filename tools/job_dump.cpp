#include "tools/job_dump.h"

#include <fmt/format.h>

#include <iterator>

#include "ir/support/units.h"

namespace piper::tools {
namespace {

using runtime::kNone;
using runtime::RankProgram;
using runtime::Task;
using runtime::TaskKind;

using Out = std::back_insert_iterator<std::string>;

constexpr const char* kBufferKinds[] = {"parameter", "optimizer state", "gradient",  "scalar",
                                        "input",     "activation",      "cotangent", "transient",
                                        "scratch",   "message",         "saved",     "host"};
constexpr const char* kTypes[] = {"f32", "f64", "bf16", "i32"};
constexpr const char* kCollectives[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                        "broadcast"};

std::string Numbers(std::span<const uint32_t> values) { return fmt::format("{}", fmt::join(values, " ")); }

void DumpTask(Out out, const runtime::Job& job, const RankProgram& program, uint32_t index) {
  const Task& task = program.tasks[index];
  std::string what;
  switch (task.kind) {
    case TaskKind::kLoad:
      what = fmt::format("load {}", job.inputs[task.argument].name);
      break;
    case TaskKind::kCompute:
      what = fmt::format("run {}", program.bodies[task.argument].name);
      break;
    case TaskKind::kAccumulate:
      what = task.flag != 0 ? "assign" : "add";
      break;
    case TaskKind::kSend:
      what = fmt::format("send to peer {}", task.argument);
      break;
    case TaskKind::kRecv:
      what = fmt::format("receive from peer {}", task.argument);
      break;
    case TaskKind::kCollective:
      what = fmt::format("join {}", program.collectives[task.argument].name);
      break;
    case TaskKind::kSumSquares:
      what = "sum squares";
      break;
    case TaskKind::kClip:
      what = "clip";
      break;
    case TaskKind::kUpdate:
      what = fmt::format("update {}", program.parameters[task.argument].name);
      break;
    case TaskKind::kLossFold:
      what = "fold losses";
      break;
    case TaskKind::kCopy:
      what = task.flag == 0 ? "copy to the host" : "copy from the host";
      break;
    case TaskKind::kBarrier:
      what = "barrier";
      break;
    case TaskKind::kSave:
      what = "save copies";
      break;
    case TaskKind::kValidate:
      what = "validate";
      break;
    case TaskKind::kPartialSquares:
      what = task.operand_count > 2 ? "add to the squares received" : "begin the sum of squares";
      break;
  }
  fmt::format_to(out, "    {:>6} {}", index, job.strings[task.name]);
  if (task.microbatch >= 0) fmt::format_to(out, " mb {}", task.microbatch);
  fmt::format_to(out, ": {}", what);
  if (task.operand_count > 0) {
    fmt::format_to(out, " on {}",
                   Numbers(program.task_operands.subspan(task.first_operand, task.operand_count)));
  }
  if (task.wait_count > 0) {
    fmt::format_to(out, " after {}", Numbers(program.waits.subspan(task.first_wait, task.wait_count)));
  }
  if (task.bytes > 0) fmt::format_to(out, ", {} B", task.bytes);
  if (task.cost > 0) fmt::format_to(out, ", {}", ir::FormatTime(task.cost));
  if (task.atomic != kNone) fmt::format_to(out, ", fused {}", task.atomic);
  if (task.origin != 0) fmt::format_to(out, "  @ {}", job.strings[task.origin]);
  fmt::format_to(out, "\n");
}

void DumpProgram(Out out, const runtime::Job& job, const RankProgram& program, const char* kind) {
  fmt::format_to(out, "\n{} {}: arena {} B, static {} B", kind, program.name, program.arena_bytes,
                 program.static_bytes);
  if (program.host_bytes > 0) fmt::format_to(out, ", host {} B", program.host_bytes);
  fmt::format_to(out, "\n");
  for (const runtime::RankRow& row : program.ranks) {
    fmt::format_to(out, "  rank {} replica {} peers [{}] groups [{}]\n", row.rank, row.replica,
                   Numbers(row.peers), Numbers(row.groups));
  }
  fmt::format_to(out, "  bodies\n");
  for (size_t i = 0; i < program.bodies.size(); ++i) {
    const runtime::Body& body = program.bodies[i];
    fmt::format_to(out, "    {:>6} {}: {} formals, {} B of scratch\n", i, body.name, body.formal_count,
                   body.scratch_bytes);
    for (uint32_t k = 0; k < body.call_count; ++k) {
      const runtime::Call& call = program.calls[body.first_call + k];
      fmt::format_to(out, "           {}(", call.kernel);
      for (uint32_t o = 0; o < call.operand_count; ++o) {
        const runtime::CallOperand& operand = program.call_operands[call.first_operand + o];
        fmt::format_to(
            out, "{}{}{}", o == 0 ? "" : ", ", operand.local == 0 ? "f" : "s+",
            operand.local == 0 ? int64_t{operand.value} : int64_t{operand.value} * runtime::kAlignment);
      }
      for (uint32_t n = 0; n < call.int_count; ++n)
        fmt::format_to(out, ", {}", program.call_ints[call.first_int + n]);
      for (uint32_t n = 0; n < call.scalar_count; ++n) {
        fmt::format_to(out, ", {}", program.call_scalars[call.first_scalar + n]);
      }
      fmt::format_to(out, ")  {}\n", call.operation == nullptr ? "" : call.operation);
    }
  }
  fmt::format_to(out, "  buffers\n");
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const runtime::Buffer& buffer = program.buffers[i];
    fmt::format_to(out, "    {:>6} [{}, +{}) {} {} {}\n", i, buffer.offset, buffer.bytes,
                   kBufferKinds[static_cast<size_t>(buffer.kind)], kTypes[static_cast<size_t>(buffer.type)],
                   buffer.name);
  }
  fmt::format_to(out, "  parameters\n");
  for (const runtime::Parameter& p : program.parameters) {
    fmt::format_to(out, "    {} [{}] value {}{}{}{}\n", p.name, fmt::join(p.dims, ", "), p.value,
                   p.gradient == kNone ? ", frozen" : fmt::format(", gradient {}", p.gradient),
                   p.optimizer == kNone ? "" : fmt::format(", optimizer {}", p.optimizer),
                   p.owner != 0 ? ", owner" : "");
  }
  if (!program.collectives.empty()) fmt::format_to(out, "  collectives\n");
  for (const runtime::Collective& c : program.collectives) {
    fmt::format_to(out, "    {}: {} of {} {} on communicator {} ({} members){}\n", c.name,
                   kCollectives[static_cast<size_t>(c.kind)], c.elements, kTypes[static_cast<size_t>(c.type)],
                   c.communicator, program.communicator_sizes[c.communicator],
                   c.fold == runtime::FoldKind::kPairwise ? ", folded in pairs" : "");
  }
  for (const runtime::Stream& stream : program.streams) {
    fmt::format_to(out, "  stream {}{}\n", stream.name, stream.computes != 0 ? " (computes)" : "");
    for (uint32_t i = 0; i < stream.task_count; ++i) DumpTask(out, job, program, stream.first_task + i);
  }
}

}  // namespace

std::string DumpJob(const runtime::Job& job) {
  std::string text;
  Out out(text);
  fmt::format_to(out, "job {}: {} ranks, {} roles, {} microbatches of {} samples, {} replicas, plan {}\n",
                 job.name, job.rank_count, job.train.size(), job.microbatches, job.samples_per_microbatch,
                 job.replicas, job.plan_hash == nullptr ? "" : job.plan_hash);
  for (size_t i = 0; i < job.groups.size(); ++i)
    fmt::format_to(out, "group {}: {}\n", i, Numbers(job.groups[i]));
  for (const RankProgram& program : job.train) DumpProgram(out, job, program, "train");
  for (const RankProgram& program : job.eval) DumpProgram(out, job, program, "eval");
  return text;
}

}  // namespace piper::tools
