#include "tests/codegen_job.h"

#include <cstring>

namespace piper::test {
namespace {

using ir::JobStorage;
using ir::RoleStorage;
using runtime::BufferKind;
using runtime::ElementType;
using runtime::kNone;
using runtime::TaskKind;

constexpr int64_t kRows = kBatch * kSequence;
constexpr uint32_t kMicrobatches = 2;

// Fills a role: buffers are laid out one after another.
class RoleBuilder {
 public:
  RoleBuilder(JobStorage& storage, RoleStorage& role) : storage_(storage), role_(role) {}

  uint32_t Buffer(BufferKind kind, ElementType type, int64_t elements, const std::string& name) {
    const int64_t bytes = elements * runtime::ElementBytes(type);
    role_.buffers.push_back({role_.arena_bytes, bytes, kind, type, storage_.Intern(name)});
    role_.arena_bytes += (bytes + runtime::kAlignment - 1) / runtime::kAlignment * runtime::kAlignment;
    return static_cast<uint32_t>(role_.buffers.size() - 1);
  }
  void Body(const std::string& name, uint32_t formals, int64_t scratch) {
    role_.bodies.push_back(
        {storage_.Intern(name), nullptr, static_cast<uint32_t>(role_.calls.size()), 0, formals, scratch});
  }
  // Operands: >= 0 a formal, < 0 the scratch offset -(operand + 1) in units of 64 bytes.
  void Call(const char* kernel, std::vector<int> operands, std::vector<int64_t> ints,
            std::vector<double> scalars, const std::string& operation) {
    runtime::Call call{};
    call.kernel = storage_.Intern(kernel);
    call.first_operand = static_cast<uint32_t>(role_.call_operands.size());
    call.operand_count = static_cast<uint32_t>(operands.size());
    for (int operand : operands) {
      role_.call_operands.push_back(
          {static_cast<uint8_t>(operand < 0), static_cast<uint32_t>(operand < 0 ? -operand - 1 : operand)});
    }
    call.first_int = static_cast<uint32_t>(role_.call_ints.size());
    call.int_count = static_cast<uint32_t>(ints.size());
    role_.call_ints.insert(role_.call_ints.end(), ints.begin(), ints.end());
    call.first_scalar = static_cast<uint32_t>(role_.call_scalars.size());
    call.scalar_count = static_cast<uint32_t>(scalars.size());
    role_.call_scalars.insert(role_.call_scalars.end(), scalars.begin(), scalars.end());
    call.operation = storage_.Intern(operation);
    role_.calls.push_back(call);
    ++role_.bodies.back().call_count;
  }
  void Stream(const std::string& name, bool computes, uint32_t scratch = kNone) {
    role_.streams.push_back({storage_.Intern(name), static_cast<uint32_t>(role_.tasks.size()), 0,
                             static_cast<uint8_t>(computes), scratch});
  }
  uint32_t Task(TaskKind kind, int32_t microbatch, uint32_t argument, const std::vector<uint32_t>& operands,
                const std::vector<uint32_t>& waits, const std::string& name, uint8_t flag = 0,
                int64_t bytes = 0, uint32_t key = kNone) {
    runtime::Task task{};
    task.kind = kind;
    task.flag = flag;
    task.stream = static_cast<uint16_t>(role_.streams.size() - 1);
    task.microbatch = microbatch;
    task.argument = argument;
    task.first_operand = static_cast<uint32_t>(role_.task_operands.size());
    task.operand_count = static_cast<uint32_t>(operands.size());
    role_.task_operands.insert(role_.task_operands.end(), operands.begin(), operands.end());
    task.first_wait = static_cast<uint32_t>(role_.waits.size());
    task.wait_count = static_cast<uint32_t>(waits.size());
    role_.waits.insert(role_.waits.end(), waits.begin(), waits.end());
    task.bytes = bytes;
    task.cost = 1000;
    task.name = storage_.InternString(name);
    task.origin = origin_;
    task.atomic = kNone;
    task.key = key;
    role_.tasks.push_back(task);
    ++role_.streams.back().task_count;
    return static_cast<uint32_t>(role_.tasks.size() - 1);
  }
  void Parameter(const std::string& name, std::vector<int64_t> dims, uint32_t value, uint32_t gradient,
                 uint32_t m, uint32_t v, uint32_t global_index) {
    RoleStorage::HeldParameter held{};
    held.row.name = storage_.Intern(name);
    held.row.elements = 1;
    for (int64_t size : dims) held.row.elements *= size;
    held.dims = std::move(dims);
    held.row.init = {3, 0.02, 0};
    held.row.value = value;
    held.row.gradient = gradient;
    held.row.state[0] = m;
    held.row.state[1] = v;
    held.row.optimizer = 0;
    held.row.weight_decay = 0.1;
    held.row.global_index = global_index;
    held.row.owner = 1;
    role_.parameters.push_back(held);
  }
  // The second rank's loss reaches the first: the only term of the fold.
  void LossReduce(uint32_t contributions, const std::vector<uint32_t>& operands,
                  const std::vector<uint32_t>& waits) {
    role_.communicator_sizes = {2};
    role_.terms = {{1, 0}};
    role_.collectives = {{runtime::CollectiveKind::kAllReduce, ElementType::kF32, 0, 1, 0, 1, contributions,
                          storage_.Intern("loss.reduce")}};
    Stream("reduce", false);
    std::vector<uint32_t> buffers = operands;
    if (contributions == 1) buffers.push_back(operands[0]);  // in place
    Task(TaskKind::kCollective, -1, 0, buffers, waits, "loss.reduce", 0, 4);
  }
  void SetOrigin(const std::string& origin) { origin_ = storage_.InternString(origin); }

 private:
  JobStorage& storage_;
  RoleStorage& role_;
  uint32_t origin_ = 0;
};

void FillHeader(JobStorage& storage, const std::string& name) {
  runtime::Job& job = storage.header;
  job.name = storage.Intern(name);
  job.parameter_count = 2;
  job.global_batch = kBatch * kMicrobatches;
  job.replicas = 1;
  job.microbatches = kMicrobatches;
  job.samples_per_microbatch = kBatch;
  job.targets_per_sample = kSequence;
  job.steps = 20;
  job.seed = 1337;
  job.data_kind = 2;
  job.data_path = storage.Intern("");
  job.validation_path = storage.Intern("");
  job.shuffle = 1;
  job.sequence = kSequence;
  storage.inputs = {{storage.Intern("tokens"), ElementType::kI32, kSequence, kVocab},
                    {storage.Intern("targets"), ElementType::kI32, kSequence, kVocab}};
  runtime::Optimizer adamw{};
  adamw.kind = 1;
  adamw.beta1 = 0.9;
  adamw.beta2 = 0.999;
  adamw.eps = 1e-8;
  adamw.peak = 1e-2;
  storage.optimizers = {adamw};
}

}  // namespace

JobNames HostileNames() {
  JobNames names;
  names.embed_body = "while";
  names.embed_weight = "EOF";
  names.head_body = "x(){} int main(){return 1;} void y";
  names.head_input = "\xc3\xa9t\xc3\xa9\n#define float double\n";
  names.head_weight = "__builtin_trap";
  names.table = "\"); system(\"true\"); (\"";
  names.projection = "line\nbreak\\";
  names.stream = "*/ int evil; /*";
  names.task = "F \?\?/\nint evil2;";
  names.origin = "a\\\nint evil3;.piper:1:1";
  names.operation = "%s%n\"\n";
  names.job = "job\"\\";
  return names;
}

std::unique_ptr<JobStorage> MakeSmallJob(const JobNames& names) {
  auto storage = std::make_unique<JobStorage>();
  FillHeader(*storage, names.job);
  const int64_t activations = kRows * kWidth;
  const int64_t message = activations * 4;

  {  // role 0: the embedding
    RoleStorage& role = storage->AddTrainRole();
    role.name = storage->Intern("role0");
    role.ranks = {{0, 0, {1}, {0}}};
    role.peer_roles = {1};
    RoleBuilder b(*storage, role);
    b.SetOrigin(names.origin);
    const int64_t size = kVocab * kWidth;
    const uint32_t table = b.Buffer(BufferKind::kParameter, ElementType::kF32, size, names.table);
    const uint32_t gradient =
        b.Buffer(BufferKind::kGradient, ElementType::kF32, size, names.table + " gradient");
    const uint32_t m = b.Buffer(BufferKind::kOptimizerState, ElementType::kF32, size, names.table + " m");
    const uint32_t v = b.Buffer(BufferKind::kOptimizerState, ElementType::kF32, size, names.table + " v");
    const uint32_t loss = b.Buffer(BufferKind::kScalar, ElementType::kF32, 1, "loss");
    role.loss = loss;
    role.static_bytes = role.arena_bytes;
    const uint32_t transient = b.Buffer(BufferKind::kTransient, ElementType::kF32, size, "contribution");
    uint32_t tokens[2], y[2], dy[2];
    for (int i = 0; i < 2; ++i) {
      tokens[i] = b.Buffer(BufferKind::kInput, ElementType::kI32, kRows, "tokens");
      y[i] = b.Buffer(BufferKind::kActivation, ElementType::kF32, activations, "y");
      dy[i] = b.Buffer(BufferKind::kCotangent, ElementType::kF32, activations, "d_y");
    }
    role.live_bytes = role.arena_bytes;
    b.Parameter(names.table, {kVocab, kWidth}, table, gradient, m, v, 0);
    b.Body(names.embed_body, 3, 0);
    b.Call("embedding_forward", {0, 1, 2}, {kRows, kVocab, kWidth}, {}, names.operation);
    b.Body(names.embed_weight, 3, 0);
    b.Call("embedding_backward", {0, 1, 2}, {kRows, kVocab, kWidth}, {}, names.operation);
    b.Stream(names.stream, true);
    for (int i = 0; i < 2; ++i) {
      b.Task(TaskKind::kLoad, i, 0, {tokens[i]}, {}, "load tokens");
      b.Task(TaskKind::kCompute, i, 0, {tokens[i], table, y[i]}, {}, names.task);
    }
    for (uint32_t i = 0; i < 2; ++i) {
      b.Task(TaskKind::kCompute, static_cast<int32_t>(i), 1, {tokens[i], dy[i], transient}, {11 + i},
             "BW embed", 2);
      b.Task(TaskKind::kAccumulate, static_cast<int32_t>(i), 0, {gradient, transient}, {}, "accumulate",
             i == 0, size * 4);
    }
    b.Task(TaskKind::kUpdate, -1, 0, {}, {}, "U embed");
    b.Stream("send>1", false);
    for (uint32_t i = 0; i < 2; ++i)
      b.Task(TaskKind::kSend, static_cast<int32_t>(i), 0, {y[i]}, {1 + 2 * i}, "send y", 0, message, 1);
    b.Stream("recv<1", false);
    for (uint32_t i = 0; i < 2; ++i)
      b.Task(TaskKind::kRecv, static_cast<int32_t>(i), 0, {dy[i]}, {}, "recv d_y", 0, message, 2);
    b.LossReduce(0, {loss}, {});
  }
  {  // role 1: the projection and the loss
    RoleStorage& role = storage->AddTrainRole();
    role.name = storage->Intern("role1");
    role.ranks = {{1, 0, {0}, {0}}};
    role.peer_roles = {0};
    RoleBuilder b(*storage, role);
    b.SetOrigin(names.origin);
    const int64_t size = kVocab * kWidth, logits = kRows * kVocab;
    const uint32_t w = b.Buffer(BufferKind::kParameter, ElementType::kF32, size, names.projection);
    const uint32_t gradient =
        b.Buffer(BufferKind::kGradient, ElementType::kF32, size, names.projection + " gradient");
    const uint32_t m =
        b.Buffer(BufferKind::kOptimizerState, ElementType::kF32, size, names.projection + " m");
    const uint32_t v =
        b.Buffer(BufferKind::kOptimizerState, ElementType::kF32, size, names.projection + " v");
    const uint32_t scale = b.Buffer(BufferKind::kScalar, ElementType::kF32, 1, "scale");
    const uint32_t loss = b.Buffer(BufferKind::kScalar, ElementType::kF32, 1, "loss");
    role.static_bytes = role.arena_bytes;
    const uint32_t scratch = b.Buffer(BufferKind::kScratch, ElementType::kF32, logits + 16, "scratch");
    uint32_t targets[2], x[2], z[2], lse[2], part[2], dx[2], dz[2];
    for (int i = 0; i < 2; ++i) {
      targets[i] = b.Buffer(BufferKind::kInput, ElementType::kI32, kRows, "targets");
      x[i] = b.Buffer(BufferKind::kActivation, ElementType::kF32, activations, "x");
      z[i] = b.Buffer(BufferKind::kActivation, ElementType::kF32, logits, "logits");
      lse[i] = b.Buffer(BufferKind::kActivation, ElementType::kF32, kRows, "lse");
      part[i] = b.Buffer(BufferKind::kActivation, ElementType::kF32, 1, "loss part");
      dx[i] = b.Buffer(BufferKind::kCotangent, ElementType::kF32, activations, "d_x");
      dz[i] = b.Buffer(BufferKind::kCotangent, ElementType::kF32, logits, "d_logits");
    }
    const uint32_t transient = b.Buffer(BufferKind::kTransient, ElementType::kF32, size, "contribution");
    role.live_bytes = role.arena_bytes;
    role.loss_scale = scale;
    role.loss = loss;
    b.Parameter(names.projection, {kWidth, kVocab}, w, gradient, m, v, 1);
    b.Body(names.head_body, 7, 0);  // x, w, targets, scale -> logits, lse, loss
    b.Call("gemm", {0, 1, 4}, {kRows, kVocab, kWidth, 0, 0}, {}, names.operation);
    b.Call("cross_entropy_forward", {4, 2, 3, 6, 5}, {kRows, kVocab}, {}, names.operation);
    b.Body(names.head_input, 7, 64);  // logits, targets, lse, scale, w -> dlogits, dx
    b.Call("fill", {-1}, {1}, {1.0}, names.operation);
    b.Call("cross_entropy_backward", {0, 1, 2, 3, -1, 5}, {kRows, kVocab}, {}, names.operation);
    b.Call("gemm", {5, 4, 6}, {kRows, kWidth, kVocab, 0, 1}, {}, names.operation);
    b.Body(names.head_weight, 3, 0);  // x, dlogits -> dw
    b.Call("gemm", {0, 1, 2}, {kWidth, kVocab, kRows, 1, 0}, {}, names.operation);
    b.Stream(names.stream, true, scratch);
    for (uint32_t i = 0; i < 2; ++i) {
      const auto mb = static_cast<int32_t>(i);
      b.Task(TaskKind::kLoad, mb, 1, {targets[i]}, {}, "load targets");
      b.Task(TaskKind::kCompute, mb, 0, {x[i], w, targets[i], scale, z[i], lse[i], part[i]}, {12 + i},
             "F head");
      b.Task(TaskKind::kCompute, mb, 1, {z[i], targets[i], lse[i], scale, w, dz[i], dx[i]}, {}, "BI head", 1);
      b.Task(TaskKind::kCompute, mb, 2, {x[i], dz[i], transient}, {}, "BW head", 2);
      b.Task(TaskKind::kAccumulate, mb, 0, {gradient, transient}, {}, "accumulate", i == 0, size * 4);
    }
    b.Task(TaskKind::kLossFold, -1, 0, {loss, part[0], part[1]}, {}, "loss");
    b.Task(TaskKind::kUpdate, -1, 0, {}, {}, "U head");
    b.Stream("recv<0", false);
    for (int i = 0; i < 2; ++i) b.Task(TaskKind::kRecv, i, 0, {x[i]}, {}, "recv y", 0, message, 1);
    b.Stream("send>0", false);
    for (uint32_t i = 0; i < 2; ++i)
      b.Task(TaskKind::kSend, static_cast<int32_t>(i), 0, {dx[i]}, {2 + 5 * i}, "send d_x", 0, message, 2);
    b.LossReduce(1, {loss}, {10});
  }
  storage->groups = {{0, 1}};
  storage->rank_role = {0, 1};
  storage->Seal();
  return storage;
}

std::unique_ptr<JobStorage> MakeLongJob(uint32_t tasks) {
  auto storage = std::make_unique<JobStorage>();
  FillHeader(*storage, "long");
  RoleStorage& role = storage->AddTrainRole();
  role.name = storage->Intern("role0");
  role.ranks = {{0, 0, {}, {}}};
  RoleBuilder b(*storage, role);
  for (int i = 0; i < 1000; ++i) b.Buffer(BufferKind::kActivation, ElementType::kF32, 1024, "layer.out");
  b.Body("layer_fwd", 3, 0);
  b.Call("add", {0, 1, 2}, {1024}, {}, "layer#0");
  constexpr uint32_t kStreams = 4;
  for (uint32_t s = 0; s < kStreams; ++s) {
    b.Stream("stream " + std::to_string(s), true);
    for (uint32_t i = 0; i < tasks / kStreams; ++i) {
      const uint32_t other = i * 7 % (tasks / kStreams);
      b.Task(TaskKind::kCompute, static_cast<int32_t>(i), 0, {i % 1000, (i + 1) % 1000, (i + 2) % 1000},
             s == 0 ? std::vector<uint32_t>{} : std::vector<uint32_t>{other},
             "F layer" + std::to_string(i % 8));
    }
  }
  storage->rank_role = {0};
  storage->Seal();
  return storage;
}

}  // namespace piper::test
