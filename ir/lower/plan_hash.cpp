// The plan hash: a canonical byte stream of the job, field by field (never raw structs, whose padding is not
// determined), through XXH3.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>
#include <cstring>

#include "ir/lower/job_storage.h"

namespace piper::ir {
namespace {

class Hasher {
 public:
  Hasher() { XXH3_64bits_reset(&state_); }
  void Word(uint64_t value) {
    if (used_ == kWords) Flush();
    words_[used_++] = value;
  }
  // Room for `count` words, to be filled at once.
  uint64_t* Words(size_t count) {
    if (used_ + count > kWords) Flush();
    uint64_t* first = words_ + used_;
    used_ += count;
    return first;
  }
  static constexpr size_t kMostWords = 512;  // of one call
  void Pair(uint32_t high, uint32_t low) { Word((uint64_t{high} << 32) | low); }
  void Number(double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    Word(bits);
  }
  void Text(const char* text) {
    const size_t size = text == nullptr ? 0 : std::strlen(text);
    Word(size);
    Flush();
    XXH3_64bits_update(&state_, text, size);
  }
  template <typename T>
  void Integers(std::span<const T> values) {
    Word(values.size());
    for (T value : values) Word(static_cast<uint64_t>(value));
  }
  uint64_t Digest() {
    Flush();
    return XXH3_64bits_digest(&state_);
  }

 private:
  static constexpr size_t kWords = kMostWords;
  void Flush() {
    if (used_ > 0) XXH3_64bits_update(&state_, words_, used_ * sizeof(uint64_t));
    used_ = 0;
  }
  XXH3_state_t state_;
  uint64_t words_[kWords];
  size_t used_ = 0;
};

void HashBodies(Hasher& hash, const runtime::RankProgram& program) {
  hash.Word(program.bodies.size());
  for (const runtime::Body& body : program.bodies) {
    hash.Pair(body.formal_count, body.call_count);
    hash.Word(static_cast<uint64_t>(body.scratch_bytes));
    for (uint32_t c = body.first_call; c < body.first_call + body.call_count; ++c) {
      const runtime::Call& call = program.calls[c];
      hash.Text(call.kernel);
      hash.Word(call.random_key);
      for (uint32_t i = 0; i < call.operand_count; ++i) {
        const runtime::CallOperand& operand = program.call_operands[call.first_operand + i];
        hash.Pair(operand.local, operand.value);
      }
      hash.Integers(program.call_ints.subspan(call.first_int, call.int_count));
      for (uint32_t i = 0; i < call.scalar_count; ++i)
        hash.Number(program.call_scalars[call.first_scalar + i]);
    }
  }
}

void HashTables(Hasher& hash, const runtime::RankProgram& program) {
  for (const runtime::RankRow& row : program.ranks) {
    hash.Pair(row.rank, row.replica);
    hash.Integers(row.peers);
    hash.Integers(row.groups);
  }
  for (const runtime::Buffer& buffer : program.buffers) {
    hash.Word(static_cast<uint64_t>(buffer.offset));
    hash.Word(static_cast<uint64_t>(buffer.bytes));
    hash.Pair(static_cast<uint32_t>(buffer.kind), static_cast<uint32_t>(buffer.type));
  }
  for (const runtime::Parameter& parameter : program.parameters) {
    hash.Text(parameter.name);
    hash.Integers(parameter.dims);
    hash.Word(parameter.init.kind);
    hash.Number(parameter.init.a);
    hash.Number(parameter.init.b);
    hash.Pair(parameter.value, parameter.gradient);
    hash.Pair(parameter.state[0], parameter.state[1]);
    if (parameter.saved != runtime::kNone) hash.Word(parameter.saved);
    hash.Pair(parameter.optimizer, parameter.global_index);
    hash.Number(parameter.weight_decay);
    hash.Word(parameter.owner);
  }
  for (const runtime::Collective& collective : program.collectives) {
    hash.Pair(static_cast<uint32_t>(collective.kind), static_cast<uint32_t>(collective.type));
    hash.Pair(collective.communicator, collective.contributions);
    hash.Word(static_cast<uint64_t>(collective.elements));
    hash.Text(collective.name);
    hash.Word(static_cast<uint64_t>(collective.fold));
    for (uint32_t t = 0; t < collective.term_count; ++t) {
      const runtime::Term& term = program.terms[collective.first_term + t];
      hash.Pair(term.member, term.contribution);
    }
  }
  hash.Integers(program.communicator_sizes);
  hash.Pair(program.loss_scale, program.loss);
}

void HashProgram(Hasher& hash, const runtime::RankProgram& program) {
  hash.Text(program.name);
  HashBodies(hash, program);
  HashTables(hash, program);
  for (const runtime::Stream& stream : program.streams) {
    hash.Text(stream.name);
    hash.Pair(stream.first_task, stream.task_count);
  }
  for (const runtime::Task& task : program.tasks) {
    const auto pair = [](uint32_t high, uint32_t low) { return (uint64_t{high} << 32) | low; };
    const uint64_t head[] = {
        pair((static_cast<uint32_t>(task.kind) << 8) | task.flag, static_cast<uint32_t>(task.microbatch)),
        pair(task.argument, task.atomic), pair(task.operand_count, task.wait_count)};
    const size_t words = std::size(head) + size_t{task.operand_count} + task.wait_count;
    if (words <= Hasher::kMostWords) {
      uint64_t* word = hash.Words(words);
      for (uint64_t one : head) *word++ = one;
      for (uint32_t i = 0; i < task.operand_count; ++i)
        *word++ = program.task_operands[task.first_operand + i];
      for (uint32_t i = 0; i < task.wait_count; ++i) *word++ = program.waits[task.first_wait + i];
      continue;
    }
    for (uint64_t one : head) hash.Word(one);
    for (uint32_t i = 0; i < task.operand_count; ++i)
      hash.Word(program.task_operands[task.first_operand + i]);
    for (uint32_t i = 0; i < task.wait_count; ++i) hash.Word(program.waits[task.first_wait + i]);
  }
}

}  // namespace

struct PlanHasher::State {
  Hasher hash;
};

PlanHasher::PlanHasher(size_t train_programs) : state_(std::make_unique<State>()) {
  state_->hash.Word(train_programs);
}
PlanHasher::~PlanHasher() = default;

void PlanHasher::Add(const runtime::RankProgram& program) { HashProgram(state_->hash, program); }

std::string PlanHash(const runtime::Job& job) {
  PlanHasher hasher(job.train.size());
  for (const runtime::RankProgram& program : job.train) hasher.Add(program);
  return hasher.Finish(job);
}

std::string PlanHasher::Finish(const runtime::Job& job) {
  Hasher& hash = state_->hash;
  hash.Word(job.groups.size());
  for (const std::span<const uint32_t>& group : job.groups) hash.Integers(group);
  for (const runtime::InputField& input : job.inputs) {
    hash.Text(input.name);
    hash.Word(static_cast<uint64_t>(input.elements_per_sample));
  }
  for (const runtime::Optimizer& optimizer : job.optimizers) {
    hash.Pair(optimizer.kind, optimizer.nesterov);
    for (double value : {optimizer.momentum, optimizer.beta1, optimizer.beta2, optimizer.eps})
      hash.Number(value);
  }
  for (int64_t value : {job.global_batch, job.replicas, job.microbatches, job.samples_per_microbatch}) {
    hash.Word(static_cast<uint64_t>(value));
  }
  hash.Number(job.clip);
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash.Digest()));
  return text;
}

}  // namespace piper::ir
