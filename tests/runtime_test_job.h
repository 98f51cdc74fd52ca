// Hand-written jobs for the runtime's tests: vectors behind the spans of a Job, and short calls to fill them.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "runtime/local_runner.h"
#include "runtime/program.h"

namespace piper::runtime::testing {

class TestJob;

// Operand i of a body.
inline float* F(BodyContext& context, int i) { return static_cast<float*>(context.operands[i]); }

// So many steps; a run that hangs is given up soon.
inline LocalOptions Steps(int64_t steps, bool rendezvous = false) {
  LocalOptions options;
  options.steps = steps;
  options.execution.stall_seconds = 20;
  options.rendezvous = rendezvous;
  return options;
}

// One role; buffers are placed one after the other. Streams must be filled in order: all tasks of one stream,
// then Next.
class TestRole {
 public:
  explicit TestRole(TestJob* job, std::string name) : job_(job), name_(std::move(name)) {}

  uint32_t Buffer(const char* name, BufferKind kind, int64_t elements, ElementType type = ElementType::kF32) {
    int64_t bytes = elements * ElementBytes(type);
    buffers.push_back({arena, bytes, kind, type, name});
    arena += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return static_cast<uint32_t>(buffers.size() - 1);
  }
  uint32_t Body(const char* name, BodyFunction function, uint32_t formals, int64_t scratch = 0) {
    bodies.push_back({name, function, 0, 0, formals, scratch});
    return static_cast<uint32_t>(bodies.size() - 1);
  }
  void Stream(const char* name, bool computes) {
    streams.push_back({name, static_cast<uint32_t>(tasks.size()), 0, static_cast<uint8_t>(computes), kNone});
  }
  uint32_t Task(TaskKind kind, const std::string& name, uint32_t argument, std::vector<uint32_t> operands,
                std::vector<uint32_t> wait = {}, int32_t microbatch = -1, int64_t bytes = 0, uint8_t flag = 0,
                uint32_t atomic = kNone);
  // Elements of the value's buffer; gradient and state buffers are made here.
  uint32_t Parameter(const char* name, int64_t elements, Initializer init, uint32_t optimizer, int states,
                     uint32_t global_index, bool owner = true, double weight_decay = 0);

  TestJob* job_;
  std::string name_;
  int64_t arena = 0;
  std::vector<RankRow> rows;
  std::deque<std::vector<uint32_t>> lists;  // behind peers, groups
  std::deque<std::vector<int64_t>> dims;
  std::vector<runtime::Body> bodies;
  std::vector<Call> calls;
  std::vector<CallOperand> call_operands;
  std::vector<int64_t> call_ints;
  std::vector<double> call_scalars;
  std::vector<runtime::Buffer> buffers;
  std::vector<runtime::Parameter> parameters;
  std::vector<runtime::Stream> streams;
  std::vector<runtime::Task> tasks;
  std::vector<uint32_t> task_operands, waits;
  std::vector<Collective> collectives;
  std::vector<Term> terms;
  std::vector<uint32_t> peer_roles, communicator_sizes;
  uint32_t loss = kNone, loss_scale = kNone;

  void Rank(uint32_t rank, uint32_t replica, std::vector<uint32_t> peers, std::vector<uint32_t> groups) {
    lists.push_back(std::move(peers));
    std::span<const uint32_t> peer_view = lists.back();
    lists.push_back(std::move(groups));
    rows.push_back({rank, replica, peer_view, lists.back()});
  }

  RankProgram View() const {
    RankProgram program{};
    program.name = name_.c_str();
    program.ranks = rows;
    program.bodies = bodies;
    program.calls = calls;
    program.call_operands = call_operands;
    program.call_ints = call_ints;
    program.call_scalars = call_scalars;
    program.buffers = buffers;
    program.parameters = parameters;
    program.streams = streams;
    program.tasks = tasks;
    program.task_operands = task_operands;
    program.waits = waits;
    program.collectives = collectives;
    program.terms = terms;
    program.peer_roles = peer_roles;
    program.communicator_sizes = communicator_sizes;
    program.loss = loss;
    program.loss_scale = loss_scale;
    program.arena_bytes = arena;
    for (const runtime::Buffer& buffer : buffers) {
      bool fixed = buffer.kind == BufferKind::kParameter || buffer.kind == BufferKind::kGradient ||
                   buffer.kind == BufferKind::kOptimizerState || buffer.kind == BufferKind::kScalar;
      if (fixed) program.static_bytes += buffer.bytes;
    }
    return program;
  }
};

class TestJob {
 public:
  TestJob() { String(""); }

  uint32_t String(const std::string& text) {
    texts_.push_back(text);
    return static_cast<uint32_t>(texts_.size() - 1);
  }
  uint32_t Group(std::vector<uint32_t> ranks) {
    group_lists_.push_back(std::move(ranks));
    return static_cast<uint32_t>(group_lists_.size() - 1);
  }
  TestRole& Role(const std::string& name, bool eval = false) {
    auto& roles = eval ? eval_roles_ : roles_;
    roles.emplace_back(this, name);
    return roles.back();
  }
  void Input(const char* name, ElementType type, int64_t elements, int64_t vocab) {
    inputs_.push_back({name, type, elements, vocab});
  }
  uint32_t Sgd(double rate, double momentum = 0) {
    Optimizer optimizer{};
    optimizer.momentum = momentum;
    optimizer.peak = rate;
    optimizers_.push_back(optimizer);
    return static_cast<uint32_t>(optimizers_.size() - 1);
  }
  uint32_t AdamW(double rate) {
    Optimizer optimizer{};
    optimizer.kind = 1;
    optimizer.beta1 = 0.9;
    optimizer.beta2 = 0.999;
    optimizer.eps = 1e-8;
    optimizer.peak = rate;
    optimizers_.push_back(optimizer);
    return static_cast<uint32_t>(optimizers_.size() - 1);
  }

  // After all roles are complete. `fields` can be changed afterwards.
  const Job& Finish() {
    for (const std::string& text : texts_) strings_.push_back(text.c_str());
    for (const auto& list : group_lists_) groups_.push_back(list);
    uint32_t count = 0;
    for (const TestRole& role : roles_) {
      train_.push_back(role.View());
      count += static_cast<uint32_t>(role.rows.size());
    }
    for (const TestRole& role : eval_roles_) eval_.push_back(role.View());
    rank_role_.resize(count);
    for (size_t i = 0; i < roles_.size(); ++i) {
      for (const RankRow& row : roles_[i].rows) rank_role_[row.rank] = static_cast<uint32_t>(i);
    }
    fields.train = train_;
    fields.eval = eval_;
    fields.rank_count = count;
    fields.rank_role = rank_role_;
    fields.groups = groups_;
    fields.inputs = inputs_;
    fields.optimizers = optimizers_;
    fields.strings = strings_;
    return fields;
  }

  Job fields = Defaults();

 private:
  static Job Defaults() {
    Job job{};
    job.name = "test";
    job.global_batch = job.replicas = job.microbatches = job.samples_per_microbatch = 1;
    job.targets_per_sample = 1;
    job.steps = 3;
    job.seed = 7;
    job.data_kind = 2;
    job.data_path = job.validation_path = "";
    job.sequence = 1;
    job.plan_hash = "test-plan";
    return job;
  }
  std::deque<std::string> texts_;
  std::deque<std::vector<uint32_t>> group_lists_;
  std::deque<TestRole> roles_, eval_roles_;
  std::vector<InputField> inputs_;
  std::vector<Optimizer> optimizers_;
  std::vector<const char*> strings_;
  std::vector<std::span<const uint32_t>> groups_;
  std::vector<RankProgram> train_, eval_;
  std::vector<uint32_t> rank_role_;
};

inline uint32_t TestRole::Task(TaskKind kind, const std::string& name, uint32_t argument,
                               std::vector<uint32_t> operands, std::vector<uint32_t> wait, int32_t microbatch,
                               int64_t bytes, uint8_t flag, uint32_t atomic) {
  runtime::Task task{};
  task.kind = kind;
  task.flag = flag;
  task.stream = static_cast<uint16_t>(streams.size() - 1);
  task.microbatch = microbatch;
  task.argument = argument;
  task.first_operand = static_cast<uint32_t>(task_operands.size());
  task.operand_count = static_cast<uint32_t>(operands.size());
  task_operands.insert(task_operands.end(), operands.begin(), operands.end());
  task.first_wait = static_cast<uint32_t>(waits.size());
  task.wait_count = static_cast<uint32_t>(wait.size());
  waits.insert(waits.end(), wait.begin(), wait.end());
  task.bytes = bytes;
  task.name = job_->String(name);
  task.atomic = atomic;
  tasks.push_back(task);
  ++streams.back().task_count;
  return static_cast<uint32_t>(tasks.size() - 1);
}

inline uint32_t TestRole::Parameter(const char* name, int64_t elements, Initializer init, uint32_t optimizer,
                                    int states, uint32_t global_index, bool owner, double weight_decay) {
  runtime::Parameter parameter{};
  parameter.name = name;
  parameter.elements = elements;
  dims.push_back({elements});
  parameter.dims = dims.back();
  parameter.init = init;
  parameter.value = Buffer(name, BufferKind::kParameter, elements);
  parameter.gradient = Buffer("gradient", BufferKind::kGradient, elements);
  for (int i = 0; i < 2; ++i) {
    parameter.state[i] = i < states ? Buffer("state", BufferKind::kOptimizerState, elements) : kNone;
  }
  parameter.optimizer = optimizer;
  parameter.weight_decay = weight_decay;
  parameter.global_index = global_index;
  parameter.owner = owner;
  parameters.push_back(parameter);
  return static_cast<uint32_t>(parameters.size() - 1);
}

}  // namespace piper::runtime::testing
