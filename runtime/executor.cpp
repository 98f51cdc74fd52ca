#include "runtime/executor.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "kernels/gemm.h"
#include "kernels/initialize.h"
#include "runtime/executor_state.h"
#include "runtime/initialize.h"
#include "runtime/optimizer.h"
#include "runtime/program_check.h"

namespace piper::runtime {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdu;
}

bool IsStatic(BufferKind kind) {
  switch (kind) {
    case BufferKind::kParameter:
    case BufferKind::kOptimizerState:
    case BufferKind::kGradient:
    case BufferKind::kScalar:
    case BufferKind::kScratch:
    case BufferKind::kSaved:
      return true;
    default:
      return false;
  }
}

// What tells a message from the others of its ordered pair: its key and microbatch, or, in programs without
// keys, its position.
uint64_t Tag(const Task& task, uint32_t& position) {
  if (task.key == kNone) return uint64_t{kNone} << 32 | position++;
  return uint64_t{task.key} << 32 | static_cast<uint32_t>(task.microbatch);
}

// Which thread runs a stream: 0 the compute engine, 1 the communication engine, else a worker.
std::vector<uint32_t> ThreadsOf(const RankProgram& program) {
  std::vector<uint32_t> threads;
  uint32_t computing = 0;
  for (const Stream& stream : program.streams) {
    const bool computes = stream.computes != 0 && stream.task_count > 0;
    threads.push_back(!computes ? 1 : computing == 0 ? 0 : computing + 1);
    computing += computes;
  }
  return threads;
}

}  // namespace

const RankRow* FindRow(const RankProgram& program, uint32_t rank) {
  for (const RankRow& row : program.ranks) {
    if (row.rank == rank) return &row;
  }
  return nullptr;
}

Result<std::unique_ptr<Executor>> Executor::Create(const Setup& setup) {
  const Job& job = *setup.job;
  auto state = std::make_unique<State>();
  state->setup = setup;
  Status checked;
  uint32_t role = setup.rank < job.rank_role.size() ? job.rank_role[setup.rank] : kNone;
  if (role >= job.train.size()) {
    checked = InternalError("rank " + std::to_string(setup.rank) + " has no program");
  } else {
    checked = CheckProgram(job, job.train[role], setup.rank);
    if (checked.ok() && setup.eval_source != nullptr) {
      checked = role < job.eval.size() ? CheckProgram(job, job.eval[role], setup.rank)
                                       : InternalError("the job has no evaluation programs");
    }
  }
  // Everyone goes on, or nobody does.
  if (!checked.ok()) setup.transport->Abort(checked);
  const RankProgram& train = job.train[std::min<size_t>(role, job.train.size() - 1)];
  state->arena_bytes = train.arena_bytes;
  if (setup.eval_source != nullptr && checked.ok()) {
    state->arena_bytes = std::max(state->arena_bytes, job.eval[role].arena_bytes);
  }
  Result<std::byte*> arena = setup.transport->AllocateArena(state->arena_bytes);
  if (!checked.ok()) return checked;
  if (!arena.ok()) return arena.status();
  state->arena = *arena;
  if (train.host_bytes > 0) {
    auto size = static_cast<size_t>((train.host_bytes + kAlignment - 1) / kAlignment * kAlignment);
    state->host.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, size)));
    if (state->host == nullptr) {
      Status status = IoError("rank " + std::to_string(setup.rank) + ": no host memory for the " +
                              std::to_string(train.host_bytes) + " bytes that the plan offloads");
      setup.transport->Abort(status);
      return status;
    }
  }
  Status prepared = state->Prepare(state->train, train, setup.train_bodies, setup.train_source, true);
  if (prepared.ok() && setup.eval_source != nullptr) {
    prepared = state->Prepare(state->eval, job.eval[role], setup.eval_bodies, setup.eval_source, false);
  }
  if (!prepared.ok()) {
    setup.transport->Abort(prepared);
    return prepared;
  }
  PIPER_RETURN_IF_ERROR(state->AgreeOnMessages());
  state->checking = setup.options.check_finite;
  state->delay_state = {Mix(setup.options.delay_seed, setup.rank * 2),
                        Mix(setup.options.delay_seed, setup.rank * 2 + 1)};
  for (size_t i = 0; i < std::max(state->train.worker_streams.size(), state->eval.worker_streams.size()); ++i)
    state->delay_state.push_back(Mix(state->delay_state[0], i + 2));
  state->static_bytes = train.static_bytes;
  state->high_water.store(0);
  for (const Buffer& buffer : train.buffers) {
    if (IsStatic(buffer.kind)) {
      state->high_water.store(std::max(state->high_water.load(), EndOf(buffer)));
      if (buffer.kind == BufferKind::kScratch) state->static_bytes += buffer.bytes;
    }
  }
  state->live.store(state->static_bytes);
  state->peak_live.store(state->static_bytes);
  constexpr int kCommunication = static_cast<int>(Engine::kCommunication);
  bool communicates = !state->train.engine_streams[kCommunication].empty() ||
                      !state->eval.engine_streams[kCommunication].empty();
  std::unique_ptr<Executor> executor(new Executor(std::move(state)));
  executor->state_->self = executor.get();
  if (communicates) {
    State* shared = executor->state_.get();
    shared->communication = std::thread([shared] { shared->CommunicationLoop(); });
  }
  executor->state_->StartWorkers();
  return executor;
}

Executor::Executor(std::unique_ptr<State> state) : state_(std::move(state)) {}

Executor::~Executor() {
  state_->stop.store(true);
  state_->StopWorkers();
  if (state_->communication.joinable()) {
    state_->transport().Ring(Engine::kCommunication);
    state_->communication.join();
  }
}

Status Executor::State::Prepare(ProgramState& program, const RankProgram& source, BodyRunner* bodies,
                                BatchSource* batches, bool train_program) {
  program.program = &source;
  program.row = FindRow(source, setup.rank);
  program.bodies = bodies;
  program.source = batches;
  program.train = train_program;
  if (source.loss_scale != kNone && job().targets_input != kNone && batches != nullptr &&
      !batches->AllTargetsCount()) {
    program.targets.resize(static_cast<size_t>(job().samples_per_microbatch *
                                               job().inputs[job().targets_input].elements_per_sample));
  }
  size_t tasks = source.tasks.size(), buffers = source.buffers.size();

  program.operands.resize(source.task_operands.size());
  for (size_t i = 0; i < source.task_operands.size(); ++i) {
    program.operands[i] = source.task_operands[i] < buffers ? At(program, source.task_operands[i]) : nullptr;
  }
  program.scratch.resize(source.streams.size(), nullptr);
  program.kernel_scratch.resize(source.streams.size(), nullptr);
  std::vector<int64_t> scratch_bytes(source.streams.size(), 0);
  for (size_t i = 0; i < source.streams.size(); ++i) {
    if (source.streams[i].scratch == kNone) continue;
    program.scratch[i] = At(program, source.streams[i].scratch);
    scratch_bytes[i] = source.buffers[source.streams[i].scratch].bytes;
    int64_t bodies_bytes = 0;
    for (uint32_t t = source.streams[i].first_task, n = 0; n < source.streams[i].task_count; ++t, ++n) {
      if (source.tasks[t].kind != TaskKind::kCompute) continue;
      bodies_bytes = std::max(bodies_bytes, source.bodies[source.tasks[t].argument].scratch_bytes);
    }
    if (scratch_bytes[i] - bodies_bytes >= kernels::kGemmScratchBytes) {
      program.kernel_scratch[i] = program.scratch[i] + scratch_bytes[i] - kernels::kGemmScratchBytes;
    }
  }

  const std::vector<uint32_t> threads = ThreadsOf(source);
  program.streams.resize(source.streams.size());
  for (uint32_t i = 0; i < source.streams.size(); ++i) {
    if (source.streams[i].task_count == 0) continue;
    (threads[i] < 2 ? program.engine_streams[threads[i]] : program.worker_streams).push_back(i);
  }

  program.wakes.resize(tasks, 0);
  program.request.resize(tasks, kNone);
  program.uses.resize(buffers, 0);
  std::map<uint32_t, std::vector<uint32_t>> lanes;       // sending streams a peer
  std::map<uint32_t, std::vector<uint32_t>> from_lanes;  // receiving streams a peer
  std::vector<uint32_t> collective_lanes;                // streams with collectives
  std::map<uint32_t, uint32_t> sent_to, received_from;   // messages so far a peer
  std::map<uint64_t, uint32_t> occurrences;              // of collectives that are otherwise equal
  auto lane_of = [](std::vector<uint32_t>& known, uint32_t stream) {
    auto at = std::find(known.begin(), known.end(), stream);
    if (at == known.end()) at = known.insert(known.end(), stream);
    return static_cast<uint32_t>(at - known.begin());
  };
  for (uint32_t i = 0; i < tasks; ++i) {
    const Task& task = source.tasks[i];
    const uint32_t thread = threads[task.stream];
    for (uint32_t k = 0; k < task.wait_count; ++k) {
      const uint32_t wait = source.waits[task.first_wait + k];
      if (threads[source.tasks[wait].stream] == thread) continue;
      program.wakes[wait] |= thread == 0 ? kWakesCompute : thread == 1 ? kWakesCommunication : kWakesWorkers;
    }
    for (uint32_t k = 0; k < task.operand_count; ++k) {
      uint32_t buffer = source.task_operands[task.first_operand + k];
      if (!IsStatic(source.buffers[buffer].kind)) ++program.uses[buffer];
    }
    program.has_clip |= task.kind == TaskKind::kClip || task.kind == TaskKind::kValidate;
    if (task.kind == TaskKind::kValidate && task.flag != 0) program.carried_check = i;
    if (task.kind == TaskKind::kCollective && task.flag != 0) program.carried_before.push_back(i);
    std::string name = std::string("'") + Text(task.name) + "'";
    switch (task.kind) {
      case TaskKind::kCompute: {
        const Body& body = source.bodies[task.argument];
        if (body.scratch_bytes > scratch_bytes[task.stream]) {
          return InternalError("task " + name + " needs " + std::to_string(body.scratch_bytes) +
                               " bytes of scratch, its stream has " +
                               std::to_string(scratch_bytes[task.stream]));
        }
        if (body.function == nullptr && bodies == nullptr) {
          return InternalError("body '" + std::string(body.name) +
                               "' has no function, and nothing interprets it");
        }
        break;
      }
      case TaskKind::kLoad:
        if (batches == nullptr) return InternalError("task " + name + " loads a batch, but there is no data");
        break;
      case TaskKind::kSend:
      case TaskKind::kRecv: {
        Message message;
        message.peer = program.row->peers[task.argument];
        message.data =
            task.operand_count == 0 ? arena : static_cast<std::byte*>(program.operands[task.first_operand]);
        message.bytes = task.bytes;
        message.microbatch = task.microbatch;
        message.name = task.name;
        if (task.kind == TaskKind::kSend) {
          message.lane = lane_of(lanes[message.peer], task.stream);
          if (message.lane >= kMaxLanes) return InternalError("too many streams send to one rank: " + name);
          message.tag = Tag(task, sent_to[message.peer]);
        } else {
          message.lane = lane_of(from_lanes[message.peer], task.stream);
          if (message.lane >= kMaxLanes)
            return InternalError("too many streams receive from one rank: " + name);
          message.tag = Tag(task, received_from[message.peer]);
        }
        program.request[i] = static_cast<uint32_t>(program.messages.size());
        program.messages.push_back(message);
        break;
      }
      case TaskKind::kCollective: {
        const Collective& collective = source.collectives[task.argument];
        if (collective.contributions > kMaxContributions) {
          return InternalError("task " + name + " gives more contributions than a collective takes");
        }
        CollectiveOperation operation;
        operation.collective = &collective;
        operation.terms = source.terms.subspan(collective.first_term, collective.term_count);
        operation.members = job().groups[program.row->groups[collective.communicator]];
        operation.member =
            static_cast<uint32_t>(std::find(operation.members.begin(), operation.members.end(), setup.rank) -
                                  operation.members.begin());
        operation.lane = lane_of(collective_lanes, task.stream);
        if (operation.lane >= kMaxLanes) return InternalError("too many streams with collectives: " + name);
        operation.lanes.resize(operation.members.size(), 0);
        operation.sources.resize(operation.terms.empty() ? operation.members.size() : operation.terms.size());
        std::vector<std::byte*> contributions;
        for (uint32_t k = 0; k < collective.contributions; ++k) {
          contributions.push_back(static_cast<std::byte*>(program.operands[task.first_operand + k]));
        }
        if (task.operand_count > collective.contributions) {
          operation.output =
              static_cast<std::byte*>(program.operands[task.first_operand + collective.contributions]);
        }
        program.request[i] = static_cast<uint32_t>(program.collectives.size());
        program.collectives.push_back(std::move(operation));
        program.contributions.push_back(std::move(contributions));
        uint64_t hash = ParameterKey(collective.name);
        for (uint32_t member : program.collectives.back().members) hash = Mix(hash, member);
        // The same collective may stand several times in a step.
        hash = Mix(hash, static_cast<uint32_t>(task.microbatch));
        hash = Mix(hash, occurrences[hash]++);
        program.names.push_back(hash);
        break;
      }
      default:
        break;
    }
  }
  for (size_t i = 0; i < program.collectives.size(); ++i) {
    program.collectives[i].contributions = program.contributions[i];
  }
  program.done = std::make_unique<std::atomic<uint32_t>[]>(tasks);
  program.remaining = std::make_unique<std::atomic<uint32_t>[]>(buffers);
  program.acquired = std::make_unique<std::atomic<uint32_t>[]>(buffers);
  program.health = std::make_unique<std::atomic<uint8_t>[]>(buffers);
  program.times.resize(setup.options.record_timings ? tasks : 0);
  return {};
}

// Every rank tells every other what it will send to it; a receiver that expects something else would wait for
// ever.
Status Executor::State::AgreeOnMessages() {
  struct Digest {
    uint64_t count[2], hash[2];
  };
  uint32_t size = transport().size(), rank = setup.rank;
  auto digest = [&](uint32_t peer, TaskKind kind) {
    Digest result{};
    const ProgramState* programs[2] = {&train, &eval};
    for (int which = 0; which < 2; ++which) {
      const ProgramState& program = *programs[which];
      if (program.program == nullptr) continue;
      for (size_t i = 0; i < program.program->tasks.size(); ++i) {
        if (program.program->tasks[i].kind != kind) continue;
        const Message& message = program.messages[program.request[i]];
        if (message.peer != peer) continue;
        ++result.count[which];
        // A sum, because both ends may order them differently.
        result.hash[which] += Mix(Mix(message.tag, message.bytes), static_cast<uint32_t>(message.microbatch));
      }
    }
    return result;
  };
  std::vector<Digest> all(size);
  for (uint32_t shift = 1; shift < size; ++shift) {
    Digest mine = digest((rank + shift) % size, TaskKind::kSend);
    PIPER_RETURN_IF_ERROR(transport().Exchange(&mine, all.data(), sizeof mine));
    uint32_t sender = (rank + size - shift) % size;
    Digest expected = digest(sender, TaskKind::kRecv);
    if (std::memcmp(&expected, &all[sender], sizeof expected) != 0) {
      Status status = InternalError(
          "rank " + std::to_string(rank) + " expects " + std::to_string(expected.count[0]) +
          " messages a step from rank " + std::to_string(sender) + ", which sends " +
          std::to_string(all[sender].count[0]) +
          (expected.count[0] == all[sender].count[0] ? " of other sizes, keys or microbatches" : ""));
      transport().Abort(status);
      return status;
    }
  }
  return {};
}

void Executor::InitializeParameters(uint64_t seed) {
  State& state = *state_;
  const RankProgram& program = *state.train.program;
  for (const Parameter& parameter : program.parameters) {
    std::byte* value = state.At(state.train, parameter.value);
    ElementType type = program.buffers[parameter.value].type;
    kernels::RandomKey key;
    key.seed = seed;
    key.operation = ParameterKey(parameter.name);
    const Initializer& init = parameter.init;
    auto draw = [&](auto* out) {
      using T = std::remove_pointer_t<decltype(out)>;
      switch (init.kind) {
        case 3:
          kernels::normal_fill(out, parameter.elements, int64_t{0}, 0.0, init.a, key);
          break;
        case 4:
          kernels::uniform_fill(out, parameter.elements, int64_t{0}, init.a, init.b, key);
          break;
        default: {
          T constant = static_cast<T>(init.kind == 1 ? 1.0 : init.kind == 2 ? init.a : 0.0);
          std::fill_n(out, parameter.elements, constant);
        }
      }
    };
    if (type == ElementType::kF64) {
      draw(reinterpret_cast<double*>(value));
    } else {
      draw(reinterpret_cast<float*>(value));
    }
    for (uint32_t buffer : parameter.state) {
      if (buffer != kNone) std::memset(state.At(state.train, buffer), 0, program.buffers[buffer].bytes);
    }
  }
}

Status Executor::RunTrain(uint64_t step, StepOutcome& outcome) {
  State& state = *state_;
  if (state.train.carried_check != kNone) {
    StepOutcome none;
    PIPER_RETURN_IF_ERROR(RunAhead(step, none));
    return Settle(outcome);
  }
  state.transport().SetStep(step);
  PIPER_RETURN_IF_ERROR(state.Run(state.train, step));
  ++state.counts.steps;
  if (!state.train.has_clip && state.observer != nullptr) state.observer(state.observer_state, *this, step);
  outcome = state.outcome;
  return {};
}

Status Executor::RunEval(uint64_t batch, StepOutcome& outcome) {
  State& state = *state_;
  if (state.eval.program == nullptr) return InternalError("the job has no evaluation program");
  PIPER_RETURN_IF_ERROR(state.Run(state.eval, batch));
  outcome = state.outcome;
  return {};
}

void Executor::SetGradientObserver(void (*observer)(void*, Executor&, uint64_t), void* observer_state) {
  state_->observer = observer;
  state_->observer_state = observer_state;
}

const Job& Executor::job() const { return *state_->setup.job; }
uint32_t Executor::rank() const { return state_->setup.rank; }
const RankProgram& Executor::program() const { return *state_->train.program; }
const RankRow& Executor::row() const { return *state_->train.row; }
uint64_t Executor::seed() const { return state_->setup.seed; }
std::byte* Executor::buffer(uint32_t index) const { return state_->At(state_->train, index); }
std::span<const TaskTime> Executor::timings() const { return state_->train.times; }

RankStatistics Executor::statistics() const {
  RankStatistics result = state_->counts;
  result.arena_bytes = state_->arena_bytes;
  result.high_water_bytes = state_->high_water.load();
  result.peak_live_bytes = state_->peak_live.load();
  result.host_bytes = state_->train.program->host_bytes;
  result.host_high_water_bytes = state_->host_high_water.load();
  result.host_peak_live_bytes = state_->host_peak_live.load();
  for (const Parameter& parameter : program().parameters) {
    result.parameter_bytes += parameter.elements * ElementBytes(program().buffers[parameter.value].type);
  }
  result.messages = state_->sent.load();
  result.message_bytes = state_->sent_bytes.load();
  result.collectives = state_->joined.load();
  result.collective_bytes = state_->joined_bytes.load();
  return result;
}

double Executor::learning_rate(uint64_t step) const {
  return job().optimizers.empty() ? 0.0 : LearningRate(job().optimizers[0], step);
}

}  // namespace piper::runtime
