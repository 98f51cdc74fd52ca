#include "runtime/program_check.h"

#include <string>
#include <vector>

namespace piper::runtime {
namespace {

std::string TaskText(const Job& job, const RankProgram& program, size_t task) {
  uint32_t name = program.tasks[task].name;
  return "task " + std::to_string(task) + " '" + (name < job.strings.size() ? job.strings[name] : "?") +
         "' of " + program.name;
}

bool InRange(uint64_t first, uint64_t count, size_t size) { return first <= size && count <= size - first; }

Status CheckOperands(const Job& job, const RankProgram& program, const RankRow& row, size_t index) {
  const Task& task = program.tasks[index];
  auto wrong = [&](const char* what) { return InternalError(TaskText(job, program, index) + ": " + what); };
  auto buffer = [&](uint32_t i) -> const Buffer& {
    return program.buffers[program.task_operands[task.first_operand + i]];
  };
  switch (task.kind) {
    case TaskKind::kLoad:
      if (task.argument >= job.inputs.size()) return wrong("no such batch field");
      if (task.operand_count != 1) return wrong("a load has one operand");
      if (buffer(0).bytes < job.inputs[task.argument].elements_per_sample * job.samples_per_microbatch *
                                ElementBytes(job.inputs[task.argument].type)) {
        return wrong("the buffer is smaller than a microbatch of the field");
      }
      return {};
    case TaskKind::kCompute:
      if (task.argument >= program.bodies.size()) return wrong("no such body");
      if (program.bodies[task.argument].formal_count != task.operand_count) {
        return wrong("the body has another number of formals");
      }
      return {};
    case TaskKind::kAccumulate:
      if (task.operand_count != 2) return wrong("an accumulate has two operands");
      if (buffer(0).type != buffer(1).type) return wrong("operands of different types");
      if (task.bytes < 0 || task.bytes > buffer(0).bytes || task.bytes > buffer(1).bytes) {
        return wrong("more bytes than an operand has");
      }
      return {};
    case TaskKind::kSend:
    case TaskKind::kRecv:
      // Without an operand it carries nothing.
      if (task.operand_count > 1) return wrong("a message has one operand");
      if (task.argument >= row.peers.size()) return wrong("no such peer slot");
      if (row.peers[task.argument] >= job.rank_count || row.peers[task.argument] == row.rank) {
        return wrong("the peer is no other rank of the job");
      }
      if (task.bytes < 0 || task.bytes > (task.operand_count == 0 ? 0 : buffer(0).bytes))
        return wrong("more bytes than the buffer has");
      return {};
    case TaskKind::kCollective: {
      if (task.argument >= program.collectives.size()) return wrong("no such collective");
      const Collective& collective = program.collectives[task.argument];
      if (collective.communicator >= row.groups.size() ||
          row.groups[collective.communicator] >= job.groups.size()) {
        return wrong("no such communicator");
      }
      if (task.operand_count != collective.contributions &&
          task.operand_count != collective.contributions + 1) {
        return wrong("a collective has its contributions and at most one output");
      }
      if (!InRange(collective.first_term, collective.term_count, program.terms.size()))
        return wrong("no such terms");
      if (collective.type != ElementType::kF32 && collective.type != ElementType::kF64 &&
          (collective.kind == CollectiveKind::kAllReduce ||
           collective.kind == CollectiveKind::kReduceScatter)) {
        return wrong("only f32 and f64 can be reduced");
      }
      if (collective.fold > FoldKind::kPairwise) return wrong("no such fold");
      bool member = false;
      for (uint32_t rank : job.groups[row.groups[collective.communicator]]) member |= rank == row.rank;
      if (!member) return wrong("the rank is not a member of the communicator");
      int64_t members = static_cast<int64_t>(job.groups[row.groups[collective.communicator]].size());
      int64_t chunk = (collective.elements + members - 1) / members;
      int64_t whole = collective.elements * ElementBytes(collective.type);
      int64_t slice = chunk * ElementBytes(collective.type);
      int64_t in = whole, out = whole;
      if (collective.kind == CollectiveKind::kAllGather) in = 0;  // the last member's slice may be short
      if (collective.kind == CollectiveKind::kReduceScatter) out = 0;
      if (collective.kind == CollectiveKind::kAllToAll) in = out = slice * members;
      for (uint32_t i = 0; i < task.operand_count; ++i) {
        if (buffer(i).bytes < (i < collective.contributions ? in : out))
          return wrong("an operand is too small");
      }
      return {};
    }
    case TaskKind::kSumSquares:
    case TaskKind::kClip:
    case TaskKind::kValidate:
      if (task.operand_count < 1) return wrong("no operand");
      if (buffer(0).type != ElementType::kF64 || buffer(0).bytes < int64_t{job.parameter_count} * 8) {
        return wrong("the operand is no f64 a parameter of the job");
      }
      if (task.kind == TaskKind::kSumSquares && task.operand_count > 1 &&
          (buffer(1).type != ElementType::kF64 || buffer(1).bytes < 8)) {
        return wrong("the sum of this rank is no f64");
      }
      return {};
    case TaskKind::kPartialSquares:
      if (task.operand_count != 2 && task.operand_count != 3)
        return wrong("a result, the rank's own squares, and those of the ranks before it or nothing");
      for (uint32_t i = 0; i < task.operand_count; ++i) {
        if (buffer(i).type != ElementType::kF64 || buffer(i).bytes < 8) return wrong("an operand is no f64");
      }
      return {};
    case TaskKind::kUpdate: {
      if (task.argument >= program.parameters.size()) return wrong("no such parameter");
      const Parameter& parameter = program.parameters[task.argument];
      if (parameter.optimizer >= job.optimizers.size() || parameter.gradient == kNone) {
        return wrong("the parameter has no optimizer or no gradient");
      }
      if (task.flag != 0 && parameter.saved == kNone) {
        return wrong("the update is validated later, but no copy of the parameter is kept");
      }
      if (job.optimizers[parameter.optimizer].kind == 1 &&
          (parameter.state[0] == kNone || parameter.state[1] == kNone)) {
        return wrong("AdamW needs two state buffers");
      }
      if (job.optimizers[parameter.optimizer].kind == 0 &&
          job.optimizers[parameter.optimizer].momentum != 0 && parameter.state[0] == kNone) {
        return wrong("SGD with momentum needs a state buffer");
      }
      return {};
    }
    case TaskKind::kLossFold:
      if (task.operand_count < 2) return wrong("a loss fold has a result and at least one term");
      for (uint32_t i = 1; i < task.operand_count; ++i) {
        if (buffer(i).type != buffer(0).type) return wrong("operands of different types");
      }
      return {};
    case TaskKind::kCopy: {
      if (task.operand_count < 2 || task.operand_count % 2 != 0) return wrong("a copy has pairs of operands");
      int64_t bytes = 0;
      for (uint32_t i = 0; i < task.operand_count; i += 2) {
        bytes += buffer(i).bytes;
        if (buffer(i).bytes != buffer(i + 1).bytes) return wrong("a copy between buffers of different sizes");
        if ((buffer(i).kind == BufferKind::kHost) != (task.flag != 0) ||
            (buffer(i + 1).kind == BufferKind::kHost) != (task.flag == 0)) {
          return wrong("a copy leads from the arena to the host pool, or back");
        }
      }
      if (task.bytes != bytes) return wrong("another number of bytes than its operands have");
      return {};
    }
    case TaskKind::kBarrier:
    case TaskKind::kSave:
      return {};
  }
  return wrong("unknown kind");
}

}  // namespace

Status CheckProgram(const Job& job, const RankProgram& program, uint32_t rank) {
  auto wrong = [&](const std::string& what) {
    return InternalError(std::string(program.name) + ": " + what);
  };
  const RankRow* row = nullptr;
  for (const RankRow& candidate : program.ranks) {
    if (candidate.rank == rank) row = &candidate;
  }
  if (row == nullptr) return wrong("rank " + std::to_string(rank) + " is not of this role");
  for (const Buffer& buffer : program.buffers) {
    const bool on_host = buffer.kind == BufferKind::kHost;
    const int64_t pool = on_host ? program.host_bytes : program.arena_bytes;
    if (buffer.offset < 0 || buffer.bytes < 0 || buffer.offset % kAlignment != 0 ||
        buffer.offset > pool - buffer.bytes) {
      return wrong(std::string("buffer '") + buffer.name + "' lies outside the " +
                   (on_host ? "host pool" : "arena") + " or is not aligned");
    }
  }
  size_t buffers = program.buffers.size();
  for (const Parameter& parameter : program.parameters) {
    auto held = [&](uint32_t buffer) {
      return buffer < buffers && program.buffers[buffer].bytes >=
                                     parameter.elements * ElementBytes(program.buffers[parameter.value].type);
    };
    if (parameter.value >= buffers || !held(parameter.value) ||
        parameter.global_index >= job.parameter_count) {
      return wrong(std::string("parameter '") + parameter.name + "' has no buffer of its size");
    }
    for (uint32_t buffer : {parameter.gradient, parameter.state[0], parameter.state[1]}) {
      if (buffer != kNone && !held(buffer)) {
        return wrong(std::string("parameter '") + parameter.name +
                     "' has a gradient or state buffer too small");
      }
    }
  }
  for (const Parameter& parameter : program.parameters) {
    if (parameter.saved == kNone) continue;
    int64_t needed = 0;
    for (uint32_t buffer : {parameter.value, parameter.state[0], parameter.state[1]}) {
      if (buffer != kNone)
        needed += (program.buffers[buffer].bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    if (parameter.saved >= buffers || program.buffers[parameter.saved].bytes < needed ||
        parameter.gradient == kNone || parameter.optimizer >= job.optimizers.size()) {
      return wrong(std::string("parameter '") + parameter.name + "' has no room for its copy");
    }
  }
  for (uint32_t scalar : {program.loss, program.loss_scale}) {
    if (scalar != kNone && scalar >= buffers) return wrong("the loss or its scale is no buffer");
  }
  std::vector<uint32_t> stream_of(program.tasks.size(), kNone);
  for (size_t i = 0; i < program.streams.size(); ++i) {
    const Stream& stream = program.streams[i];
    if (!InRange(stream.first_task, stream.task_count, program.tasks.size()))
      return wrong("a stream's tasks");
    if (stream.scratch != kNone && stream.scratch >= buffers) return wrong("a stream's scratch is no buffer");
    for (uint32_t task = stream.first_task; task < stream.first_task + stream.task_count; ++task) {
      if (stream_of[task] != kNone || program.tasks[task].stream != i) {
        return wrong("task " + std::to_string(task) + " is not on the one stream that it names");
      }
      stream_of[task] = static_cast<uint32_t>(i);
    }
  }
  for (size_t i = 0; i < program.tasks.size(); ++i) {
    const Task& task = program.tasks[i];
    if (stream_of[i] == kNone) return wrong("task " + std::to_string(i) + " is on no stream");
    if (task.name >= job.strings.size() || task.origin >= job.strings.size()) return wrong("a task's name");
    if (!InRange(task.first_operand, task.operand_count, program.task_operands.size()) ||
        !InRange(task.first_wait, task.wait_count, program.waits.size())) {
      return wrong("operands or waits of task " + std::to_string(i));
    }
    for (uint32_t k = 0; k < task.operand_count; ++k) {
      if (program.task_operands[task.first_operand + k] >= buffers) {
        return wrong("an operand of task " + std::to_string(i) + " is no buffer");
      }
      if (program.buffers[program.task_operands[task.first_operand + k]].kind == BufferKind::kHost &&
          task.kind != TaskKind::kCopy) {
        return wrong("task " + std::to_string(i) + " works on host memory");
      }
    }
    for (uint32_t k = 0; k < task.wait_count; ++k) {
      if (program.waits[task.first_wait + k] >= program.tasks.size()) {
        return wrong("a wait of task " + std::to_string(i) + " is no task");
      }
    }
    PIPER_RETURN_IF_ERROR(CheckOperands(job, program, *row, i));
  }
  return {};
}

}  // namespace piper::runtime
