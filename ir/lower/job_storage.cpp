#include "ir/lower/job_storage.h"

namespace piper::ir {

JobStorage::JobStorage() { InternString(""); }

void JobStorage::ForgetIndex() {
  interned_ = {};
  string_index_ = {};
}

void JobStorage::RememberIndex() {
  for (const std::string& text : texts_) interned_.emplace(std::string_view(text), text.c_str());
  for (uint32_t i = 0; i < strings_.size(); ++i) string_index_.emplace(std::string_view(strings_[i]), i);
}

const char* JobStorage::Intern(std::string_view text) {
  if (interned_.empty() && !texts_.empty()) RememberIndex();
  auto found = interned_.find(text);
  if (found != interned_.end()) return found->second;
  const std::string& copy = texts_.emplace_back(text);
  interned_.emplace(std::string_view(copy), copy.c_str());
  return copy.c_str();
}

uint32_t JobStorage::InternString(std::string_view text) {
  if (interned_.empty() && !texts_.empty()) RememberIndex();
  auto found = string_index_.find(text);
  if (found != string_index_.end()) return found->second;
  const char* copy = Intern(text);
  const uint32_t index = static_cast<uint32_t>(strings_.size());
  strings_.push_back(copy);
  string_index_.emplace(std::string_view(copy), index);
  return index;
}

RoleStorage& JobStorage::AddTrainRole() { return train_.emplace_back(); }
RoleStorage& JobStorage::AddEvalRole() { return eval_.emplace_back(); }

// All but the name, the ranks and the parameters.
void JobStorage::SetViews(const RoleStorage& role, runtime::RankProgram* program) {
  program->bodies = role.bodies;
  program->calls = role.calls;
  program->call_operands = role.call_operands;
  program->call_ints = role.call_ints;
  program->call_scalars = role.call_scalars;
  program->buffers = role.buffers;
  program->streams = role.streams;
  program->tasks = role.tasks;
  program->task_operands = role.task_operands;
  program->waits = role.waits;
  program->collectives = role.collectives;
  program->terms = role.terms;
  program->peer_roles = role.peer_roles;
  program->communicator_sizes = role.communicator_sizes;
  program->slowdowns = role.slowdowns;
  program->loss_scale = role.loss_scale;
  program->loss = role.loss;
  program->arena_bytes = role.arena_bytes;
  program->static_bytes = role.static_bytes;
  program->live_bytes = role.live_bytes;
  program->host_bytes = role.host_bytes;
}

const runtime::RankProgram& JobStorage::SealTrainRole(size_t role) {
  SetViews(train_[role], &train_programs_[role]);
  return train_programs_[role];
}

void JobStorage::SealAs(const std::string& plan_hash) {
  Seal(false);
  job_.plan_hash = Intern(plan_hash);
}

std::vector<runtime::RankProgram> JobStorage::Programs(
    std::deque<RoleStorage>& roles, std::deque<std::vector<runtime::RankRow>>& rows,
    std::deque<std::vector<runtime::Parameter>>& parameters) {
  rows.clear();
  parameters.clear();
  std::vector<runtime::RankProgram> programs;
  for (RoleStorage& role : roles) {
    std::vector<runtime::RankRow>& role_rows = rows.emplace_back();
    for (const RoleStorage::Rank& rank : role.ranks) {
      role_rows.push_back({rank.rank, rank.replica, rank.peers, rank.groups});
    }
    std::vector<runtime::Parameter>& role_parameters = parameters.emplace_back();
    for (const RoleStorage::HeldParameter& held : role.parameters) {
      role_parameters.push_back(held.row);
      role_parameters.back().dims = held.dims;
    }
    runtime::RankProgram program{};
    program.name = role.name;
    program.ranks = role_rows;
    program.parameters = role_parameters;
    SetViews(role, &program);
    programs.push_back(program);
  }
  return programs;
}

void JobStorage::Seal(bool with_hash) {
  train_programs_ = Programs(train_, train_rows_, train_parameters_);
  eval_programs_ = Programs(eval_, eval_rows_, eval_parameters_);
  group_spans_.clear();
  for (const std::vector<uint32_t>& group : groups) group_spans_.emplace_back(group);
  job_ = header;
  if (job_.name == nullptr) job_.name = Intern("job");
  job_.train = train_programs_;
  job_.eval = eval_programs_;
  job_.rank_count = static_cast<uint32_t>(rank_role.size());
  job_.rank_role = rank_role;
  job_.rank_device = rank_device;
  job_.groups = group_spans_;
  job_.inputs = inputs;
  job_.optimizers = optimizers;
  job_.strings = strings_;
  for (const char** path : {&job_.data_path, &job_.validation_path}) {
    if (*path == nullptr) *path = Intern("");
  }
  job_.plan_hash = "";
  if (with_hash) job_.plan_hash = Intern(PlanHash(job_));
  job_.strings = strings_;
}

namespace {
template <typename T>
int64_t Bytes(const std::vector<T>& vector) {
  return static_cast<int64_t>(vector.capacity() * sizeof(T));
}
}  // namespace

int64_t JobStorage::MemoryBytes() const {
  int64_t total = Bytes(strings_);
  for (const std::string& text : texts_) total += static_cast<int64_t>(sizeof(std::string) + text.capacity());
  for (const std::deque<RoleStorage>* roles : {&train_, &eval_}) {
    for (const RoleStorage& role : *roles) {
      total += Bytes(role.bodies) + Bytes(role.calls) + Bytes(role.call_operands) + Bytes(role.call_ints) +
               Bytes(role.call_scalars) + Bytes(role.buffers) + Bytes(role.parameters) + Bytes(role.streams) +
               Bytes(role.tasks) + Bytes(role.task_operands) + Bytes(role.waits) + Bytes(role.collectives) +
               Bytes(role.terms);
    }
  }
  return total;
}

}  // namespace piper::ir
